"""BERT's layers in training on a CPU, with kernels (kernels/).

They compute what layer.py does, up to rounding, for the usual layer: LayerNorm behind each half, GELU, no attention
span. The residual stream is float32; each half is given it in bfloat16 too, for its products.

Shapes: B sequences, L positions, T rows of the packed batch, R of them that the last layer returns, D hidden width,
I feed-forward width, N heads, H head size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .dropout import DropoutKey, is_by_byte
from .kernels import NO_DROPOUT, WIDTH, AttentionShape, Dropout, Kernels, Rows
from .packing import Packing

if TYPE_CHECKING:
    from .config import ModelConfig
    from .layer import Layer

GELU = {"gelu": False, "gelu_new": True}  # whether in the tanh form


def has_kernels(config: "ModelConfig") -> bool:
    """Whether the kernels compute this model's layers."""
    dense = config.feed_forward == "dense" and config.hidden_act in GELU
    post = config.norm == "post" and config.bias
    attends = config.layer_type == "attention" and not config.attention_window
    rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob)
    whole = config.hidden_size % WIDTH == config.intermediate_size % WIDTH == 0
    return dense and post and attends and whole and all(map(is_by_byte, rates))


@dataclass(frozen=True)
class FusedLayers:
    """The layers of one pass over a batch."""

    kernels: Kernels
    config: "ModelConfig"
    packing: Packing
    key: DropoutKey
    rotations: Tensor | None = None  # (2, L, H / 2), of rotary positions
    last_cells: Tensor | None = None  # (R,) flat cells whose rows the last layer returns; None: all

    def run(self, halves: Sequence[tuple["Layer", "Layer"]], x: Tensor) -> Iterator[Tensor]:
        """The output of each layer, (T, D) float32, of the last one (R, D).

        halves: the attention and the feed-forward network of each layer.
        """
        c, rows, x16 = self.config, Rows.of(self.packing), x.to(torch.bfloat16)
        shape = AttentionShape.of(c.num_attention_heads, c.hidden_size, c.direction, self.rotations)
        for i, (attending, feeding) in enumerate(halves):
            last = self.last_cells if i == len(halves) - 1 else None
            weights, attention_output, output = self._dropouts(i, rows)
            returned = rows if last is None else Rows.of(self.packing.at(last))
            parts = self._project(x16, attending, last)
            context = _Attention.apply(rows, returned, shape, weights, self.kernels, *parts)  # (R, D)
            update = self._linear(context, attending.attention_output)
            x = x if last is None else self.packing.select(x, last)
            x, x16 = self._add_norm(x, update, returned, attention_output, attending.attention_norm)
            inner, outer = feeding.intermediate, feeding.output
            parameters = inner.weight, inner.bias, outer.weight, outer.bias
            update = _FeedForward.apply(x16, *parameters, GELU[c.hidden_act], self.kernels)
            x, x16 = self._add_norm(x, update, returned, output, feeding.output_norm)
            yield x

    def _dropouts(self, layer: int, rows: Rows) -> list[Dropout]:
        """That of attention weights, of the attention's output, and of the feed-forward network's."""
        c, square, wide = self.config, self.config.num_attention_heads * rows.L**2, rows.L * self.config.hidden_size
        rates = (c.attention_probs_dropout_prob, c.hidden_dropout_prob, c.hidden_dropout_prob)
        sites = enumerate(zip(rates, (square, wide, wide), strict=True), 3 * layer + 1)
        return [Dropout(*self.key.numbers(site, rate, n)) if rate else NO_DROPOUT for site, (rate, n) in sites]

    def _project(self, x: Tensor, layer: "Layer", last: Tensor | None) -> list[Tensor]:
        """Queries, keys and values of x (T, D), (T, 3 D); or queries of the last cells (R, D), and the others (T, 2 D).

        Nothing reads the other queries of the last layer.
        """
        if last is None:
            return [self._linear(x, layer.query, layer.key, layer.value)]
        return [self._linear(self.packing.select(x, last), layer.query), self._linear(x, layer.key, layer.value)]

    def _linear(self, x: Tensor, *layers: nn.Linear) -> Tensor:
        """The outputs of linear layers side by side, (T, K) to (T, N)."""
        parameters = (*(layer.weight for layer in layers), *(layer.bias for layer in layers))
        result: Tensor = _Linear.apply(x, self.kernels, *parameters)
        return result

    def _add_norm(
        self, x: Tensor, update: Tensor, rows: Rows, dropout: Dropout, norm: nn.Module
    ) -> tuple[Tensor, Tensor]:
        """LayerNorm of x + dropout(update), in float32 and bfloat16."""
        parameters = (norm.weight, norm.bias, norm.eps)
        result: tuple[Tensor, Tensor] = _AddNorm.apply(x, update, *parameters, rows, dropout, self.kernels)
        return result


class _AddNorm(torch.autograd.Function):
    """LayerNorm of x + dropout(update), (T, D), in float32 and bfloat16."""

    @staticmethod
    def forward(ctx, x, update, gain, bias, eps, rows, dropout, kernels):  # type: ignore[no-untyped-def]
        out, out16, *kept = kernels.add_norm(x, update, rows, dropout, gain, bias, eps)
        ctx.save_for_backward(gain, *kept)
        ctx.dropout, ctx.kernels = dropout, kernels
        ctx.set_materialize_grads(False)  # of the last layer's outputs only one is read
        return out, out16

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, d_out, d_out16):  # type: ignore[no-untyped-def]
        gain, *kept = ctx.saved_tensors
        return *ctx.kernels.add_norm_backward((d_out, d_out16), kept, gain, ctx.dropout), *[None] * 4


class _Attention(torch.autograd.Function):
    """Queries, keys and values to the context (R, D). parts: see `Kernels.attention`."""

    @staticmethod
    def forward(ctx, rows, returned, shape, dropout, kernels, *parts):  # type: ignore[no-untyped-def]
        context, *kept = kernels.attention(parts, rows, returned, shape, dropout)
        ctx.save_for_backward(*kept, *parts)
        ctx.rest, ctx.kernels = (rows, returned, shape, dropout), kernels
        return context

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, d_context):  # type: ignore[no-untyped-def]
        log_sums, bits, *parts = ctx.saved_tensors
        return *[None] * 5, *ctx.kernels.attention_backward(d_context, parts, (log_sums, bits), *ctx.rest)


class _Linear(torch.autograd.Function):
    """Linear layers side by side, (T, K) to (T, N)."""

    @staticmethod
    def forward(ctx, x, kernels, *parameters):  # type: ignore[no-untyped-def]
        weights, biases = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
        y, kept = kernels.linear(x, weights, biases, ctx.needs_input_grad[0])
        ctx.save_for_backward(x, kept, *weights)  # weights: so that torch refuses those that were changed since
        ctx.kernels = kernels
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, kept, *weights = ctx.saved_tensors
        d_x = ctx.kernels.input_slope(dy, kept) if ctx.needs_input_grad[0] else None
        if not any(ctx.needs_input_grad[2:]):
            return d_x, None, *[None] * 2 * len(weights)
        slopes = (slope.split([*map(len, weights)]) for slope in ctx.kernels.weight_slopes(dy, x))
        return d_x, None, *(part for parts in slopes for part in parts)


class _FeedForward(torch.autograd.Function):
    """Dense, GELU, dense, (T, D) to (T, D)."""

    @staticmethod
    def forward(ctx, x, weight, bias, outer, outer_bias, tanh, kernels):  # type: ignore[no-untyped-def]
        inner, kept = kernels.linear(x, [weight], [bias], ctx.needs_input_grad[0])  # (T, I)
        active = kernels.gelu(inner, tanh)
        y, kept_outer = kernels.linear(active, [outer], [outer_bias])
        ctx.save_for_backward(x, inner, active, kept, kept_outer, weight, outer)  # as in _Linear
        ctx.tanh, ctx.kernels = tanh, kernels
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, inner, active, kept, kept_outer, *_ = ctx.saved_tensors
        asked_x, asked = ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:5])
        slope = ctx.kernels.input_slope(dy, kept_outer)  # (T, I)
        d_bias = ctx.kernels.gelu_backward(inner, slope, ctx.tanh)
        d_x = ctx.kernels.input_slope(slope, kept) if asked_x else None
        if not asked:
            return d_x, *[None] * 6
        slopes = *ctx.kernels.weight_slopes(slope, x, d_bias), *ctx.kernels.weight_slopes(dy, active)
        return d_x, *slopes, None, None
