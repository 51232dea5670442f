"""One Transformer layer (section 3; original code modeling.py), with LayerNorm behind or before its two sub-layers.

Shapes: B sequences, L positions, T real tokens of the batch, D hidden width, I feed-forward width, N heads, H their
size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import fused_attention, keyed_attention, visible_attention
from .config import ACTIVATIONS, ModelConfig
from .dropout import LayerMasks, add_dropped
from .local import Blocks
from .packing import Packing
from .rotary import rotate


@dataclass(frozen=True)
class Sight:
    """What a layer knows of a batch: where its tokens are, which of them sees which, and what is asked of attention."""

    packing: Packing
    visible: Tensor | None  # (B or 1, 1, 1 or L, L), True for keys that may be seen; None: all
    turn: Tensor | None = None  # (2, L, H / 2) rotary positions
    blocks: Blocks | None = None  # of local attention in blocks, in place of `visible`
    head_mask: Tensor | None = None  # (N,) factors of the heads
    attentions: bool = False  # whether the weights are wanted


class Layer(nn.Module):
    """x = LN(x + attention(x)); x = LN(x + feed_forward(x)). With norm "pre" x = x + f(LN(x)) for both.

    Of layers that share parameters only the first has the shared half, `attention` or `feed_forward`.
    """

    def __init__(self, config: ModelConfig, attention: bool = True, feed_forward: bool = True):
        super().__init__()
        D, wide, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self.config, self.pre = config, config.norm == "pre"
        if attention:
            self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
            self.attention_output, self.attention_norm = nn.Linear(D, D), nn.LayerNorm(D, eps=eps)
        if feed_forward:
            inner = 2 * wide if config.feed_forward == "geglu" else wide
            self.intermediate, self.output = nn.Linear(D, inner), nn.Linear(wide, D)
            self.output_norm = nn.LayerNorm(D, eps=eps)

    def attention(self, x: Tensor, sight: Sight, masks: LayerMasks | None) -> tuple[Tensor, Tensor | None]:
        """The first sub-layer, (T, D) to (T, D), and the weights (B, N, L, L) if they are wanted."""
        given = self.attention_norm(x) if self.pre else x
        context, weights = self._attend(compute(given), sight, masks)
        x = self._add(x, self.attention_output(context), masks, "attention_output")
        return x if self.pre else self.attention_norm(x), weights

    def feed_forward(self, x: Tensor, masks: LayerMasks | None) -> Tensor:
        """The second sub-layer, (T, D) to (T, D)."""
        activation = ACTIVATIONS[self.config.hidden_act]
        hidden = self.intermediate(compute(self.output_norm(x) if self.pre else x))
        if self.config.feed_forward == "geglu":
            hidden, gate = hidden.chunk(2, -1)
            hidden = activation(hidden) * gate
        else:
            hidden = activation(hidden)  # (T, I)
        x = self._add(x, self.output(hidden), masks, "output")
        return x if self.pre else self.output_norm(x)

    def _add(self, x: Tensor, update: Tensor, masks: LayerMasks | None, place: str) -> Tensor:
        return add_dropped(x, update, masks, place, self.config.hidden_dropout_prob, self.training)

    def _attend(self, x: Tensor, sight: Sight, masks: LayerMasks | None) -> tuple[Tensor, Tensor | None]:
        """Multi-head self-attention, (T, D) to (T, D); padding keys are hidden from every query."""
        packing, visible = sight.packing, sight.visible
        B, L, N = packing.B, packing.L, self.config.num_attention_heads
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        q, k, v = (  # (B, N, L, H) each
            packing.unpack(project(x)).view(B, L, N, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        if sight.turn is not None:
            q, k = rotate(q, sight.turn), rotate(k, sight.turn)
        mask, weights, blocks = masks.weights if masks else None, None, sight.blocks
        if blocks is not None:
            q, k, v, visible = blocks.queries(q), blocks.keys(k), blocks.keys(v), blocks.visible
        if sight.attentions or sight.head_mask is not None:
            context, weights = visible_attention(q, k, v, visible, mask, rate, sight.head_mask)
        elif masks is not None:
            context = keyed_attention(q, k, v, visible, mask, rate)
        else:
            context = fused_attention(q, k, v, visible, rate)
        context = context if blocks is None else blocks.join(context, L)
        return packing.pack(context.transpose(1, 2).reshape(B * L, -1)), weights if sight.attentions else None


def run_layer(
    attending: Layer, feeding: Layer, x: Tensor, sight: Sight, masks: LayerMasks | None
) -> tuple[Tensor, Tensor | None]:
    """A layer of two halves, which are one module's unless layers share one of them: (T, D) to (T, D), weights.

    masks: keyed dropout; None leaves dropout in training to torch.
    """
    x, weights = attending.attention(x, sight, masks)
    return feeding.feed_forward(x, masks), weights


def compute(x: Tensor) -> Tensor:
    """`x` in the type of matrix products, cast once where autocast would cast it for each product anew."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
