"""Tags of units in a row, and the entities they cut out. IOB1, IOB2, BIOES (IOBES), BILOU and IOE are read by one rule.

    unit     New   York  ,  Paris  London
    IOB2     B-LOC I-LOC O  B-LOC  B-LOC    B- begins every entity
    IOB1     I-LOC I-LOC O  I-LOC  B-LOC    B- only where an entity follows one of its own type; CoNLL-2003's files
    BIOES    B-LOC E-LOC O  S-LOC  S-LOC    the last unit is E-, an only one S-
    BILOU    B-LOC L-LOC O  U-LOC  U-LOC    the same with L- and U-

The rule is conlleval's: an entity begins at a tag that says so, after O, after another type and after a tag that ends
one. So ill-formed sequences have entities too: in O I-LOC the I-LOC begins one.

Scores: an entity is right if its type and both its ends are. They are fractions from 0 to 1, and 0 where conlleval
divides by nothing; conlleval prints percents, rounded to two digits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..files import InputError, shorten

OUTSIDE = "O"
_BEGIN, _END = "BSU", "ESLU"


class Chunk(NamedTuple):
    """An entity: units `start` up to `end`, which is not in it."""

    type: str
    start: int
    end: int


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """The entities of one sentence, by the rule above."""
    found, start, before, ended = [], 0, "", False
    for i, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, kind = tag.partition("-")
        if kind != before or ended or prefix in _BEGIN:
            if before:
                found.append(Chunk(before, start, i))
            start = i
        before, ended = kind, prefix in _END
    return found


def to_iob2(tags: Sequence[str]) -> list[str]:
    """The same entities in IOB2, well-formed whatever the tags were."""
    out = [OUTSIDE] * len(tags)
    for kind, start, end in chunks(tags):
        out[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return out


def check_tag(tag: str, where: str) -> None:
    """Raises InputError unless it is O, or one of the prefixes, a hyphen and a type. `where`: file and line."""
    prefix, hyphen, kind = tag.partition("-")
    if tag == OUTSIDE or (len(prefix) == 1 and prefix in _BEGIN + "I" + _END and kind):
        return
    if not hyphen:
        raise InputError(f"{where}: tag {shorten(tag)}; expected O, or a prefix, a hyphen and a type, such as B-PER")
    if not kind:
        raise InputError(f"{where}: tag {shorten(tag)} has no type; expected one such as B-PER; is the line cut off?")
    raise InputError(f"{where}: tag {shorten(tag)}; its prefix should be B, I, E, S, L or U (IOB, BIOES or BILOU)")


def check_scheme(tags: Iterable[str], where: str) -> None:
    """Raises InputError if tags of one file cannot be of one scheme: ends written both E-, S- and L-, U-."""
    one, other = (sorted({tag for tag in tags if tag[0] in prefixes}) for prefixes in ("ES", "LU"))
    if one and other:
        raise InputError(
            f"{where}: tags {one[0]} (of BIOES) and {other[0]} (of BILOU) in one file; expected one scheme"
        )


# ---- scores, equal to those of CoNLL's Perl script `conlleval`


@dataclass(frozen=True)
class EntityCounts:
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
class TagScores:
    """What `evaluate` counted."""

    units: int
    same: int  # units whose tags agree letter for letter
    entities: EntityCounts
    types: dict[str, EntityCounts]  # of all types that data or predictions have, sorted

    @property
    def accuracy(self) -> float:
        return self.same / max(self.units, 1)


def score_tags(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> TagScores:
    """Scores of the predicted tags of sentences. Raises ValueError if sentences or tags are not the same in number."""
    units = same = 0
    counts = Counter[str](), Counter[str](), Counter[str]()
    for true, guess in zip(gold, predicted, strict=True):
        units += len(true)
        same += sum(a == b for a, b in zip(true, guess, strict=True))
        right, found = set(chunks(true)), set(chunks(guess))
        for counter, some in zip(counts, (right, found, right & found), strict=True):
            counter.update(chunk.type for chunk in some)
    types = {kind: EntityCounts(*(counter[kind] for counter in counts)) for kind in sorted({*counts[0], *counts[1]})}
    return TagScores(units, same, EntityCounts(*(counter.total() for counter in counts)), types)
