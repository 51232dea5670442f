"""Rows to train and to judge on, of any kind of task: what their checks share (row_checks.py, labels.py)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from ...tasks.base import Data, Task
from ...tasks.draws import DIVIDED
from ...tasks.labels import label_parts
from ...tokenizer import Tokenizer
from .alike import CHARACTERS, Shingles, key_of
from .findings import Severity

FEW = 200  # rows
DIVIDE = "divide one labelled file with --train FILE --dev-share 0.2"
TWICE = 0.01  # share of rows from which duplicates and the like are a warning
CUT = 0.05  # share of rows that are cut
EXAMPLES = 3  # rows that a finding names
OWN_LABELS, FEW_LABELS = 0.8, 20  # labels for each row from which they look like ids; fewer labels are never ids
OWN = "nearly every row has a label of its own"
IDS = "is this a column of ids? Name the column of labels with --label"


class Row(NamedTuple):
    """What all kinds of rows have: texts, a label, a line."""

    texts: tuple[str, ...]
    label: str | None
    line: int

    @property
    def text(self) -> str:
        """All texts of the row."""
        return "\n".join(self.texts)

    @property
    def is_bare(self) -> bool:
        """Whether its first text has no letter and no digit."""
        return not any(char.isalnum() for char in self.texts[0])


def rows_of(task: Task, rows: Sequence[Any]) -> list[Row]:
    """The rows of any kind of task. Of questions the contexts, which train and dev must not share, each once."""
    if task.kind == "span":
        contexts: dict[str, int] = {}
        for row in rows:
            contexts.setdefault(row.context, row.line)
        return [Row((context,), None, line) for context, line in contexts.items()]
    if task.kind == "choice":
        return [Row((row.text, *row.choices), None if row.label is None else str(row.label), row.line) for row in rows]
    if task.kind == "tagging":
        return [Row((row.text,), None, row.line) for row in rows]
    return [Row((row.text,) if row.pair is None else (row.text, row.pair), row.label, row.line) for row in rows]


@dataclass(frozen=True)
class Rows:
    """The rows that are examined."""

    task: Task
    train: list[Row]
    dev: list[Row] = field(default_factory=list)  # [] if there is no second file
    tokenizer: Tokenizer | None = None  # of the model that reads them
    max_seq_length: int = 0  # tokens of an input; 0: not known
    divided: bool = False  # whether --dev-share drew the development rows from the table of the training rows

    @classmethod
    def of(cls, task: Task, data: Data, tokenizer: Tokenizer | None = None, max_seq_length: int = 0) -> "Rows":
        """The rows of a fine-tuning run."""
        divided = DIVIDED.fullmatch(data.source) is not None
        return cls(task, rows_of(task, data.train), rows_of(task, data.dev), tokenizer, max_seq_length, divided)

    @property
    def classes(self) -> bool:
        """Whether each row has one label that is a class."""
        return self.task.kind in ("single", "pair")

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """The words of each text of each training row."""
        return [tuple(map(key_of, row.texts)) for row in self.train]

    @cached_property
    def dev_keys(self) -> list[tuple[str, ...]]:
        """The words of each text of each development row."""
        return [tuple(map(key_of, row.texts)) for row in self.dev]

    @cached_property
    def shingles(self) -> tuple[Shingles, Shingles]:
        """Of the training and the development rows that are compared word by word: the first ones of each."""
        numbers: dict[str, int] = {}
        joined = ([" ".join(filter(None, key)) for key in keys] for keys in (self.keys, self.dev_keys))
        train, dev = (texts[: _within(texts)] for texts in joined)
        return Shingles.of_texts(train, numbers), Shingles.of_texts(dev, numbers)

    def labels(self, rows: list[Row]) -> Counter[str]:
        """How often each label occurs."""
        return Counter(name for row in rows for name in label_parts(row.label, self.task))


def _within(texts: list[str]) -> int:
    """How many texts have CHARACTERS characters together."""
    return sum(1 for total in accumulate(map(len, texts)) if total <= CHARACTERS)


def lines(rows: Iterable[Row]) -> str:
    """The lines of the first rows, for a sentence."""
    numbers = [row.line for row in rows]
    shown = ", ".join(map(str, numbers[:EXAMPLES]))
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{', ...' if len(numbers) > EXAMPLES else ''}"


def lines_like(pairs: Iterable[tuple[Row, Row]], of: str = "", others: str = "") -> str:
    """The lines of the first rows, for a sentence, and the row that the first one is like. of, others: whose rows."""
    found = [*pairs]
    row, like = found[0]
    shown, joint = lines(one for one, _ in found) + of, "; " if len(found) > 1 else ", "
    which = f"line {row.line} is" if len(found) > 1 else "which is"
    return f"{shown}{joint}{which} like line {like.line}{others}"


def own_labels(labels: int, rows: int) -> bool:
    """Whether nearly every row has a label of its own, as in a column of ids."""
    return labels >= max(FEW_LABELS, OWN_LABELS * rows)


def share_severity(count: int, total: int, limit: float = TWICE) -> Severity:
    """How grave it is that so many of all rows have a fault."""
    return "warning" if count >= limit * total else "note"


def repeated(keys: Sequence[Any]) -> dict[int, int]:
    """The positions of keys that occurred before, each with the first position of its key."""
    first: dict[Any, int] = {}
    return {i: first[key] for i, key in enumerate(keys) if first.setdefault(key, i) != i}
