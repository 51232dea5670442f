"""Dropout: x * mask / (1 - rate) (paper, A.2: 0.1 on all layers). Most of this file makes the masks reproducible.

A *site* is the number of a dropout in the network: 0 for the embeddings, then three in each layer (`LayerDropout`),
then the head's. On a CPU masks are a pure function of (seed, step, site, rate, row of the batch, shape of a row). So
resume is exact, and neither the number of processes nor that of micro-batches changes a mask.

On a CPU torch draws dropout masks one element at a time on one thread, which can take half of a training step. Here
the masks come from NumPy's Philox, a counter-based generator. Its key is the seed, the step and the site; its counter
is the row of the global batch, so any process can make just its own rows.

One random byte decides one element. The rate is therefore rounded to 1/256 (0.1 becomes 26/256 = 0.1016), and the scale
uses the rounded rate, which keeps the expectation exact. Below 1/32 and above 31/32 a byte would round far (0.001 to
0.0039) or to 1; there two bytes decide, and the rate is rounded to 1/65,536.

On a GPU torch's fused kernels are kept: a generator seeded from (seed, step, first row of the micro-batch) serves them
(training/trainer.py). There resume is exact too, but the split into micro-batches and processes changes the masks.

Shapes: B rows (sequences), L positions, T rows of a packed batch, D hidden width.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from .config import ModelConfig
from .layout import Layout


@dataclass(frozen=True, eq=False)
class SiteDropout:
    """Dropout at one site in one forward pass."""

    rate: float = 0.0  # 0 outside training
    mask: Tensor | None = None  # 0 where an element is dropped, else 1; None: torch draws it

    def __call__(self, x: Tensor) -> Tensor:
        """x with some elements set to 0 and the others scaled; `x` itself outside training."""
        if self.mask is not None:
            return x * self.mask * rescale(self.rate)
        return F.dropout(x, self.rate) if self.rate else x

    def residual(self, x: Tensor, update: Tensor) -> Tensor:
        """x + dropout(update), in one operation where the mask is known."""
        if self.mask is not None:
            return torch.add(x, update * self.mask, alpha=rescale(self.rate))
        return x + self(update)


class LayerDropout(NamedTuple):
    """The dropouts of one layer, in the order of their sites."""

    attention_weights: SiteDropout  # masks (B, N, L, L)
    attention_output: SiteDropout  # masks (T, D), or (R, D) of the rows that the last layer returns
    output: SiteDropout  # of the feed-forward network; masks as before


class EncoderDropout(NamedTuple):
    """The dropouts of an encoder in one forward pass. The pooler and the heads have modules (HeadDropout)."""

    embeddings: Callable[[Tensor], Tensor]  # of (T, E)
    layers: Sequence[Any]  # a LayerDropout of each, or what kernels take in its place


def torch_dropout(config: ModelConfig, layers: int, training: bool) -> EncoderDropout:
    """Dropout whose masks torch draws; none outside training."""
    hidden = SiteDropout(config.hidden_dropout_prob if training else 0.0)
    weights = SiteDropout(config.attention_probs_dropout_prob if training else 0.0)
    return EncoderDropout(hidden, [LayerDropout(weights, hidden, hidden)] * layers)


# ---- reproducible masks

BLOCK = 32  # random bytes of one Philox counter value
_THREADED_FROM = 8_000_000  # elements of all masks of a pass: smaller masks are drawn in less time by one thread
_ONE = np.uint16(0x3F80)  # the bits of 1.0 in bfloat16

EMBEDDING_SITE = 0
POOLER_SITE = (1 << 16) - 1  # of RoBERTa's dropout before the pooler: the last one

Site = tuple[int, float, tuple[int, ...]]  # site, rate, shape of the mask


def layer_site(number: int) -> int:
    """The first site of a layer: of its attention weights; the next two follow (LayerDropout)."""
    return 3 * number + 1


def head_site(layers: int) -> int:
    """The site of a head on an encoder with this number of layers; those of a BiLSTM below it follow."""
    return 3 * layers + 1


@dataclass(frozen=True)
class DropoutKey:
    """Where in a run masks belong: `seed` of the run, optimizer `step`, first `row` of the global batch."""

    seed: int
    step: int
    row: int = 0

    def mask(self, site: int, rate: float, shape: tuple[int, ...]) -> Tensor:
        """(B, ...) = `shape`, bfloat16: 0 where dropped, else 1."""
        return torch.from_numpy(self._draw((site, rate, shape))).view(torch.bfloat16).view(shape)

    def masks(self, sites: Sequence[Site]) -> list[Tensor | None]:
        """The `mask` of each site; None where the rate is 0. Several threads draw large masks."""
        drawn = [site for site in sites if site[1]]
        if sum(math.prod(shape) for _, _, shape in drawn) > _THREADED_FROM:
            with ThreadPoolExecutor(torch.get_num_threads()) as pool:
                bits = iter([*pool.map(self._draw, drawn)])  # NumPy releases the interpreter's lock
        else:
            bits = map(self._draw, drawn)
        # torch is called in this thread only: in another one it would start a second team of OpenMP threads
        return [
            torch.from_numpy(next(bits)).view(torch.bfloat16).view(shape) if rate else None for _, rate, shape in sites
        ]

    def _draw(self, site: Site) -> NDArray[np.uint16]:
        """(B, elements of a row): the bits of 0.0 or 1.0 in bfloat16."""
        number, rate, (rows, *shape) = site
        size, (dropped, values) = math.prod(shape), threshold(rate)
        kind = np.dtype(np.uint8 if values == 256 else np.uint16)
        blocks = -(-size * kind.itemsize // BLOCK)  # the counter of a row depends on its number only
        key = np.array([self.seed, self.stream(number)], np.uint64)
        counter = np.array([self.row * blocks, 0, 0, 0], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        # all 64 bits: the generator's raw words, in less time than `random_raw` takes
        words = generator.integers(0, np.iinfo(np.uint64).max, rows * blocks * BLOCK // 8, np.uint64, endpoint=True)
        retained = words.view(kind).reshape(rows, -1)[:, :size] >= dropped
        return retained * _ONE  # NumPy multiplies bits several times faster than torch selects by a condition

    def stream(self, site: int) -> int:
        """The second half of the generator's key; the first one is the seed."""
        return (self.step << 16) + site

    def packed_mask(self, site: int, rate: float, layout: Layout, width: int) -> Tensor:
        """(T, width): the mask of a packed batch. A token's mask depends on its position and L, not on other tokens."""
        return layout.pack(self.mask(site, rate, (layout.B, layout.L, width)).flatten(0, 1))


@cache
def threshold(rate: float) -> tuple[int, int]:
    """How many values of a random number drop an element, of how many: at least one for a rate above 0, never all.

    A byte has 256 values; where they are too coarse, two bytes have 65,536.
    """
    values = 1 << 8 if rate == 0 or 1 / 32 <= rate <= 31 / 32 else 1 << 16
    return (min(max(1, round(rate * values)), values - 1) if rate > 0 else 0), values


def rescale(rate: float) -> float:
    """The factor of the elements that are not dropped: with it the expectation does not change."""
    dropped, values = threshold(rate)
    return values / (values - dropped)


def keyed_dropout(
    config: ModelConfig, layers: int, key: DropoutKey, layout: Layout, output_positions: Tensor | None = None
) -> EncoderDropout:
    """Dropout with the masks of a key. output_positions: the positions that the last layer returns; None: all."""
    c, B, L = config, layout.B, layout.L
    weights, hidden = c.attention_probs_dropout_prob, c.hidden_dropout_prob
    rates = (weights, hidden, hidden) if c.layer_type == "attention" else (0.0, 0.0, hidden)  # of a LayerDropout
    shapes = (B, c.num_attention_heads, L, L), (B, L, c.hidden_size), (B, L, c.hidden_size)
    sites = [range(layer_site(layer), layer_site(layer + 1)) for layer in range(layers)]
    masks = key.masks([site for three in sites for site in zip(three, rates, shapes, strict=True)])
    dropouts = []
    for layer in range(layers):
        weights_mask, *token_masks = masks[3 * layer : 3 * layer + 3]
        positions = output_positions if layer == layers - 1 else None
        packed = [None if mask is None else layout.pack(mask.flatten(0, 1), positions) for mask in token_masks]
        dropouts.append(LayerDropout(SiteDropout(weights, weights_mask), *(SiteDropout(hidden, m) for m in packed)))
    of_embeddings = key.packed_mask(EMBEDDING_SITE, hidden, layout, c.embedding_width) if hidden else None
    return EncoderDropout(SiteDropout(hidden, of_embeddings), dropouts)


class HeadDropout(nn.Module):
    """Dropout at one site above the layers: of a pooler or a head."""

    def __init__(self, rate: float, site: int):
        super().__init__()
        self.rate, self.site = rate, site

    def forward(self, x: Tensor, key: DropoutKey | None, layout: Layout | None = None) -> Tensor:
        """Drop elements of (B, ...), or of (T, D) with its `layout`. Without a `key` torch draws the mask."""
        if key is None or not self.training or not self.rate:
            return F.dropout(x, self.rate, self.training)
        if layout is None:
            mask = key.mask(self.site, self.rate, tuple(x.shape))
        else:
            mask = key.packed_mask(self.site, self.rate, layout, x.shape[1])
        return SiteDropout(self.rate, mask)(x)
