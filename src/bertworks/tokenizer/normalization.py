"""Unicode normalization in linear time, composing with a way back to the given text, and offsets of tokens in it.

`unicodedata.normalize` is quadratic in the length of a run of combining marks: one request could occupy a server for
minutes. Every module that normalizes text that it was given calls `normalize` here.
"""

import re
import unicodedata
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Offsets = list[tuple[int, int]]  # (start, end) of each token in the caller's text
BLOCK = 2048  # marks of one run that are sorted together; written languages have fewer than ten on one letter
# Letters, digits, white space and ASCII, none of which is a combining mark, and what follows them.
_BLOCKS = re.compile(f"[\\w\\s\\x00-\\x7f]*[^\\w\\s\\x00-\\x7f]{{0,{BLOCK}}}")

_SPACES = frozenset(" \t")  # a line break is a token of its own, or separates words
_CONTINUES = re.compile("[^\\w\\s\\x00-\\x7f]|[\u1160-\u11ff\ud7b0-\ud7fb]")  # some of these continue a letter


def normalize(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """`unicodedata.normalize(form, text)`, but a long run of marks and symbols is normalized in blocks of BLOCK."""
    if len(text) <= BLOCK:
        return unicodedata.normalize(form, text)
    return "".join(unicodedata.normalize(form, block) for block in _BLOCKS.findall(text))


def continues_letter(char: str) -> bool:
    """Whether a character is part of the letter before it: a combining mark, a vowel or final consonant of Hangul.

    The library gives no token to marks that it strips, nor to letters that it composes (Hangul from jamo).
    """
    return unicodedata.category(char)[0] == "M" or "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"


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
    """`text` in NFC with the way back. A letter that was composed corresponds to all characters it was made of."""
    if unicodedata.is_normalized("NFC", text):
        return Composed(text)
    parts: list[str] = []
    begin: list[int] = []
    end: list[int] = []
    starts = [offset for offset, char in enumerate(text) if not offset or not continues_letter(char)]
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        part = normalize("NFC", text[start:stop])  # a letter with its marks
        surplus = stop - start - len(part)  # the first character takes it in; the marks after it keep their places
        begin += [start, *(start + max(0, surplus + i) for i in range(1, len(part)))]
        end += [start + max(1, surplus + i) for i in range(1, len(part) + 1)]
        parts.append(part)
    return Composed("".join(parts), np.array([*begin, len(text)]), np.array([*end, len(text)]))


# ---- offsets of tokens: whole letters, no spaces


def with_whole_letters(text: str, offsets: Offsets) -> Offsets:
    """Offsets whose ends include all that continues a token's last letter, up to the next token."""
    if not offsets or not _CONTINUES.search(text):
        return offsets
    out = []
    for (start, end), limit in zip(offsets, [*(start for start, _ in offsets[1:]), len(text)], strict=True):
        while end < limit and continues_letter(text[end]):
            end += 1
        out.append((start, end))
    return out


def without_spaces(text: str, offsets: Offsets) -> Offsets:
    """Offsets without the spaces that tokens begin or end with; those of a token of spaces alone are empty."""
    out = []
    for start, end in offsets:
        while start < end and text[start] in _SPACES:
            start += 1
        while start < end and text[end - 1] in _SPACES:
            end -= 1
        out.append((start, end))
    return out
