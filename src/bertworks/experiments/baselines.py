"""Baselines without an encoder: a linear model over TF-IDF of texts, or over a word and its neighbours.

    texts       TF-IDF of words and of pairs of neighbouring words, or of one to four characters within a word; two
                texts are read as one. "overlap": of characters, with what two texts have in common: the products of
                their values, and the sum of these (their cosine). Logistic regression, of scores ridge regression
    tagging     for each word: the word, its first and last letters, its shape, and those of two words before and after.
                Each word is tagged by itself

scikit-learn fits them. The strength of the regularisation is chosen on a part of the training rows, never on the
development rows; the model is then fitted again on all training rows.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..files import InputError
from ..tasks.base import Data, Task
from ..tasks.kinds import with_labels
from ..tasks.metrics import METRICS
from ..tasks.sampling import hold_out_rows
from ..tasks.sentences import Tagged
from ..tasks.tags import score_tags

STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # C: the inverse of the weight of the L2 penalty
NEIGHBOURS = 2  # words before and after a word that are its features too
ENDS = 3  # letters of the first and of the last part of a word
KINDS = ("single", "pair", "regression", "tagging")
CHARACTERS = {"analyzer": "char_wb", "ngram_range": (1, 4)}
UNITS: dict[str, dict[str, Any]] = {"words": {"ngram_range": (1, 2)}, "characters": CHARACTERS, "overlap": CHARACTERS}
Predict = Callable[[Sequence[Any]], list[Any]]  # the answers for rows: labels, or the tags of each row


@dataclass(frozen=True)
class BaselineConfig:
    """Settings of a baseline; its regularisation is chosen."""

    seed: int = 1  # of the held-out training examples by which it is chosen
    units: Literal["words", "characters", "overlap"] = "words"  # of TF-IDF
    max_iter: int = 1000  # iterations of the optimiser, at most


def fit_baseline(task: Task, data: Data, config: BaselineConfig = BaselineConfig()) -> dict[str, Any]:
    """`metrics` on the development rows, named as those of a fine-tuning; the chosen `strength`; `kept_back`.

    kept_back: the first metric on the held-out training rows, for each strength. Raises InputError for another kind of
    task than those above, and for fewer than two training rows.
    """
    check_kind(task)
    task = with_labels(task, data.train)
    fit, score = (_fit_tags, _score_tags) if task.kind == "tagging" else (_fit_texts, _score_texts)
    train, held_out = hold_out_rows(data.train, config.seed)
    if not held_out:
        raise InputError(f"{task.name}: {len(data.train)} training rows; expected two or more; give more rows")
    scores = {c: score(task, held_out, fit(task, train, c, config)(held_out))[task.metrics[0]] for c in STRENGTHS}
    strength = max(STRENGTHS, key=lambda c: scores[c])
    predict = fit(task, data.train, strength, config)
    answers = predict(data.dev)
    metrics = score(task, data.dev, answers)
    for name, rows in data.more.items():
        metrics |= {f"{key}_{name}": value for key, value in score(task, rows, predict(rows)).items()}
    return {
        "kind": "baseline",
        "task": task.name,
        "metrics": metrics,
        "strength": strength,
        "kept_back": {f"{c:g}": score for c, score in scores.items()},
        "collapsed": len({*_flat(answers)}) == 1 < len({*_flat([_truth(row) for row in data.dev])}),
        "examples": {"train": len(data.train), "dev": len(data.dev)},
    }


def check_kind(task: Task) -> None:
    """Raises InputError for a kind of task that has no baseline."""
    if task.kind not in KINDS:
        raise InputError(f"{task.name} is of the kind {task.kind}; a baseline expects {', '.join(KINDS)}; leave it out")


def _truth(row: Any) -> Any:
    return row.tags if isinstance(row, Tagged) else row.label


def _flat(answers: list[Any]) -> Iterator[str]:
    """All labels, or all tags of all rows."""
    return itertools.chain.from_iterable(answer if isinstance(answer, list | tuple) else [answer] for answer in answers)


def _regression(features: Any, labels: Sequence[Any], strength: float, config: BaselineConfig) -> Any:
    """A fitted logistic regression, ridge regression of numbers; of a single label one that always answers with it."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression, Ridge

    if isinstance(labels[0], float):
        return Ridge(1 / strength, tol=1e-3).fit(features, labels)
    if len({*labels}) == 1:
        return DummyClassifier().fit(features, labels)
    return LogisticRegression(C=strength, max_iter=config.max_iter, tol=1e-3).fit(features, labels)


# ---- texts


def _fit_texts(task: Task, rows: Sequence[Any], strength: float, config: BaselineConfig) -> Predict:
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(sublinear_tf=True, **UNITS[config.units])
    label_of = float if task.kind == "regression" else str

    def features(rows: Sequence[Any]) -> Any:
        one, other = ([row.text for row in rows], [row.pair or "" for row in rows])
        joined = vectors.transform([f"{a} {b}" for a, b in zip(one, other, strict=True)])
        if config.units != "overlap":
            return joined
        first, second = vectors.transform(one), vectors.transform(other)
        common = first.multiply(second)
        return hstack([joined, common, common.sum(1)], format="csr")

    vectors.fit([f"{row.text} {row.pair or ''}" for row in rows])
    model = _regression(features(rows), [label_of(row.label) for row in rows], strength, config)
    return lambda rows: [label_of(answer) for answer in model.predict(features(rows))]


def _score_texts(task: Task, rows: Sequence[Any], answers: list[Any]) -> dict[str, float]:
    number = float if task.kind == "regression" else task.labels.index
    true, predicted = (np.array([*map(number, labels)]) for labels in ([row.label for row in rows], answers))
    return {name: METRICS[name](true, predicted) for name in task.metrics}


# ---- tags


def _fit_tags(task: Task, rows: Sequence[Tagged], strength: float, config: BaselineConfig) -> Predict:
    from sklearn.feature_extraction import DictVectorizer

    vectors = DictVectorizer()
    features = vectors.fit_transform(_words(rows))
    model = _regression(features, [tag for row in rows for tag in row.tags or ()], strength, config)

    def predict(rows: Sequence[Tagged]) -> list[list[str]]:
        tags = iter(map(str, model.predict(vectors.transform(_words(rows)))))
        return [list(itertools.islice(tags, len(row.units))) for row in rows]

    return predict


def _score_tags(task: Task, rows: Sequence[Tagged], answers: list[list[str]]) -> dict[str, float]:
    scores = score_tags([row.tags or () for row in rows], answers)
    return {name: scores.entities[name] for name in ("f1", "precision", "recall")} | {"accuracy": scores.accuracy}


def _words(rows: Sequence[Tagged]) -> list[dict[str, Any]]:
    """The features of each word of all rows."""
    return [features for row in rows for features in _features([row.text[a:b] for a, b in row.units])]


def _features(words: list[str]) -> Iterator[dict[str, Any]]:
    own: list[dict[str, Any]] = [
        {"word": word.lower(), "begin": word[:ENDS].lower(), "end": word[-ENDS:].lower(), "shape": shape_of(word)}
        for word in words
    ]
    outside = [{"outside": True}] * NEIGHBOURS  # of the sentence
    padded = [*outside, *own, *outside]
    for i in range(len(words)):
        window = zip(range(-NEIGHBOURS, NEIGHBOURS + 1), padded[i : i + 2 * NEIGHBOURS + 1], strict=True)
        yield {f"{offset} {name}": value for offset, word in window for name, value in word.items()}


def shape_of(word: str) -> str:
    """Capital letters as X, others as x, digits as 0, each run as one: "X0-x" of "F16-like"."""
    marks = "".join("X" if c.isupper() else "x" if c.isalpha() else "0" if c.isdigit() else c for c in word)
    return re.sub(r"(.)\1+", r"\1", marks)
