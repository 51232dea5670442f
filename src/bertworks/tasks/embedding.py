"""Embedders: pairs of texts whose vectors should be as alike as a score says, or more alike than any other pair's.

A text's vector is the mean over its last layer's tokens (Reimers & Gurevych 2019); two vectors are compared by their
cosine. With `--label`, rows have scores: the cosine learns them. Without, each row's second text belongs to its first,
and the second texts of the other rows in the batch do not (Henderson et al. 2017). Scores whose largest is above 1 are
divided by it, as STS-B's from 0 to 5: by the largest one of the training rows, development rows too.

Shapes: N rows, two sequences each (S = 2 N: first text, second text, first, ...), D width, B rows of a batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..files import InputError
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer
from ..training.task_objectives import EMBEDDING_SCALE, EmbeddingObjective
from .base import EvaluationResult, Example, LengthLimits, Prepared, Task, TaskType
from .classification import read as read_pairs
from .inputs import Inputs, labelled_loss
from .labels import LARGEST
from .metrics import METRICS
from .records import Source
from .sequences import frame, tokenize
from .table import names_of

CHUNK = 256  # rows that are compared with all at once
SCORE_COLUMNS = ("label", "score")  # usual names of columns of scores
TIE = 1e-5  # cosines that differ by less are the same but for rounding
SCORED, POSITIVE = ("spearman", "pearson"), ("mrr", "recall_at_1")  # metrics of rows with scores, and of pairs alone


def read(task: Task, path: Source, labelled: bool = True) -> list[Example]:
    """The pairs of one file. Raises InputError with file and line: a column is missing, a score is no number.

    Also if pairs are read without scores from a table with a column called label or score.
    """
    names = names_of(path, task.form) if labelled and not task.label else ()
    if ignored := sorted({*SCORE_COLUMNS} & {*names} - {*task.text}):
        meaning = "without a label the texts of a row belong together"
        raise InputError(
            f"{path}: the column {ignored[0]} would be ignored: {meaning}; give it as label, or remove the column"
        )
    return read_pairs(task, path, labelled and bool(task.label))


def scale_of(task: Task, rows: Sequence[Example]) -> float:
    """What scores are divided by: the task's scale, else the largest one of these rows by size, at least 1."""
    return task.scale or max([1.0, *(abs(float(row.label)) for row in rows if row.label is not None)])


def prepare(tokenizer: Tokenizer, examples: Sequence[Example], task: Task, limits: LengthLimits) -> "PairRows":
    """Each text as a sequence of its own, cut to limits.max_seq_length.

    Raises InputError for a row of one text, and for a score that is no cosine when it is divided by the scale.
    """
    scale = scale_of(task, examples) if task.label else 1.0
    for example in examples:
        if example.pair is None:
            raise InputError(f"line {example.line}: one text; expected two in every row")
        largest = min(scale, LARGEST)
        if task.label and example.label is not None and abs(float(example.label)) > largest:
            expected = f"expected one from {-largest:g} to {largest:g}, the largest one of training, at least 1"
            raise InputError(f"line {example.line}: score {example.label}; {expected}")
    whole = tokenize(tokenizer, [text for example in examples for text in (example.text, example.pair or "")])
    length = np.minimum(whole.length, limits.max_seq_length - 2)
    cut = (whole.length - length).reshape(-1, 2).sum(1)
    scores = np.array([np.nan if example.label is None else float(example.label) for example in examples], np.float32)
    labels: Any = scores / np.float32(scale) if task.label else np.zeros(len(examples), np.int64)
    frames = frame(tokenizer, whole._replace(length=length))
    inputs = Inputs(*frames, labels, cut, tokenizer.pad_id, limits.max_seq_length, choices=2)
    return PairRows(inputs, task, examples, np.repeat(np.arange(len(examples)), 2), cut, scale)


@dataclass(frozen=True)
class PairRows(Prepared):
    """Pairs of texts, ready for a model."""

    scale: float  # the scores are divided by it

    def notes(self) -> list[str]:
        """What is cut, and the number by which scores are divided."""
        divided = f"scores are divided by {self.scale:g}, the largest one of training: a cosine is 1 at most"
        return [*super().notes(), *([divided] if self.scale > 1 else [])]

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[dict[str, float]]:
        """The cosine of each row's two vectors, of (S, D)."""
        return [{"cosine": value} for value in _cosines(scores).tolist()]

    def second_texts(self) -> list[int]:
        """(N,) number of each row's second text; equal texts have the same, counted from 0."""
        inputs, numbers = self.inputs, dict[bytes, int]()
        edges = inputs.edges[1:].tolist()
        texts = (inputs.ids[a:b].tobytes() for a, b in zip(edges[::2], edges[1::2], strict=True))
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    def evaluate(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> EvaluationResult:
        """Metrics of (S, D) vectors: correlation with the scores; or the rank of a text's own pair among all."""
        cosines, labels = _cosines(scores), self.inputs.labels
        is_constant = len(cosines) > 1 and float(cosines.max() - cosines.min()) <= TIE
        if self.task.label:
            metrics = {name: METRICS[name](labels, cosines.numpy()) for name in self.task.metrics}
            loss = labelled_loss(cosines, labels)
        else:
            ranks, loss = _ranks(scores, self.second_texts())
            metrics = {"mrr": float((1 / ranks).mean()), "recall_at_1": float((ranks == 1).float().mean())}
            is_constant &= not bool((ranks == 1).any())  # pairs of equal texts have one cosine, and differ from others
        rows = zip(self.rows, cosines.tolist(), strict=True)
        files = {PREDICTIONS: [{"line": row.line, "cosine": value} for row, value in rows]}
        return EvaluationResult({"loss": loss, **metrics}, constant_predictions=is_constant, files=files)


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second vectors of the rows, (N, D) each, of length 1."""
    pairs = F.normalize(vectors.float().view(-1, 2, vectors.shape[-1]), dim=-1)
    return pairs[:, 0], pairs[:, 1]


def _cosines(vectors: Tensor) -> Tensor:
    first, second = _unit(vectors)
    return (first * second).sum(-1)


def _ranks(vectors: Tensor, texts: Sequence[int]) -> tuple[Tensor, float]:
    """(N,) rank of each row's second text among all for its first one, from 1; and the mean loss with all negatives.

    texts: (N,) number of each second text; equal texts are ranked as one. Tied texts have the mean of their ranks.
    """
    first, second = _unit(vectors)
    number = torch.tensor(texts, dtype=torch.int64)
    rows = torch.tensor([*{text: row for row, text in enumerate(texts)}.values()], dtype=torch.int64)  # one of each
    ranks, loss = [], 0.0
    for start in range(0, len(first), CHUNK):
        cosines = first[start : start + CHUNK] @ second.T
        own = torch.arange(start, start + len(cosines))
        ahead = cosines[:, rows] - cosines[:, rows].gather(1, number[own][:, None])
        ranks.append((ahead > TIE).sum(1) + ((ahead.abs() <= TIE).sum(1) + 1) / 2)
        loss += float(F.cross_entropy(EMBEDDING_SCALE * cosines, own, reduction="sum"))
    return torch.cat(ranks), loss / max(len(first), 1)


EMBEDDING = TaskType(None, EmbeddingObjective(), read, prepare, (*SCORED, *POSITIVE))
