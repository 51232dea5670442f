"""Multiple choice: which of C continuations fits a text (paper, section 4.4; SWAG).

Each choice makes a sequence [CLS] text [SEP] choice [SEP]; with two text columns the second one, the beginning of a
sentence, is put before every choice. The label is the choice's number from 0, or its name in `Task.labels`.

Shapes: N examples, C choices.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from torch import Tensor

from ..batch import IGNORED
from ..files import InputError, shorten
from ..tokenizer import Tokenizer
from ..training.task_objectives import ChoiceObjective
from .base import EvaluationResult, LengthLimits, Prepared, Task, TaskType
from .inputs import Inputs, labelled_loss
from .labels import same_label
from .metrics import accuracy
from .records import Source
from .sequences import cut_pairs, frame
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
    rows, place, number = [], locator(path), None
    for line, values in read_table(path, columns, task.header, form=task.form):
        (text, *beginning), choices = values[: len(task.text)], values[len(task.text) : len(columns) - labelled]
        if not all(map(str.strip, choices)):
            raise InputError(f"{place(line)}: an empty choice; expected a text in each of {', '.join(task.choices)}")
        if labelled:
            label = same_label(values[-1].strip(), names)
            if label is None:
                written = f"label {shorten(values[-1])}" if values[-1].strip() else "no label"
                raise InputError(f"{place(line)}: {written}; expected one of {', '.join(names)}")
            number = names.index(label)
        rows.append(Choice(text, tuple(" ".join([*beginning, choice]) for choice in choices), number, line))
    return rows


def prepare(tokenizer: Tokenizer, rows: Sequence[Choice], task: Task, limits: LengthLimits) -> "ChoiceRows":
    """Rows as arrays. Raises InputError if they have not all the same number of choices."""
    counts = {len(row.choices) for row in rows} or {len(task.choices)}
    if len(counts) > 1:
        raise InputError(f"{task.name}: rows with {sorted(counts)} choices; expected one number")
    texts = [row.text for row in rows for _ in row.choices]
    choices = [choice for row in rows for choice in row.choices]
    [C] = counts
    first, second, paired, total = cut_pairs(tokenizer, texts, choices, limits.max_seq_length)
    cut = (total - first.length - second.length).reshape(-1, C).max(1)
    labels = np.array([IGNORED if row.label is None else row.label for row in rows], np.int64)
    frames = frame(tokenizer, first, second, paired=paired)
    inputs = Inputs(*frames, labels, cut, tokenizer.pad_id, limits.max_seq_length, choices=C)
    return ChoiceRows(inputs, task, rows, np.repeat(np.arange(len(rows)), C), cut)


class ChoiceRows(Prepared):
    """Rows of a multiple choice, ready for a model."""

    rows: Sequence[Choice]

    @property
    def majority(self) -> float:
        """Accuracy of the commonest right choice."""
        return Counter(self.inputs.labels.tolist()).most_common(1)[0][1] / len(self.inputs.labels)

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[Chosen]:
        """The best choice of each row from (N * C, 1) scores."""
        scores = scores.view(-1, self.inputs.choices).double()
        best, probabilities = scores.argmax(-1).tolist(), scores.softmax(-1).tolist()
        results = zip(self.rows, best, probabilities, self.tokens.tolist(), self.cut.tolist(), strict=True)
        return [
            Chosen(choice=i, text=row.choices[i], score=each[i], scores=each, tokens=tokens, cut=cut)
            for row, i, each, tokens, cut in results
        ]

    def evaluate(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> EvaluationResult:
        """Metrics of (N * C, 1) scores."""
        scores, true = scores.view(-1, self.inputs.choices), self.inputs.labels
        predicted = scores.argmax(-1).numpy()
        counts = Counter(predicted.tolist())
        return EvaluationResult(
            metrics={"loss": labelled_loss(scores, true), "accuracy": accuracy(true, predicted)},
            predicted={str(i): counts[i] for i in range(self.inputs.choices)},
            majority=self.majority,
            constant_predictions=len(counts) == 1 < len(set(true.tolist())),
            files=self.predictions(true.tolist(), predicted.tolist()),
        )


CHOICE = TaskType("choice", ChoiceObjective(), read, prepare, ("accuracy",))
