"""Duplicates among texts: exact ones, and those that share most of their words.

Two texts are the same if their words are, whatever their case, punctuation and white space. They are alike if the
Jaccard similarity of their shingles (words, or tokens, in a row) reaches a threshold. Candidates come from prefix
filtering (Chaudhuri, Ganti and Kaushik 2006): of two sets that are alike, the first few hashes in a fixed order share
one. Every candidate is compared exactly.

Shapes: R rows, T words of all rows, H shingles of all rows.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.sketches import folded
from ...tokenizer import normalize

Integers = NDArray[np.int64]
ALIKE = 0.8  # Jaccard similarity from which texts are alike
PAIR = 2  # words of a shingle of short texts
LEAST = 6  # shingles of a text that is compared; shorter ones are alike too easily
MOST = 32  # rows with one hash that a row is compared with; more have a phrase in common and are not alike
CHARACTERS = 20_000_000  # of texts that are compared word by word
_WORDS = re.compile(r"[\w\u0900-\u0963\u0966-\u0dff]+")  # \w lacks the vowel signs of Indic scripts


def key_of(text: str) -> str:
    """The words of a text without case and punctuation; the text itself if it has no words."""
    return " ".join(_WORDS.findall(normalize("NFC", text).casefold())) or text.strip()


@dataclass(frozen=True)
class Shingles:
    """The sets of shingles of R rows, flat: those of a row are consecutive, in ascending order."""

    hashes: NDArray[np.uint64]  # (H,)
    edges: Integers  # (R + 1,)

    @classmethod
    def of_texts(cls, keys: Sequence[str], numbers: dict[str, int]) -> "Shingles":
        """Pairs of words of texts, as `key_of` gives them; `numbers` has a number for each word seen, and grows."""
        words = [key.split(" ") for key in keys]
        for word in chain.from_iterable(words):
            numbers.setdefault(word, len(numbers))
        ids = np.fromiter((numbers[word] for word in chain.from_iterable(words)), np.int64)
        return cls.of_ids(ids, np.cumsum([0, *map(len, words)], dtype=np.int64), PAIR)

    @classmethod
    def of_ids(cls, ids: NDArray[Any], edges: Integers, width: int) -> "Shingles":
        """Shingles of `width` ids in a row; row i has ids[edges[i]:edges[i + 1]]."""
        count, row = max(0, len(ids) - width + 1), np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        inside = row[:count] == row[width - 1 :] if count else np.empty(0, bool)
        windows = np.stack([ids[i : i + count].astype(np.uint64) for i in range(width)])
        hashes, row = folded(windows)[inside], row[:count][inside]
        order = np.lexsort((hashes, row))
        hashes, row = hashes[order], row[order]
        new = np.ones(len(row), bool)
        new[1:] = (np.diff(row) != 0) | (hashes[1:] != hashes[:-1])
        return cls(hashes[new], np.searchsorted(row[new], np.arange(len(edges))))

    @cached_property
    def counts(self) -> Integers:
        """(R,) shingles of each row."""
        counted: Integers = np.diff(self.edges)
        return counted

    def first(self, threshold: float) -> tuple[NDArray[np.uint64], Integers]:
        """Hashes of which a row shares one with every row that is alike, and their rows."""
        length = self.counts - np.ceil(threshold * self.counts - 1e-9).astype(np.int64) + 1
        length[self.counts < LEAST] = 0
        row = np.repeat(np.arange(len(length)), length)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        return self.hashes[self.edges[row] + nth], row

    def row(self, i: int) -> NDArray[np.uint64]:
        """The shingles of a row."""
        return self.hashes[self.edges[i] : self.edges[i + 1]]


def find_alike(rows: Shingles, others: Shingles, threshold: float = ALIKE) -> dict[int, int]:
    """For each of `rows` that is alike to one of `others`: the first such one.

    With the same object twice, a row is compared with those before it.
    """
    hashes, row = rows.first(threshold)
    theirs, other = others.first(threshold)
    order = np.lexsort((other, theirs))
    theirs, other = theirs[order], other[order]
    start = np.searchsorted(theirs, hashes)
    count = np.minimum(np.searchsorted(theirs, hashes, "right") - start, MOST)
    nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    pairs = np.stack([np.repeat(row, count), other[np.repeat(start, count) + nth]], 1)
    if rows is others:
        pairs = pairs[pairs[:, 1] < pairs[:, 0]]
    sizes = np.stack([rows.counts[pairs[:, 0]], others.counts[pairs[:, 1]]])
    pairs = np.unique(pairs[sizes.min(0) >= threshold * sizes.max(0)], axis=0)
    found: dict[int, int] = {}
    for i, j in pairs.tolist():
        if i in found:
            continue
        shared = len(np.intersect1d(rows.row(i), others.row(j), assume_unique=True))
        if shared >= threshold * (rows.counts[i] + others.counts[j] - shared):
            found[i] = j
    return found
