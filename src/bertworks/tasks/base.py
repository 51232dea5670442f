"""What a task is: one literal, saying where its texts and labels are and how it is evaluated. A new task needs no code.

Every kind of task has a module of its own, which reads its rows, featurises and evaluates them: classification.py,
choice.py, tagging.py, span.py. kinds.py lists them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from ..bounds import check_least
from ..files import InputError
from ..model.config import HeadName
from ..reporting.run_files import PREDICTIONS
from ..reporting.tables import counted
from .records import Source
from .rows import checked_rows
from .sequences import Integers
from .table import PLAIN, TableForm

if TYPE_CHECKING:
    from torch import Tensor

    from ..training.objectives import Objective
    from .inputs import Inputs

OWN_TABLE = "table"  # name of the task of a user's own table
KindName = Literal["single", "pair", "regression", "multilabel", "choice", "tagging", "span", "embedding"]


@dataclass(frozen=True)
class Task:
    """Where a task's texts and labels are, and how it is evaluated."""

    name: str
    text: tuple[str, ...] = ("text",)  # names of one or two text columns; what they mean is said in the kind's module
    label: str = "label"  # name of the label column
    kind: KindName | Literal[""] = ""  # "": single or pair, by the number of text columns
    labels: tuple[str, ...] = ()  # names of the classes in the order of their numbers; (): those of the training file
    raw_labels: tuple[str, ...] = ()  # how the files write `labels`, in the same order, if not by these names
    metrics: tuple[str, ...] = ("accuracy",)  # names of metrics of the kind; the first is the one to choose by
    choices: tuple[str, ...] = ()  # names of the columns of a multiple choice
    header: tuple[str, ...] = ()  # names of the columns of files that begin without them
    train: str = "train.tsv"  # file names inside the data folder
    dev: str = "dev.tsv"
    test: str = "test.tsv"  # without labels
    dataset: str = ""  # name of its data on the Hugging Face Hub, for model cards; "": the user's own
    more: Mapping[str, str] = field(default_factory=dict)  # further development sets: {name: file}, evaluated if there
    defaults: Mapping[str, Any] = field(default_factory=dict)  # fields of FinetuneConfig that differ, dotted
    form: TableForm = PLAIN  # encoding and sheet of the files
    # number by which the scores of an embedding task are divided; 0: not known yet, the largest score above 1
    scale: float = 0.0

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "pair" if len(self.text) == 2 else "single")
        single, pair = self.kind in ("single", "tagging"), self.kind in ("pair", "span", "embedding")
        expected = (1,) if single else (2,) if pair else (1, 2)
        if len(self.text) not in expected:
            columns = " or ".join(map(str, expected))
            names = f"{counted(len(self.text), 'column')} ({', '.join(self.text)})"
            raise InputError(f"text: {names}; expected {columns} for the kind {self.kind!r} (--text a,b)")
        if self.label in self.text:
            raise InputError(f"label: the column {self.label!r} is among the text columns; name another one")
        if self.kind == "choice" and len(self.choices) < 2:
            raise InputError(f"choices: {len(self.choices)} columns; expected two or more")


@dataclass(frozen=True)
class LengthLimits:
    """How long inputs and answers may be. The defaults are the original code's (run_classifier.py, run_squad.py)."""

    # longest input in tokens, [CLS] and [SEP] included; longer texts are truncated (tagging and span: divided into
    # windows)
    max_seq_length: int = 128
    doc_stride: int = 128  # span: tokens between the starts of two windows
    max_query_length: int = 64  # span: longest question in tokens; longer ones are truncated
    n_best_size: int = 20  # span: number of start positions, end positions and answers to consider
    max_answer_length: int = 30  # span: longest answer in tokens

    def __post_init__(self) -> None:
        check_least(self, ("max_seq_length",), 3)
        check_least(self, ("doc_stride", "max_query_length", "n_best_size", "max_answer_length"), 1)


class Example(NamedTuple):
    """One row of a classification, of one text or two."""

    text: str
    pair: str | None = None  # the second text of a sentence pair
    label: str | None = None  # a name of `Task.labels`; a number of a regression; of several labels, "a|b"
    line: int = 0  # where the row begins in its file, counted from 1


@dataclass(frozen=True)
class Data:
    """What a fine-tuning run reads: rows as the kind's module makes them."""

    train: Sequence[Any]
    dev: Sequence[Any]
    source: str = ""  # for results.json: the folder or files it came from
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # further development sets

    def __post_init__(self) -> None:
        """Raises InputError that names the row if one is no row of a kind."""
        object.__setattr__(self, "train", checked_rows(self.train, "train"))
        object.__setattr__(self, "dev", checked_rows(self.dev, "dev"))
        object.__setattr__(self, "more", {name: checked_rows(rows, name) for name, rows in self.more.items()})


@dataclass(frozen=True)
class EvaluationResult:
    """The metrics of a model on some rows, and how often it predicted each label."""

    metrics: dict[str, float]
    predicted: dict[str, int] = field(default_factory=dict)  # how often each label was predicted
    majority: float = 0.0  # the first metric of the majority-class baseline
    constant_predictions: bool = False  # the same answer everywhere, although the true ones differ
    settings: dict[str, Any] = field(default_factory=dict)  # tuned here, to be stored with the model
    files: dict[str, Any] = field(default_factory=dict)  # for the run folder: .json, or .jsonl from a list
    details: dict[str, Any] = field(default_factory=dict)  # further tables for results.json, of classes alone


class PreparedRows(Protocol):
    """N rows as the sequences that a model reads."""

    @property
    def inputs(self) -> "Inputs": ...

    @property
    def tokens(self) -> Integers:
        """(N,) tokens that the model reads for each row, special tokens and the overlaps of windows included."""

    @property
    def cut(self) -> Integers:
        """(N,) tokens of each row that did not fit."""


@dataclass(frozen=True)
class Prepared(ABC):
    """N rows of a task: they decode a model's scores into predictions and metrics. Each kind has its own."""

    inputs: "Inputs"
    task: Task  # with its labels
    rows: Sequence[Any]
    owner: Integers  # (S,) the row of each sequence
    cut: Integers  # (N,) tokens of each row that did not fit

    @property
    def tokens(self) -> Integers:
        """(N,) tokens that the model reads for each row, special tokens and the overlaps of windows included."""
        return np.bincount(self.owner, np.diff(self.inputs.edges), len(self.rows)).astype(np.int64)

    @property
    def majority(self) -> float:
        """The first metric of the majority-class baseline; 0.0 where it is not defined."""
        return 0.0

    def notes(self) -> list[str]:
        """What a user should hear about training rows: what is cut or left out, and how values are read."""
        cut = int((self.cut > 0).sum())
        return [f"{cut:,} of {len(self.rows):,} training rows are cut to {self.inputs.limit} tokens"] if cut else []

    @abstractmethod
    def decode(self, scores: "Tensor", settings: Mapping[str, Any]) -> Sequence[Any]:
        """The predictions for each row, as plain dictionaries, from the scores of `inputs` (inputs.compute_scores).

        `settings`: those stored with the model. Rows need no labels.
        """

    @abstractmethod
    def evaluate(self, scores: "Tensor", settings: Mapping[str, Any] | None = None) -> EvaluationResult:
        """Metrics of the same scores. Every row needs a label.

        `settings`: those stored with the model; None while it is trained, where they are tuned on these rows.
        """

    def predictions(self, true: Sequence[Any], predicted: Sequence[Any]) -> dict[str, Any]:
        """`EvaluationResult.files`: what each row's label is, and what the model predicts."""
        rows = zip(self.rows, true, predicted, strict=True)
        return {PREDICTIONS: [{"line": row.line, "label": a, "predicted": b} for row, a, b in rows]}


@dataclass(frozen=True)
class TaskType:
    """What is done differently for one kind of task."""

    head: HeadName | None  # None: the encoder's vectors are what is trained
    objective: "Objective"
    read: Callable[[Task, Source, bool], Sequence[Any]]  # rows of a file or in memory, with labels or without
    prepare: Callable[..., Prepared]  # (tokenizer, rows, task, limits); of classes also how texts are cut
    metrics: tuple[str, ...]  # names that `evaluate` knows; the first two are those of own tables
    # the names of the head's outputs, from training rows; a choice's score and the two ends of a span have none
    labels: Callable[[Task, Sequence[Any]], tuple[str, ...]] = lambda task, rows: ()
