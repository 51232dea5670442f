"""Metrics of a fine-tuned folder on labelled rows. Labels of model and data are matched by name, never by number."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..checkpoint.memory import ModelLike, network_of, origin_of
from ..checkpoint.pooling import Pooling, read_pooling
from ..files import InputError
from ..tasks.base import Judged, Prepared, Task
from ..tasks.kinds import kind_of
from ..tasks.rows import checked_rows
from .engines import FLOAT32, Computing
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
        task = replace(task, labels=kind.labels(task, rows))
        order: list[int] = []
        if loaded.labels and task.kind != "regression":
            task, order = _match_labels(loaded, task)
        prepared = kind.prepare(loaded.tokenizer, rows, task, loaded.limits)
        return cls(loaded, prepared, order, task, len(rows))

    def run(self, batch_size: int = 64) -> Judged:
        """Metrics and predictions of the model as it is now."""
        if self.task.kind == "embedding":
            pooling = read_pooling(self.loaded.folder)[1] or Pooling()
            return self.prepared.judge(self.loaded.pooled(self.prepared.inputs, pooling))
        scores = self.loaded.scores(self.prepared.inputs, batch_size)
        return self.prepared.judge(scores[:, self.order] if self.order else scores, self.loaded.settings)


def evaluate(
    model: ModelLike,
    task: Task,
    rows: Sequence[Any],
    max_seq_length: int | None = None,
    computing: Computing = FLOAT32,
) -> dict[str, Any]:
    """The task's metrics of a fine-tuned model on labelled rows, `predicted` counts and `truncation`.

    model: folder, or a loaded model, which keeps its own `max_seq_length` and `computing`.
    Raises InputError if the model is of another kind, or does not know a label of the data.
    """
    loaded = getattr(model, "loaded", model)
    if not isinstance(loaded, LoadedModel):
        loaded = LoadedModel.load(origin_of(model), max_seq_length, computing=computing, network=network_of(model))
    evaluation = Evaluation.prepare(loaded, task, rows)
    judged = evaluation.run()
    return {
        "task": task.name,
        "metrics": judged.metrics,
        "predicted": judged.predicted,
        "examples": evaluation.rows,
        "truncation": evaluation.prepared.inputs.truncation(),
    }


def _match_labels(loaded: LoadedModel, task: Task) -> tuple[Task, list[int]]:
    """The task with the model's further labels after its own, and the model's output for each label."""
    names = loaded.labels
    unknown = [label for label in task.labels if label not in names]
    if unknown:
        raise InputError(
            f"{loaded.folder} knows the labels {', '.join(names)}; the data of {task.name} also has "
            f"{', '.join(unknown)}. Labels are matched by name: use data with the model's names, or a model that was "
            "fine-tuned on this task"
        )
    labels = (*task.labels, *(name for name in names if name not in task.labels))
    return replace(task, labels=labels, written=()), [names.index(label) for label in labels]
