"""Unicode normalization in linear time: `unicodedata.normalize` is quadratic in the length of a run of combining marks.

Every module that normalizes text that it was given calls `normalize` here, not `unicodedata`.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

MAX_MARKS = 256  # of one run that are sorted together; written languages have fewer than ten on one letter

# Every combining mark is neither a letter nor a digit nor white space. This expression finds all long runs of marks.
_LONG_RUN = re.compile(f"[^\\w\\s\\x00-\\x7f]{{{MAX_MARKS + 1},}}")


def normalize(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """`unicodedata.normalize(form, text)`, but a run of more than MAX_MARKS combining marks is sorted in blocks.

    No character is lost, and only in such a run may the order of marks differ from Unicode's.
    """
    if text.isascii():
        return text
    cuts = [place for run in _LONG_RUN.finditer(text) for place in _cuts(text, *run.span())]
    edges = itertools.pairwise([0, *cuts, len(text)])
    return "".join(unicodedata.normalize(form, text[start:end]) for start, end in edges)


def _cuts(text: str, start: int, end: int) -> Iterator[int]:
    """Offsets in text[start:end] before which a block of MAX_MARKS combining marks is full."""
    marks = 0
    for place in range(start, end):
        marks = marks + 1 if unicodedata.combining(text[place]) else 0
        if marks > MAX_MARKS:
            yield place
            marks = 1
