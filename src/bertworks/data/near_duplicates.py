"""Near-duplicates: texts that share most of their text with another, in a build and among texts in memory.

Two texts are compared by their sets of shingles: five tokens, or two words, in a row. A sketch of a text is 128
MinHash values of its shingles (Broder 1997; library datasketch). The fraction of equal values in two sketches estimates
the Jaccard similarity of the sets. A sketch is cut into bands so that two texts at the threshold agree in all values of
some band nearly always; only texts that agree in a band are compared.

A build (`BuildConfig.near_duplicates`) keeps the sketches of each part in a file. A task compares the documents of one
band, and of one range of its values, as a shard takes a range of hashes: so the memory is bounded. Of two similar
documents the one with the lower hash stays. The result depends neither on the order of reading nor on workers, and a
document has no detected near-duplicate in the other split.

Shapes: D texts, S values of a sketch, B bands.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tokenizer import normalize

SHINGLE = 5  # tokens
VALUES = 128  # S
SEED = 1
MISSED = 0.9  # weight of missed pairs in the choice of bands; false candidates only cost time
CHUNK = 1 << 12  # shingles hashed at once: 2 MB of values
LEAST, GREATEST = 0.5, 0.95  # of the threshold
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so multiplying by it is invertible
KEYS = 1 << 64  # numbers of a band's values are below this
AT_ONCE = 1 << 22  # documents of a task, about 200 MB
NEAR = "near-"  # the beginning of the names of results
MOST, MOST_TEXTS = 64, 32  # texts of one band's values that another is compared with; more have a phrase in common
FEWEST = 6  # shingles of a text in memory that is compared; shorter ones are similar too easily
MARGIN = 0.15  # candidates have an estimated similarity as far below the threshold, so that hardly any is missed
_WORDS = re.compile(r"[\w\u0900-\u0963\u0966-\u0dff]+")  # \w lacks the vowel signs of Indic scripts

Shingles = NDArray[np.uint32]  # the different hashes of a text's shingles, sorted


def shingles(tokens: NDArray[Any], width: int = SHINGLE) -> Shingles:
    """A hash of every different shingle, sorted; a document of fewer tokens than a shingle has is one."""
    tokens, width = tokens.astype(np.uint64), min(width, len(tokens))
    columns = [tokens[i : len(tokens) - width + 1 + i] for i in range(width)]
    return np.unique((_folded(columns) >> np.uint64(32)).astype(np.uint32))


@dataclass(frozen=True)
class Sketcher:
    """Makes sketches for one threshold of similarity."""

    threshold: float

    @cached_property
    def bands(self) -> tuple[int, int]:
        """B, and the number of values in each."""
        from datasketch import MinHashLSH

        state = random.getstate()
        index = MinHashLSH(self.threshold, VALUES, weights=(1 - MISSED, MISSED))
        random.setstate(state)  # it draws a name
        return index.b, index.r

    @cached_property
    def _permutations(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Factors and summands of the library's S permutations of 32-bit hashes (scheme "affine32")."""
        from datasketch import MinHash

        factors, summands = MinHash(VALUES, SEED, scheme="affine32").permutations
        return factors.astype(np.uint32), summands.astype(np.uint32)

    def sketches(self, texts: Iterable[Shingles]) -> NDArray[np.uint32]:
        """The sketches of texts, given as their shingles, (D, S).

        They equal those of the library, whose updates take one text at a time: ten times as long for short texts.
        """
        texts = [*texts]
        (factors, summands), starts = self._permutations, np.cumsum([0, *map(len, texts)])
        mixed = _mixed(np.concatenate([np.empty(0, np.uint32), *texts]))
        lowest = np.full((len(texts), VALUES), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(mixed), CHUNK):
            values = mixed[start : start + CHUNK, None] * factors + summands  # modulo 2^32
            first, last = np.searchsorted(starts, [start, start + len(values) - 1], "right") - 1
            inside = slice(first, last + 1)  # the texts that have shingles in this chunk
            minima = np.minimum.reduceat(values, np.maximum(starts[inside] - start, 0), axis=0)
            lowest[inside] = np.minimum(lowest[inside], minima)
        return lowest

    def keys(self, sketches: NDArray[np.uint32], band: int) -> NDArray[np.uint64]:
        """One number for the values of a band in each sketch, (D,)."""
        width = self.bands[1]
        return _folded(sketches[:, band * width : (band + 1) * width].T.astype(np.uint64))


def _mixed(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The finalizer of MurmurHash3, which the library applies before its permutations."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes ^ (hashes >> np.uint32(16))


def _folded(rows: Sequence[NDArray[np.uint64]] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One number for each column of some rows."""
    key = np.zeros_like(rows[0])
    for row in rows:
        key = (key ^ (key >> np.uint64(29))) * FACTOR + row + np.uint64(1)
    key = (key ^ (key >> np.uint64(32))) * FACTOR
    return key ^ (key >> np.uint64(29))


# ---- in a build


class Comparison(NamedTuple):
    """A task: the documents of a band whose values have numbers from `first` to `last`."""

    name: str  # of its result
    band: int
    first: int
    last: int


def comparisons(documents: int, threshold: float) -> list[Comparison]:
    """All tasks of a build with so many documents."""
    count = max(1, -(-documents // AT_ONCE))
    edges = [KEYS * i // count for i in range(count + 1)]
    return [
        Comparison(f"{NEAR}{band:03d}-{i:05d}.npy", band, edges[i], edges[i + 1] - 1)
        for band in range(Sketcher(threshold).bands[0])
        for i in range(count)
    ]


def similar(
    sketches: Sequence[NDArray[np.uint32]], hashes: Sequence[NDArray[np.uint64]], task: Comparison, sketcher: Sketcher
) -> NDArray[np.uint64]:
    """The hashes of documents that are like one with a lower hash, (n, 2), sorted. Given: arrays of each part."""
    rows = [(np.empty(0, np.uint64), np.empty((0, 2), np.uint64), np.empty((0, 2), np.int64))]
    for number, (own, digests) in enumerate(zip(sketches, hashes, strict=True)):
        keys = sketcher.keys(own, task.band)
        inside = np.flatnonzero((keys >= np.uint64(task.first)) & (keys <= np.uint64(task.last)))
        rows.append((keys[inside], digests[inside], np.stack([np.full(len(inside), number), inside], 1)))
    keys, digests, places = (np.concatenate(arrays) for arrays in zip(*rows, strict=True))
    order = np.lexsort((digests[:, 1], digests[:, 0], keys))
    keys, digests, places = keys[order], digests[order], places[order]
    edges = np.flatnonzero(np.diff(keys)) + 1
    starts, stops = np.append(0, edges), np.append(edges, len(keys))
    repeated = stops - starts > 1
    duplicates: list[int] = []
    for start, stop in zip(starts[repeated].tolist(), stops[repeated].tolist(), strict=True):
        originals: list[NDArray[np.uint32]] = []
        for row in range(start, stop):
            if row > start and (digests[row] == digests[row - 1]).all():
                continue  # an exact duplicate
            part, document = places[row]
            sketch = sketches[part][document]
            if any(np.count_nonzero(one == sketch) >= sketcher.threshold * VALUES for one in originals):
                duplicates.append(row)
            elif len(originals) < MOST:
                originals.append(sketch)
    return np.unique(digests[duplicates], axis=0)


def are_similar(hashes: NDArray[np.uint64], results: Sequence[Path]) -> NDArray[np.bool_]:
    """Which of `hashes`, (n, 2) and sorted, are in results of `similar`."""
    matches = np.zeros(len(hashes), np.bool_)
    for path in results:
        near = np.load(path)
        start, stop = np.searchsorted(near[:, 0], hashes[0, 0]), np.searchsorted(near[:, 0], hashes[-1, 0], "right")
        own, stored = (np.ascontiguousarray(one).view("S16").reshape(-1) for one in (hashes, near[start:stop]))
        matches |= np.isin(own, stored)
    return matches


# ---- in memory


def duplicate_key(text: str) -> str:
    """The words of a text without case and punctuation; the text itself if it has no words."""
    return " ".join(_WORDS.findall(normalize("NFC", text).casefold())) or text.strip()


def find_near_duplicates(
    rows: Sequence[Shingles], others: Sequence[Shingles], threshold: float = 0.8
) -> dict[int, int]:
    """For each of `rows` that is similar to one of `others`, the index of the first such one.

    Shingles are those of `shingles`. If `others` is `rows`, a row is compared with earlier ones.
    Texts that agree in a band are compared exactly: the Jaccard similarity reaches the threshold.
    """
    sketcher = Sketcher(max(LEAST, threshold - MARGIN))
    index = defaultdict[tuple[int, int], list[int]](list)
    indexed = [*_band_keys(others, sketcher)]
    for j, keys in indexed:
        for key in keys:
            if len(index[key]) < MOST_TEXTS:
                index[key].append(j)
    matches: dict[int, int] = {}
    for i, keys in indexed if rows is others else _band_keys(rows, sketcher):
        for j in sorted({j for key in keys for j in index.get(key, ())}):
            if (j < i or rows is not others) and _similarity(rows[i], others[j]) >= threshold:
                matches[i] = j
                break
    return matches


def _band_keys(rows: Sequence[Shingles], sketcher: Sketcher) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """The index of each text with enough shingles, and the number of each of its bands with the band."""
    compared = [i for i, row in enumerate(rows) if len(row) >= FEWEST]
    sketches = sketcher.sketches(rows[i] for i in compared)
    keys = zip(*(sketcher.keys(sketches, band).tolist() for band in range(sketcher.bands[0])), strict=True)
    return ((i, [*enumerate(own)]) for i, own in zip(compared, keys, strict=True))


def _similarity(one: Shingles, other: Shingles) -> float:
    """The Jaccard similarity of two sets."""
    fewer, more = sorted((len(one), len(other)))
    if fewer < LEAST * more:
        return 0.0
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (fewer + more - shared)
