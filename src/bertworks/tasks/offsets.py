"""Where a text is in its context, if the offset that a file gives is not exact.

Files of other software may count UTF-16 units (JavaScript, Java) or bytes of UTF-8 instead of characters, or be off by
a few characters, after white space or line ends were changed. Offsets here count characters of the context.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..tokenizer import compose, normalize

Unit = Literal["characters", "UTF-16 units", "bytes of UTF-8"]
UNITS: tuple[Unit, ...] = ("characters", "UTF-16 units", "bytes of UTF-8")
NEAR = 10  # characters from its offset in which a text is searched


class Place(NamedTuple):
    """The characters `start` up to `end` of a context."""

    start: int
    end: int


def characters_before(context: str, count: int, unit: Unit) -> int:
    """The number of characters in the first `count` units of the context."""
    if unit == "characters" or count <= 0 or context.isascii():
        return count
    codec, width = ("utf-16-le", 2) if unit == "UTF-16 units" else ("utf-8", 1)
    data = context.encode(codec, "surrogatepass")
    beyond = max(0, count - len(data) // width)
    return len(data[: width * count].decode(codec, "ignore")) + beyond


def unit_of_offsets(rows: Sequence[tuple[str, str, int]]) -> Unit:
    """What the offsets of some (context, text, offset) count: the unit by which most texts are where they should be."""
    if all(context.startswith(text, start) for context, text, start in rows):
        return "characters"
    hits = {
        unit: sum(context.startswith(text, characters_before(context, start, unit)) for context, text, start in rows)
        for unit in UNITS
    }
    return max(UNITS, key=hits.__getitem__)  # of equal ones the first


def locate(context: str, text: str, start: int, unit: Unit = "characters") -> Place | None:
    """Where `text` is: at offset `start`, or else nearest to it, NEAR characters away at most; None if it is not there.

    unit: what the offset counts; if the text is not there, the other units are tried. White space may differ in length,
    and letters in their Unicode form. Whole words are preferred.
    """
    words = text.split()
    if not words or start < 0:
        return None
    begin = characters_before(context, start, unit)
    if context.startswith(text, begin):
        return Place(begin, begin + len(text))
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    for each in (unit, *UNITS):
        if found := pattern.match(context, characters_before(context, start, each)):
            return Place(*found.span())
    window = (max(0, begin - NEAR), begin + NEAR + len(text) + NEAR)
    near = [Place(*found.span()) for found in pattern.finditer(context, *window) if found.start() <= begin + NEAR]
    if near:
        return min(near, key=lambda place: (not _is_word(context, place), abs(place.start - begin)))
    composed, plain = compose(context), normalize("NFC", text)
    if composed.begin is None and plain == text:
        return None
    at = begin if composed.begin is None else int(np.searchsorted(composed.begin, begin))
    found_there = locate(composed.text, plain, at) or locate(composed.text, plain, start)
    return found_there and Place(*composed.span(*found_there))


def _is_word(context: str, place: Place) -> bool:
    """Whether no letter or digit is just before or after the place."""
    return not (
        context[max(0, place.start - 1) : place.start].isalnum() or context[place.end : place.end + 1].isalnum()
    )
