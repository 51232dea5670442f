"""BERT's layers in training in bfloat16 on a CPU, by C kernels (kernels/).

They compute what bert.py does, up to rounding, for the usual layer: LayerNorm behind each sub-layer, GELU, no attention
window. The residual stream is float32; each sub-layer is given it in bfloat16 too, for its products.

Shapes: B sequences, L positions, T rows of the packed batch, R of them that the last layer returns, D hidden width,
I feed-forward width, N heads, H head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..attention import Attention, TorchAttention, global_and_local
from ..bert import Encoder, encoders_in
from ..config import ModelConfig
from ..dropout import EMBEDDING_SITE, DropoutKey, EncoderDropout, keyed_dropout, layer_site, threshold
from ..forward import ForwardOptions, ForwardPlan, attention_of_layers
from ..layout import Layout, inverse_of
from .kernels.functions import ROWS, WIDTH, AttentionShape, Dropout, Kernels, Rows
from .products import is_replaceable

GELU = {"gelu": False, "gelu_new": True}  # whether in the tanh form


def use_kernels(model: Any, kernels: Kernels, alone: bool = True) -> None:
    """Train a model with kernels: the loss over the vocabulary, and the layers of encoders that have the usual ones.

    alone: whether no other process trains this model.
    """
    model.kernels = kernels
    for encoder in encoders_in(model):
        if has_kernels(encoder.config) and all(map(is_usual, encoder.layers)):
            encoder.backend.kernels = kernels
    if alone and "mlm" in model.heads and model.decoder is model.encoder.embeddings.word.weight:
        # the head's gradient of the table comes first, and has all rows: that of the rows of a batch is added to it
        model.encoder.embeddings.word.sparse = True


def is_usual(layer: Any) -> bool:
    """Whether no adapter or hook takes part in a layer."""
    return is_replaceable(layer.attention) and is_replaceable(layer.feed_forward)


def has_kernels(config: ModelConfig) -> bool:
    """Whether the kernels compute this model's layers."""
    dense = config.feed_forward == "dense" and config.hidden_act in GELU
    post = config.norm == "post" and config.bias
    attends = config.layer_type == "attention" and not config.attention_window
    rates = (config.hidden_dropout_prob, config.attention_probs_dropout_prob)
    whole = config.hidden_size % WIDTH == config.intermediate_size % WIDTH == 0
    return dense and post and attends and whole and all(threshold(rate)[1] == 256 for rate in rates)


def trimmed(encoder: Encoder, layout: Layout, kernels: Kernels) -> Layout:
    """The layout with no more padding than the kernels need, where they compute all products of the layers.

    oneDNN's products take long to prepare for each number of rows.
    """
    c = encoder.config
    all_products = kernels.multiplies(c.hidden_size, c.intermediate_size) and encoder.embeddings.projection is None
    if not all_products or layout.index is None or layout.mask is None:
        return layout
    index = layout.index[: -(-int(layout.mask.sum()) // ROWS) * ROWS]
    return replace(layout, index=index, inverse=inverse_of(index, layout.B * layout.L))


def kernel_plan(encoder: Encoder, layout: Layout, options: ForwardOptions, kernels: Kernels) -> ForwardPlan:
    """The plan for a batch in training with a key. Kernels draw the masks of dropout."""
    c, key = encoder.config, options.dropout
    assert key is not None
    if options.returned_positions(encoder) is not None:
        layout = trimmed(encoder, layout, kernels)
    scopes = global_and_local(TorchAttention, c, layout, encoder.embeddings.word.weight.device)
    attentions = attention_of_layers(encoder, layout, scopes, options)
    rows, sites = Rows.of(layout), [_sites(c, key, layout.L, layer) for layer in range(len(attentions))]
    if c.hidden_dropout_prob and c.embedding_width % WIDTH == 0:
        site = Dropout.of(key, EMBEDDING_SITE, c.hidden_dropout_prob, layout.L * c.embedding_width)
        dropout = EncoderDropout(lambda x: _Drop.apply(x, rows, site, kernels), sites)
    else:
        dropout = EncoderDropout(keyed_dropout(c, 0, key, layout).embeddings, sites)
    output16: list[Tensor] = []  # the output of the layer before in bfloat16; empty before the first

    def run_layer(layer: nn.Module, x: Tensor, attention: Attention, dropouts: list[Dropout]) -> Tensor:
        """The output of the next layer, (T, D) float32, of the last one (R, D)."""
        positions = attention.output_positions
        x16 = output16.pop() if output16 else x.to(torch.bfloat16)
        shape = AttentionShape.of(c.num_attention_heads, c.hidden_size, c.direction, attention.rotations)
        returned = rows if positions is None else Rows.of(layout.at(positions))
        work = _Work(kernels, rows, returned, shape, dropouts, c.layer_norm_eps, GELU[c.hidden_act])
        inputs = [x16] if positions is None else [layout.take(x16, positions), x16]
        out, out16 = _Layer.apply(work, attention.output_rows(x), *_Parameters.of(layer), *inputs)
        output16.append(out16)
        return out

    return ForwardPlan("kernels", layout, attentions, dropout, run_layer)


def _sites(config: ModelConfig, key: DropoutKey, L: int, layer: int) -> list[Dropout]:
    """Dropout of attention weights, of the attention's output, and of the feed-forward network's output."""
    weights, hidden = config.attention_probs_dropout_prob, config.hidden_dropout_prob
    square, wide = config.num_attention_heads * L**2, L * config.hidden_size
    sites = enumerate(((weights, square), (hidden, wide), (hidden, wide)), layer_site(layer))
    return [Dropout.of(key, site, rate, elements) for site, (rate, elements) in sites]


class _Drop(torch.autograd.Function):
    """Dropout of the embeddings, (T, E) float32."""

    @staticmethod
    def forward(ctx, x, rows, dropout, kernels):  # type: ignore[no-untyped-def]
        ctx.drop = partial(kernels.drop, rows=rows, dropout=dropout)
        return ctx.drop(x.contiguous())

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        return ctx.drop(dy.contiguous()), None, None, None


@dataclass(frozen=True)
class _Work:
    """How a layer is computed."""

    kernels: Kernels
    rows: Rows
    returned: Rows  # those that the layer returns
    shape: AttentionShape
    dropouts: list[Dropout]  # of attention weights, of the attention's output, of the feed-forward network's
    eps: float  # of LayerNorm
    tanh: bool  # GELU in this form


class _Parameters(NamedTuple):
    """Weights and biases of a layer; or of each, whether it needs a gradient."""

    query: Any
    query_bias: Any
    key: Any
    key_bias: Any
    value: Any
    value_bias: Any
    attention_output: Any
    attention_output_bias: Any
    attention_gain: Any
    attention_norm_bias: Any
    intermediate: Any
    intermediate_bias: Any
    output: Any
    output_bias: Any
    output_gain: Any
    output_norm_bias: Any

    @classmethod
    def of(cls, layer: Any) -> "_Parameters":
        """The parameters of a layer."""
        attention, feed_forward = layer.attention, layer.feed_forward
        projections = attention.query, attention.key, attention.value, attention.output, layer.attention_norm
        modules = *projections, feed_forward.intermediate, feed_forward.output, layer.output_norm
        return cls(*(parameter for module in modules for parameter in (module.weight, module.bias)))

    def of_projections(self, inputs: int) -> list[Sequence[Any]]:
        """The parameters of queries, keys and values, grouped by input: one, or queries and the others."""
        return [self[:6]] if inputs == 1 else [self[:2], self[2:6]]


class _Layer(torch.autograd.Function):
    """A layer. Its steps are no functions of their own: what torch does between them takes 1 % of a small model's time.

    x (R, D) float32: what the attention's output is added to. given: `_Parameters`, then what is projected, in
    bfloat16: (T, D) for queries, keys and values; or for the last layer, whose other queries are not used, (R, D) for
    queries and (T, D) for keys and values. Returns the output (R, D) in float32 and bfloat16.
    """

    @staticmethod
    def forward(ctx, work, x, *given):  # type: ignore[no-untyped-def]
        k, count = work.kernels, len(_Parameters._fields)
        p, read, keep = _Parameters(*given[:count]), given[count:], ctx.needs_input_grad[-1]
        pairs = zip(read, p.of_projections(len(read)), strict=True)
        products = [k.linear(one, own[::2], own[1::2], keep) for one, own in pairs]
        parts, projections = zip(*products, strict=True)
        context, *attended = k.attention(parts, work.rows, work.returned, work.shape, work.dropouts[0])
        update, attention_output = k.linear(context, [p.attention_output], [p.attention_output_bias])
        middle, middle16, *added = k.add_norm(
            x, update, work.returned, work.dropouts[1], p.attention_gain, p.attention_norm_bias, work.eps
        )
        inner, intermediate = k.linear(middle16, [p.intermediate], [p.intermediate_bias])  # (R, I)
        active = k.gelu(inner, work.tanh)
        update, output = k.linear(active, [p.output], [p.output_bias])
        out, out16, *output_added = k.add_norm(
            middle, update, work.returned, work.dropouts[2], p.output_gain, p.output_norm_bias, work.eps
        )
        weights = *projections, attention_output, intermediate, output  # as they were multiplied
        groups = p, read, parts, attended, added, output_added, weights, (context, middle16, inner, active)
        ctx.save_for_backward(*chain(*groups))  # parameters too: torch refuses those that were changed since
        ctx.counts = [*map(len, groups)]
        ctx.work = work
        ctx.set_materialize_grads(False)  # of the last layer's outputs only one is read
        return out, out16

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx, d_out, d_out16):  # type: ignore[no-untyped-def]
        work, k, count = ctx.work, ctx.work.kernels, len(_Parameters._fields)
        saved = iter(ctx.saved_tensors)
        groups = [[*islice(saved, size)] for size in ctx.counts]
        parameters, read, parts, attended, added, output_added, weights, (context, middle16, inner, active) = groups
        p, (*projections, attention_output, intermediate, output) = _Parameters(*parameters), weights
        _, x_needs_grad, *given_need_grad = ctx.needs_input_grad
        needs_grad, inputs_need_grad = _Parameters(*given_need_grad[:count]), given_need_grad[count:]

        d_middle, d_update, *d_output_norm = k.add_norm_backward(
            (d_out, d_out16), output_added, p.output_gain, work.dropouts[2]
        )
        d_inner = k.grad_input(d_update, output)
        d_output = _parameter_grads(k, d_update, active, (needs_grad.output, needs_grad.output_bias))
        d_bias = k.gelu_backward(inner, d_inner, work.tanh)
        d_intermediate = _parameter_grads(
            k, d_inner, middle16, (needs_grad.intermediate, needs_grad.intermediate_bias), d_bias
        )
        d_feed_forward = *d_intermediate, *d_output, *d_output_norm
        if not (x_needs_grad or any(needs_grad[: -len(d_feed_forward)])):  # nothing below needs one
            return *[None] * (2 + count - len(d_feed_forward)), *d_feed_forward, *[None] * len(read)

        d_middle16 = k.grad_input(d_inner, intermediate)
        d_x, d_update, *d_attention_norm = k.add_norm_backward(
            (d_middle, d_middle16), added, p.attention_gain, work.dropouts[1]
        )
        d_context = k.grad_input(d_update, attention_output)
        d_attention_output = _parameter_grads(
            k, d_update, context, (needs_grad.attention_output, needs_grad.attention_output_bias)
        )
        d_parts = k.attention_backward(
            d_context, parts, attended, work.rows, work.returned, work.shape, work.dropouts[0]
        )
        pairs = zip(d_parts, read, needs_grad.of_projections(len(read)), strict=True)
        d_projections = [grad for d_part, one, own in pairs for grad in _parameter_grads(k, d_part, one, own)]
        inputs = zip(d_parts, projections, inputs_need_grad, strict=True)
        d_read = [k.grad_input(d_part, weights) if is_needed else None for d_part, weights, is_needed in inputs]
        return None, d_x, *d_projections, *d_attention_output, *d_attention_norm, *d_feed_forward, *d_read


def _parameter_grads(
    kernels: Kernels, dy: Tensor, x: Tensor, needs_grad: Sequence[bool], d_bias: Tensor | None = None
) -> list[Tensor | None]:
    """Gradients of weight, bias, weight, bias ..., None for each if none is needed. d_bias: if already computed."""
    if not any(needs_grad):
        return [None] * len(needs_grad)
    both = kernels.grad_weights(dy, x, d_bias)
    return [one for pair in zip(*(grads.chunk(len(needs_grad) // 2) for grads in both), strict=True) for one in pair]
