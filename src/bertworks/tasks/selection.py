"""The labelled examples that a subcommand or a function is given: a built-in task's files, or the user's own tables."""

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
    """The names in a text that separates them by commas, or in a list. Raises InputError for other values."""
    words = text.split(",") if isinstance(text, str) else [*text] if isinstance(text, Iterable) else [text]
    names = tuple(word for word in words if word)
    if not all(isinstance(word, str) for word in words) or len({*names}) < len(names):
        raise InputError(f"columns {shorten(text)}; expected different names of columns, as a text or a list of texts")
    return names


def refuse_beside(what: str, others: Mapping[str, object]) -> None:
    """Raises InputError if one of the `others`, which would be ignored beside `what`, has a value."""
    # data in memory has no truth value
    empty = [name for name, value in others.items() if isinstance(value, str | int | tuple | list) and not value]
    if given := [name for name, value in others.items() if value is not None and name not in empty]:
        raise InputError(f"{what} cannot be combined with {', '.join(given)}; leave one of them out")


@dataclass(frozen=True)
class DevRows:
    """Examples to evaluate a fine-tuned model on: a built-in task's development file, or the user's own table.

    The command line fills it with paths; in Python a table may be any data that `kinds.read_rows` accepts.
    """

    task: str = ""  # name of a built-in task (`bertworks recipes tasks` lists them); needs --data
    data: Path | None = None  # folder with the files of --task
    # instead of a task, your own file to evaluate on: .csv, .tsv, .jsonl, .json, .parquet, .xlsx, .conll (tagging), or
    # hub:org/name#split, a data set of the Hugging Face Hub
    dev: Path | None = None
    # task kind of your own table; none: single, or pair with two text columns
    kind: KindName | None = None
    # text column of your own table, or two columns separated by a comma; in a .conll file the number of a column too
    text: str = "text"
    # label column, default: label; multilabel: also several columns of 0 and 1, separated by commas; embedding: column
    # of similarity scores, default: none, the two texts of each row are a positive pair
    label: str = ""
    choices: str = ""  # multiple choice: columns with the choices, separated by commas
    encoding: str = "utf-8"  # text encoding of the files: utf-8, cp949, euc-kr, utf-16 or another Python codec
    sheet: str = ""  # sheet of a workbook (.xlsx, .xls, .ods); empty: its only one
    tables: ClassVar[tuple[str, ...]] = ("dev",)

    @property
    def of_own_table(self) -> dict[str, Any]:
        """Paths, kind, sheet and columns of the user's own table, which are refused beside a task."""
        columns = {"text": self.text != "text", "label": self.label, "choices": self.choices, "sheet": self.sheet}
        return {**{name: getattr(self, name) for name in self.tables}, "kind": self.kind, **columns}

    def find(self) -> tuple[Task, list[Any]]:
        """The task, and its tables, one for each of `tables`. Raises InputError if both or neither are given."""
        from .catalogue import find_task
        from .kinds import own_task

        form, own = TableForm(codec_of(self.encoding), self.sheet), self.of_own_table
        if self.task:
            refuse_beside("task", own)
            if self.data is None:
                raise InputError(f"the task {self.task} needs data, the folder with its files")
            task = replace(find_task(self.task), form=form)
            return task, [Path(self.data) / getattr(task, name) for name in self.tables]
        if missing := [name for name in self.tables if own[name] is None]:
            advice = ", or train with dev_share = 0.1" if hasattr(self, "dev_share") else ""
            expected = f"give task and data (a name and a folder), or {' and '.join(self.tables)}{advice}"
            raise InputError(f"no {' and no '.join(missing)}; {expected}")
        label = ",".join(comma_separated(self.label)) or ("" if self.kind == "embedding" else "label")
        text, choices = comma_separated(self.text), comma_separated(self.choices)
        return replace(own_task(self.kind or "", text, label, choices), form=form), [own[name] for name in self.tables]

    def read(self) -> tuple[Task, Sequence[Any]]:
        """The task and its development rows. Raises InputError like `find`, or if the table cannot be read."""
        from .kinds import read_rows

        task, tables = self.find()
        return task, read_rows(task, tables[-1], name="dev")


@dataclass(frozen=True)
class TrainRows(DevRows):
    """Examples to train on and to evaluate on: a built-in task's files, or the user's own tables."""

    train: Path | None = None  # instead of a task, your own training table
    tables: ClassVar[tuple[str, ...]] = ("train", "dev")

    def read_data(self) -> tuple[Task, Data]:
        """The task and all its rows. Raises InputError like `find`, or if a table cannot be read."""
        from .kinds import split_data

        task, tables = self.find()
        if not self.task:
            refuse_beside("train and dev", {"data": self.data})
        return split_data(task, [self.data or ""] if self.task else tables, self.split)

    @property
    def split(self) -> Split:
        """How the tables are divided: not at all."""
        return Split()


@dataclass(frozen=True)
class DividedRows(TrainRows):
    """Examples to train on and to evaluate on, some of which are left out or become development examples."""

    train_rows: int = 0  # number of training rows to draw at random; 0: all. A smaller sample is part of a larger one
    # instead of --dev: fraction of the rows of --train to evaluate on, drawn at random (0.1: a tenth). Rows of the same
    # document or context, or with the same first text, stay together
    dev_share: float = 0.0
    group: str = ""  # for --dev-share: column of --train; rows with the same value (patient, user) stay together
    split_seed: int = 1  # seed of --train-rows and --dev-share

    @property
    def split(self) -> Split:
        """How the tables are divided. Raises InputError for impossible values."""
        return Split(self.train_rows, self.dev_share, self.group, self.split_seed)

    def find(self) -> tuple[Task, list[Any]]:
        """The task, and its tables: for training and development, or with --dev-share the one that is divided."""
        if not self.dev_share:
            return super().find()
        refuse_beside("dev_share", {"dev": self.dev, "task": self.task})
        task, tables = replace(self, dev_share=0.0, dev=self.train).find()
        return task, tables[:1]
