"""Dropout whose masks are a pure function of (seed, step, place, row), so that resume is exact and the number of
processes or micro-batches changes nothing.

On a CPU torch draws dropout masks one element at a time on one thread, which can take half of a training step. Here the
masks are bytes from NumPy's Philox, a counter-based generator: the place in the network and the step are its key, the row
of the global batch is its counter, so any process can make just its own rows. One byte decides one element; the rate is
therefore rounded to 1/256 (0.1 becomes 26/256 = 0.1016) and the scale uses the rounded rate, so expectations are exact.

On a GPU the fused kernels of torch are kept: a generator seeded from (seed, step, rank) serves them (training/loop.py).

Shapes: B rows (sequences), n bytes a row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_WORDS_PER_BLOCK = 4  # one Philox counter value gives four 64-bit words, 32 bytes


@dataclass(frozen=True)
class DropoutKey:
    """Where in a run these masks belong: `seed` of the run, optimizer `step`, first `row` of the global batch."""

    seed: int
    step: int
    row: int = 0

    def bytes(self, place: int, rows: int, row_bytes: int) -> Tensor:
        """(B = rows, row_bytes) random bytes of `place` (a number for each dropout in the network) as uint8."""
        blocks = -(-row_bytes // (8 * _WORDS_PER_BLOCK))  # every row starts on a counter of its own
        key = [np.uint64(self.seed), np.uint64((self.step << 16) + place)]
        counter = [np.uint64(self.row * blocks), np.uint64(0), np.uint64(0), np.uint64(0)]
        words = np.random.Philox(key=np.array(key), counter=np.array(counter)).random_raw(
            rows * blocks * _WORDS_PER_BLOCK
        )
        masks: np.ndarray = words.view(np.uint8).reshape(rows, -1)[:, :row_bytes]
        return torch.from_numpy(masks)


def keep_threshold(rate: float) -> int:
    """Bytes below this are dropped: `rate` in 1/256, never rounded to nothing."""
    return max(1, round(rate * 256)) if rate > 0 else 0


def apply_mask(x: Tensor, mask: Tensor | None, rate: float) -> Tensor:
    """`x` with the elements whose byte in `mask` (same shape) is below the threshold set to 0, the rest scaled up."""
    if mask is None:
        return x
    threshold = keep_threshold(rate)
    return torch.where(mask >= threshold, x * (256 / (256 - threshold)), 0.0)
