"""Sketches of documents, by which near-duplicates are found (near.py on disk, duplicates.py in memory).

Two documents are compared by their sets of shingles: five tokens in a row. A sketch of a document is 128 MinHash values
of its shingles (Broder 1997; library datasketch). The share of equal values in two sketches estimates the Jaccard
similarity of the sets. A sketch is cut into bands so that two documents at the threshold agree in all values of some
band nearly always. `Sketcher.save` writes the sketches of a part, sorted by their values in each band.

Shapes: D documents, S values of a sketch, B bands.
"""

from collections.abc import Iterable
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

        index = MinHashLSH(self.threshold, VALUES, weights=(1 - MISSED, MISSED))
        return index.b, index.r

    @cached_property
    def _empty(self) -> Any:
        from datasketch import MinHash

        return MinHash(VALUES, SEED, hashfunc=int, scheme="affine32")

    def path(self, part: Path) -> Path:
        """The file of a part's sketches; those of another number of bands have another name."""
        return part.with_name(f"{part.stem}.{self.bands[0]}x{self.bands[1]}.sketches")

    def sketch(self, shingles: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The sketch of a document, (S,)."""
        sketch = self._empty.copy()
        for start in range(0, len(shingles), CHUNK):
            sketch.update_batch(shingles[start : start + CHUNK].tolist())
        values: NDArray[np.uint32] = sketch.hashvalues
        return values

    def sketches(self, documents: Iterable[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """The sketches of documents, given as their shingles, (D, S)."""
        return np.array([self.sketch(shingles) for shingles in documents], np.uint32).reshape(-1, VALUES)

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
    width = min(width, len(tokens))
    windows = np.lib.stride_tricks.sliding_window_view(tokens.astype(np.uint64), width)
    return np.unique((folded(windows.T) >> np.uint64(32)).astype(np.uint32))


def folded(rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One number for each column."""
    found = np.zeros(rows.shape[1], np.uint64)
    for row in rows:
        found = (found ^ (found >> np.uint64(29))) * FACTOR + row + np.uint64(1)
    found = (found ^ (found >> np.uint64(32))) * FACTOR
    return found ^ (found >> np.uint64(29))
