"""The numbers inside an encoder on one sequence: what is added in the embeddings, each head's vectors, words by layer.

Everything is computed from the model's own modules, one step at a time; tests compare it with a forward pass.

Shapes: T tokens, E embedding width, D hidden width, L layers, N heads, H head size, W words.
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...model.attention import rotate, rotation
from ...model.bert import Encoder
from ...model.config import ModelConfig
from ...model.forward import EncoderOutput
from ...model.layout import Layout

SHOWN = 64  # dimensions of a word's vector that are shown by layer
Packed = dict[str, Any]


def packed(values: Tensor | NDArray[Any]) -> Packed:
    """An array for JSON: its shape, and its values as float16 in base64 (little-endian, rows first)."""
    array = values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    float16 = array.clip(-65504, 65504).astype("<f2")
    return {"shape": list(float16.shape), "float16": base64.b64encode(float16.tobytes()).decode()}


# ---- embeddings


def embedding_sum(encoder: Encoder, ids: Sequence[int], types: Sequence[int]) -> dict[str, Tensor | None]:
    """What an encoder adds for each token of a sequence, (T, E) each; a table that the model lacks is None.

    total: the sum; output: the sum after LayerNorm.
    """
    tables, T, device = encoder.embeddings, len(ids), encoder.embeddings.word.weight.device
    offset = encoder.config.position_offset
    word = tables.word(torch.tensor(ids, device=device))
    position = None if tables.position is None else tables.position.weight[offset : offset + T]
    segment = None
    if tables.token_type is not None:
        one = tables.token_type.num_embeddings == 1
        segment = tables.token_type.weight[torch.tensor([0] * T if one else types, device=device)]
    total = torch.stack([part for part in (word, position, segment) if part is not None]).sum(0)
    return {"word": word, "position": position, "segment": segment, "total": total, "output": tables.norm(total)}


# ---- heads


def head_vectors(encoder: Encoder, states: Sequence[Tensor]) -> dict[str, Tensor]:
    """(L, N, T, H) each: query, key and value of every head, as they are multiplied (rotary positions rotate them).

    states: the embeddings and each layer's output, (T, D) each, of one sequence without padding.
    """
    config, layers = encoder.config, []
    for number in range(config.num_hidden_layers):
        layer: Any = encoder.layers[number % len(encoder.layers)]
        x = layer.attention_norm(states[number]) if layer.pre else states[number]
        q, k, v = (
            project(x).view(len(x), config.num_attention_heads, -1).transpose(0, 1)  # (N, T, H)
            for project in (layer.attention.query, layer.attention.key, layer.attention.value)
        )
        if config.position_embedding_type == "rotary":
            theta = config.local_rope_theta if _is_local(config, number) else 0.0
            turns = rotation(torch.arange(len(x), device=x.device), q.shape[-1], theta or config.rope_theta)
            q, k = rotate(q, turns), rotate(k, turns)
        layers.append((q, k, v))
    return dict(zip(("query", "key", "value"), map(torch.stack, zip(*layers, strict=True)), strict=True))


def visible_spans(config: ModelConfig) -> list[list[int | None]]:
    """For each layer how many tokens a query sees to its left and to its right; None: all of them."""
    limits: dict[str, list[int | None]] = {"both": [None, None], "left": [None, 0], "right": [0, None]}
    spans = []
    for number in range(config.num_hidden_layers):
        local = config.attention_window if _is_local(config, number) else None
        spans.append([local if limit is None else limit for limit in limits[config.direction]])
    return spans


def _is_local(config: ModelConfig, number: int) -> bool:
    """Whether this layer sees only the tokens nearby."""
    return bool(config.attention_window and number % config.global_every)


# ---- masks


@torch.no_grad()
def masked_logits(model: Any, ids: Sequence[int], types: Sequence[int], positions: Sequence[int], mask: int) -> Tensor:
    """(M, V) scores of all tokens at each position, of which each is masked in turn, in sequences of its own."""
    device, logits = model.encoder.embeddings.word.weight.device, []
    for first in range(0, len(positions), 32):
        some = torch.tensor(positions[first : first + 32], device=device)
        rows = torch.tensor(ids, device=device).repeat(len(some), 1)  # (B, T)
        here = torch.arange(len(some), device=device)
        rows[here, some] = mask
        segments = torch.tensor(types, device=device).expand(len(some), -1)
        out: EncoderOutput = model.encoder(rows, None, segments, hidden_states=False)
        logits.append(model.masked_lm_logits(out.last_hidden_state[here, some]).float().cpu())
    return torch.cat(logits)


# ---- words by layer


def word_vectors(encoder: Any, ids: Sequence[int], states: Sequence[Tensor], words: Sequence[Any]) -> Tensor:
    """(L + 2, W, D) each word's static vector, its embedding, and its vector of each layer: means over its tokens.

    words: first token of each word, and the one after its last. Narrower vectors (ALBERT's static ones) end in zeros,
    which change no cosine.
    """
    encoders = (encoder.left, encoder.right) if encoder.config.direction == "pair" else (encoder,)
    static = torch.cat([one.embeddings.word.weight[list(ids)] for one in encoders], -1)
    every = [static, *states]
    width = max(state.shape[-1] for state in every)
    whole = torch.stack([torch.nn.functional.pad(state, (0, width - state.shape[-1])) for state in every])
    return torch.stack([whole[:, first:last].mean(1) for first, last in words], 1)


def states_of(encoder: Any, ids: Sequence[int], types: Sequence[int]) -> list[Tensor]:
    """The embeddings and each layer's output, (T, D) each. With pre-LayerNorm the last one alone is normalised."""
    device = next(encoder.parameters()).device
    out = encoder(torch.tensor([ids], device=device), None, torch.tensor([types], device=device))
    assert isinstance(out.layout, Layout) and out.states is not None
    return list(out.states)
