"""What a linear model without a network makes of the same rows: scikit-learn's logistic regression.

Texts are counted as TF-IDF. A word to tag is described by itself, its ending, its shape and its two neighbours.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ..tasks.sentences import Tagged
from ..tasks.tags import score_tags
from .tasks import Rows

PENALTIES = (1.0, 10.0, 100.0)  # inverse strengths of the penalty to choose from on dev
SHAPES = [(re.compile("[A-Z]+"), "X"), (re.compile("[a-z]+"), "x"), (re.compile("[0-9]+"), "0")]


def linear_baseline(found: Rows) -> dict[str, Any]:
    """The best linear model on dev: `penalty`, the score of each on `dev`, and `test`."""
    features = TfidfVectorizer(sublinear_tf=True) if found.task.kind == "single" else DictVectorizer()
    described = {side: list(_descriptions(found, side)) for side in found.rows}
    inputs = {
        side: features.fit_transform(rows) if side == "train" else features.transform(rows)
        for side, rows in described.items()
    }
    labels = list(_labels(found, "train"))
    scores: dict[float, dict[str, float]] = {}
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=500).fit(inputs["train"], labels)
        scores[penalty] = {side: _score(found, side, list(model.predict(inputs[side]))) for side in ("dev", "test")}
    best = max(scores, key=lambda penalty: scores[penalty]["dev"])
    dev = {f"{penalty:g}": score["dev"] for penalty, score in scores.items()}
    return {"penalty": best, "dev": dev, "test": scores[best]["test"]}


def _descriptions(found: Rows, side: str) -> Iterator[Any]:
    """What the model sees: a text of each row, or features of each word."""
    for row in found.rows[side]:
        if found.task.kind == "single":
            yield row.text
        else:
            yield from word_features(row)


def word_features(row: Tagged) -> Iterator[dict[str, int]]:
    """Each word, its ending, its shape and its neighbours."""
    words = ["", *(row.text[start:end] for start, end in row.units), ""]
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        yield {
            f"word {word.lower()}": 1,
            f"ending {word[-3:]}": 1,
            f"shape {_shape(word)}": 1,
            f"before {before.lower()}": 1,
            f"after {after.lower()}": 1,
        }


def _shape(word: str) -> str:
    for pattern, letter in SHAPES:
        word = pattern.sub(letter, word)
    return word


def _labels(found: Rows, side: str) -> Iterator[str]:
    """The label of each text, or the tag of each word."""
    for row in found.rows[side]:
        if found.task.kind == "single":
            yield row.label
        else:
            yield from row.tags


def _score(found: Rows, side: str, predicted: Sequence[str]) -> float:
    """Accuracy over texts, or F1 over tagged words, as the fine-tuned models are judged."""
    rows = found.rows[side]
    if found.task.kind == "single":
        return sum(row.label == guess for row, guess in zip(rows, predicted, strict=True)) / len(rows)
    rest = iter(predicted)
    guesses = [[next(rest) for _ in row.units] for row in rows]
    return float(score_tags([row.tags for row in rows], guesses).entities.f1)
