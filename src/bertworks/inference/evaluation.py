"""Metrics of a fine-tuned folder on labelled rows. Labels of model and data are matched by name, never by number."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..checkpoint.folder import read_task
from ..checkpoint.locate import ModelLike, find_model, run_folder
from ..checkpoint.metadata import stored_scale
from ..checkpoint.names import LABELS, listed
from ..checkpoint.pooling import Pooling, read_pooling
from ..files import InputError
from ..reporting.outputs import check_output
from ..tasks.base import EvaluationResult, Prepared, Task
from ..tasks.calibration import probabilities
from ..tasks.checks import seen_in_training
from ..tasks.kinds import kind_of
from ..tasks.labels import same_label
from ..tasks.rows import checked_rows
from ..tasks.selection import DevRows, refuse_beside
from ..tasks.tagging import match_types
from .engines import Precision
from .likelihood import BLIMP, minimal_pairs
from .model import LoadedModel


@dataclass(frozen=True)
class Evaluation:
    """A fine-tuned model and labelled rows, prepared for one evaluation or many."""

    loaded: LoadedModel
    prepared: Prepared
    order: list[int]  # the model's output for each label of the data; []: model and data have the same order
    task: Task
    rows: int

    @classmethod
    def prepare(cls, loaded: LoadedModel, task: Task, rows: Sequence[Any]) -> "Evaluation":
        """Raises InputError if the model is of another kind, or does not know a label of the data."""
        loaded.check_kind(task.kind)
        rows = checked_rows(rows, "rows")
        kind = kind_of(task)
        scale = task.scale or (stored_scale(loaded.folder) if task.kind == "embedding" else 0.0)
        task = replace(task, labels=kind.labels(task, rows), scale=scale)
        has_labels = loaded.labels and task.kind != "regression"
        task, order = _match_labels(loaded, task) if has_labels else (task, [])
        prepared = kind.prepare(loaded.tokenizer, rows, task, loaded.limits)
        return cls(loaded, prepared, order, task, len(rows))

    def run(self, batch_size: int = 64) -> EvaluationResult:
        """Metrics and predictions of the model as it is now."""
        if self.task.kind == "embedding":
            pooling = read_pooling(self.loaded.folder)[1] or Pooling()
            return self.prepared.evaluate(self.loaded.pooled(self.prepared.inputs, pooling))
        return self.evaluate(self.scores(batch_size))

    def evaluate(self, scores: Tensor) -> EvaluationResult:
        """Metrics and predictions from the scores of all rows, in the order of the data's labels."""
        return self.prepared.evaluate(scores, self.loaded.settings)

    def scores(self, batch_size: int = 64) -> Tensor:
        """The scores of all rows, in the order of the data's labels."""
        scores = self.loaded.scores(self.prepared.inputs, batch_size)
        if self.task.kind == "regression":
            scores = probabilities(scores, self.loaded.kind).float()
        return scores[:, self.order] if self.order else scores


def measure(
    model: ModelLike, rows: DevRows, given: Collection[str], precision: Precision = "float32", out: Path | None = None
) -> dict[str, Any]:
    """The metrics of a model on development rows, or on the minimal pairs of the task `blimp`.

    given: the fields of `rows` that were not left out (`remembered`). out: a file that the results are written to
    later. Raises InputError like `evaluate` and `minimal_pairs`, or as `check_output`.
    """
    if rows.task == BLIMP:
        refuse_beside("task", {**rows.of_own_table, "encoding": rows.encoding != "utf-8"})
        if rows.data is None:
            raise InputError(f"the task {BLIMP} needs data, the folder with its files NAME.jsonl")
        return minimal_pairs(model, rows.data, precision=precision)
    rows = remembered(rows, model, given)
    check_output(out, rows.find()[1])
    return evaluate(model, *rows.read(), precision=precision)


def evaluate(
    model: ModelLike,
    task: Task,
    rows: Sequence[Any],
    max_seq_length: int | None = None,
    precision: Precision = "float32",
) -> dict[str, Any]:
    """The task's metrics of a fine-tuned model on labelled rows, `predicted` counts and `truncation`.

    `collapsed`, where it is so: the model gives every row the same answer, although the true ones differ.

    model: folder, or a loaded model, which keeps its own `max_seq_length` and `precision`.

    `findings`: a warning if many of the rows are training examples of the run; left out otherwise.

    `majority`: the first metric of the best answer that ignores the text; left out where it is 0.

    Of a classifier also `ece` and the table behind it, `reliability` (tasks/calibration.py).

    Raises InputError if the model is of another kind, or does not know a label of the data.
    """
    loaded = LoadedModel.of(model, max_seq_length, precision)
    evaluation = Evaluation.prepare(loaded, task, rows)
    result = evaluation.run()
    folder = loaded.folder if loaded.folder.name.strip(".") else loaded.folder.resolve()
    findings = [str(one) for one in seen_in_training(run_folder(folder), evaluation.task, rows)]
    return {
        "task": task.name,
        "metrics": result.metrics,
        **({"majority": result.majority} if result.majority else {}),
        "predicted": result.predicted,
        **({"collapsed": True} if result.constant_predictions else {}),
        **result.details,
        "examples": evaluation.rows,
        "truncation": evaluation.prepared.inputs.truncation(),
        **({"findings": findings} if findings else {}),
    }


def remembered(rows: DevRows, model: ModelLike, given: Collection[str]) -> DevRows:
    """The rows with kind and columns of the table that the model was fine-tuned on, except the fields `given`.

    Raises InputError if there is no model, or what its folder stores has another form, or as `DevRows.find`.
    """
    task = read_task(find_model(model))
    text = task.get("words") or task.get("text")
    if rows.dev is None or rows.task or not text:
        return rows
    own = {"kind": task.get("kind"), "text": text, "label": task.get("label", ""), "choices": task.get("choices", ())}
    return replace(rows, **{name: value for name, value in own.items() if name not in given})


def _match_labels(loaded: LoadedModel, task: Task) -> tuple[Task, list[int]]:
    """The task with the model's further labels after its own, and the model's output for each label."""
    names = loaded.labels
    matches = {label: same_label(label, names) for label in task.labels}
    unknown = [label for label, name in matches.items() if name is None]
    if unknown and task.kind == "tagging" and match_types(task.labels, names, str(loaded.folder)):
        return replace(task, labels=names, raw_labels=()), []
    if unknown:
        raise InputError(
            f"{loaded.folder} knows the labels {listed(names, LABELS)}; the data of {task.name} also has "
            f"{listed(unknown, LABELS)}. Labels are matched by name: use data with the model's names, or a model that "
            "was fine-tuned on this task"
        )
    further = [name for name in names if name not in matches.values()]
    order = [names.index(name) for name in (*matches.values(), *further) if name is not None]
    return replace(task, labels=(*task.labels, *further), raw_labels=()), order
