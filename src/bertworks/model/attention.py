"""Scaled dot-product attention in the three ways the encoder needs.

Shapes: B sequences, L positions, N heads, H head size; q, k, v and the context are (B, N, L, H), weights (B, N, L, L).
`visible` (B or 1, 1, 1 or L, L) is True for keys that may be seen; None: all. There may be more keys than queries
(local.py); K is their number where it matters.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .dropout import rescale


def fused_attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, rate: float) -> Tensor:
    """Torch's fused kernels, dropout drawn by torch: inference, and training on a GPU."""
    return F.scaled_dot_product_attention(q, k, v, visible, rate)


def keyed_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, mask: Tensor | None, rate: float
) -> Tensor:
    """Training on a CPU, with a 0/1 dropout `mask` on the weights (None: no dropout)."""
    context: Tensor = _Attention.apply(q, k, v, visible, mask, rescale(rate))
    return context


def visible_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, mask: Tensor | None, rate: float, head_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Context and weights, step by step; `head_mask` (N,) multiplies each head. For looking inside."""
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
    if visible is not None:
        scores = torch.where(visible, scores, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1)
    used = F.dropout(weights, rate) if mask is None else weights * mask * rescale(rate)  # rate 0 when not training
    if head_mask is not None:
        used = used * head_mask[:, None, None]
    return used.to(v.dtype) @ v, weights


class _Attention(torch.autograd.Function):
    """softmax(q k^T / sqrt(H)) v with a keyed dropout mask on the weights.

    On a CPU, torch's fused attention takes several times as long backward as these few products, and knows no such
    mask.
    """

    @staticmethod
    def forward(ctx, q, k, v, visible, mask, scale):  # type: ignore[no-untyped-def]
        B, N, L, H = q.shape
        ctx.factor = 1 / math.sqrt(H)
        q, k, v = ((q * ctx.factor).reshape(B * N, L, H), k.reshape(B * N, -1, H), v.reshape(B * N, -1, H))
        scores = torch.bmm(q, k.transpose(1, 2)).view(B, N, L, -1)
        if visible is not None:
            scores += torch.where(visible, 0.0, -10000.0).to(scores.dtype)  # the constant of modeling.py
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(q, k, v, weights, mask)
        ctx.scale = scale if mask is not None else 1.0
        context = torch.bmm(_dropped(weights, mask), v)
        return (context if mask is None else context.mul_(scale)).view(B, N, L, H)

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        q, k, v, weights, mask = ctx.saved_tensors
        B, N, L, H = dy.shape
        K = k.shape[1]
        dy = (dy * ctx.scale).reshape(B * N, L, H)
        dv = torch.bmm(_dropped(weights, mask).transpose(1, 2), dy)
        slope = torch.bmm(dy, v.transpose(1, 2)).view(B, N, L, K)
        slope = slope if mask is None else slope.mul_(mask)
        slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype).view(B * N, L, K)
        dq, dk = torch.bmm(slope, k).mul_(ctx.factor), torch.bmm(slope.transpose(1, 2), q)
        return dq.view(B, N, L, H), dk.view(B, N, K, H), dv.view(B, N, K, H), None, None, None


def _dropped(weights: Tensor, mask: Tensor | None) -> Tensor:
    B, N, L, K = weights.shape
    return (weights if mask is None else (weights * mask).to(weights.dtype)).view(B * N, L, K)
