"""A fine-tuned teacher for fine-tuning (Hinton et al. 2015; Sanh et al. 2019, section 4.2): its scores of the training
rows, which the student learns beside the labels (task_objectives.ClassificationObjective).

The teacher scores the rows once, before training, so it may have another tokenizer and another shape than the student.
Labels of teacher and data are matched by name.

Shapes: N training rows, K labels.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..checkpoint.folder import find_model, load_model, load_tokenizer, read_config, run_name
from ..checkpoint.metadata import labels_of, task_of
from ..checkpoint.names import LABELS, listed
from ..files import InputError
from ..model.heads import Model
from ..tasks.base import Data, LengthLimits, Task, TaskType
from ..tasks.inputs import compute_scores
from ..training.distributed import World

KINDS = ("single", "pair", "regression")  # kinds whose head a teacher can have


@dataclass(frozen=True)
class TeacherScores:
    """Scores of a fine-tuned teacher."""

    scores: Tensor  # (N, K) of the training rows, float32, in the order of the task's labels
    facts: dict[str, Any]  # for results.json: its name, size, and metrics on the development rows


def score_with_teacher(
    path: Path | str, task: Task, kind: TaskType, data: Data, limits: LengthLimits, world: World
) -> TeacherScores:
    """Scores of a fine-tuned folder, or run folder. Raises InputError if it does not fit the task or its labels."""
    folder = find_model(path)
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    order = _order(folder, model, task)
    limits = replace(limits, max_seq_length=min(limits.max_seq_length, model.config.max_length))
    scores = []
    for rows in (data.train, data.dev):
        prepared = kind.prepare(tokenizer, rows, task, limits)
        scores.append(compute_scores(model.to(world.device), prepared.inputs, world)[:, order])
    facts = {
        "name": run_name(folder),
        "parameters": sum(p.numel() for p in model.parameters()),
        "metrics": prepared.evaluate(scores[1]).metrics,
    }
    return TeacherScores(scores[0], facts)


def _order(folder: Path, model: Model, task: Task) -> list[int]:
    """The teacher's output for each label of the task."""
    if task.kind not in KINDS:
        raise InputError(f"a teacher with a task of the kind {task.kind}; expected one of {', '.join(KINDS)}")
    settings = read_config(folder)[1]
    if "classifier" not in model.heads:
        raise InputError(f"{folder} has no classifier; expected a teacher fine-tuned on {task.name}")
    kind = task_of(settings, "classifier")["kind"]
    if (kind == "regression") != (task.kind == "regression") or kind == "multilabel":
        raise InputError(f"the teacher {folder} was fine-tuned for the kind {kind}; expected one for {task.kind}")
    if task.kind == "regression":
        return [0]
    names = labels_of(settings, str(folder / "config.json")) or []
    if unknown := [label for label in task.labels if label not in names]:
        raise InputError(
            f"the teacher {folder} knows the labels {listed(names, LABELS)}; the data of {task.name} has "
            f"{listed(unknown, LABELS)} besides. Labels are matched by name: give a teacher fine-tuned on this task"
        )
    return [names.index(label) for label in task.labels]
