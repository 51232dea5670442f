"""How right answers to questions are: the official evaluations of SQuAD 1.1, SQuAD 2.0 and KorQuAD 1.0.

A prediction is compared with each of the right answers after normalization, and the best result counts: exact match,
and F1 of the words (KorQuAD: of the characters). All figures are fractions from 0 to 1; the official programs print
them as percentages.

Shapes: N questions.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_KORQUAD_SPACES = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


# ---- one answer


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def normalize_korquad(text: str) -> str:
    """Lower case, brackets and quotes as spaces, without other ASCII punctuation, with single spaces."""
    return " ".join(text.translate(_KORQUAD_SPACES).lower().translate(_NO_PUNCTUATION).split())


def overlap_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """F1 of two bags of words, or of two strings as bags of characters; 0 if they share nothing."""
    common = sum((Counter(predicted) & Counter(gold)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return 2 * precision * recall / (precision + recall)


Grade = tuple[float, float]  # exact match and F1 of one answer, as the official script computes them
Rule = Callable[[str, Sequence[str]], Grade]


def grade_v1(predicted: str, golds: Sequence[str]) -> Grade:
    """SQuAD 1.1."""
    words, right = normalize_answer(predicted).split(), [normalize_answer(gold).split() for gold in golds]
    return (float(words in right), max((overlap_f1(words, gold) for gold in right), default=0.0))


def grade_v2(predicted: str, golds: Sequence[str]) -> Grade:
    """SQuAD 2.0: without a right answer nothing is right, "" or what normalization leaves nothing of."""
    words, right = normalize_answer(predicted).split(), [normalize_answer(gold).split() for gold in golds]
    right = [gold for gold in right if gold] or [[]]
    return (float(words in right), max(overlap_f1(words, gold) if gold else float(not words) for gold in right))


def grade_korquad(predicted: str, golds: Sequence[str]) -> Grade:
    """KorQuAD 1.0: endings hang on Korean words, so F1 is that of the characters, spaces left out."""
    text, right = normalize_korquad(predicted), [normalize_korquad(gold) for gold in golds]
    letters = (overlap_f1(text.replace(" ", ""), gold.replace(" ", "")) for gold in right)
    return (float(text in right), max(letters, default=0.0))


# ---- all answers


@dataclass(frozen=True)
class Scores:
    """Exact match and F1 of the predictions for N questions."""

    exact: Values  # (N,)
    f1: Values  # (N,)
    has_answer: Flags  # (N,) whether there is a right answer

    def summary(self) -> dict[str, float]:
        """The means, over all questions and over those with and without an answer (if there are any)."""
        groups = {"": np.ones_like(self.has_answer), "has_answer_": self.has_answer, "no_answer_": ~self.has_answer}
        return {
            name + key: float(getattr(self, key)[rows].mean())
            for name, rows in groups.items()
            for key in ("exact", "f1")
            if rows.any()
        }


def score(predictions: Sequence[str], golds: Collection[Sequence[str]], grade: Rule) -> Scores:
    """All predictions, by one of the rules above."""
    grades = [grade(text, gold) for text, gold in zip(predictions, golds, strict=True)]
    exact, f1 = np.array(grades, np.float64).reshape(-1, 2).T
    return Scores(exact, f1, np.array([bool(gold) for gold in golds], np.bool_))


def reachable_threshold(values: Values, empty: Values, no_answer: Values) -> tuple[float, float]:
    """The best mean, and the threshold that gives it: no answer means strictly above.

    Answers are worth `values`, and no answers `empty` (all (N,)).

    It lies halfway between the last question that is answered and the first that is not, where any other would do for
    these questions: on new ones it has a margin. Of equally good places the lowest is taken.
    """
    order = np.argsort(no_answer, kind="stable")
    reached = np.cumsum(np.append(empty.sum(), (values - empty)[order]))
    ranked = no_answer[order]
    ranked = np.concatenate([ranked[:1] - 2, ranked, ranked[-1:] + 2])  # so that all and none are 1 away
    best = int(np.where(ranked[1:] > ranked[:-1], reached, -np.inf).argmax())
    below, above = ranked[best : best + 2].tolist()
    return float(reached[best]) / len(values), min((below + above) / 2, math.nextafter(above, below))
