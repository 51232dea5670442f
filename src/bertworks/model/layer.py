"""One Transformer layer (section 3; original code modeling.py), with LayerNorm after or before its two sub-layers.

Shapes: B sequences, L positions, T rows of a packed batch, D hidden width, I feed-forward width, N heads, H head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .activations import FUNCTIONS
from .attention import (
    Blocks,
    attention_by_sequence,
    flash_attention,
    fused_attention,
    keyed_attention,
    rotate,
    visible_attention,
)
from .config import ModelConfig
from .dropout import LayerMasks, add_dropped
from .packing import LARGE_STEP, Packing
from .products import linear


@dataclass(frozen=True)
class LayerContext:
    """What a layer needs to know of a batch: where its tokens are, and what attention shall see and return."""

    packing: Packing
    visible: Tensor | None  # (B or 1, 1, 1 or L, L), True for keys that may be seen; None: all
    rotations: Tensor | None = None  # (2, L, H / 2), of rotary positions
    blocks: Blocks | None = None  # local attention in blocks, in place of `visible`
    lengths: tuple[int, ...] | None = None  # attention sequence by sequence, and `rotations` (2, T, H / 2)
    bounds: Tensor | None = None  # the same on a GPU: the row at which each sequence begins, and T
    causal: bool = False  # whether these sequences are read from left to right
    head_mask: Tensor | None = None  # (N,) factors of the heads
    attentions: bool = False  # whether to return the weights
    cells: Tensor | None = None  # (R,) flat cells whose rows the layer returns; None: all that it was given


class Layer(nn.Module):
    """x = LN(x + attention(x)); x = LN(x + feed_forward(x)). With norm "pre" x = x + f(LN(x)) for both.

    Of layers that share parameters only the first has the shared half, `attention` or `feed_forward`.
    """

    def __init__(self, config: ModelConfig, attention: bool = True, feed_forward: bool = True):
        super().__init__()
        D, wide, bias = config.hidden_size, config.intermediate_size, config.bias
        self.config, self.pre = config, config.norm == "pre"
        self._head_size = D // config.num_attention_heads
        self.joined: nn.Linear | None = None  # query, key and value in one product, for inference (prepare.py)
        if attention:
            self.query, self.key, self.value = (nn.Linear(D, D, bias) for _ in range(3))
            self.attention_output = nn.Linear(D, D, bias)
            self.attention_norm: nn.Module = layer_norm(config, D)
        if feed_forward:
            inner = 2 * wide if config.feed_forward == "geglu" else wide
            self.intermediate, self.output = nn.Linear(D, inner, bias), nn.Linear(wide, D, bias)
            self.output_norm = layer_norm(config, D)

    def attention(self, x: Tensor, context: LayerContext, masks: LayerMasks | None) -> tuple[Tensor, Tensor | None]:
        """The first sub-layer, (T, D) to (T, D), and the weights (B, N, L, L) if `context` asks for them.

        With `context.cells` it returns (R, D).
        """
        given = self.attention_norm(x) if self.pre else x
        update, weights = self._attend(compute(given), context, masks)
        (update,) = linear(update, self.attention_output)
        if context.cells is not None:
            x = context.packing.select(x, context.cells)
        x = self._add(x, update, masks.attention_output if masks else None)
        return x if self.pre else self.attention_norm(x), weights

    def feed_forward(self, x: Tensor, masks: LayerMasks | None) -> Tensor:
        """The second sub-layer, (T, D) to (T, D)."""
        activation = FUNCTIONS[self.config.hidden_act]
        (hidden,) = linear(compute(self.output_norm(x) if self.pre else x), self.intermediate)  # (T, I), or (T, 2 I)
        if self.config.feed_forward == "geglu":
            hidden, gate = hidden.chunk(2, -1)
            hidden = activation(hidden) * gate  # (T, I)
        else:
            hidden = activation(hidden)
        (update,) = linear(hidden, self.output)
        x = self._add(x, update, masks.output if masks else None)
        return x if self.pre else self.output_norm(x)

    def _add(self, x: Tensor, update: Tensor, mask: Tensor | None) -> Tensor:
        return add_dropped(x, update, mask, self.config.hidden_dropout_prob, self.training)

    def _project(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values of (T, D): as one (T, 3 D), or (T, D) each."""
        return [self.joined(x)] if self.joined is not None else linear(x, self.query, self.key, self.value)

    def _attend(self, x: Tensor, context: LayerContext, masks: LayerMasks | None) -> tuple[Tensor, Tensor | None]:
        """Multi-head self-attention, (T, D) to (T, D); padding keys are hidden from every query."""
        packing, visible, blocks = context.packing, context.visible, context.blocks
        B, L = packing.B, packing.L
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        if context.lengths is not None or context.bounds is not None:
            rows = self._attend_by_sequence(x, context, rate)
            return rows if context.cells is None else packing.select(rows, context.cells), None
        q, k, v = heads([packing.unpack(rows).view(B, L, -1) for rows in self._project(x)], self._head_size)
        if context.rotations is not None:
            q, k = rotate(q, context.rotations), rotate(k, context.rotations)
        if blocks is not None:
            q, k, v, visible = blocks.queries(q), blocks.keys(k), blocks.keys(v), blocks.visible
        mask, weights = masks.weights if masks else None, None
        if context.attentions or context.head_mask is not None:
            out, weights = visible_attention(q, k, v, visible, mask, rate, context.head_mask)
        elif masks is not None:
            out = keyed_attention(q, k, v, visible, mask, rate)
        else:
            out = fused_attention(q, k, v, visible, rate)
        out = out if blocks is None else blocks.join(out, L)  # (B, N, L, H)
        rows = packing.pack(out.transpose(1, 2).reshape(B * L, -1), context.cells)
        return rows, weights if context.attentions else None

    def _attend_by_sequence(self, x: Tensor, context: LayerContext, rate: float) -> Tensor:
        """The same without a rectangle, for inference on a CPU and in half precision on a GPU."""
        q, k, v = heads([rows[None] for rows in self._project(x)], self._head_size)  # (1, N, T, H) each
        if context.rotations is not None:
            q, k = rotate(q, context.rotations), rotate(k, context.rotations)
        if context.bounds is not None:
            longest = max(context.packing.L, LARGE_STEP)  # the filling is a sequence too
            out = flash_attention(q, k, v, context.bounds, longest, rate, context.causal)
        else:
            assert context.lengths is not None
            out = attention_by_sequence(q, k, v, context.lengths, context.causal)
        return out.transpose(1, 2).flatten(2)[0]


def heads(parts: Sequence[Tensor], H: int) -> list[Tensor]:
    """Queries, keys and values, (B, N, L, H) each, of one (B, L, 3 D) or three (B, L, D)."""
    B, L, _ = parts[0].shape
    n = 3 // len(parts)
    return [one for part in parts for one in part.view(B, L, n, -1, H).permute(2, 0, 3, 1, 4)]


def layer_norm(config: ModelConfig, width: int) -> nn.LayerNorm:
    """LayerNorm of this width, with or without biases."""
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.bias)


class Transform(nn.Module):
    """Dense, activation, LayerNorm: what is before the decoder of a masked-LM head, and before ModernBERT's others."""

    def __init__(self, config: ModelConfig, width: int, out: int, hidden_act: str):
        super().__init__()
        self.dense = nn.Linear(width, out, config.bias)
        self.norm = layer_norm(config, out)
        self.hidden_act = hidden_act

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to (..., out)."""
        transformed: Tensor = self.norm(FUNCTIONS[self.hidden_act](self.dense(x)))
        return transformed


def run_layer(
    attending: Layer, feeding: Layer, x: Tensor, context: LayerContext, masks: LayerMasks | None
) -> tuple[Tensor, Tensor | None]:
    """A layer of two halves, (T, D) to (T, D), and its weights.

    Both halves are one module unless layers share one of them. masks: keyed dropout; None leaves dropout to torch.
    """
    x, weights = attending.attention(x, context, masks)
    return feeding.feed_forward(x, masks), weights


def compute(x: Tensor) -> Tensor:
    """`x` in the type of matrix products, cast once; autocast would cast it anew for each product."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
