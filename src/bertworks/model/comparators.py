"""What the paper compares with BERT (sections 5.1 and 5.3): encoders of two directions as in ELMo, and what a head can
read instead of the last layer and the pooler.

ConcatenatedEncoders has a left-to-right and a right-to-left encoder. Each is trained by itself. For fine-tuning both
are combined (checkpoint/start.py), and their vectors concatenated.

FeatureHead is between encoder and head: a choice of layers (table 7), or a BiLSTM over them. Layers are given as text:

    last  second-to-last  embeddings     one hidden state
    0,5,11  -1,-2,-3,-4  embeddings,0    several, concatenated: layers from 0, or from the top as in extract_features.py
    concat-last-4                        the last four, concatenated, the lower ones first; any number is possible
    sum-all  sum-last-4                  their sum; "all" are the Transformer layers without the embeddings
    weighted-sum  weighted-sum-last-4    their weighted sum, with weights that are learned (WeightedSum)

Shapes: B sequences, L positions, T tokens of a batch without its padding, D width of one encoder, K states chosen, W
width of one direction of the BiLSTM; hidden states are (..., D), packed (T, D) as well as (B, L, D).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor, nn

from ..files import InputError
from .bert import Encoder, Layer
from .config import ModelConfig, TopConfig
from .dropout import DropoutKey, HeadDropout, head_site
from .forward import EncoderOutput
from .layout import Layout
from .recurrent import Recurrent

_STEP_OFFSET = 1 << 40  # between the steps of both encoders' dropout keys, so that they share no mask
GRAMMAR = (
    "last, second-to-last, embeddings, sum-all, sum-last-N, concat-last-N, weighted-sum, weighted-sum-last-N, "
    "or layers with commas between them: 0,5,11 from below, -1,-2 from the top"
)


class ConcatenatedEncoders(nn.Module):
    """Called like one Encoder, with vectors of width 2 D. For attention weights, call `left` or `right`.

    `config` is that of both, with direction "pair".
    """

    def __init__(self, config: ModelConfig, pooler: bool = True, layer: Callable[..., nn.Module] = Layer):
        super().__init__()
        self.config, self.width = config, 2 * config.hidden_size
        self.left = Encoder(replace(config, direction="left"), False, layer)
        self.right = Encoder(replace(config, direction="right"), False, layer)
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
        output_positions: Tensor | None = None,
    ) -> EncoderOutput:
        """Encode a batch. `pooled` (B, 2 D): tanh layer on the left encoder's last token and the right one's first.

        output_positions: ignored; every token is computed.
        """
        right_dropout = None if dropout is None else replace(dropout, step=dropout.step + _STEP_OFFSET)
        inputs = input_ids, attention_mask, token_type_ids
        left = self.left(*inputs, layout=layout, dropout=dropout, hidden_states=hidden_states, depth=depth)
        layout = left.layout  # both have the same order of rows
        right = self.right(*inputs, layout=layout, dropout=right_dropout, hidden_states=hidden_states, depth=depth)
        states = None
        if hidden_states:
            states = tuple(torch.cat(both, -1) for both in zip(left.states, right.states, strict=True))
        pooled = None
        if self.pooler is not None and depth is None:
            device = left.packed.device
            ends = (left.packed[layout.ends(device, last=True)], right.packed[layout.ends(device, last=False)])
            pooled = torch.tanh(self.pooler(torch.cat(ends, -1)))  # (B, 2 D)
        return EncoderOutput(torch.cat([left.packed, right.packed], -1), layout, pooled, states)


class WeightedSum(nn.Module):
    """gamma * sum of softmax(s)_k * state_k, with learned s and gamma (Peters et al. 2018, ELMo, equation 1).

    Initially s = 0 and gamma = 1: the mean.
    """

    def __init__(self, states: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))  # s
        self.scale = nn.Parameter(torch.ones(()))  # gamma

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """K tensors (..., D) to one of that shape. Raises ValueError if there are not K."""
        pairs = zip(self.weights.softmax(0), states, strict=True)
        return self.scale * reduce(torch.add, (weight * state for weight, state in pairs))


@dataclass(frozen=True)
class LayerChoice:
    """The hidden states of one choice, and how they become one vector per token."""

    states: tuple[int, ...]  # K indices of the hidden states: 0 is the embeddings, i + 1 is layer i
    combination: str  # concat, sum or weighted-sum

    @classmethod
    def parse(cls, text: str, num_hidden_layers: int) -> "LayerChoice":
        """The choice that `text` describes for an encoder with this number of layers.

        Raises InputError if `text` is not in the grammar, or contains a layer that the encoder does not have.
        """
        n = num_hidden_layers
        aliases = {"last": "-1" if n else "embeddings", "second-to-last": "-2"}
        aliases |= {"sum-all": f"sum-last-{n}", "weighted-sum": f"weighted-sum-last-{n}"}
        name = aliases.get(text.strip(), text.strip())
        match = re.fullmatch(r"(sum|concat|weighted-sum)-last-([0-9]+)", name)
        if match and 1 <= int(match[2]) <= n:
            return cls(tuple(range(n + 1 - int(match[2]), n + 1)), match[1])
        indices = {"embeddings": 0} | {str(layer): layer % n + 1 for layer in range(-n, n)}
        layers = [layer.strip() for layer in name.split(",")]
        if {*layers} <= indices.keys():
            return cls(tuple(indices[layer] for layer in layers), "concat")
        existing = f"layers 0 to {n - 1} (from the top -1 to -{n}) and embeddings" if n else "embeddings only"
        raise InputError(f"layers {text!r}: expected {GRAMMAR}; this encoder has {existing}")

    @property
    def depth(self) -> int:
        """How many layers must be computed: the highest one chosen and those below."""
        return max(self.states)

    def width(self, D: int) -> int:
        """The width of the output of `combine`."""
        return D * len(self.states) if self.combination == "concat" else D

    def combine(
        self, hidden_states: Sequence[Tensor] | Mapping[int, Tensor], weighting: WeightedSum | None = None
    ) -> Tensor:
        """One (..., width) tensor from the embeddings and the layers' outputs.

        hidden_states: up to `depth` or more of them, or only those with the indices `states`. weighting: the learned
        weights of a weighted sum; without it all states have the same weight.
        """
        states = [hidden_states[index] for index in self.states]
        if weighting is not None:
            return weighting(states)
        if self.combination == "concat":
            return torch.cat(states, -1) if len(states) > 1 else states[0]
        total = reduce(torch.add, states)
        return total / len(states) if self.combination == "weighted-sum" else total


class FeatureHead(nn.Module):
    """`feature_head(encoder_output)` returns an EncoderOutput of `width`, which a head reads like the encoder's own."""

    def __init__(self, config: TopConfig, encoder: ModelConfig, width: int):
        """width: of the encoder's vectors. Raises InputError for layers that the encoder does not have."""
        super().__init__()
        self.config = config
        self.choice = LayerChoice.parse(config.layers, encoder.num_hidden_layers)
        is_weighted = self.choice.combination == "weighted-sum"
        self.weighting = WeightedSum(len(self.choice.states)) if is_weighted else None
        widths = [self.choice.width(width)] + [2 * config.bilstm_width] * config.bilstm_layers
        self.bilstm = nn.ModuleList(Recurrent(w, config.bilstm_width, config.cell, "both") for w in widths[:-1])
        site, rate = head_site(encoder.num_hidden_layers) + 1, encoder.hidden_dropout_prob
        self.dropouts = nn.ModuleList(HeadDropout(rate, site + i) for i in range(config.bilstm_layers))
        self.width, self.direction = widths[-1], "pair" if config.bilstm_layers else encoder.direction
        self.W = config.bilstm_width if config.bilstm_layers else encoder.hidden_size  # of one direction

    def forward(self, out: EncoderOutput, dropout: DropoutKey | None = None) -> EncoderOutput:
        """The chosen layers, through the BiLSTM, with dropout before each of its layers. Needs `out.states`.

        `pooled` (B, width) is the encoder's own if the pooler is read. Otherwise it is the first token, or the last one
        with a left context; of two directions each contributes its output after the last token that it reads.
        """
        assert out.states is not None
        x, layout = self.choice.combine(out.states, self.weighting), out.layout
        for drop, layer in zip(self.dropouts, self.bilstm, strict=True):
            x = layer(drop(x, dropout, layout), layout)  # (T, 2 W)
        if self.config.needs_pooler:
            return EncoderOutput(x, layout, out.pooled)
        first, last = (x[layout.ends(x.device, last)] for last in (False, True))
        if self.direction != "pair":
            return EncoderOutput(x, layout, last if self.direction == "left" else first)
        first, last = (ends.view(len(ends), -1, 2, self.W) for ends in (first, last))
        return EncoderOutput(x, layout, torch.stack([last[:, :, 0], first[:, :, 1]], 2).flatten(1))
