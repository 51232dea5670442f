"""The top: what may be between encoder and head in fine-tuning, a choice of layers (table 7) or a BiLSTM (5.1, 5.3).

Without a top a head reads the last layer and the pooler, as in the paper's main experiments.

Shapes: B sequences, T rows of a packed batch, D width of the encoder, W width of the BiLSTM's one direction.
"""

import torch
from torch import nn

from .computation import EncoderOutput
from .config import ModelConfig, TopConfig
from .dropout import Dropout, DropoutKey, head_site
from .layer_choice import LayerChoice
from .recurrent import Recurrent


class Top(nn.Module):
    """`top(encoder_output)` returns an EncoderOutput of `width`, so that heads need not know of the top."""

    def __init__(self, config: TopConfig, shape: ModelConfig, width: int):
        """`shape`, `width`: those of the encoder. Raises InputError for layers that it does not have."""
        super().__init__()
        self.config = config
        self.choice = LayerChoice.parse(config.layers, shape.num_hidden_layers)
        self.weighting = self.choice.weighting()
        widths = [self.choice.width(width)] + [2 * config.bilstm_width] * config.bilstm_layers
        self.bilstm = nn.ModuleList(Recurrent(w, config.bilstm_width, config.cell, "both") for w in widths[:-1])
        first = head_site(shape.num_hidden_layers) + 1
        rate = shape.hidden_dropout_prob
        self.dropouts = nn.ModuleList(Dropout(rate, first + i) for i in range(config.bilstm_layers))
        self.width, self.direction, self.D = widths[-1], shape.direction, shape.hidden_size

    def forward(self, out: EncoderOutput, dropout: DropoutKey | None = None) -> EncoderOutput:
        """The chosen layers, through the BiLSTM, with dropout before each of its layers. Needs `out.states`.

        `pooled` (B, width) is the encoder's own if the pooler is read; else the last output of each direction of the
        BiLSTM. Without a BiLSTM it is the first token, or the last one if tokens see only what is left of them.
        """
        assert out.states is not None
        x, layout = self.choice.combine(out.states, self.weighting), out.layout
        for drop, layer in zip(self.dropouts, self.bilstm, strict=True):
            x = layer(drop(x, dropout, layout), layout)  # (T, 2 W)
        if self.config.needs_pooler:
            return EncoderOutput(x, layout, out.pooled)
        first, last = (x[layout.ends(x.device, last)] for last in (False, True))
        if self.bilstm:
            half = x.shape[1] // 2
            return EncoderOutput(x, layout, torch.cat([last[:, :half], first[:, half:]], -1))
        if self.direction == "pair":  # the left half has read all at the last token, the right half at the first
            first, last = (part.view(len(part), -1, 2, self.D) for part in (first, last))
            return EncoderOutput(x, layout, torch.stack([last[:, :, 0], first[:, :, 1]], 2).flatten(1))
        return EncoderOutput(x, layout, last if self.direction == "left" else first)
