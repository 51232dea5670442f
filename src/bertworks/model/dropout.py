"""Dropout whose masks are a pure function of (seed, step, place, row), so that resume is exact and the number of
processes or micro-batches changes nothing.

On a CPU torch draws dropout masks one element at a time on one thread, which can take half of a training step. Here
the masks come from NumPy's Philox, a counter-based generator: the place in the network and the step are its key, the
row of the global batch is its counter, so any process can make just its own rows. One random byte decides one
element; the rate is therefore rounded to 1/256 (0.1 becomes 26/256 = 0.1016) and the scale uses the rounded rate,
which keeps the expectation exact. Below 1/32 and above 31/32, where a rate would be rounded far (0.001 to 0.0039) or to
1, two bytes decide and the rate is rounded to 1/65,536.

On a GPU the fused kernels of torch are kept: a generator seeded from (seed, step, row) serves them (training/loop.py).

Shapes: B rows (sequences).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_WORDS = 4  # 64-bit words of one Philox counter value
_LAST = np.iinfo(np.uint64).max
_ONE = np.uint16(0x3F80)  # the bits of 1.0 in bfloat16


@dataclass(frozen=True)
class DropoutKey:
    """Where in a run masks belong: `seed` of the run, optimizer `step`, first `row` of the global batch."""

    seed: int
    step: int
    row: int = 0

    def mask(self, place: int, rate: float, shape: tuple[int, ...]) -> Tensor:
        """(B, ...) = `shape`, bfloat16: 0 where dropped, else 1. `place`: a number for each dropout."""
        size, kind = math.prod(shape[1:]), _drawn(rate)
        blocks = -(-size * kind.itemsize // (8 * _WORDS))  # every row starts on a counter of its own
        key = np.array([self.seed, (self.step << 16) + place], np.uint64)
        counter = np.array([self.row * blocks, 0, 0, 0], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        # all 64 bits: the raw words as they come, in less time than `random_raw` takes
        words = generator.integers(0, _LAST, shape[0] * blocks * _WORDS, np.uint64, endpoint=True)
        kept = words.view(kind).reshape(shape[0], -1)[:, :size] >= _dropped(rate)[0]
        # NumPy multiplies bits several times faster than torch selects by a condition
        return torch.from_numpy(kept * _ONE).view(torch.bfloat16).view(shape)


def _drawn(rate: float) -> np.dtype[Any]:
    """The random number that decides one element: a byte, or two where a byte is too coarse."""
    return np.dtype(np.uint8 if rate == 0 or 1 / 32 <= rate <= 31 / 32 else np.uint16)


def _dropped(rate: float) -> tuple[int, int]:
    """How many values of the random number drop an element, of how many; never none for a rate above 0, never all."""
    values = int(np.iinfo(_drawn(rate)).max) + 1
    return (min(max(1, round(rate * values)), values - 1) if rate > 0 else 0), values


def used_rate(rate: float) -> float:
    """The share of elements that a keyed mask drops: `rate`, rounded."""
    dropped, values = _dropped(rate)
    return dropped / values


def rescale(rate: float) -> float:
    """What kept elements are multiplied with, so that the expectation does not change."""
    dropped, values = _dropped(rate)
    return values / (values - dropped)


def drop(x: Tensor, key: DropoutKey | None, place: int, rate: float, training: bool) -> Tensor:
    """Dropout of (B, ...) by the mask of `key`; without a key it is torch's."""
    if key is None or not training:
        return F.dropout(x, rate, training)
    return x * key.mask(place, rate, tuple(x.shape)) * rescale(rate) if rate else x


@dataclass(frozen=True)
class LayerMasks:
    """Keyed dropout masks of one layer, made by the encoder; None where nothing is dropped."""

    weights: Tensor | None = None  # (B, N, L, L)
    attention_output: Tensor | None = None  # (T, D)
    output: Tensor | None = None  # (T, D)


def add_dropped(x: Tensor, update: Tensor, masks: LayerMasks | None, place: str, rate: float, training: bool) -> Tensor:
    """x + dropout(update); without `masks` dropout in training is torch's."""
    if masks is None:
        return x + F.dropout(update, rate, training)
    mask = getattr(masks, place)
    return x + update if mask is None else torch.add(x, update * mask, alpha=rescale(rate))
