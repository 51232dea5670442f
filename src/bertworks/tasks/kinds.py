"""The kinds of tasks by name, and the reading of a task's data, whatever its kind."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import InputError
from .base import Data, Kind, KindName, Task
from .choice import CHOICE
from .classification import MULTILABEL, PAIR, REGRESSION, SINGLE
from .span import SPAN
from .tagging import TAGGING

OWN_TABLE = "table"  # name of the task of a user's own table

KINDS: dict[str, Kind] = {
    "single": SINGLE,
    "pair": PAIR,
    "regression": REGRESSION,
    "multilabel": MULTILABEL,
    "choice": CHOICE,
    "tagging": TAGGING,
    "span": SPAN,
}


def kind_of(task: Task) -> Kind:
    """The task's kind. Raises InputError if it does not know one of the task's metrics."""
    kind = KINDS[task.kind]
    unknown = [name for name in task.metrics if name not in kind.metrics]
    if unknown:
        raise InputError(f"{task.name}: metric {unknown[0]!r}; expected some of {', '.join(kind.metrics)}")
    return kind


def with_labels(task: Task, rows: Sequence[Any]) -> Task:
    """The task with the names of its labels, its own or those of training rows.

    Raises InputError if there is nothing to tell apart.
    """
    kind = KINDS[task.kind]
    labels = kind.labels(task, rows)
    least = {"regression": 1, "multilabel": 1}.get(task.kind, 2)
    if kind.head in ("classifier", "tagger") and len(labels) < least:
        found = ", ".join(map(repr, labels)) or "none"
        raise InputError(f"{task.name}: labels of the training rows: {found}; expected {least} or more")
    return replace(task, labels=labels)


def load_data(task: Task, folder: Path | str) -> Data:
    """Training and development rows of a task from its folder. Raises InputError with file and line."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected the one with {task.train} and {task.dev} of {task.name}")
    train, dev = (read_rows(task, folder / name) for name in (task.train, task.dev))
    more = {name: read_rows(task, folder / file) for name, file in task.more.items() if (folder / file).exists()}
    return Data(train, dev, str(folder), more)


def read_rows(task: Task, path: Path | str, labelled: bool = True) -> Sequence[Any]:
    """The rows of one file of a task, as its kind makes them. Raises InputError with file and line."""
    return KINDS[task.kind].read(task, Path(path), labelled)


def own_table(task: Task, train: Path | str, dev: Path | str) -> tuple[Task, Data]:
    """A task of one's own: two files of any form its kind reads. The labels are those of the training file.

    Raises InputError with file and line, also for a label that only the development file has.
    """
    rows = read_rows(task, train)
    task = replace(with_labels(task, rows), train=str(train), dev=str(dev))
    return task, Data(rows, read_rows(task, dev), f"{train}, {dev}")


def own_task(kind: KindName | str, text: tuple[str, ...], label: str, choices: tuple[str, ...] = ()) -> Task:
    """The task of a table of one's own, with the metrics of its kind; kind "": single or pair, by the columns.

    Raises InputError if kind and columns do not fit.
    """
    kind = kind or ("single", "pair")[min(len(text), 2) - 1]
    if kind not in KINDS:
        raise InputError(f"kind {kind!r}; expected one of {', '.join(KINDS)}")
    labels = tuple(label.split(",")) if kind == "multilabel" and "," in label else ()  # a column of 0 and 1 for each
    try:
        return Task(OWN_TABLE, text, label, kind, labels, metrics=KINDS[kind].metrics[:2], choices=choices)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"{error}; give them with --text{' and --choices' if kind == 'choice' else ''}") from None
