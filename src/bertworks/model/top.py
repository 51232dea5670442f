"""What may stand between encoder and head at fine-tuning: a choice of layers (table 7), a BiLSTM (sections 5.1, 5.3).

Without a top a head reads the last layer and the pooler, as in the paper's main experiments.

Shapes: B sequences, T rows of a packed batch, D width of the encoder, W width of the BiLSTM's one direction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import DropoutKey, rescale
from .encoder import EncoderOutput, ModelConfig
from .layer_choice import LayerChoice
from .recurrent import CELLS, Recurrent


@dataclass(frozen=True)
class TopConfig:
    """What a head reads; the defaults are BERT's own way."""

    layers: str = "last"  # as in `bertworks features --layers`: second-to-last, concat-last-4, weighted-sum, ...
    bilstm_layers: int = 0  # recurrent layers on top of these; the paper has 2
    bilstm_width: int = 768  # of each of their two directions
    cell: str = "lstm"  # lstm, or gru
    pooler: bool = True  # dense and tanh on the token that stands for the whole text; false: the token itself, as GPT

    def __post_init__(self) -> None:
        if self.cell not in CELLS:
            raise ValueError(f"top.cell = {self.cell!r}; expected one of {', '.join(CELLS)}")
        if not 0 <= self.bilstm_layers <= 100 or not 1 <= self.bilstm_width <= 1 << 16:
            raise ValueError("expected top.bilstm_layers of 0 to 100, top.bilstm_width of 1 to 65,536")

    @property
    def needs_pooler(self) -> bool:
        """Whether a head that reads whole sequences reads the encoder's pooler."""
        return self.pooler and not self.bilstm_layers and self.layers == "last"


class Top(nn.Module):
    """`top(encoder_output)` gives an EncoderOutput of `width`, for heads that do not know of it."""

    def __init__(self, config: TopConfig, shape: ModelConfig, width: int):
        """`shape`, `width`: of the encoder. Raises InputError for layers that it does not have."""
        super().__init__()
        self.config = config
        self.choice = LayerChoice.parse(config.layers, shape.num_hidden_layers)
        self.weighting = self.choice.weighting()
        widths = [self.choice.width(width)] + [2 * config.bilstm_width] * config.bilstm_layers
        self.bilstm = nn.ModuleList(Recurrent(w, config.bilstm_width, config.cell, "both") for w in widths[:-1])
        self.width, self.rate = widths[-1], shape.hidden_dropout_prob
        self.direction, self.D = shape.direction, shape.hidden_size
        self.place = 3 * shape.num_hidden_layers + 2  # of its dropout: those of encoder and head end before

    def forward(self, out: EncoderOutput, dropout: DropoutKey | None = None) -> EncoderOutput:
        """Chosen layers, dropout before each recurrent layer. Needs an output with `states`.

        `pooled` (B, width): what each direction of the BiLSTM has read last; without a BiLSTM the first token, or the
        last if tokens see only what stands left of them. With BERT's own pooler: what the encoder pooled.
        """
        assert out.states is not None
        x, packing = self.choice.combine(out.states, self.weighting), out.packing
        for i, layer in enumerate(self.bilstm):
            x = layer(self._drop(x, out, dropout, self.place + i), packing)
        if self.config.needs_pooler:
            return EncoderOutput(x, packing, out.pooled)
        first, last = (x[packing.ends(x.device, last)] for last in (False, True))
        if self.bilstm:
            half = x.shape[1] // 2
            return EncoderOutput(x, packing, torch.cat([last[:, :half], first[:, half:]], -1))
        if self.direction == "pair":  # every state is a left half, which has read all at the end, and a right one
            first, last = (part.view(len(part), -1, 2, self.D) for part in (first, last))
            return EncoderOutput(x, packing, torch.stack([last[:, :, 0], first[:, :, 1]], 2).flatten(1))
        return EncoderOutput(x, packing, last if self.direction == "left" else first)

    def _drop(self, x: Tensor, out: EncoderOutput, key: DropoutKey | None, place: int) -> Tensor:
        if key is None or not self.training:
            return F.dropout(x, self.rate, self.training)
        if not self.rate:
            return x
        packing = out.packing
        mask = key.mask(place, self.rate, (packing.B, packing.L, x.shape[1])).flatten(0, 1)
        return x * packing.pack(mask) * rescale(self.rate)
