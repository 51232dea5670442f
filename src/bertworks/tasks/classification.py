"""Classification of single texts and of pairs, regression, and several labels at once (paper, section 4.1).

Featurising is run_classifier.py's: [CLS] A [SEP] or [CLS] A [SEP] B [SEP], the longer text cut from its end; a second
text without a token counts as none. What was cut is counted. Texts are composed (NFC) first.

Shapes: N examples, K labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..batch import IGNORED
from ..files import InputError
from ..tokenizer import Tokenizer
from ..training.task_objectives import ClassificationObjective
from .base import EvaluationResult, Example, LengthLimits, Prepared, Task, TaskType
from .calibration import HALF, expected_calibration_error, probabilities, reliability, thresholds_of
from .inputs import Inputs, labelled_loss
from .labels import SEPARATOR, label_names, label_parts, marked_labels, number, one_label, several_labels, unknown_label
from .metrics import METRICS, all_same, majority_score
from .records import Source
from .sequences import Integers, Spans, Windows, cut_pairs, even_windows, frame
from .table import locator, read_table


class Classified(TypedDict):
    """The likeliest label of a text or pair; of several at once, those above their thresholds with | between them."""

    label: str
    score: float  # the label's probability, the largest one of several labels; of a regression, the value
    scores: NotRequired[dict[str, float]]  # of all labels
    windows: int  # how many windows were averaged; 1: the text fits
    tokens: int  # tokens that the model read, overlaps of windows included
    cut: int  # tokens that did not fit


NUMERIC = ("regression", "embedding")  # kinds whose labels are numbers

# ---- reading


def read(task: Task, path: Source, labelled: bool = True) -> list[Example]:
    """The rows of one file; the label column is not looked at unless `labelled`.

    Raises InputError with file and line if a column or a label is missing, a label is unknown, or the file is damaged.
    """
    count = len(task.text)
    lists = (task.label,) if task.kind == "multilabel" else ()
    marks = task.label.split(",") if labelled and lists and "," in task.label else []  # one column per label
    columns = (*task.text, *(marks or [task.label])) if labelled else task.text
    where, names = locator(path), dict(zip(task.raw_labels or task.labels, task.labels, strict=True))
    check = {"multilabel": several_labels} | dict.fromkeys(NUMERIC, number)
    examples, checked = list[Example](), dict[str, str]()
    # one pass: collecting the rows first would double the time, most of it spent by the garbage collector
    for line, values in read_table(path, columns, task.header, (), lists, task.form):
        label = None
        if marks:
            label = marked_labels([*map(str.strip, values[count:])], marks, where(line))
        elif labelled:
            value = values[count].strip()
            label = checked.get(value)
            if label is None:
                label = checked[value] = check.get(task.kind, one_label)(value, names, where(line))
        examples.append(Example(values[0], values[1] if count == 2 else None, label, line))
    return examples


# ---- featurising


def prepare(
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    task: Task,
    limits: LengthLimits,
    windowed: bool = False,
    cut_left: bool = False,
) -> "ClassRows":
    """Examples as arrays, the texts cut to limits.max_seq_length; labels become their numbers in `task.labels`.

    windowed: a single text of any length has windows, to predict; only pairs are cut. cut_left: pairs are cut at the
    beginning of their longer text instead of its end. Raises InputError for a label that is not there.
    """
    texts, seconds, limit = [e.text for e in examples], [e.pair or "" for e in examples], limits.max_seq_length
    whole = np.array([windowed and example.pair is None for example in examples], bool)
    first, second, paired, total = cut_pairs(tokenizer, texts, seconds, limit, ~whole & cut_left)
    length = np.where(whole, total, first.length)  # of the part that windows are over
    windows = even_windows(length, np.where(whole, limit - 2, length))
    row, cut = windows.text, total - length - second.length
    shown = Spans(first.tokens, first.start[row] + windows.start, windows.length)
    frames = frame(tokenizer, shown, second.of(row), paired=paired[row])
    inputs = Inputs(*frames, _labels(examples, task)[row], cut[row], tokenizer.pad_id, limit)
    return ClassRows(inputs, task, examples, row, cut, windows)


def _labels(examples: Sequence[Example], task: Task) -> NDArray[Any]:
    """(N,) class numbers, -100 = none; (N,) numbers, NaN = none; or (N, K) of 0 and 1."""
    if task.kind == "regression":
        return np.array([np.nan if e.label is None else float(e.label) for e in examples], np.float32)
    numbers = {label: i for i, label in enumerate(task.labels)}
    named = [label_parts(example.label, task) for example in examples]
    for example, names in zip(examples, named, strict=True):
        for name in names:
            if name not in numbers:
                raise InputError(f"line {example.line}: {unknown_label(name, task.labels)}")
    if task.kind != "multilabel":
        return np.array([numbers[names[0]] if names else IGNORED for names in named], np.int64)
    marked = np.zeros((len(named), len(numbers)), np.float32)
    for row, names in zip(marked, named, strict=True):
        row[[numbers[name] for name in names]] = 1
    return marked


# ---- evaluation


@dataclass(frozen=True)
class ClassRows(Prepared):
    """Rows of a classification or regression, ready for a model."""

    windows: Windows  # one a row, unless they were made to predict for long texts

    @property
    def majority(self) -> float:
        """The first metric of the best answer that does not look at the text."""
        return majority_score(self.task.metrics[0], self.inputs.labels)

    def decode(self, scores: Tensor, settings: Mapping[str, Any], raw: bool = False) -> list[Classified]:
        """The label of each row from (S, K) scores; the probabilities of a long text's windows are averaged.

        raw: the results hold scores before softmax or sigmoid instead of probabilities. `settings` may have
        `thresholds` of several labels, by name; others begin above one half.
        """
        names, threshold = self.task.labels, thresholds_of(self.task.labels, settings)
        threshold = np.log(threshold) - np.log1p(-threshold) if raw else threshold
        values, order = self._ranked(scores, raw)
        windows = np.bincount(self.owner, minlength=len(values)).tolist()
        results = []
        for row, best, *counts in zip(
            values, order[:, 0], windows, self.tokens.tolist(), self.cut.tolist(), strict=True
        ):
            label, each = names[best], dict(zip(names, row.tolist(), strict=True))
            if self.task.kind == "multilabel":
                label = SEPARATOR.join(names[k] for k in np.flatnonzero(row > threshold))
            count, tokens, cut = counts
            score = each[names[best]]
            results.append(Classified(label=label, score=score, scores=each, windows=count, tokens=tokens, cut=cut))
        return results

    def best_first(self, scores: Tensor, raw: bool = False) -> list[list[tuple[str, float]]]:
        """The labels of each row with what `decode` gives them, the most probable first."""
        rows = zip(*(array.tolist() for array in self._ranked(scores, raw)), strict=True)
        return [[(self.task.labels[k], values[k]) for k in order] for values, order in rows]

    def _ranked(self, scores: Tensor, raw: bool) -> tuple[NDArray[np.float64], Integers]:
        """(N, K) values and (N, K) outputs, the best first; scores decide where probabilities are equal by rounding."""
        means = self.windows.mean(scores.double().numpy())
        values = means if raw else self.windows.mean(probabilities(scores, self.task.kind).numpy())
        return values, np.lexsort((-means, -values), axis=-1)

    def evaluate(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> EvaluationResult:
        """Metrics of (N, K) scores; of classes also calibration."""
        true, task = self.inputs.labels, self.task
        predicted = predictions(scores, task, thresholds_of(task.labels, settings or {}))
        numbers, details = {}, {}
        if task.kind != "regression":
            counts = predicted.sum(0) if predicted.ndim == 2 else np.bincount(predicted, minlength=len(task.labels))
            numbers = dict(zip(task.labels, map(int, counts), strict=True))
            table = reliability(probabilities(scores, task.kind).numpy(), true)
            details = {"ece": expected_calibration_error(table), "reliability": table}
        return EvaluationResult(
            metrics={"loss": labelled_loss(scores, true)}
            | {name: METRICS[name](true, predicted) for name in task.metrics},
            predicted=numbers,
            majority=self.majority,
            constant_predictions=all_same(predicted) and not bool((true == true[:1]).all()),
            files=self.predictions(named_labels(true, task), named_labels(predicted, task)),
            details=details,
        )


def predictions(scores: Tensor, task: Task, thresholds: NDArray[np.float64] | float = HALF) -> NDArray[Any]:
    """(N,) class numbers or values, or (N, K) of 0 and 1, from (N, K) scores. thresholds (K,): of several labels."""
    if task.kind == "regression":
        return scores[:, 0].numpy()
    if task.kind == "multilabel":
        return (probabilities(scores, task.kind).numpy() > thresholds).astype(np.float32)
    return scores.argmax(-1).numpy()


def named_labels(numbers: NDArray[Any], task: Task) -> list[Any]:
    """Class numbers as names, several with | between them; values of a regression as they are."""
    if task.kind == "regression":
        return [float(value) for value in numbers]
    if task.kind == "multilabel":
        return [SEPARATOR.join(task.labels[i] for i in row.nonzero()[0]) for row in numbers]
    return [task.labels[i] if i >= 0 else None for i in numbers]


def _kind(*metrics: str) -> TaskType:
    return TaskType("classifier", ClassificationObjective(), read, prepare, metrics, label_names)


SINGLE = PAIR = _kind("accuracy", "macro_f1", "f1", "matthews")
REGRESSION = _kind("pearson", "spearman")
MULTILABEL = _kind("micro_f1", "exact_match", "macro_f1")
