"""The rows that a verb or a function is given: a known task's files, or tables of the user's own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ..data.encodings import codec_of
from ..files import InputError, shorten
from .base import Data, KindName, Task
from .sampling import Split
from .table import TableForm


def comma_separated(text: str | Sequence[str]) -> tuple[str, ...]:
    """The names in a text that separates them by commas, or in a list. Raises InputError for what is no name."""
    words = text.split(",") if isinstance(text, str) else [*text] if isinstance(text, Iterable) else [text]
    if not all(isinstance(word, str) for word in words):
        raise InputError(f"columns {shorten(text)}; expected the name of a column as a text, or a list of names")
    names = tuple(word for word in words if word)
    if again := [name for i, name in enumerate(names) if name in names[:i]]:
        raise InputError(f"columns {shorten(text)}: {shorten(again[0])} is named twice; expected different columns; "
                         "name it once")  # fmt: skip
    return names


def refuse_beside(what: str, others: Mapping[str, object]) -> None:
    """Raises InputError if one of the `others`, which would be ignored beside `what`, has a value."""
    if given := [flag for flag, value in others.items() if value is not None and not _is_empty(value)]:
        raise InputError(f"{what} cannot be combined with {', '.join(given)}; leave one of them out")


def _is_empty(value: object) -> bool:
    """Whether a value is that of an argument that was not given; data in memory has no truth value."""
    return isinstance(value, str | int | tuple | list) and not value


@dataclass(frozen=True)
class DevRows:
    """The rows on which a fine-tuned model is evaluated: a known task's development file, or the user's own table.

    The command line fills it with paths; in Python a table may be any data that `kinds.read_rows` takes.
    """

    task: str = ""  # name of a task that bertworks knows (`bertworks recipes tasks` lists them); needs --data
    data: Path | None = None  # folder with the files of --task
    # instead of a task, your own file to evaluate on: .csv, .tsv, .jsonl, .json, .parquet, .xlsx, or .conll (tagging)
    dev: Path | None = None
    # task kind of your own table; none: single, or pair with two text columns
    kind: KindName | None = None
    # text column of your own table, or two columns separated by a comma; in a .conll file the number of a column too
    text: str = "text"
    # label column; for multilabel also several 0/1 columns, comma-separated; empty: label. For embedding the column of
    # scores; empty: none, each row's two texts belong together
    label: str = ""
    choices: str = ""  # columns with the choices of a multiple-choice table, comma-separated
    encoding: str = "utf-8"  # encoding of the rows' files: utf-8, cp949, euc-kr, utf-16 or another one of Python's
    sheet: str = ""  # sheet of a workbook (.xlsx, .xls, .ods); empty: its only one
    header_row: int = 0  # row of a table with the names of its columns, from 1; 0: the first
    sides: ClassVar[tuple[str, ...]] = ("dev",)

    def find(self) -> tuple[Task, list[Any]]:
        """The task, and its tables, one for each of `sides`. Raises InputError if both or neither are given."""
        from .catalogue import find_task
        from .kinds import own_task

        form = TableForm(codec_of(self.encoding), self.sheet, header_row=self.header_row)
        own = {f"--{side}": getattr(self, side) for side in self.sides}
        if getattr(self, "dev_share", 0):
            del own["--dev"]
        if self.task:
            refuse_beside("--task", {**own, "--kind": self.kind, "--choices": self.choices})
            if self.data is None:
                raise InputError(f"--task {self.task} needs --data DIR, the folder with its files")
            task = replace(find_task(self.task), form=form)
            return task, [Path(self.data) / getattr(task, side) for side in self.sides]
        if any(table is None for table in own.values()):
            divide = ", or --train with --dev-share 0.1" if hasattr(self, "dev_share") else ""
            missing = [flag for flag, table in own.items() if table is None]
            found = f"no {' and no '.join(missing)}" if len(missing) < len(own) else "no rows"
            raise InputError(f"{found}; give --task NAME with --data DIR, or your own {' and '.join(own)}{divide}")
        label = ",".join(comma_separated(self.label)) or ("" if self.kind == "embedding" else "label")
        columns = (comma_separated(self.text), label, comma_separated(self.choices))
        return replace(own_task(self.kind or "", *columns), form=form), list(own.values())

    def read(self) -> tuple[Task, Sequence[Any]]:
        """The task and its development rows. Raises InputError like `find`, or if the table cannot be read."""
        from .kinds import read_rows

        task, tables = self.find()
        return task, read_rows(task, tables[-1], name="dev")


@dataclass(frozen=True)
class TrainRows(DevRows):
    """Rows to train on and to evaluate on: a known task's files, or the user's own tables."""

    train: Path | None = None  # instead of a task, your own training table, beside --dev
    sides: ClassVar[tuple[str, ...]] = ("train", "dev")

    def read_data(self) -> tuple[Task, Data]:
        """The task and all its rows. Raises InputError like `find`, or if a table cannot be read."""
        from .kinds import split_data

        task, tables = self.find()
        if not self.task:
            refuse_beside("--train and --dev", {"--data": self.data})
        return split_data(task, [self.data or ""] if self.task else tables, self.split)

    @property
    def split(self) -> Split:
        """What of the tables is trained on and evaluated on: all."""
        return Split()


@dataclass(frozen=True)
class DividedRows(TrainRows):
    """Rows to train on and to evaluate on, some of which are left out or change sides."""

    train_rows: int = 0  # number of training rows to draw at random; 0: all. A smaller draw is part of a larger one
    # instead of --dev: share of the rows of --train to evaluate on (0.1: a tenth), drawn at random. Rows of one
    # document or context, or with the same first text, stay on one side
    dev_share: float = 0.0
    group: str = ""  # for --dev-share: column of --train whose rows with one value stay on one side (a patient, a user)
    split_seed: int = 1  # seed of --train-rows and --dev-share

    @property
    def split(self) -> Split:
        """What of the tables is trained on and evaluated on. Raises InputError for values that make no sense."""
        return Split(self.train_rows, self.dev_share, self.group, self.split_seed)

    def find(self) -> tuple[Task, list[Any]]:
        """The task, and its tables: for training and development, or with --dev-share the one that is divided."""
        if self.dev_share:
            refuse_beside("--dev-share", {"--dev": self.dev, "--task": self.task})
        return super().find()
