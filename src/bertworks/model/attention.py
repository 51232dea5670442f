"""Self-attention (Vaswani et al. 2017, section 3.2; original code modeling.py): the scaled dot product, masks, rotary
positions.

`Attention` is the definition; `TorchAttention` computes the same by torch's function, which returns no weights. Faster
implementations for some machines are in fast/attention.py.

Shapes: B sequences, L positions, T tokens of a batch without its padding, R of them that the last layer returns, N
heads, H head size. q, k, v and the context are (B, N, L, H), weights (B, N, L, L).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .config import ModelConfig
from .dropout import SiteDropout
from .layout import Layout


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention of one layer over a batch: softmax(q k^T / sqrt(H)) v for each head."""

    layout: Layout
    heads: int  # N
    attention_mask: Tensor | None  # (B or 1, 1, 1 or L, L), True for keys that a query attends to; None: all
    rotations: Tensor | None  # (2, L, H / 2), of rotary positions; None without them
    head_mask: Tensor | None = None  # (N,) factors of the heads
    weights: list[Tensor] | None = None  # to which the weights are appended; None: they are not stored
    output_positions: Tensor | None = None  # (R,) flat positions of the rows that the layer returns; None: all

    def __call__(self, projections: Sequence[Tensor], dropout: SiteDropout) -> Tensor:
        """Queries, keys and values of all tokens to their contexts, (T, N H) or (R, N H).

        projections: three (T, N H), or one (T, 3 N H) with all three concatenated.
        """
        B, L = self.layout.B, self.layout.L
        q, k, v = split_heads([self.layout.unpack(rows).view(B, L, -1) for rows in projections], self.heads)
        if self.rotations is not None:
            q, k = rotate(q, self.rotations), rotate(k, self.rotations)
        context = self.context(q, k, v, self.attention_mask, dropout)  # (B, N, L, H)
        return self.layout.pack(context.transpose(1, 2).reshape(B * L, -1), self.output_positions)

    def context(self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, dropout: SiteDropout) -> Tensor:
        """The means of the values, weighted by the softmax of the scaled products of query and key."""
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))  # (B, N, L, L)
        if attention_mask is not None:
            scores = torch.where(attention_mask, scores, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, -1)
        if self.weights is not None:
            self.weights.append(weights)
        weights = dropout(weights)
        if self.head_mask is not None:
            weights = weights * self.head_mask[:, None, None]
        return weights.to(v.dtype) @ v

    def output_rows(self, x: Tensor) -> Tensor:
        """The rows that the layer returns, (T, D) to (T, D) or (R, D)."""
        return x if self.output_positions is None else self.layout.take(x, self.output_positions)


@dataclass(frozen=True, eq=False)
class TorchAttention(Attention):
    """Attention by torch's function, which draws the dropout itself."""

    def context(self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, dropout: SiteDropout) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attention_mask, dropout.rate)


def split_heads(projections: Sequence[Tensor], N: int) -> list[Tensor]:
    """Queries, keys and values, (B, N, L, H) each, of three (B, L, N H) or of one (B, L, 3 N H)."""
    B, L, _ = projections[0].shape
    n = 3 // len(projections)
    return [one for part in projections for one in part.view(B, L, n, N, -1).permute(2, 0, 3, 1, 4)]


# ---- the attention of each layer


def global_and_local(
    kind: type[Attention], config: ModelConfig, layout: Layout, device: torch.device, local_mask: bool = True
) -> tuple[Attention, Attention]:
    """The attention of global layers, and of local layers: over `attention_window` tokens to the left and to the right.

    local_mask: build the (L, L) mask of local layers; False where blocks replace it.
    """
    c, N = config, config.num_attention_heads
    rotary, H = c.position_embedding_type == "rotary", c.hidden_size // N
    positions = torch.arange(layout.L, device=device)
    rotations = rotation(positions, H, c.rope_theta) if rotary else None
    global_attention = kind(layout, N, build_attention_mask(layout, c.direction, device), rotations)
    if not c.attention_window:
        return global_attention, global_attention
    if rotary and c.local_rope_theta:
        rotations = rotation(positions, H, c.local_rope_theta)
    local_attention_mask = build_attention_mask(layout, c.direction, device, c.attention_window) if local_mask else None
    return global_attention, kind(layout, N, local_attention_mask, rotations)


def build_attention_mask(layout: Layout, direction: str, device: torch.device, window: int = 0) -> Tensor | None:
    """True for keys that a query attends to, (B, 1, 1, L), or (B or 1, 1, L, L) if queries differ; None: all.

    direction: "left" or "right": attention to that context only. window: number of tokens in each direction; 0: all.
    With a direction or window every query attends to itself, also one of padding, so that none is left without keys.
    """
    real, L = None if layout.mask is None else layout.mask[:, None, None, :], layout.L
    window = window if layout.static or window < L - 1 else 0
    if direction == "both" and not window:
        return real
    key = torch.arange(L, device=device)
    query = key[:, None]
    left, right = (0 if direction == "right" else window or L), (0 if direction == "left" else window or L)
    in_reach = ((key >= query - left) & (key <= query + right))[None, None]
    return in_reach if real is None else in_reach & (real | (key == query))


# ---- rotary positions (Su et al. 2021)
#
# Queries and keys are rotated by an angle that grows with their position, so their product depends only on the
# distance. There are no parameters, and no table limits the length.


def rotation(positions: Tensor, H: int, theta: float) -> Tensor:
    """(2, L, H / 2): cosines and sines of the angles of positions (L,); pair i has theta ** (-2 i / H) per position."""
    rates = theta ** (-torch.arange(0, H, 2, dtype=torch.float64, device=positions.device) / H)
    angles = positions[:, None] * rates
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, rotations: Tensor) -> Tensor:
    """Rotate (B, N, L, H) by `rotation`. A pair is element i of the first half of a head and i of the second."""
    cos, sin = rotations
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
