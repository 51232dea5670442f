"""Which hidden states are chosen from an encoder, and how they become one vector a token (paper, section 5.3, table 7).

    last  second-to-last  embeddings     a single one
    0,5,11  -1,-2,-3,-4  embeddings,0    several, joined: layers from 0, or from the top as in extract_features.py
    concat-last-4                        the last four, joined, the lower ones first; any number is possible
    sum-all  sum-last-4                  their sum; "all" are the Transformer layers without the embeddings
    weighted-sum  weighted-sum-last-4    their weighted sum, with weights that are learned (WeightedSum)

Shapes: D hidden width, K states chosen; hidden states are (..., D), packed (T, D) as well as (B, L, D).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..files import InputError

GRAMMAR = (
    "last, second-to-last, embeddings, sum-all, sum-last-N, concat-last-N, weighted-sum, weighted-sum-last-N, "
    "or layers with commas between them: 0,5,11 from below, -1,-2 from the top"
)
_LAST_N = re.compile(r"(sum|concat|weighted-sum)-last-([0-9]+)")


class WeightedSum(nn.Module):
    """gamma * sum of softmax(s)_k * state_k, with learned s and gamma (Peters et al. 2018, ELMo, equation 1).

    A fresh one has s = 0 and gamma = 1: the mean.
    """

    def __init__(self, states: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(states))  # s
        self.scale = nn.Parameter(torch.ones(()))  # gamma

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """K tensors (..., D) to one of that shape. Raises ValueError if there are not K."""
        total: Tensor | None = None
        for weight, state in zip(self.weights.softmax(0), states, strict=True):
            total = weight * state if total is None else total + weight * state
        assert total is not None
        return self.scale * total


@dataclass(frozen=True)
class LayerChoice:
    """The states of one choice. Make it with `parse`."""

    states: tuple[int, ...]  # K indices of the hidden states: 0 is the embeddings, i + 1 is layer i
    how: Literal["concat", "sum", "weighted"]  # how several become one

    @classmethod
    def parse(cls, text: str, num_hidden_layers: int) -> "LayerChoice":
        """What `text` means for an encoder of so many layers; the grammar is at the head of this file.

        Raises InputError if it is not in the grammar, or names a layer that the encoder does not have.
        """
        text, every = text.strip(), tuple(range(1, num_hidden_layers + 1))
        if text == "last":
            return cls((num_hidden_layers,), "concat")  # of an encoder without layers: the embeddings
        if text == "second-to-last":
            return cls(_last(text, 2, every)[:1], "concat")
        if text == "sum-all":
            return cls(_last(text, max(1, len(every)), every), "sum")
        if text == "weighted-sum":
            return cls(_last(text, max(1, len(every)), every), "weighted")
        if found := _LAST_N.fullmatch(text):
            states = _last(text, int(found[2]), every)
            return cls(states, {"sum": "sum", "concat": "concat"}.get(found[1], "weighted"))  # type: ignore[arg-type]
        return cls(tuple(_state(part.strip(), text, num_hidden_layers) for part in text.split(",")), "concat")

    @property
    def depth(self) -> int:
        """How many layers must be computed: the highest one chosen and those below."""
        return max(self.states)

    def width(self, D: int) -> int:
        """The width of what `combine` gives."""
        return D * len(self.states) if self.how == "concat" else D

    def weighting(self) -> WeightedSum | None:
        """A fresh module with the weights to learn; None if this choice has none."""
        return WeightedSum(len(self.states)) if self.how == "weighted" else None

    def combine(
        self, hidden_states: Sequence[Tensor] | Mapping[int, Tensor], weighting: WeightedSum | None = None
    ) -> Tensor:
        """One (..., width) tensor from the embeddings and the layers' outputs.

        hidden_states: up to `depth` or more of them, or only those with the indices `states`. weighting: the learned
        weights of a weighted sum; without it all states weigh the same.
        """
        chosen = [hidden_states[state] for state in self.states]
        if self.how == "weighted" and weighting is not None:
            mixed: Tensor = weighting(chosen)
            return mixed
        if len(chosen) == 1:
            return chosen[0]
        if self.how == "concat":
            return torch.cat(chosen, -1)
        total = chosen[0] + chosen[1]
        for state in chosen[2:]:
            total += state
        return total / len(chosen) if self.how == "weighted" else total


def _last(text: str, count: int, every: tuple[int, ...]) -> tuple[int, ...]:
    """The last `count` layers, the lower ones first."""
    if not 1 <= count <= len(every):
        raise InputError(f"layers {text!r}: {_existing(len(every))}")
    return every[-count:]


def _state(part: str, text: str, num_hidden_layers: int) -> int:
    """The index in the hidden states of one item of a list."""
    if part == "embeddings":
        return 0
    if not re.fullmatch(r"-?[0-9]+", part):
        raise InputError(f"layers {text!r}: {part!r} is no layer; expected {GRAMMAR}")
    layer = int(part)
    if not -num_hidden_layers <= layer < num_hidden_layers:
        raise InputError(f"layers {text!r}: there is no layer {layer}; {_existing(num_hidden_layers)}")
    return layer % num_hidden_layers + 1


def _existing(num_hidden_layers: int) -> str:
    """What an error says an encoder has."""
    if num_hidden_layers == 0:
        return "this encoder has no layers, only embeddings; ask for embeddings"
    n = num_hidden_layers
    many = f"{n} layers, 0 to {n - 1} (from the top -1 to -{n})" if n > 1 else "one layer, 0 (from the top -1)"
    return f"this encoder has {many}, and embeddings"
