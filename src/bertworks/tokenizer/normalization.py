"""Unicode normalization in linear time, and composing with a way back to the given text.

`unicodedata.normalize` is quadratic in the length of a run of combining marks: one request could occupy a server for
minutes. Every module that normalizes text that it was given calls `normalize` here.
"""

import re
import unicodedata
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .offsets import continues_letter

BLOCK = 2048  # marks of one run that are sorted together; written languages have fewer than ten on one letter
# Letters, digits, white space and ASCII, none of which is a combining mark, and what follows them.
_BLOCKS = re.compile(f"[\\w\\s\\x00-\\x7f]*[^\\w\\s\\x00-\\x7f]{{0,{BLOCK}}}")


def normalize(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """`unicodedata.normalize(form, text)`, but a long run of marks and symbols is normalized in blocks of BLOCK."""
    if len(text) <= BLOCK:
        return unicodedata.normalize(form, text)
    return "".join(unicodedata.normalize(form, block) for block in _BLOCKS.findall(text))


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
    starts = [offset for offset, char in enumerate(text) if not offset or not continues_letter(char)]
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        part = normalize("NFC", text[start:stop])  # a letter with its marks
        surplus = stop - start - len(part)  # the first character takes it in; the marks after it keep their places
        begin += [start, *(start + max(0, surplus + i) for i in range(1, len(part)))]
        end += [start + max(1, surplus + i) for i in range(1, len(part) + 1)]
        parts.append(part)
    return Composed("".join(parts), np.array([*begin, len(text)]), np.array([*end, len(text)]))
