"""Tags of units in a row, and the entities they cut out. IOB1, IOB2, BIOES (IOBES), BILOU and IOE are read by one rule.

    unit     New   York  ,  Paris  London
    IOB2     B-LOC I-LOC O  B-LOC  B-LOC    B- begins every entity
    IOB1     I-LOC I-LOC O  I-LOC  B-LOC    B- only where an entity follows one of its own type; CoNLL-2003's files
    BIOES    B-LOC E-LOC O  S-LOC  S-LOC    the last unit is E-, an only one S-
    BILOU    B-LOC L-LOC O  U-LOC  U-LOC    the same with L- and U-

The rule is conlleval's: an entity begins at a tag that says so, after O, after another type and after a tag that ends
one. So ill-formed sequences have entities too: in O I-LOC the I-LOC begins one.
"""

from collections.abc import Iterable, Sequence
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
