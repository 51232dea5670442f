"""Initialization: a truncated normal as in the original code (modeling.py), sinusoidal positions, position heads; also
copies in bfloat16.

Shapes: P positions, D hidden width, H head size.
"""

import copy
import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from .attention import rotation
from .bert import Embeddings, Encoder, Layer

Network = TypeVar("Network", bound=nn.Module)


@torch.no_grad()
def initialize(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Truncated normal within two `std` for matrices and embeddings, 0 for biases, 1 for LayerNorm gains (modeling.py).

    Recurrent layers: uniform within one over the root of their width. Sinusoidal positions (embeddings that require no
    gradient) are computed.
    """
    for child in module.modules():
        if isinstance(child, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(child.weight, 0.0, std, -2 * std, 2 * std, generator=generator)
            if isinstance(child, nn.Linear) and child.bias is not None:
                child.bias.zero_()
        elif isinstance(child, nn.LayerNorm):
            child.reset_parameters()
        elif isinstance(child, nn.RNNBase):  # the distribution of torch
            for parameter in child.parameters():
                parameter.uniform_(-(child.hidden_size**-0.5), child.hidden_size**-0.5, generator=generator)
    for child in module.modules():  # in a second pass: the first one visits Embeddings before their parts
        if isinstance(child, Embeddings) and child.position is not None and not child.position.weight.requires_grad:
            child.position.weight.copy_(sinusoids(*child.position.weight.shape))


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width) sines and cosines of Vaswani et al. (2017), section 3.5."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


# ---- bfloat16


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 at least as fast as float32 (AMX, or AVX-512 with bfloat16)."""
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def in_bfloat16(network: Network) -> Network:
    """A copy whose weights are bfloat16, made without a copy in float32; what shares a weight still does."""
    weights = {id(p): nn.Parameter(p.detach().to(torch.bfloat16), p.requires_grad) for p in network.parameters()}
    twin = copy.deepcopy(network, weights).to(torch.bfloat16)
    for module in twin.modules():
        if isinstance(module, nn.RNNBase):
            module.float()  # recurrent.py computes in float32
    return twin


# ---- position heads
#
# This initialization is not the paper's. A masked language model must find a token's neighbours before it can learn
# anything else. With BERT's own initialization this takes millions of tokens, because words and positions share all
# dimensions and no head's score depends on the distance of two tokens. Here both are given from the beginning:
#
# - The last H dimensions of the embeddings, the width of one head, are the subspace of positions. Position embeddings
#   are small sinusoids there and zero elsewhere; word embeddings are zero there.
# - Some heads have an offset d: the query rotates the sinusoids by d positions, so the score is highest for the token
#   at distance d. Their values do not read the subspace.
#
# All weights are trained, and the model is a plain BERT (docs/plateau.md has the measurements).

OFFSETS = (-1, 1, -2, 2)  # offset of the token to which each of the first heads of a layer attends
GAIN = 2.0  # factor of query and of key: how concentrated a head's attention is
AMPLITUDE = 0.03  # of the sinusoids in the position embeddings
BASE = 1000.0  # the longest wavelength is 2 pi times nearly this many positions


@torch.no_grad()
def start_with_position_heads(encoder: Encoder, offsets: tuple[int, ...] = OFFSETS) -> None:
    """Overwrite the initialization of an encoder whose matrices are already drawn.

    Heads beyond the number of `offsets` keep their random weights. An encoder with a left or right context leaves out
    the offsets to tokens that it does not see.
    """
    embeddings, N, D = encoder.embeddings, encoder.config.num_attention_heads, encoder.width
    H, direction = D // N, encoder.config.direction
    offsets = tuple(d for d in offsets if direction == "both" or (d < 0) == (direction == "left"))
    subspace = encoder.config.position_subspace
    assert embeddings.position is not None
    positions = embeddings.position.weight  # (P, D)
    cos, sin = rotation(torch.arange(len(positions)), H, BASE)
    positions.zero_()
    positions[:, subspace] = AMPLITUDE * torch.stack([sin, cos], -1).flatten(1)
    embeddings.word.weight[:, subspace] = 0.0
    if embeddings.token_type is not None:
        embeddings.token_type.weight[:, subspace] = 0.0
    for layer in encoder.layers:
        assert isinstance(layer, Layer)
        attention = layer.attention
        attention.value.weight[:, subspace] = 0.0
        for head, offset in enumerate(offsets[:N]):
            rows = slice(head * H, (head + 1) * H)
            attention.query.weight[rows], attention.key.weight[rows] = 0.0, 0.0
            attention.query.weight[rows, subspace] = GAIN * rotation_matrix(offset, H)
            attention.key.weight[rows, subspace] = GAIN * torch.eye(H)


def rotation_matrix(offset: int, H: int) -> Tensor:
    """(H, H): the matrix that takes the sinusoids of position p to those of p + offset."""
    cos, sin = rotation(torch.tensor([offset]), H, BASE)[:, 0]
    return torch.block_diag(*torch.stack([cos, sin, -sin, cos], -1).view(-1, 2, 2))
