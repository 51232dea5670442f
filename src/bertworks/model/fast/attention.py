"""Faster ways to compute attention. All give the numbers of ../attention.py, up to rounding.

    KeyedAttention      training on a CPU, with dropout masks from a key
    SequenceAttention   inference on a CPU where padding costs more than a call for each sequence
    FlashAttention      half precision on a GPU: all sequences in one call, without padding
    BlockAttention      local layers over long sequences: only blocks of nearby tokens are compared

Shapes as there; local attention: S positions per block, n blocks in L, K keys that a query of a block is compared with.
In a block q is (B n, N, S, H), k and v (B n, N, K, H).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import Attention, rotate, split_heads
from ..config import ModelConfig
from ..dropout import SiteDropout, rescale
from ..layout import Layout, inverse_of

MIN_BLOCK = 64  # positions of a block: products of smaller ones cost more to call than to compute
MIN_BLOCKS = 8  # blocks a sequence: with fewer, the copies of keys and values cost what the scores save
NEIGHBOURS = {"both": (-1, 0, 1), "left": (-1, 0), "right": (0, 1)}  # the blocks that a query sees, its own being 0


# ---- with dropout masks from a key


@dataclass(frozen=True, eq=False)
class KeyedAttention(Attention):
    """Attention with 0/1 masks on the weights, whose backward pass is written out."""

    def context(self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, dropout: SiteDropout) -> Tensor:
        return _KeyedProduct.apply(q, k, v, attention_mask, dropout.mask, rescale(dropout.rate))


class _KeyedProduct(torch.autograd.Function):
    """softmax(q k^T / sqrt(H)) v with a dropout mask on the weights.

    On a CPU the backward pass of torch's fused attention takes several times as long as these few products, and torch
    cannot be given a mask.
    """

    @staticmethod
    def forward(ctx, q, k, v, attention_mask, mask, scale):  # type: ignore[no-untyped-def]
        B, N, L, H = q.shape
        ctx.factor = 1 / math.sqrt(H)
        q, k, v = ((q * ctx.factor).reshape(B * N, L, H), k.reshape(B * N, -1, H), v.reshape(B * N, -1, H))
        scores = torch.bmm(q, k.transpose(1, 2)).view(B, N, L, -1)  # (B, N, L, K)
        if attention_mask is not None:
            scores += torch.where(attention_mask, 0.0, -10000.0).to(scores.dtype)  # the constant of modeling.py
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, weights, mask)
        ctx.scale = scale if mask is not None else 1.0
        context = torch.bmm(_dropped(weights, mask), v)  # (B N, L, H)
        return (context if mask is None else context.mul_(scale)).view(B, N, L, H)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        q, k, v, weights, mask = ctx.saved_tensors
        B, N, L, H = dy.shape
        K = k.shape[1]
        dy = (dy * ctx.scale).reshape(B * N, L, H)
        dv = torch.bmm(_dropped(weights, mask).transpose(1, 2), dy)
        grad = torch.bmm(dy, v.transpose(1, 2)).view(B, N, L, K)  # of the loss over the weights
        grad = grad if mask is None else grad.mul_(mask)
        grad = torch._softmax_backward_data(grad, weights, -1, weights.dtype).view(B * N, L, K)  # over the scores
        dq, dk = torch.bmm(grad, k).mul_(ctx.factor), torch.bmm(grad.transpose(1, 2), q)
        return dq.view(B, N, L, H), dk.view(B, N, K, H), dv.view(B, N, K, H), None, None, None


def _dropped(weights: Tensor, mask: Tensor | None) -> Tensor:
    """(B N, L, K) weights after dropout, not yet rescaled."""
    B, N, L, K = weights.shape
    return (weights if mask is None else (weights * mask).to(weights.dtype)).view(B * N, L, K)


# ---- without padding


@dataclass(frozen=True, eq=False)
class UnpaddedAttention(Attention):
    """What the next two share: `rotations` are (2, T, H / 2), and no query meets any padding."""

    causal: bool = False  # whether a query sees no key on its right

    def __call__(self, projections: Sequence[Tensor], dropout: SiteDropout) -> Tensor:
        q, k, v = split_heads([rows[None] for rows in projections], self.heads)  # (1, N, T, H) each
        if self.rotations is not None:
            q, k = rotate(q, self.rotations), rotate(k, self.rotations)
        return self.output_rows(self.context(q, k, v, None, dropout).transpose(1, 2).flatten(2)[0])


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceAttention(UnpaddedAttention):
    """One call of torch's attention for each sequence. For inference: there is no dropout."""

    lengths: tuple[int, ...]  # of the sequences, whose rows follow each other

    def context(self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, dropout: SiteDropout) -> Tensor:
        """Rows behind those of the last sequence get zeros."""
        _, N, T, H = q.shape
        context = q.new_zeros(1, T, N, H).transpose(1, 2)
        for start, length in zip(itertools.accumulate(self.lengths, initial=0), self.lengths, strict=False):
            rows = slice(start, start + length)
            own = F.scaled_dot_product_attention(q[:, :, rows], k[:, :, rows], v[:, :, rows], is_causal=self.causal)
            context[:, :, rows] = own
        return context


@dataclass(frozen=True, eq=False, kw_only=True)
class FlashAttention(UnpaddedAttention):
    """The flash kernel of a GPU (Dao 2023), which draws the dropout itself."""

    cu_seqlens: Tensor  # (2 B + 1,) int32, the row at which each sequence begins, then each part of the filling, and T

    def context(self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, dropout: SiteDropout) -> Tensor:
        return flash_attention(q, k, v, self.cu_seqlens, self.layout.L, dropout.rate, self.causal)


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, longest: int, rate: float, causal: bool
) -> Tensor:
    """The contexts of packed sequences, (1, N, T, H). longest: rows that no sequence exceeds."""
    rows = (x[0].transpose(0, 1) for x in (q, k, v))  # (T, N, H)
    bounds = cu_seqlens, cu_seqlens, longest, longest
    # torch.nn.attention.varlen calls this operator too, but has no dropout
    outputs = torch.ops.aten._flash_attention_forward(*rows, *bounds, rate, causal, False)
    return outputs[0].transpose(0, 1)[None]


def is_flash_possible(x: Tensor, H: int) -> bool:
    """Whether `flash_attention` takes heads of width H in the type and on the device of `x`."""
    if x.device.type != "cuda" or x.dtype not in (torch.float16, torch.bfloat16) or H % 8 or H > 256:
        return False
    capability, cuda = torch.cuda.get_device_capability(x.device), torch.backends.cuda
    wide = capability in ((8, 0), (9, 0), (10, 0))  # the backward pass of other GPUs has too little shared memory
    enabled = cuda.is_flash_attention_available() and cuda.flash_sdp_enabled() and capability >= (8, 0)
    return enabled and (wide or H <= 192) and hasattr(torch.ops.aten, "_flash_attention_forward")


def without_padding(attention: Attention, causal: bool, flash: bool) -> UnpaddedAttention:
    """The same attention, by the flash kernel or one sequence after the other.

    The rows of the layout must be those of one sequence after the other, for the kernel with indices (`with_indices`).
    """
    layout, rotations = attention.layout, attention.rotations
    assert layout.mask is not None and layout.index is not None
    if rotations is not None:
        rotations = rotations[:, layout.index % layout.L]  # (2, T, H / 2)
    shape, lengths = (layout, attention.heads, None, rotations), layout.mask.sum(1)
    if not flash:
        return SequenceAttention(*shape, causal=causal, lengths=tuple(lengths.tolist()))
    # the rows behind the last sequence, of padding, are B sequences of at most L rows, most of them of none
    filling = torch.full_like(lengths, layout.L)
    ends = torch.cat([lengths, filling]).cumsum(0).clamp(max=layout.T)
    return FlashAttention(*shape, causal=causal, cu_seqlens=F.pad(ends, (1, 0)).int())


def with_indices(layout: Layout, device: torch.device, in_sequence: bool = False) -> Layout:
    """The layout with tensors in place of None: so one compiled graph serves batches with and without padding.

    in_sequence: with the real tokens of one sequence after the other before all padding.
    """
    if layout.index is not None:
        return layout
    mask = layout.mask
    if mask is None:
        mask = torch.ones(layout.B, layout.L, dtype=torch.bool, device=device)
    index = torch.arange(layout.B * layout.L, device=device)
    if in_sequence and layout.mask is not None:
        index = torch.argsort(~mask.flatten(), stable=True)
    return replace(layout, mask=mask, index=index, inverse=inverse_of(index, layout.B * layout.L))


# ---- local attention (after Beltagy et al. 2020, section 3)


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockAttention(Attention):
    """Local attention in blocks."""

    blocks: "Blocks"
    inner: Attention  # attention within blocks

    def context(self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, dropout: SiteDropout) -> Tensor:
        b = self.blocks
        return b.join(self.inner.context(b.queries(q), b.keys(k), b.keys(v), b.attention_mask, dropout), q.shape[2])


def in_blocks(attention: Attention, blocks: "Blocks") -> BlockAttention:
    """The same local attention in blocks."""
    return BlockAttention(attention.layout, attention.heads, None, attention.rotations, blocks=blocks, inner=attention)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A batch cut into blocks of positions: a query is compared with the keys of its own block and those beside it.

    So the cost of local attention grows with the length, and not with its square.
    """

    size: int  # S
    neighbours: tuple[int, ...]
    attention_mask: Tensor  # (B n, 1, S, K), True for keys that may be seen

    @classmethod
    def of(cls, config: ModelConfig, layout: Layout, device: torch.device) -> "Blocks | None":
        """The blocks for the local layers of an encoder; None where cutting costs more than it saves."""
        window, direction, L = config.attention_window, config.direction, layout.L
        S, neighbours = max(window, MIN_BLOCK), NEIGHBOURS[direction]
        if not window or L < MIN_BLOCKS * S:
            return None
        n = -(-L // S)
        start = torch.arange(n, device=device)[:, None, None] * S
        query = start + torch.arange(S, device=device)[:, None]  # (n, S, 1)
        key = start + torch.arange(neighbours[0] * S, (neighbours[-1] + 1) * S, device=device)  # (n, 1, K)
        distance = key - query  # (n, S, K)
        left, right = (0 if direction == "right" else -window), (0 if direction == "left" else window)
        seen = ((distance >= left) & (distance <= right) & (key >= 0) & (key < L)).expand(layout.B, -1, -1, -1)
        if layout.mask is not None:
            seen = seen & layout.mask[:, key.clamp(0, L - 1)]
        seen = seen | (distance == 0)  # itself always, padding too: a softmax over nothing is not a number
        return cls(S, neighbours, seen.reshape(layout.B * n, 1, S, -1))

    def queries(self, x: Tensor) -> Tensor:
        """(B, N, L, H) to (B n, N, S, H)."""
        return self._cut(F.pad(x, (0, 0, 0, -x.shape[2] % self.size)))

    def keys(self, x: Tensor) -> Tensor:
        """(B, N, L, H) to (B n, N, K, H): each block with those beside it."""
        S, L = self.size, x.shape[2]
        x = F.pad(x, (0, 0, S, S + -L % S))
        whole = x.shape[2] - 2 * S
        return torch.cat([self._cut(x[:, :, S + k * S : S + k * S + whole]) for k in self.neighbours], 2)

    def join(self, x: Tensor, L: int) -> Tensor:
        """(B n, N, S, H) to (B, N, L, H)."""
        _, N, S, H = x.shape
        x = x.view(-1, -(-L // S), N, S, H).transpose(1, 2)
        return x.reshape(x.shape[0], N, -1, H)[:, :, :L]

    def _cut(self, x: Tensor) -> Tensor:
        """(B, N, n S, H) to (B n, N, S, H)."""
        B, N, _, H = x.shape
        return x.view(B, N, -1, self.size, H).transpose(1, 2).reshape(-1, N, self.size, H)
