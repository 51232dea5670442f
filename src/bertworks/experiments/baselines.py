"""Baselines without an encoder: a logistic regression over bags of words, or over a word and its neighbours.

    single      TF-IDF of words and of pairs of neighbouring words
    tagging     for each word: the word, its first and last letters, its shape, and those of two words on each side.
                Each word is tagged by itself

scikit-learn fits them. The strength of the regularisation is chosen on a part of the training rows, never on the
development rows; the model is then fitted again on all training rows.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..config import check_least, check_seed
from ..files import InputError
from ..tasks.base import Data, Task
from ..tasks.kinds import with_labels
from ..tasks.metrics import METRICS
from ..tasks.sampling import hold_out_rows
from ..tasks.sentences import Tagged
from ..tasks.tags import score_tags

STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # C: the inverse of the weight of the L2 penalty
NEIGHBOURS = 2  # words on each side that describe a word
ENDS = 3  # letters of the first and of the last part of a word
Predict = Callable[[Sequence[Any]], list[Any]]  # the answers for rows: labels, or the tags of each row


@dataclass(frozen=True)
class BaselineConfig:
    """Settings of a baseline; its regularisation is chosen."""

    seed: int = 1  # of the training rows that are kept back to choose by
    max_iter: int = 1000  # iterations of the optimiser, at most

    def __post_init__(self) -> None:
        check_least(self, ("max_iter",), 1)
        check_seed(self.seed)


def fit_baseline(task: Task, data: Data, config: BaselineConfig = BaselineConfig()) -> dict[str, Any]:
    """`metrics` on the development rows, named as those of a fine-tuning; the chosen `strength`; `kept_back`.

    kept_back: the first metric on the training rows that were kept back, for each strength. Raises InputError for
    another kind of task than single and tagging, and for fewer than two training rows.
    """
    check_kind(task)
    task = with_labels(task, data.train)
    fit, evaluate = (_fit_tags, _evaluate_tags) if task.kind == "tagging" else (_fit_texts, _evaluate_texts)
    kept, back = hold_out_rows(data.train, config.seed)
    if not back:
        raise InputError(f"{task.name}: {len(data.train)} training rows; expected two or more; give more rows")
    scores = {c: evaluate(task, back, fit(kept, c, config)(back))[task.metrics[0]] for c in STRENGTHS}
    strength = max(STRENGTHS, key=lambda c: scores[c])
    predict = fit(data.train, strength, config)
    answers = predict(data.dev)
    more = {name: evaluate(task, rows, predict(rows)) for name, rows in data.more.items()}
    return {
        "kind": "baseline",
        "task": task.name,
        "metrics": evaluate(task, data.dev, answers)
        | {f"{key}_{name}": value for name, found in more.items() for key, value in found.items()},
        "strength": strength,
        "kept_back": {f"{c:g}": score for c, score in scores.items()},
        "collapsed": len({*_flat(answers)}) == 1 < len({*_flat([_truth(row) for row in data.dev])}),
        "examples": {"train": len(data.train), "dev": len(data.dev)},
    }


def check_kind(task: Task) -> None:
    """Raises InputError for a kind of task that no baseline knows."""
    if task.kind not in ("single", "tagging"):
        raise InputError(f"{task.name} is of the kind {task.kind}; a baseline expects single or tagging; leave it out")


def _truth(row: Any) -> Any:
    return row.tags if isinstance(row, Tagged) else row.label


def _flat(answers: list[Any]) -> Iterator[str]:
    """All labels, or all tags of all rows."""
    return itertools.chain.from_iterable([answer] if isinstance(answer, str) else answer for answer in answers)


def _regression(features: Any, labels: Sequence[str], strength: float, config: BaselineConfig) -> Any:
    """A fitted logistic regression; where there is one label alone, what answers with it."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    if len({*labels}) == 1:
        return DummyClassifier().fit(features, labels)
    return LogisticRegression(C=strength, max_iter=config.max_iter, tol=1e-3).fit(features, labels)


# ---- texts


def _fit_texts(rows: Sequence[Any], strength: float, config: BaselineConfig) -> Predict:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = _regression(
        vectors.fit_transform([row.text for row in rows]), [row.label for row in rows], strength, config
    )
    return lambda some: list(map(str, model.predict(vectors.transform([row.text for row in some]))))


def _evaluate_texts(task: Task, rows: Sequence[Any], answers: list[str]) -> dict[str, float]:
    true, predicted = (
        np.array([task.labels.index(label) for label in labels]) for labels in ([row.label for row in rows], answers)
    )
    return {name: METRICS[name](true, predicted) for name in task.metrics}


# ---- tags


def _fit_tags(rows: Sequence[Tagged], strength: float, config: BaselineConfig) -> Predict:
    from sklearn.feature_extraction import DictVectorizer

    vectors = DictVectorizer()
    features = vectors.fit_transform(_words(rows))
    model = _regression(features, [tag for row in rows for tag in row.tags or ()], strength, config)

    def predict(some: Sequence[Tagged]) -> list[list[str]]:
        tags = iter(map(str, model.predict(vectors.transform(_words(some)))))
        return [list(itertools.islice(tags, len(row.units))) for row in some]

    return predict


def _evaluate_tags(task: Task, rows: Sequence[Tagged], answers: list[list[str]]) -> dict[str, float]:
    found = score_tags([row.tags or () for row in rows], answers)
    whole = found.entities
    return {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall, "accuracy": found.accuracy}


def _words(rows: Sequence[Tagged]) -> list[dict[str, Any]]:
    """What describes each word of all rows."""
    return [features for row in rows for features in _described([row.text[a:b] for a, b in row.units])]


def _described(words: list[str]) -> Iterator[dict[str, Any]]:
    each = [
        {"word": word.lower(), "begin": word[:ENDS].lower(), "end": word[-ENDS:].lower(), "shape": shape_of(word)}
        for word in words
    ]
    for i in range(len(words)):
        features: dict[str, Any] = {}
        for offset in range(-NEIGHBOURS, NEIGHBOURS + 1):
            there = 0 <= i + offset < len(words)
            found = each[i + offset] if there else {"outside": True}  # of the sentence
            features |= {f"{offset} {name}": value for name, value in found.items()}
        yield features


def shape_of(word: str) -> str:
    """Capital letters as X, others as x, digits as 0, each run as one: "X0-x" of "F16-like"."""
    marks = "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    return re.sub(r"(.)\1+", r"\1", marks)
