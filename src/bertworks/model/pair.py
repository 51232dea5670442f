"""Two encoders side by side, one that sees the left context and one that sees the right: ELMo's way of being
bidirectional, which the paper argues against (section 5.1).

Each is trained by itself; the pair is made for fine-tuning (checkpoint/start.py). Its vectors are theirs, joined.

Shapes: B sequences, L positions, T rows of a packed batch, D width of one encoder.
"""

import dataclasses
from typing import Literal

import torch
from torch import Tensor, nn

from .bert import Encoder
from .computation import EncoderOutput
from .config import ModelConfig
from .dropout import DropoutKey
from .layout import Layout

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
_STEPS_APART = 1 << 40  # between the steps of both encoders' dropout keys, so that they share no mask


class Pair(nn.Module):
    """Two encoders, called like one Encoder, with vectors of width 2 D. Ask each side for its attention.

    `config` is that of both, with direction "pair".
    """

    def __init__(self, config: ModelConfig, pooler: bool = True):
        super().__init__()
        self.config, self.width = config, 2 * config.hidden_size
        self.left, self.right = (Encoder(dataclasses.replace(config, direction=side), False) for side in SIDES)
        self.pooler = nn.Linear(self.width, self.width, config.bias) if pooler else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        layout: Layout | None = None,
        dropout: DropoutKey | None = None,
        hidden_states: bool = True,
        depth: int | None = None,
    ) -> EncoderOutput:
        """Encode a batch. `pooled` (B, 2 D): a tanh layer on the left side's last token and the right side's first."""
        other = None if dropout is None else dataclasses.replace(dropout, step=dropout.step + _STEPS_APART)
        given, asked = (input_ids, attention_mask, token_type_ids), {"hidden_states": hidden_states, "depth": depth}
        left = self.left(*given, layout=layout, dropout=dropout, **asked)
        right = self.right(*given, layout=left.layout, dropout=other, **asked)  # in the order of rows of the left one
        states = None
        if hidden_states:
            states = tuple(torch.cat(both, -1) for both in zip(left.states, right.states, strict=True))
        pooled, layout = None, left.layout
        if self.pooler is not None and depth is None:
            device = left.packed.device
            ends = (left.packed[layout.ends(device, last=True)], right.packed[layout.ends(device, last=False)])
            pooled = torch.tanh(self.pooler(torch.cat(ends, -1)))  # (B, 2 D)
        return EncoderOutput(torch.cat([left.packed, right.packed], -1), layout, pooled, states)
