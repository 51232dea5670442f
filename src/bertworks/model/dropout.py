"""Dropout whose masks are, on a CPU, a pure function of (seed, step, site, row). So resume is exact, and neither the
number of processes nor that of micro-batches changes a mask.

On a CPU torch draws dropout masks one element at a time on one thread, which can take half of a training step. Here
the masks come from NumPy's Philox, a counter-based generator. Its key is the seed, the step and the site (the number of
a dropout in the network); its counter is the row of the global batch, so any process can make just its own rows.

One random byte decides one element. The rate is therefore rounded to 1/256 (0.1 becomes 26/256 = 0.1016), and the scale
uses the rounded rate, which keeps the expectation exact. Below 1/32 and above 31/32 a byte would round far (0.001 to
0.0039) or to 1; there two bytes decide, and the rate is rounded to 1/65,536.

On a GPU torch's fused kernels are kept: a generator seeded from (seed, step, first row of the micro-batch) serves them
(training/trainer.py). There resume is exact too, but the split into micro-batches and processes changes the masks.

Shapes: B rows (sequences), L positions, T rows of a packed batch, D hidden width.
"""

import contextlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from . import kernels
from .packing import Packing

_WORDS = 4  # 64-bit words of one Philox counter value
_FEW = 8_000_000  # elements of all masks of a pass
_LAST = np.iinfo(np.uint64).max
_ONE = np.uint16(0x3F80)  # the bits of 1.0 in bfloat16


@dataclass(frozen=True)
class DropoutKey:
    """Where in a run masks belong: `seed` of the run, optimizer `step`, first `row` of the global batch."""

    seed: int
    step: int
    row: int = 0

    def mask(self, site: int, rate: float, shape: tuple[int, ...]) -> Tensor:
        """(B, ...) = `shape`, bfloat16: 0 where dropped, else 1. `site`: the number of a dropout in the network."""
        return _in_bfloat16(self._draw(site, rate, shape), shape)

    def masks(self, sites: Sequence[tuple[int, float, tuple[int, ...]]]) -> list[Tensor | None]:
        """The `mask` of each site, rate and shape; None where the rate is 0. Several threads draw many."""
        wanted = [site for site in sites if site[1]]
        # few are drawn sooner by this thread alone: after an operation torch's own threads keep the other cores busy
        threads = torch.get_num_threads() if sum(math.prod(shape) for _, _, shape in wanted) > _FEW else 1
        with ThreadPoolExecutor(threads) if threads > 1 else contextlib.nullcontext() as pool:
            run = pool.map if pool else map  # NumPy releases the interpreter's lock
            drawn = iter([*run(lambda site: self._draw(*site), wanted)])
        # torch is called in this thread alone: in another one it would start a second team of OpenMP threads
        return [_in_bfloat16(next(drawn), shape) if rate else None for _, rate, shape in sites]

    def _draw(self, site: int, rate: float, shape: tuple[int, ...]) -> NDArray[np.uint16]:
        """(B, elements of a row): the bits of 0.0 or 1.0 in bfloat16."""
        size, kind = math.prod(shape[1:]), _drawn(rate)
        blocks = -(-size * kind.itemsize // (8 * _WORDS))  # every row starts on a counter of its own
        key = np.array([self.seed, (self.step << 16) + site], np.uint64)
        counter = np.array([self.row * blocks, 0, 0, 0], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        # all 64 bits: the raw words as they come, in less time than `random_raw` takes
        words = generator.integers(0, _LAST, shape[0] * blocks * _WORDS, np.uint64, endpoint=True)
        kept = words.view(kind).reshape(shape[0], -1)[:, :size] >= _dropped(rate)[0]
        return kept * _ONE  # NumPy multiplies bits several times faster than torch selects by a condition

    def numbers(self, site: int, rate: float, elements: int) -> tuple[int, int, int, int, int, float]:
        """What a kernel needs to draw the mask of a site that has so many elements a row (kernels/kernels.h).

        Key, counter before the first row, counter values a row, values of a byte that drop, factor of what is kept.
        """
        blocks = -(-elements // (8 * _WORDS))
        return self.seed, (self.step << 16) + site, self.row * blocks, blocks, _dropped(rate)[0], rescale(rate)

    def packed_mask(self, site: int, rate: float, packing: Packing, width: int) -> Tensor:
        """(T, width): the mask of a packed batch. A token's mask does not depend on the padding around it."""
        return packing.pack(self.mask(site, rate, (packing.B, packing.L, width)).flatten(0, 1))


def _in_bfloat16(bits: NDArray[np.uint16], shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(bits).view(torch.bfloat16).view(shape)


def _drawn(rate: float) -> np.dtype[Any]:
    """The random number that decides one element: a byte, or two where a byte is too coarse."""
    return np.dtype(np.uint8 if rate == 0 or 1 / 32 <= rate <= 31 / 32 else np.uint16)


def is_by_byte(rate: float) -> bool:
    """Whether one byte decides an element."""
    return _drawn(rate).itemsize == 1


@cache
def _dropped(rate: float) -> tuple[int, int]:
    """How many values of the random number drop an element, of how many; never none for a rate above 0, never all."""
    values = int(np.iinfo(_drawn(rate)).max) + 1
    return (min(max(1, round(rate * values)), values - 1) if rate > 0 else 0), values


def rescale(rate: float) -> float:
    """The factor of the elements that are kept: with it the expectation does not change."""
    dropped, values = _dropped(rate)
    return values / (values - dropped)


class Dropout(nn.Module):
    """Dropout at one site of the network."""

    def __init__(self, rate: float, site: int):
        super().__init__()
        self.rate, self.site = rate, site
        self.kernels: kernels.Kernels | None = None  # for packed rows in training on a CPU

    def forward(self, x: Tensor, key: DropoutKey | None, packing: Packing | None = None) -> Tensor:
        """Drop elements of (B, ...), or of (T, D) with its `packing`. Without a `key` torch draws the mask."""
        if key is None or not self.training or not self.rate:
            return F.dropout(x, self.rate, self.training)
        if packing is not None and self.kernels is not None and is_by_byte(self.rate) and _is_supported(x):
            numbers = key.numbers(self.site, self.rate, packing.L * x.shape[1])
            dropped: Tensor = _Drop.apply(x, kernels.Rows.of(packing), kernels.Dropout(*numbers), self.kernels)
            return dropped
        if packing is None:
            mask = key.mask(self.site, self.rate, tuple(x.shape))
        else:
            mask = key.packed_mask(self.site, self.rate, packing, x.shape[1])
        return x * mask * rescale(self.rate)


def _is_supported(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_contiguous() and x.shape[1] % kernels.WIDTH == 0


class _Drop(torch.autograd.Function):
    """Dropout of (T, D)."""

    @staticmethod
    def forward(ctx, x, *given):  # type: ignore[no-untyped-def]
        *ctx.rest, ctx.kernels = given
        return ctx.kernels.drop(x, *ctx.rest)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        return ctx.kernels.drop(dy.contiguous(), *ctx.rest), None, None, None


@dataclass(frozen=True)
class LayerMasks:
    """The dropout masks of one layer, drawn by a key; None where the rate is 0."""

    weights: Tensor | None = None  # (B, N, L, L)
    attention_output: Tensor | None = None  # (T, D)
    output: Tensor | None = None  # (T, D)


def add_dropped(x: Tensor, update: Tensor, mask: Tensor | None, rate: float, training: bool) -> Tensor:
    """x + dropout(update). Without a `mask` torch draws one in training."""
    if mask is None:
        return x + F.dropout(update, rate, training)
    return torch.add(x, update * mask, alpha=rescale(rate))
