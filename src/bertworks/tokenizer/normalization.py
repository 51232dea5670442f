"""Unicode normalization in linear time: `unicodedata.normalize` is quadratic in the length of a run of combining marks.

Every module that normalizes text that it was given calls `normalize` here, not `unicodedata`. `compose` also gives the
way back, for offsets into the text as it was given.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_MARKS = 256  # of one run that are sorted together; written languages have fewer than ten on one letter

# Every combining mark is neither a letter nor a digit nor white space. This expression finds all long runs of marks.
_LONG_RUN = re.compile(f"[^\\w\\s\\x00-\\x7f]{{{MAX_MARKS + 1},}}")


def normalize(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """`unicodedata.normalize(form, text)`, but a run of more than MAX_MARKS combining marks is sorted in blocks.

    No character is lost, and only in such a run may the order of marks differ from Unicode's.
    """
    if len(text) <= MAX_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    cuts = [offset for run in _LONG_RUN.finditer(text) for offset in _cuts(text, *run.span())]
    edges = itertools.pairwise([0, *cuts, len(text)])
    return "".join(unicodedata.normalize(form, text[start:end]) for start, end in edges)


def _cuts(text: str, start: int, end: int) -> Iterator[int]:
    """Offsets in text[start:end] before which a block of MAX_MARKS combining marks is full."""
    marks = 0
    for offset in range(start, end):
        marks = marks + 1 if unicodedata.combining(text[offset]) else 0
        if marks > MAX_MARKS:
            yield offset
            marks = 1


class Composed(NamedTuple):
    """A text in NFC, and which characters of the given text each of its characters is made of."""

    text: str
    begin: NDArray[np.int64] | None = None  # (len(text) + 1,) first character; None: the given text was in NFC already
    end: NDArray[np.int64] | None = None  # (len(text) + 1,) the character after the last one

    def span(self, start: int, end: int) -> tuple[int, int]:
        """One span of `text` in the given text."""
        [(begin, stop)] = self.spans(np.array([[start, end]])).tolist()
        return begin, stop

    def spans(self, spans: NDArray[Any]) -> NDArray[Any]:
        """(R, 2) starts and ends in `text` as starts and ends in the given text; an empty span stays empty."""
        if self.begin is None or self.end is None:
            return spans
        start, end = spans[:, 0], spans[:, 1]
        begin = self.begin[start]
        stop = np.where(end > start, self.end[np.maximum(end - 1, 0)], begin)
        return np.stack([begin, stop], 1).astype(spans.dtype)


def compose(text: str) -> Composed:
    """`text` in NFC with the way back. A letter that was composed stands for all characters it was made of."""
    if unicodedata.is_normalized("NFC", text):
        return Composed(text)
    parts: list[str] = []
    begin: list[int] = []
    end: list[int] = []
    offset = 0
    for segment in _segments(text):
        part = normalize("NFC", segment)
        surplus = len(segment) - len(part)  # the first character takes it in; the marks after it keep their places
        begin += [offset, *(offset + max(0, surplus + i) for i in range(1, len(part)))]
        end += [offset + max(1, surplus + i) for i in range(1, len(part) + 1)]
        parts.append(part)
        offset += len(segment)
    return Composed("".join(parts), np.array([*begin, offset]), np.array([*end, offset]))


def _segments(text: str) -> Iterator[str]:
    """The text cut before every character that neither joins nor moves across what is before it."""
    start = 0
    for offset, character in enumerate(text):
        if offset and (character.isascii() or not (_moves(character) or _joins(text[start:offset], character))):
            yield text[start:offset]
            start = offset
    yield text[start:]


@functools.lru_cache(1 << 14)
def _moves(character: str) -> bool:
    """Whether a character is a combining mark, or begins with one: marks are sorted."""
    return bool(unicodedata.combining(unicodedata.normalize("NFD", character)[0]))


def _joins(segment: str, character: str) -> bool:
    """Whether the last letter of a segment and a character that is no mark make one letter, as jamo do."""
    return _joined(segment if len(segment) <= MAX_MARKS else normalize("NFC", segment)[-MAX_MARKS:], character)


@functools.lru_cache(1 << 14)
def _joined(segment: str, character: str) -> bool:
    apart = unicodedata.normalize("NFC", segment) + unicodedata.normalize("NFC", character)
    return unicodedata.normalize("NFC", segment + character) != apart
