"""What a task is: one literal, saying where its texts and labels are and how it is judged. A new task needs no code."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..files import InputError
from .metrics import METRICS
from .table import Row, read_table


class Example(NamedTuple):
    """One row of a task."""

    text: str
    pair: str | None = None  # the second text of a sentence pair
    label: str | None = None  # a name of `Task.labels`
    line: int = 0  # where the row begins in its file, counted from 1


@dataclass(frozen=True)
class Task:
    """Classification of single texts (one text column) or of pairs (two)."""

    name: str
    text: tuple[str, ...]  # names of one or two columns
    label: str  # name of the label column
    labels: tuple[str, ...] = ()  # names of the classes in the order of their numbers; (): those of the training file
    written: tuple[str, ...] = ()  # how the files write `labels`, in the same order, if not by these names
    metrics: tuple[str, ...] = ("accuracy",)  # functions of metrics.py
    train: str = "train.tsv"  # file names inside the data folder
    dev: str = "dev.tsv"

    def __post_init__(self) -> None:
        if len(self.text) not in (1, 2):
            raise ValueError(f"{len(self.text)} text columns; expected one, or two for a pair")
        if self.written and len(self.written) != len(self.labels):
            raise ValueError(f"{len(self.written)} written forms for {len(self.labels)} labels")
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown:
            raise ValueError(f"unknown metric {unknown[0]!r}; expected some of {', '.join(METRICS)}")


@dataclass(frozen=True)
class Data:
    """What a fine-tuning run reads."""

    train: Sequence[Example]
    dev: Sequence[Example]
    source: str = ""  # for results.json: the folder or files it came from


def load_data(task: Task, folder: Path | str) -> Data:
    """Training and development rows of a task from its folder. Raises InputError with file and line."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected the one with {task.train} and {task.dev} of {task.name}")
    return Data(read_examples(task, folder / task.train), read_examples(task, folder / task.dev), str(folder))


def read_examples(task: Task, path: Path | str, labelled: bool = True) -> list[Example]:
    """The rows of one file of a task; the label column is not looked at unless `labelled`.

    Raises InputError with file and line if a column or a label is missing, a label is unknown, or the file is damaged.
    """
    columns = (*task.text, task.label) if labelled else task.text
    names = dict(zip(task.written or task.labels, task.labels, strict=True))
    examples = []
    for row in read_table(path, columns):
        label = _label(row, names, path) if labelled else None
        examples.append(Example(row.values[0], row.values[1] if len(task.text) == 2 else None, label, row.line))
    if not examples:
        raise InputError(f"{path}: no rows in this file")
    return examples


def own_table(
    train: Path | str, dev: Path | str, text: tuple[str, ...], label: str, name: str = "table"
) -> tuple[Task, Data]:
    """A task of one's own: two files of any kind that table.py reads. The labels are those of the training file.

    Raises InputError with file and line, also for a label that only the development file has.
    """
    task = Task(name, text, label, metrics=("accuracy", "macro_f1"), train=str(train), dev=str(dev))
    rows = read_examples(task, train)
    task = replace(task, labels=label_names(rows))
    return task, Data(rows, read_examples(task, dev), f"{train}, {dev}")


def label_names(examples: Sequence[Example]) -> tuple[str, ...]:
    """The labels of these rows, sorted; as numbers if all of them are."""
    names = {example.label for example in examples if example.label is not None}
    return tuple(sorted(names, key=int if all(name.isdecimal() for name in names) else None))


def _label(row: Row, names: dict[str, str], path: Path | str) -> str:
    """The label's name; `names` maps what the file writes to it, and is empty if any label will do."""
    label = row.values[-1]
    if not label.strip():
        raise InputError(f"{path}, line {row.line}: no label; remove the row or give it one")
    if names and label not in names:
        raise InputError(f"{path}, line {row.line}: label {label!r}; expected one of {', '.join(map(repr, names))}")
    return names.get(label, label)
