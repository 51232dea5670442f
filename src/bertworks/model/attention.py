"""Attention: the scaled dot product in the five ways the encoder needs, rotary positions, local attention in blocks.

Shapes: B sequences, L positions, T rows of a packed batch, N heads, H head size. q, k, v and the context are
(B, N, L, H), weights (B, N, L, L).
`visible` (B or 1, 1, 1 or L, L) is True for keys that a query may see; None: all. Local attention: S positions a block,
n blocks in L, K keys that a query of a block is compared with. In a block q is (B n, N, S, H), k and v (B n, N, K, H).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .dropout import rescale
from .packing import Packing

# Scores that take as long to compute as one more call of torch's attention on a CPU. Measured with all-MiniLM-L6-v2 on
# an EPYC with AVX-512 (docs/log.md); other processors and models may have another break-even.
CALL = 96 * 96
SMALLEST = 64  # positions of a block: products of smaller ones cost more to call than to compute
FEWEST = 8  # blocks a sequence: with fewer, the copies of keys and values cost what the scores save
NEIGHBOURS = {"both": (-1, 0, 1), "left": (-1, 0), "right": (0, 1)}  # the blocks that a query sees, its own being 0


# ---- the scaled dot product


def fused_attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, rate: float) -> Tensor:
    """The context by torch's fused kernels, which draw the dropout: for inference, and for training on a GPU."""
    return F.scaled_dot_product_attention(q, k, v, visible, rate)


def attention_by_sequence(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], causal: bool) -> Tensor:
    """The context of packed rows, all (1, N, T, H), whose sequences follow each other: no query meets any padding.

    lengths: rows of each sequence. Rows behind the last one get zeros. causal: a query sees no key on its right.
    """
    _, N, T, H = q.shape
    context = q.new_zeros(1, T, N, H).transpose(1, 2)
    for start, length in zip(itertools.accumulate(lengths, initial=0), lengths, strict=False):
        rows = slice(start, start + length)
        own = F.scaled_dot_product_attention(q[:, :, rows], k[:, :, rows], v[:, :, rows], is_causal=causal)
        context[:, :, rows] = own
    return context


def flash_attention(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, rate: float, causal: bool) -> Tensor:
    """`attention_by_sequence` on a GPU, with dropout, by one call of the flash kernel (Dao 2023).

    bounds: (n + 1,) int32, the row at which each of n sequences begins, and T. longest: rows that none of them exceeds.
    """
    rows = (x[0].transpose(0, 1) for x in (q, k, v))  # (T, N, H)
    # torch.nn.attention.varlen calls this operator too, but has no dropout
    found = torch.ops.aten._flash_attention_forward(*rows, bounds, bounds, longest, longest, rate, causal, False)
    return found[0].transpose(0, 1)[None]  # type: ignore[no-any-return]


def is_flash_possible(x: Tensor, H: int) -> bool:
    """Whether `flash_attention` takes heads of width H in the type and on the device of `x`."""
    if x.device.type != "cuda" or x.dtype not in (torch.float16, torch.bfloat16) or H % 8 or H > 256:
        return False
    found, cuda = torch.cuda.get_device_capability(x.device), torch.backends.cuda
    wide = found in ((8, 0), (9, 0), (10, 0))  # the backward pass of other GPUs has too little shared memory
    known = cuda.is_flash_attention_available() and cuda.flash_sdp_enabled() and found >= (8, 0)
    return known and (wide or H <= 192) and hasattr(torch.ops.aten, "_flash_attention_forward")


def worth_by_sequence(lengths: Sequence[int], L: int) -> bool:
    """Whether `attention_by_sequence` costs less than the rectangle that pads all sequences to L."""
    return sum(length * length + CALL for length in lengths) < len(lengths) * L * L


def keyed_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, mask: Tensor | None, rate: float
) -> Tensor:
    """The context with a 0/1 dropout `mask` on the weights (None: no dropout): for training on a CPU."""
    context: Tensor = _KeyedAttention.apply(q, k, v, visible, mask, rescale(rate))
    return context


def visible_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, mask: Tensor | None, rate: float, head_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The context and the weights, step by step: for looking inside. `head_mask` (N,) multiplies each head."""
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))  # (B, N, L, L)
    if visible is not None:
        scores = torch.where(visible, scores, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    used = F.dropout(weights, rate) if mask is None else weights * mask * rescale(rate)  # rate is 0 outside training
    if head_mask is not None:
        used = used * head_mask[:, None, None]
    return used.to(v.dtype) @ v, weights


class _KeyedAttention(torch.autograd.Function):
    """softmax(q k^T / sqrt(H)) v with a dropout mask on the weights.

    On a CPU the backward pass of torch's fused attention takes several times as long as these few products, and torch
    cannot be given a mask.
    """

    @staticmethod
    def forward(ctx, q, k, v, visible, mask, scale):  # type: ignore[no-untyped-def]
        B, N, L, H = q.shape
        ctx.factor = 1 / math.sqrt(H)
        q, k, v = ((q * ctx.factor).reshape(B * N, L, H), k.reshape(B * N, -1, H), v.reshape(B * N, -1, H))
        scores = torch.bmm(q, k.transpose(1, 2)).view(B, N, L, -1)  # (B, N, L, K)
        if visible is not None:
            scores += torch.where(visible, 0.0, -10000.0).to(scores.dtype)  # the constant of modeling.py
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


# ---- rotary positions (Su et al. 2021)
#
# Queries and keys are rotated by an angle that grows with their position, so their product depends on the distance
# alone. Nothing is learned, and no table limits the length.


def rotation(L: int, H: int, theta: float, device: torch.device) -> Tensor:
    """(2, L, H / 2): cosines and sines of each position's angles; pair i turns by theta ** (-2 i / H) a position."""
    rates = theta ** (-torch.arange(0, H, 2, dtype=torch.float64, device=device) / H)
    angles = torch.arange(L, device=device)[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate (B, N, L, H) by `rotation`. A pair is element i of the first half of a head and i of the second."""
    cos, sin = rotations
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


# ---- local attention (after Beltagy et al. 2020, section 3)


@dataclass(frozen=True)
class Blocks:
    """A batch cut into blocks of positions: a query is compared with the keys of its own block and those beside it.

    So the cost of local attention grows with the length, and not with its square.
    """

    size: int  # S
    neighbours: tuple[int, ...]
    visible: Tensor  # (B n, 1, S, K), True for keys that may be seen

    @classmethod
    def of(cls, packing: Packing, direction: str, span: int, device: torch.device) -> "Blocks | None":
        """The blocks for an attention span of so many positions; None where cutting costs more than it saves."""
        S, L, neighbours = max(span, SMALLEST), packing.L, NEIGHBOURS[direction]
        if L < FEWEST * S:
            return None
        n = -(-L // S)
        start = torch.arange(n, device=device)[:, None, None] * S
        query = start + torch.arange(S, device=device)[:, None]  # (n, S, 1)
        key = start + torch.arange(neighbours[0] * S, (neighbours[-1] + 1) * S, device=device)  # (n, 1, K)
        distance = key - query  # (n, S, K)
        left, right = (0 if direction == "right" else -span), (0 if direction == "left" else span)
        seen = ((distance >= left) & (distance <= right) & (key >= 0) & (key < L)).expand(packing.B, -1, -1, -1)
        if packing.mask is not None:
            seen = seen & packing.mask[:, key.clamp(0, L - 1)]
        seen = seen | (distance == 0)  # itself always, padding too: a softmax over nothing is not a number
        return cls(S, neighbours, seen.reshape(packing.B * n, 1, S, -1))

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
