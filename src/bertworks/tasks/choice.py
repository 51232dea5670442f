"""Multiple choice: which of C continuations fits a text (paper, section 4.4; SWAG).

Each choice makes a sequence [CLS] text [SEP] choice [SEP]; with two text columns the second one, the beginning of a
sentence, is put before every choice. The label is the choice's number from 0, or its name in `Task.labels`.

Shapes: N examples, C choices.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from torch import Tensor

from ..batch import IGNORED
from ..files import InputError, shorten
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer
from ..training.task_objectives import ChoiceObjective
from .base import Judged, Kind, Limits, Task, no_names
from .inputs import Inputs, labelled_loss
from .labels import alike_label
from .metrics import METRICS
from .records import Source
from .sequences import Integers, cut_pairs, frame
from .table import locator, read_table


class Choice(NamedTuple):
    """A text and what may follow it."""

    text: str
    choices: tuple[str, ...]
    label: int | None = None  # the right one, counted from 0
    line: int = 0


class Chosen(TypedDict):
    """The choice that fits a text best."""

    choice: int  # counted from 0
    text: str
    score: float  # its probability, 0 to 1
    scores: list[float]  # of all choices
    tokens: int  # tokens that the model read, of all choices
    cut: int  # tokens that did not fit, of the choice that lost most


def read(task: Task, path: Source, labelled: bool = True) -> list[Choice]:
    """The rows of one file. Raises InputError with file and line: a column or choice is missing, a label impossible."""
    columns = (*task.text, *task.choices, *((task.label,) if labelled else ()))
    names = task.labels or tuple(map(str, range(len(task.choices))))
    rows, place = [], locator(path)
    for row in read_table(path, columns, task.header, form=task.form):
        texts, where = row.values[: len(columns) - labelled], place(row.line)
        begun = texts[1] + " " if len(task.text) == 2 else ""
        choices = texts[len(task.text) :]
        empty = [name for name, choice in zip(task.choices, choices, strict=True) if not choice.strip()]
        if empty:
            raise InputError(f"{where}: nothing in {shorten(empty[0])}; expected a text for each choice")
        label = row.values[-1].strip() if labelled else None
        if label == "":
            raise InputError(f"{where}: no label; remove the row or give it one")
        known = None if label is None else alike_label(label, names)
        if label is not None and known is None:
            raise InputError(f"{where}: label {shorten(label)}; expected one of {', '.join(names)}")
        number = None if known is None else names.index(known)
        rows.append(Choice(texts[0], tuple(begun + choice for choice in choices), number, row.line))
    if not rows:
        raise InputError(f"{path}: no rows in this file")
    return rows


def prepare(tokenizer: Tokenizer, rows: Sequence[Choice], task: Task, limits: Limits) -> "ChoiceRows":
    """Rows as arrays. Raises InputError if they have not all the same number of choices."""
    counts = {len(row.choices) for row in rows} or {len(task.choices)}
    if len(counts) > 1:
        found = " and ".join(map(str, sorted(counts)))
        raise InputError(f"{task.name}: rows with {found} choices; expected one number")
    texts = [row.text for row in rows for _ in row.choices]
    choices = [choice for row in rows for choice in row.choices]
    C = counts.pop()
    first, second, paired, total = cut_pairs(tokenizer, texts, choices, limits.max_seq_length)
    cut = (total - first.length - second.length).reshape(-1, C).max(1)
    inputs = Inputs(
        *frame(tokenizer, first, second, paired=paired),
        labels=np.array([IGNORED if row.label is None else row.label for row in rows], np.int64),
        cut=cut,
        pad_id=tokenizer.pad_id,
        limit=limits.max_seq_length,
        choices=C,
    )
    return ChoiceRows(inputs, task, rows)


@dataclass(frozen=True)
class ChoiceRows:
    """Rows of a multiple choice, ready for a model."""

    inputs: Inputs
    task: Task
    rows: Sequence[Choice]

    @property
    def tokens(self) -> Integers:
        """(N,) tokens that the model reads for each row, of all its choices."""
        return self.inputs.tokens_read

    @property
    def cut(self) -> Integers:
        """(N,) tokens that did not fit, of the choice that lost most."""
        return self.inputs.cut

    @property
    def majority(self) -> float:
        """Accuracy of the commonest right choice."""
        return Counter(self.inputs.labels.tolist()).most_common(1)[0][1] / len(self.inputs.labels)

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[Chosen]:
        """The best choice of each row from (N * C, 1) scores."""
        scores = scores.view(-1, self.inputs.choices).double()
        answers = zip(scores.argmax(-1).tolist(), scores.softmax(-1).tolist(), strict=True)
        counts = zip(self.tokens.tolist(), self.cut.tolist(), strict=True)
        found = []
        for row, (best, each), (tokens, cut) in zip(self.rows, answers, counts, strict=True):
            text = row.choices[best]
            found.append(Chosen(choice=best, text=text, score=each[best], scores=each, tokens=tokens, cut=cut))
        return found

    def judge(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> Judged:
        """Metrics of (N * C, 1) scores."""
        scores, true = scores.view(-1, self.inputs.choices), self.inputs.labels
        predicted = scores.argmax(-1).numpy()
        counts = Counter(predicted.tolist())
        rows = zip((row.line for row in self.rows), true.tolist(), predicted.tolist(), strict=True)
        loss = labelled_loss(scores, true)
        return Judged(
            metrics={"loss": loss, **{name: METRICS[name](true, predicted) for name in self.task.metrics}},
            predicted={str(i): counts[i] for i in range(self.inputs.choices)},
            majority=self.majority,
            collapsed=len(counts) == 1 < len(set(true.tolist())),
            files={PREDICTIONS: [{"line": line, "label": a, "predicted": b} for line, a, b in rows]},
        )


CHOICE = Kind("choice", ChoiceObjective(), read, no_names, prepare, ("accuracy",))
