"""Near-duplicates: documents that share most of their text with another one (`BuildConfig.near_duplicates`).

Documents that agree in a band of their sketches (sketches.py) are compared. A task takes one band, and from every part
the documents in one range of its values, as a shard takes a range of hashes: so the memory is bounded. Of two similar
documents the one with the lower hash stays. The result depends neither on the order of reading nor on workers, and a
document on one side of the split has no near-duplicate that was found on the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import InputError
from .parts import Part
from .sketches import VALUES

AT_ONCE = 1 << 22  # documents of a task, about 200 MB
MOST = 64  # documents of a group that others are compared with; more have a phrase in common and are not alike
NEAR = "near-"  # the beginning of the names of results
KEYS = 1 << 64  # numbers of a band's values are below this


class Comparison(NamedTuple):
    """A task: the documents of a band whose values have numbers from `first` to `last` - 1."""

    name: str  # of its result
    band: int
    first: int
    last: int


def comparisons(documents: int, bands: int) -> list[Comparison]:
    """All tasks of a build with so many documents and bands."""
    count = max(1, -(-documents // AT_ONCE))
    edges = [KEYS * i // count for i in range(count + 1)]
    return [
        Comparison(f"{NEAR}{band:03d}-{i:05d}.npy", band, edges[i], edges[i + 1])
        for band in range(bands)
        for i in range(count)
    ]


class Sketches:
    """The sketches of one part, as `Sketcher.save` writes them."""

    def __init__(self, path: Path, part: Part, bands: int) -> None:
        self.part, count = part, part.documents
        expected = count * (bands * 12 + VALUES * 4)
        if (found := path.stat().st_size) != expected:
            advice = "delete it and rerun the command"
            raise InputError(f"{path}: {found:,} bytes; expected {expected:,}: not whole sketches; {advice}")
        shapes = {
            "keys": (np.uint64, bands, count),
            "order": (np.uint32, bands, count),
            "own": (np.uint32, count, VALUES),
        }
        self._arrays: dict[str, NDArray[Any]] = {}
        start = 0
        for name, (dtype, *shape) in shapes.items():
            empty = np.empty(shape, dtype)
            self._arrays[name] = np.memmap(path, dtype, "r", start, tuple(shape)) if count else empty
            start += empty.nbytes

    def in_band(self, band: int, first: int, last: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The numbers from `first` to `last` - 1 of a band's values, and the document of each."""
        keys, order = self._arrays["keys"][band], self._arrays["order"][band]
        start, stop = (
            len(keys) if edge >= KEYS else int(np.searchsorted(keys, np.uint64(edge))) for edge in (first, last)
        )
        return np.array(keys[start:stop]), order[start:stop].astype(np.int64)

    def sketch(self, document: int) -> NDArray[np.uint32]:
        """The sketch of a document, (S,)."""
        found: NDArray[np.uint32] = self._arrays["own"][document]
        return found


def similar(parts: Sequence[Sketches], task: Comparison, threshold: float) -> NDArray[np.uint64]:
    """The hashes of documents that are like one with a lower hash, (n, 2), sorted."""
    keys, hashes, numbers, documents = _gather(parts, task)
    order = np.lexsort((hashes[:, 1], hashes[:, 0], keys))
    keys, hashes, numbers, documents = (values[order] for values in (keys, hashes, numbers, documents))
    edges = np.flatnonzero(np.diff(keys)) + 1
    starts, stops = np.append(0, edges), np.append(edges, len(keys))
    several = stops - starts > 1
    found: list[int] = []
    for start, stop in zip(starts[several].tolist(), stops[several].tolist(), strict=True):
        kept: list[NDArray[np.uint32]] = []
        for row in range(start, stop):
            if row > start and (hashes[row] == hashes[row - 1]).all():
                continue  # an exact duplicate
            sketch = parts[numbers[row]].sketch(int(documents[row]))
            if any(np.count_nonzero(one == sketch) >= threshold * VALUES for one in kept):
                found.append(row)
            elif len(kept) < MOST:
                kept.append(sketch)
    return np.unique(hashes[found], axis=0)


def _gather(parts: Sequence[Sketches], task: Comparison) -> list[NDArray[Any]]:
    """Of the documents of a task: numbers of values (n,), hashes (n, 2), numbers of parts (n,), documents (n,)."""
    none = np.empty(0, np.int64)
    rows: list[tuple[NDArray[Any], ...]] = [(np.empty(0, np.uint64), np.empty((0, 2), np.uint64), none, none)]
    for number, sketches in enumerate(parts):
        keys, documents = sketches.in_band(task.band, task.first, task.last)
        if len(keys):
            hashes = sketches.part.digests(0, sketches.part.documents)[documents]
            rows.append((keys, hashes, np.full(len(keys), number), documents))
    return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)]


def removed_between(files: Sequence[Path], first: int, last: int) -> NDArray[np.uint64]:
    """The hashes in results of `similar` whose first halves are from `first` to `last`, (n, 2)."""
    found = [np.empty((0, 2), np.uint64)]
    for path in files:
        hashes = np.load(path)
        start = np.searchsorted(hashes[:, 0], np.uint64(first))
        found.append(hashes[start : np.searchsorted(hashes[:, 0], np.uint64(last), side="right")])
    return np.concatenate(found)


def are_among(hashes: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of `hashes` (n, 2) are among `others` (k, 2)."""
    own, theirs = (np.ascontiguousarray(values).view("S16").reshape(-1) for values in (hashes, others))
    return np.isin(own, theirs)
