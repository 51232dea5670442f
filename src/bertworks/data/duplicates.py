"""Duplicates among texts in memory: training examples that repeat, development examples that are in the training data.

Two texts are duplicates if their words are equal, whatever their case, punctuation and white space (`duplicate_key`).
They are near-duplicates if the Jaccard similarity of their shingles reaches a threshold. Candidates are the pairs that
agree in a band of their MinHash sketches (sketches.py); every candidate is compared exactly.

Shapes: R texts, B bands.
"""

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..tokenizer import normalize
from .sketches import LEAST, Sketcher, shingles

Shingles = NDArray[np.uint32]  # the different hashes of a text's shingles, sorted
PAIR = 2  # words of a shingle of a short text
FEWEST = 6  # shingles of a text that is compared; shorter ones are similar too easily
MOST = 32  # texts with one band's values that a text is compared with; more share a phrase and are not similar
MARGIN = 0.15  # candidates have an estimated similarity as far below the threshold, so that hardly any is missed
_WORDS = re.compile(r"[\w\u0900-\u0963\u0966-\u0dff]+")  # \w lacks the vowel signs of Indic scripts


def duplicate_key(text: str) -> str:
    """The words of a text without case and punctuation; the text itself if it has no words."""
    return " ".join(_WORDS.findall(normalize("NFC", text).casefold())) or text.strip()


def word_shingles(key: str) -> Shingles:
    """The hashes of the pairs of words of a text, given as its `duplicate_key`."""
    return shingles(np.array([zlib.crc32(word.encode()) for word in key.split(" ")]), PAIR)


def find_near_duplicates(
    rows: Sequence[Shingles], others: Sequence[Shingles], threshold: float = 0.8
) -> dict[int, int]:
    """For each of `rows` that is similar to one of `others`, the index of the first such one.

    Shingles are those of `word_shingles` or `shingles`. If `others` is `rows`, a row is compared with earlier ones.
    """
    sketcher = Sketcher(max(LEAST, threshold - MARGIN))
    compared, keys = _band_keys(rows, sketcher)
    candidates, their_keys = (compared, keys) if rows is others else _band_keys(others, sketcher)
    pairs = np.empty(0, np.int64)  # i * len(others) + j; band by band, so that equal texts take little memory
    for own, theirs in zip(keys, their_keys, strict=True):
        row, other = _equal(own, theirs)
        pairs = np.sort(np.concatenate([pairs, compared[row] * len(others) + candidates[other]]))
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    found: dict[int, int] = {}
    for pair in pairs.tolist():
        i, j = divmod(pair, len(others))
        if i not in found and (j < i or rows is not others) and _similarity(rows[i], others[j]) >= threshold:
            found[i] = j
    return found


def _band_keys(rows: Sequence[Shingles], sketcher: Sketcher) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The indices of texts with enough shingles, (R,), and a number for each of their bands, (B, R)."""
    compared = np.array([i for i, row in enumerate(rows) if len(row) >= FEWEST], np.int64)
    return compared, sketcher.band_keys(sketcher.sketches(rows[i] for i in compared))


def _equal(own: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of equal numbers in two arrays; of `theirs` at most the first MOST for each of `own`."""
    order = np.argsort(theirs, kind="stable")
    start = np.searchsorted(theirs, own, sorter=order)
    count = np.minimum(np.searchsorted(theirs, own, "right", order) - start, MOST)
    nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(np.arange(len(own)), count), order[np.repeat(start, count) + nth]


def _similarity(one: Shingles, other: Shingles) -> float:
    """The Jaccard similarity of two sets."""
    fewer, more = sorted((len(one), len(other)))
    if fewer < LEAST * more:
        return 0.0
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (fewer + more - shared)
