"""Featurised examples as flat arrays, batches of them, and the order in which a run reads them.

Shapes: N examples, C sequences an example (more than one for a multiple choice only), S = N * C sequences, T tokens of
all, B sequences of a batch, L its longest, K labels.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import IGNORED, Batch

# L is a multiple of this: on a CPU a product of a new shape costs more to prepare than some padding to compute
STEP = 16
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Inputs:
    """S sequences end to end in flat arrays: no padding is stored."""

    ids: NDArray[np.int32]  # (T,) the tokens of all sequences
    edges: Rows  # (S + 1,) where each sequence begins and ends in `ids`
    first: Rows  # (S,) tokens of segment 0
    labels: NDArray[Any]  # (N,) classes, -100 = none, or float32 values; (N, K) float32; (N, 2) places; (T,) tags
    cut: Rows  # tokens that did not fit, a number an example
    pad_id: int
    limit: int  # max_seq_length
    choices: int = 1  # C
    token_labels: bool = False  # whether labels are (T,), one a token

    def __len__(self) -> int:
        """N."""
        return (len(self.edges) - 1) // self.choices

    @property
    def lengths(self) -> Rows:
        """(N,) tokens of each example's longest sequence."""
        longest: Rows = np.diff(self.edges).reshape(-1, self.choices).max(1)
        return longest

    def padded_length(self, rows: Rows) -> int:
        """L of a batch of these examples: the longest, rounded up to STEP or the limit."""
        return min(-(-int(self.lengths[rows].max()) // STEP) * STEP, self.limit)

    def batch(self, rows: Rows, length: int = 0) -> Batch:
        """The examples `rows`, padded to `length` or as short as they may be (keys: data/batches.py).

        B = len(rows) * C. labels: as in `labels`, but (B, L) with -100 on padding if there is one a token.
        """
        column = np.arange(length or self.padded_length(rows))
        sequences = self.sequences(rows)
        lengths = np.diff(self.edges)[sequences]
        real = column < lengths[:, None]  # (B, L)
        cells = (self.edges[sequences, None] + column)[real]
        ids = np.full(real.shape, self.pad_id, np.int64)
        ids[real] = self.ids[cells]
        types = (real & (column >= self.first[sequences, None])).astype(np.int64)
        if self.token_labels:
            labels = np.full(real.shape, IGNORED, np.int64)
            labels[real] = self.labels[cells]
        else:
            labels = self.labels[rows]
        arrays = {"input_ids": ids, "attention_mask": real, "token_type_ids": types, "labels": labels}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @property
    def whole(self) -> bool:
        """Whether every example has a label; a span's may be unknown, and is then not learned."""
        if self.token_labels or (self.labels.ndim == 2 and self.labels.dtype == np.int64):
            return bool((self.labels != IGNORED).any())
        return bool(np.isfinite(self.labels).all() and not (self.labels == IGNORED).any())

    def sequences(self, rows: Rows) -> Rows:
        """The sequences of these examples."""
        numbers: Rows = (rows[:, None] * self.choices + np.arange(self.choices)).ravel()
        return numbers

    def tokens(self, rows: Rows) -> Rows:
        """Places in `ids` of all tokens of these examples, one after the other."""
        sequences = self.sequences(rows)
        return np.concatenate([np.arange(*self.edges[[i, i + 1]]) for i in sequences])

    def by_length(self, size: int) -> Iterator[Rows]:
        """All examples in batches of `size` of similar lengths, longest first (memory runs out at once or never)."""
        order = np.argsort(-self.lengths, kind="stable")
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def truncation(self) -> dict[str, int]:
        """How many examples were cut, and by how many tokens in all."""
        return {"examples": int((self.cut > 0).sum()), "tokens": int(self.cut.sum())}

    def fingerprint(self) -> str:
        """A hash of everything a model can see of these examples."""
        hashed = hashlib.blake2b(digest_size=16)
        for array in (self.ids, self.edges, self.first, self.labels):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()


class Order:
    """Which examples each update reads: a pure function of (seed, update).

    Every epoch has its own permutation; the batches are cut from their concatenation, so none is smaller. Inside an
    epoch `window` batches at a time are put in order of length, then drawn in random order: little padding is left.
    """

    def __init__(self, lengths: Rows, batch_size: int, updates: int, seed: int, window: int):
        self.lengths, self.batch_size, self.updates = lengths, batch_size, updates
        self.seed, self.window = seed, max(1, window)
        self._epochs: dict[int, Rows] = {}  # the two last used

    def rows(self, update: int) -> Rows:
        """(batch_size,) examples of this update."""
        N, size = len(self.lengths), self.batch_size
        epoch = update * size // N
        begin, end = -(-epoch * N // size), min((epoch + 1) * N // size, self.updates)  # updates within the epoch
        if not begin <= update < end:  # this one takes the rest of an epoch and the beginning of the next
            return self._stream(update * size, (update + 1) * size)
        begin += (update - begin) // self.window * self.window
        end = min(begin + self.window, end)
        rows = self._stream(begin * size, end * size)
        rows = rows[np.argsort(self.lengths[rows], kind="stable")].reshape(-1, size)
        drawn: Rows = rows[np.random.default_rng((self.seed, 1, begin)).permutation(len(rows))[update - begin]]
        return drawn

    def _stream(self, start: int, stop: int) -> Rows:
        """Examples `start` to `stop` of all epochs' permutations, one after the other."""
        N = len(self.lengths)
        ends = [start, *range((start // N + 1) * N, stop, N), stop]
        return np.concatenate([self._epoch(a // N)[a % N : a % N + b - a] for a, b in pairwise(ends)])

    def _epoch(self, epoch: int) -> Rows:
        if epoch not in self._epochs:
            self._epochs = {e: rows for e, rows in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.lengths))
        return self._epochs[epoch]
