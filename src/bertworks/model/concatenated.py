"""Two encoders, one that sees the left context and one that sees the right: ELMo's way of being bidirectional, which
the paper argues against (section 5.1).

Each is trained by itself. For fine-tuning both are combined (checkpoint/start.py), and their vectors concatenated.

Shapes: B sequences, L positions, T tokens of a batch without its padding, D width of one encoder.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .bert import Encoder
from .computation import EncoderOutput
from .config import ModelConfig
from .dropout import DropoutKey
from .layout import Layout

_STEP_OFFSET = 1 << 40  # between the steps of both encoders' dropout keys, so that they share no mask


class ConcatenatedEncoders(nn.Module):
    """Called like one Encoder, with vectors of width 2 D. For attention weights, call `left` or `right`.

    `config` is that of both, with direction "pair".
    """

    def __init__(self, config: ModelConfig, pooler: bool = True):
        super().__init__()
        self.config, self.width = config, 2 * config.hidden_size
        self.left = Encoder(replace(config, direction="left"), pooler=False)
        self.right = Encoder(replace(config, direction="right"), pooler=False)
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
        last_cells: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch. `pooled` (B, 2 D): tanh layer on the left encoder's last token and the right one's first.

        last_cells: ignored; every token is computed.
        """
        right_dropout = None if dropout is None else replace(dropout, step=dropout.step + _STEP_OFFSET)
        inputs = input_ids, attention_mask, token_type_ids
        options: dict[str, Any] = {"hidden_states": hidden_states, "depth": depth}
        left = self.left(*inputs, layout=layout, dropout=dropout, **options)
        layout = left.layout  # both have the same order of rows
        right = self.right(*inputs, layout=layout, dropout=right_dropout, **options)
        states = None
        if hidden_states:
            states = tuple(torch.cat(both, -1) for both in zip(left.states, right.states, strict=True))
        pooled = None
        if self.pooler is not None and depth is None:
            device = left.packed.device
            ends = (left.packed[layout.ends(device, last=True)], right.packed[layout.ends(device, last=False)])
            pooled = torch.tanh(self.pooler(torch.cat(ends, -1)))  # (B, 2 D)
        return EncoderOutput(torch.cat([left.packed, right.packed], -1), layout, pooled, states)
