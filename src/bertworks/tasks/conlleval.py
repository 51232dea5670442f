"""Scores of entities, equal to those of CoNLL's Perl script `conlleval`: an entity is right if type and both ends are.

Fractions from 0 to 1; 0 where the script divides by nothing. It prints percents, rounded to two digits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .tags import chunks


@dataclass(frozen=True)
class Counts:
    """How many entities the data has, how many were found, and how many of these are right."""

    gold: int
    found: int
    correct: int

    @property
    def precision(self) -> float:
        return self.correct / max(self.found, 1)

    @property
    def recall(self) -> float:
        return self.correct / max(self.gold, 1)

    @property
    def f1(self) -> float:
        """FB1, the harmonic mean of precision and recall."""
        return 2 * self.correct / max(self.gold + self.found, 1)


@dataclass(frozen=True)
class Scores:
    """What `evaluate` counted."""

    units: int
    same: int  # units whose tags agree letter for letter
    entities: Counts
    types: dict[str, Counts]  # of all types that data or predictions have, sorted

    @property
    def accuracy(self) -> float:
        return self.same / max(self.units, 1)


def evaluate(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> Scores:
    """Scores of the predicted tags of sentences. Raises ValueError if sentences or tags are not the same in number."""
    units = same = 0
    counts = Counter[str](), Counter[str](), Counter[str]()
    for true, told in zip(gold, predicted, strict=True):
        units += len(true)
        same += sum(a == b for a, b in zip(true, told, strict=True))
        there, found = set(chunks(true)), set(chunks(told))
        for counter, some in zip(counts, (there, found, there & found), strict=True):
            counter.update(chunk.type for chunk in some)
    types = {kind: Counts(*(counter[kind] for counter in counts)) for kind in sorted({*counts[0], *counts[1]})}
    return Scores(units, same, Counts(*(counter.total() for counter in counts)), types)
