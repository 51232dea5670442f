"""The numbers inside an encoder on one sequence: what is added in the embeddings, each head's vectors, words by layer.

Everything is computed from the model's own modules, one step at a time; tests compare it with a forward pass.

Shapes: T tokens, E embedding width, D hidden width, L layers, N heads, H head size, W words.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...model.attention import rotate, rotation
from ...model.config import ModelConfig
from ...model.encoder import Encoder, EncoderOutput
from ...model.packing import Packing
from ...model.pair import Pair

SHOWN = 64  # dimensions of a word's vector that are shown by layer
Packed = dict[str, Any]


def packed(values: Tensor | NDArray[Any]) -> Packed:
    """An array for JSON: its shape, and its values as float16 in base64 (little-endian, rows first)."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    halves = array.clip(-65504, 65504).astype("<f2")
    return {"shape": list(halves.shape), "float16": base64.b64encode(halves.tobytes()).decode()}


def unpacked(found: Packed) -> NDArray[np.float32]:
    """The array in `packed` form, as float32."""
    raw = np.frombuffer(base64.b64decode(found["float16"]), "<f2")
    return raw.reshape(found["shape"]).astype(np.float32)


# ---- embeddings


@dataclass(frozen=True)
class EmbeddingSum:
    """What an encoder adds for each token, before LayerNorm. A table that the model lacks is None."""

    word: Tensor  # (T, E)
    position: Tensor | None  # (T, E)
    segment: Tensor | None  # (T, E)
    output: Tensor  # (T, E) after LayerNorm

    @property
    def total(self) -> Tensor:
        """(T, E) the sum."""
        parts = [part for part in (self.word, self.position, self.segment) if part is not None]
        return torch.stack(parts).sum(0)


def embedding_sum(encoder: Encoder, ids: Sequence[int], types: Sequence[int]) -> EmbeddingSum:
    """The rows of the tables that the tokens of one sequence have."""
    tables, T, device = encoder.embeddings, len(ids), encoder.embeddings.word.weight.device
    word = tables.word(torch.tensor(ids, device=device))
    position = None if tables.position is None else tables.position.weight[tables.offset : tables.offset + T]
    segment = None
    if tables.token_type is not None:
        one = tables.token_type.num_embeddings == 1
        segment = tables.token_type.weight[torch.tensor([0] * T if one else types, device=device)]
    parts = EmbeddingSum(word, position, segment, word)
    return EmbeddingSum(word, position, segment, tables.norm(parts.total))


# ---- heads


@dataclass(frozen=True)
class HeadVectors:
    """Queries, keys and values of every head, as they are multiplied: with rotary positions after the rotation."""

    query: Tensor  # (L, N, T, H)
    key: Tensor  # (L, N, T, H)
    value: Tensor  # (L, N, T, H)


def head_vectors(encoder: Encoder, states: Sequence[Tensor]) -> HeadVectors:
    """states: the embeddings and each layer's output, (T, D) each, of one sequence without padding."""
    config, found = encoder.config, []
    for number in range(config.num_hidden_layers):
        layer: Any = encoder.layers[0 if config.shared_layers in ("all", "attention") else number]
        x = layer.attention_norm(states[number]) if layer.pre else states[number]
        q, k, v = (
            project(x).view(len(x), config.num_attention_heads, -1).transpose(0, 1)  # (N, T, H)
            for project in (layer.query, layer.key, layer.value)
        )
        if config.position_embedding_type == "rotary":
            turns = rotation(len(x), q.shape[-1], _theta(config, number), x.device)
            q, k = rotate(q, turns), rotate(k, turns)
        found.append((q, k, v))
    return HeadVectors(*(torch.stack(part) for part in zip(*found, strict=True)))


def visible_spans(config: ModelConfig) -> list[list[int | None]]:
    """For each layer how many tokens a query sees to its left and to its right; None: all of them."""
    sides: dict[str, list[int | None]] = {"both": [None, None], "left": [None, 0], "right": [0, None]}
    spans = []
    for number in range(config.num_hidden_layers):
        local = config.attention_window if is_local(config, number) else None
        spans.append([local if side is None else side for side in sides[config.direction]])
    return spans


def is_local(config: ModelConfig, number: int) -> bool:
    """Whether this layer sees only the tokens nearby."""
    return bool(config.attention_window and number % config.global_every)


def _theta(config: ModelConfig, number: int) -> float:
    return config.local_rope_theta if is_local(config, number) and config.local_rope_theta else config.rope_theta


# ---- masks


@torch.no_grad()
def masked_logits(model: Any, ids: Sequence[int], types: Sequence[int], positions: Sequence[int], mask: int) -> Tensor:
    """(M, V) scores of all tokens at each position, of which each is masked in turn, in sequences of its own."""
    device, found = model.encoder.embeddings.word.weight.device, []
    for first in range(0, len(positions), 32):
        some = torch.tensor(positions[first : first + 32], device=device)
        rows = torch.tensor(ids, device=device).repeat(len(some), 1)  # (B, T)
        here = torch.arange(len(some), device=device)
        rows[here, some] = mask
        segments = torch.tensor(types, device=device).expand(len(some), -1)
        out: EncoderOutput = model.encoder(rows, None, segments, hidden_states=False)
        found.append(model.masked_lm_logits(out.last_hidden_state[here, some]).float().cpu())
    return torch.cat(found)


# ---- words by layer


def word_vectors(encoder: Encoder | Pair, ids: Sequence[int], states: Sequence[Tensor], words: Sequence[Any]) -> Tensor:
    """(L + 2, W, D) each word's static vector, its embedding, and its vector of each layer: means over its tokens.

    words: first token of each word, and the one after its last. Narrower vectors (ALBERT's static ones) end in zeros,
    which change no cosine.
    """
    sides = (encoder.left, encoder.right) if isinstance(encoder, Pair) else (encoder,)
    static = torch.cat([side.embeddings.word.weight[list(ids)] for side in sides], -1)
    every = [static, *states]
    width = max(state.shape[-1] for state in every)
    whole = torch.stack([torch.nn.functional.pad(state, (0, width - state.shape[-1])) for state in every])
    return torch.stack([whole[:, first:last].mean(1) for first, last in words], 1)


def cosines(vectors: Tensor) -> Tensor:
    """(L + 2, W, W) of all pairs of words at each layer."""
    units = torch.nn.functional.normalize(vectors, dim=-1)
    return units @ units.transpose(-1, -2)


def states_of(encoder: Any, ids: Sequence[int], types: Sequence[int]) -> list[Tensor]:
    """The embeddings and each layer's output, (T, D) each. With pre-LayerNorm the last one alone is normalised."""
    device = next(encoder.parameters()).device
    out = encoder(torch.tensor([ids], device=device), None, torch.tensor([types], device=device))
    assert isinstance(out.packing, Packing) and out.states is not None
    return list(out.states)
