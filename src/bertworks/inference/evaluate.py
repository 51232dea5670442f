"""A fine-tuned folder: loaded with all that was stored with it, and judged on labelled rows.

Labels of model and data meet by name, never by number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model, load_model, load_tokenizer, read_config
from ..checkpoint.hf import labels_from_hf, task_of
from ..checkpoint.metadata import input_length
from ..files import InputError
from ..model.heads import Model
from ..tasks.base import Judged, Limits, Prepared, Task
from ..tasks.kinds import KINDS, kind_of
from ..tasks.rows import checked_rows
from ..tasks.scores import compute_scores
from ..tokenizer import Tokenizer
from ..training import machine


@dataclass(frozen=True)
class Finetuned:
    """A model folder as it is used: on raw text, or on rows to judge it by."""

    folder: Path
    model: Model
    tokenizer: Tokenizer
    labels: tuple[str, ...]  # names of the outputs of a classifier or tagger, else none
    settings: dict[str, Any]  # `kind`, and what the run stored: a tuned threshold, say; {} of a folder without a task
    limits: Limits

    @classmethod
    def load(cls, path: Path | str, max_length: int | None = None) -> "Finetuned":
        """A model folder, or a run folder; one without a supervised head too.

        max_length: tokens an input may have; left out, what the folder was fine-tuned with, or its positions. Raises
        InputError if the folder is incomplete or damaged, or max_length exceeds its positions.
        """
        folder = find_model(path)
        config, whole = read_config(folder)
        tokenizer, model = load_tokenizer(folder), load_model(folder)
        head = next((name for name in model.heads if name not in ("mlm", "nsp", "sop")), None)
        settings = task_of(whole, head) if head else {}
        positions = config.max_length
        if max_length is not None and not 3 <= max_length <= positions:
            raise InputError(f"max_length = {max_length}; expected 3 to {positions}, the positions of {folder}")
        stored = {f.name: settings[f.name] for f in fields(Limits) if f.name in settings}
        limits = Limits(**stored | {"max_seq_length": max_length or input_length(folder, positions)})
        return cls(folder, model, tokenizer, _output_names(folder, model, whole), settings, limits)

    def check(self, kind: str) -> None:
        """Raises InputError if the folder was not fine-tuned for this kind of task (single and pair are one)."""
        head = KINDS[kind].head
        if head not in self.model.heads:
            raise InputError(
                f"{self.folder} has no {head}; make one with: bertworks finetune --model {self.folder} ..."
            )
        found = self.settings["kind"]
        if found != kind and {found, kind} & {"regression", "multilabel"}:
            raise InputError(f"{self.folder} was fine-tuned for the kind {found}; expected one for {kind}")


def _output_names(folder: Path, model: Model, settings: dict[str, Any]) -> tuple[str, ...]:
    head = next((model.heads[name] for name in ("classifier", "tagger") if name in model.heads), None)
    if head is None:
        return ()
    names = labels_from_hf(settings, str(folder / "config.json"))
    return tuple(names or [f"LABEL_{i}" for i in range(head.out_features)])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Trial:
    """A fine-tuned model and labelled rows, ready to be judged, once or many times."""

    loaded: Finetuned
    prepared: Prepared
    order: list[int]  # the model's output for each label of the data; empty: as they are
    world: machine.World
    name: str  # of the task
    rows: int

    @classmethod
    def of(cls, loaded: Finetuned, task: Task, rows: Sequence[Any]) -> "Trial":
        """Raises InputError if the model is of another kind, or does not know a label of the data."""
        loaded.check(task.kind)
        rows = checked_rows(rows, "rows")
        kind = kind_of(task)
        task = replace(task, labels=kind.labels(task, rows))
        order: list[int] = []
        if loaded.labels and task.kind != "regression":
            task, order = _meet(loaded, task)
        prepared = kind.prepare(loaded.tokenizer, rows, task, loaded.limits)
        world = machine.World(0, 1, machine.this_device())
        loaded.model.to(world.device)
        return cls(loaded, prepared, order, world, task.name, len(rows))

    def judge(self, batch_size: int = 64) -> Judged:
        scores = compute_scores(self.loaded.model, self.prepared.inputs, self.world, batch_size)
        return self.prepared.judge(scores[:, self.order] if self.order else scores, self.loaded.settings)


def evaluate(model: Path | str, task: Task, rows: Sequence[Any], max_seq_length: int | None = None) -> dict[str, Any]:
    """The task's metrics of a fine-tuned folder on labelled rows, `predicted` counts and `truncation`.

    Raises InputError if the model is of another kind, or does not know a label of the data.
    """
    trial = Trial.of(Finetuned.load(model, max_seq_length), task, rows)
    judged = trial.judge()
    return {
        "task": trial.name,
        "metrics": judged.metrics,
        "predicted": judged.predicted,
        "examples": trial.rows,
        "truncation": trial.prepared.inputs.truncation(),
    }


def _meet(loaded: Finetuned, task: Task) -> tuple[Task, list[int]]:
    """The task with the model's further labels after its own, and the model's output for each."""
    names = loaded.labels
    unknown = [label for label in task.labels if label not in names]
    if unknown:
        raise InputError(
            f"{loaded.folder} knows the labels {', '.join(names)}; the data of {task.name} has {', '.join(unknown)} "
            "besides. Labels are matched by name: give data with these names, or a model that was fine-tuned on this "
            "task"
        )
    labels = (*task.labels, *(name for name in names if name not in task.labels))
    return replace(task, labels=labels, written=()), [names.index(label) for label in labels]
