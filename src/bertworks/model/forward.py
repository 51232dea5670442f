"""The options of a forward pass, the plan by which an encoder computes it, who makes the plan, and its output.

A plan has the layout of the batch, and the attention and dropout of each layer. `ReferenceBackend` makes plans with the
definitions of attention.py and dropout.py, or torch's function for the same attention. `build_model` puts the `Backend`
of fast/backend.py in its place, which selects faster implementations; `loop.compute = "reference"` puts it back.

In order: Encoder.forward -> make_plan -> global_and_local (which tokens attend to which) -> build_plan ->
attention_of_layers (one for each layer) -> keyed_dropout or torch_dropout -> the layers (bert.py).

Shapes: B sequences, L positions, T rows of a packed batch, R of them that the last layer returns, D hidden width, N
heads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from .attention import Attention, TorchAttention, global_and_local
from .dropout import DropoutKey, EncoderDropout, keyed_dropout, torch_dropout
from .layout import Layout


@dataclass(frozen=True, eq=False)
class ForwardOptions:
    """Options of one forward pass."""

    dropout: DropoutKey | None = None  # key of the dropout masks, in training on a CPU; None: torch draws them
    hidden_states: bool = True  # return every layer's output
    attentions: bool = False  # return the attention weights of every layer
    head_mask: Tensor | None = None  # (layers, N) factors of the attention heads
    depth: int | None = None  # number of layers to compute, without the pooler; None: all
    # (R,) flat positions of the tokens whose output is used, pooled tokens included. After its attention the last layer
    # computes no others. Unique where there are gradients. Ignored with hidden_states or attentions
    output_positions: Tensor | None = None

    def returned_positions(self, encoder: Any) -> Tensor | None:
        """The positions that the last layer returns; None: all."""
        c = encoder.config
        is_complete = self.depth is None or self.depth >= c.num_hidden_layers
        pools_all = encoder.pooler is not None and c.classifier_pooling == "mean"
        needs_all = pools_all or self.hidden_states or self.attentions or c.layer_type != "attention"
        return self.output_positions if is_complete and not needs_all else None


def run_layer(layer: nn.Module, x: Tensor, attention: Attention, dropout: Any) -> Tensor:
    """The output of one layer as it is written, (T, D) to (T, D)."""
    return layer(x, attention, dropout)


@dataclass(frozen=True, eq=False)
class ForwardPlan:
    """How one batch is computed."""

    name: str
    layout: Layout
    layer_attentions: Sequence[Attention]  # one for each layer that is computed
    dropout: EncoderDropout
    run_layer: Callable[[nn.Module, Tensor, Attention, Any], Tensor] = run_layer

    @property
    def output_layout(self) -> Layout:
        """The layout of the last layer's output."""
        positions = self.layer_attentions[-1].output_positions if self.layer_attentions else None
        return self.layout if positions is None else self.layout.at(positions)


class ReferenceBackend:
    """Makes plans with the definitions of attention.py and dropout.py.

    Unless they are requested, or attention weights are returned, masked or dropped by a key, torch's function computes
    the same attention.
    """

    def __init__(self, requested: bool = False):
        """requested: by `loop.compute`, so nothing faster takes its place, in evaluation either."""
        self.requested = requested

    def make_plan(self, encoder: Any, layout: Layout, options: ForwardOptions, device: torch.device) -> ForwardPlan:
        """How to compute a batch."""
        key = options.dropout if encoder.training else None
        explicit = self.requested or options.attentions or options.head_mask is not None or key is not None
        kind = Attention if explicit else TorchAttention
        scopes = global_and_local(kind, encoder.config, layout, device)
        return build_plan("reference", encoder, layout, scopes, options)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """(T, O): x (T, D) times weight (O, D) transposed, plus bias (O,): no part of a plan, but of the output layer,
        whose loss makes the gradients (training/vocabulary_loss.py)."""
        return torch.mm(x, weight.T).add_(bias)  # addmm would copy the bias to every row


def build_plan(
    name: str, encoder: Any, layout: Layout, scopes: tuple[Attention, Attention], options: ForwardOptions
) -> ForwardPlan:
    """The plan with the attention of global and of local layers (`global_and_local`)."""
    layer_attentions = attention_of_layers(encoder, layout, scopes, options)
    if encoder.training and options.dropout is not None:
        positions = layer_attentions[-1].output_positions if layer_attentions else None
        dropout = keyed_dropout(encoder.config, len(layer_attentions), options.dropout, layout, positions)
    else:
        dropout = torch_dropout(encoder.config, len(layer_attentions), encoder.training)
    return ForwardPlan(name, layout, layer_attentions, dropout)


def attention_of_layers(
    encoder: Any, layout: Layout, scopes: tuple[Attention, Attention], options: ForwardOptions
) -> list[Attention]:
    """The attention of each layer that is computed; every `global_every`-th layer is global.

    Raises ValueError if attention weights are requested of recurrent layers.
    """
    config = encoder.config
    if config.layer_type != "attention" and (options.attentions or options.head_mask is not None):
        raise ValueError("recurrent layers have no attention weights")
    global_attention, local_attention = scopes
    layers, head_mask = range(config.num_hidden_layers)[: options.depth], options.head_mask
    layer_attentions = [local_attention if i % config.global_every else global_attention for i in layers]
    if options.attentions:
        weights: list[Tensor] = []  # all layers append to this list
        layer_attentions = [replace(attention, weights=weights) for attention in layer_attentions]
    if head_mask is not None:
        expected = (config.num_hidden_layers, config.num_attention_heads)
        if head_mask.shape != expected:
            raise ValueError(f"head_mask of shape {tuple(head_mask.shape)}; expected {expected}, layers and heads")
        layer_attentions = [replace(attention, head_mask=head_mask[i]) for i, attention in enumerate(layer_attentions)]
    positions = options.returned_positions(encoder)
    # only the last layer may leave out rows
    if layer_attentions and positions is not None and len(positions) < layout.T:
        layer_attentions[-1] = replace(layer_attentions[-1], output_positions=positions)
    return layer_attentions


@dataclass(frozen=True, eq=False, repr=False)
class EncoderOutput:
    """The output of an encoder.

    `packed` is the last layer on real tokens, (T, D), or (R, D) with `output_positions`; `layout` has the position of
    each row. `pooled` (B, D) is the pooler's output on the first token, on the last one if the context is left only, or
    on the mean of all (`classifier_pooling`); None without a pooler. The rest only if requested: `states`, the
    embeddings and each layer's output in packed form; `hidden_states`, the same as (B, L, D), zeros on padding;
    `attentions`, the weights (B, N, L, L) of each layer. With pre-LayerNorm only the last state is normalized.
    """

    packed: Tensor
    layout: Layout
    pooled: Tensor | None
    states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None

    def __repr__(self) -> str:
        """The shape instead of values."""
        return f"EncoderOutput(last_hidden_state={(self.layout.B, self.layout.L, self.packed.shape[-1])})"

    @cached_property
    def hidden_states(self) -> tuple[Tensor, ...] | None:
        """(B, L, D) each, embeddings first."""
        return None if self.states is None else tuple(map(self.layout.restore, self.states))

    @cached_property
    def last_hidden_state(self) -> Tensor:
        """(B, L, D), zeros on padding."""
        return self.layout.restore(self.packed)
