"""Sketches of documents, by which near-duplicates are found (near.py on disk, duplicates.py in memory).

Two documents are compared by their sets of shingles: five tokens in a row. A sketch of a document is 128 MinHash values
of its shingles (Broder 1997; library datasketch). The share of equal values in two sketches estimates the Jaccard
similarity of the sets. A sketch is cut into bands so that two documents at the threshold agree in all values of some
band nearly always. `Sketcher.save` writes the sketches of a part, sorted by their values in each band.

Shapes: D documents, S values of a sketch, B bands.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, atomic_write

SHINGLE = 5  # tokens
VALUES = 128  # S
SEED = 1
MISSED = 0.9  # weight of missed pairs in the choice of bands; other pairs are compared, which costs time alone
CHUNK = 1 << 12  # shingles hashed at once: 2 MB of values
LEAST, GREATEST = 0.5, 0.95  # of the threshold
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplying by it loses nothing


def check_threshold(threshold: float) -> None:
    """Raise InputError for a threshold that sketches cannot find; 0 is allowed."""
    if threshold and not LEAST <= threshold <= GREATEST:
        raise InputError(f"near_duplicates {threshold}; expected 0, or a similarity from {LEAST} to {GREATEST}")


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

    def path(self, part: Path) -> Path:
        """The file of a part's sketches; those of another number of bands have another name."""
        return part.with_name(f"{part.stem}.{self.bands[0]}x{self.bands[1]}.sketches")

    def sketches(self, documents: Iterable[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """The sketches of documents, given as their shingles, (D, S).

        They equal those of the library, whose updates take one document at a time: ten times as long for short texts.
        """
        documents = [*documents]
        (factors, summands), starts = self._permutations, np.cumsum([0, *map(len, documents)])
        mixed = _mixed(np.concatenate([np.empty(0, np.uint32), *documents]))
        lowest = np.full((len(documents), VALUES), np.iinfo(np.uint32).max, np.uint32)
        for start in range(0, len(mixed), CHUNK):
            values = mixed[start : start + CHUNK, None] * factors + summands  # modulo 2^32
            first, last = np.searchsorted(starts, [start, start + len(values) - 1], "right") - 1
            inside = slice(first, last + 1)  # the documents that have shingles in this chunk
            found = np.minimum.reduceat(values, np.maximum(starts[inside] - start, 0), axis=0)
            lowest[inside] = np.minimum(lowest[inside], found)
        return lowest

    def band_keys(self, sketches: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """One number for the values of each band, (B, D)."""
        bands, width = self.bands
        values = sketches.T.astype(np.uint64)
        return np.stack([folded(values[band * width : (band + 1) * width]) for band in range(bands)])

    def save(self, part: Path, documents: Iterable[NDArray[Any]]) -> None:
        """Write the sketches of a part whose documents have these tokens."""
        sketches = self.sketches(map(shingles, documents))
        keys = self.band_keys(sketches)
        order = np.argsort(keys, axis=1, kind="stable")
        path = self.path(part)
        with atomic_write(path, shared=path.parent) as file:
            for array in (np.take_along_axis(keys, order, 1), order.astype(np.uint32), sketches):
                file.write(array.tobytes())


def shingles(tokens: NDArray[Any], width: int = SHINGLE) -> NDArray[np.uint32]:
    """A hash of every different shingle, sorted; a document of fewer tokens than a shingle has is one."""
    tokens, width = tokens.astype(np.uint64), min(width, len(tokens))
    columns = [tokens[i : len(tokens) - width + 1 + i] for i in range(width)]
    return np.unique((folded(columns) >> np.uint64(32)).astype(np.uint32))


def _mixed(hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The finalizer of MurmurHash3, which the library applies before its permutations."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    return hashes ^ (hashes >> np.uint32(16))


def folded(rows: Sequence[NDArray[np.uint64]] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One number for each column of some rows."""
    found = np.zeros_like(rows[0])
    for row in rows:
        found = (found ^ (found >> np.uint64(29))) * FACTOR + row + np.uint64(1)
    found = (found ^ (found >> np.uint64(32))) * FACTOR
    return found ^ (found >> np.uint64(29))
