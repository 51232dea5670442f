"""First weights: the paper's truncated normal, sinusoidal positions, and a start with position heads.

Shapes: P rows of the position table, D hidden width, H head size.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .bert import Embeddings, Encoder, Layer
from .config import ModelConfig

# ---- shapes


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Modules that are built inside have shapes and no values: load_state_dict(..., assign=True) gives them values."""
    with torch.device("meta"), _Unfilled():
        yield


class _Unfilled(TorchFunctionMode):
    """Leaves out the first values: drawing none on the device "meta" would import torch's compiler, for a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.init.normal_:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


# ---- first weights


@torch.no_grad()
def initialise(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Truncated normal within two `std` for matrices and embeddings, 0 for biases, 1 for LayerNorm gains (modeling.py).

    Recurrent layers: uniform within one over the root of their width. Sinusoidal positions (a table that requires no
    gradient) are filled by formula.
    """
    for child in module.modules():
        if isinstance(child, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(child.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
            if isinstance(child, nn.Linear) and child.bias is not None:
                child.bias.zero_()
        elif isinstance(child, nn.LayerNorm):
            child.reset_parameters()
        elif isinstance(child, nn.RNNBase):  # torch's own way, from our generator
            for parameter in child.parameters():
                parameter.uniform_(-(child.hidden_size**-0.5), child.hidden_size**-0.5, generator=generator)
    for child in module.modules():  # in a second pass: the first one meets Embeddings before their tables
        table = child.position if isinstance(child, Embeddings) else None
        if table is not None and not table.weight.requires_grad:
            table.weight.copy_(sinusoids(*table.weight.shape))


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width) sines and cosines of Vaswani et al. (2017), section 3.5."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


# ---- position heads
#
# This start is ours, not the paper's. A masked language model must fetch a token's neighbours before it can learn
# anything else. From BERT's own first weights it needs millions of tokens to find that out, because words and positions
# share all dimensions and no head's score depends on the distance of two tokens. Here both are given at the start:
#
# - The last H dimensions of the embeddings, one head's width, are the position plane. The table of positions begins
#   there with small sinusoids and is zero elsewhere; the table of words is zero there.
# - Some heads begin with an offset d: the query turns the plane's sinusoids by d positions, so the score is highest
#   for the token at distance d. Their values begin without the plane.
#
# Every number is learned from there on, and the model is a plain BERT (docs/plateau.md has the measurements).


@dataclass(frozen=True)
class PositionHeads:
    """The numbers of the start."""

    offsets: tuple[int, ...] = (-1, 1, -2, 2)  # distance at which each of the first heads of a layer looks
    layers: int | None = None  # how many layers begin with such heads, from the first; None: all
    gain: float = 2.0  # factor of query and of key: how sharply a head looks
    amplitude: float = 0.03  # of the sinusoids in the table
    base: float = 1000.0  # the longest wavelength is 2 pi times nearly this many positions


POSITION_HEADS = PositionHeads()


def position_subspace(config: ModelConfig) -> slice:
    """The dimensions of the embeddings that positions have for themselves, one head's width."""
    return slice(config.hidden_size - config.hidden_size // config.num_attention_heads, config.hidden_size)


@torch.no_grad()
def start_with_position_heads(encoder: Encoder, start: PositionHeads = POSITION_HEADS) -> None:
    """Overwrite the first weights of an encoder whose matrices are already drawn.

    Heads beyond those that `offsets` names keep their random weights. An encoder that sees one side alone leaves out
    the offsets of the other side.
    """
    embeddings, N, D = encoder.embeddings, encoder.config.num_attention_heads, encoder.width
    H, direction = D // N, encoder.config.direction
    seen = [d for d in start.offsets if direction == "both" or (d < 0) == (direction == "left")]
    plane = position_subspace(encoder.config)
    assert embeddings.position is not None
    table = embeddings.position.weight  # (P, D)
    table.zero_()
    table[:, plane] = start.amplitude * plane_sinusoids(len(table), H, start.base)
    embeddings.word.weight[:, plane] = 0.0
    if embeddings.token_type is not None:
        embeddings.token_type.weight[:, plane] = 0.0
    for layer in list(encoder.layers)[: start.layers]:
        assert isinstance(layer, Layer)
        attention = layer.attention
        attention.value.weight[:, plane] = 0.0
        for head, offset in enumerate(seen[:N]):
            rows = slice(head * H, (head + 1) * H)
            attention.query.weight[rows], attention.key.weight[rows] = 0.0, 0.0
            attention.query.weight[rows, plane] = start.gain * turn(offset, H, start.base)
            attention.key.weight[rows, plane] = start.gain * torch.eye(H)


def rates(H: int, base: float) -> Tensor:
    """(H / 2,) angles, in radians a position, of the plane's sinusoids."""
    return base ** (-torch.arange(H // 2, dtype=torch.float64) / (H // 2))


def plane_sinusoids(P: int, H: int, base: float) -> Tensor:
    """(P, H): sine and cosine of each rate in turn."""
    angles = torch.arange(P, dtype=torch.float64)[:, None] * rates(H, base)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()


def turn(offset: int, H: int, base: float) -> Tensor:
    """(H, H): the rotation that takes the sinusoids of position p to those of p + offset."""
    angles = offset * rates(H, base)
    pairs = torch.stack([angles.cos(), angles.sin(), -angles.sin(), angles.cos()], -1).view(-1, 2, 2)
    return torch.block_diag(*pairs).float()
