"""Models made from another one's weights: fewer or more positions, a longer vocabulary, no heads.

Shapes: P positions, V vocabulary, E width of the embedding tables.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...files import InputError
from ...model.config import NO_TOP, ModelConfig, TopConfig
from ...model.heads import Model, build_model
from ...model.initialization import shapes_only
from ..families import family_of

LONGEST = 1 << 20  # positions; more is a typing error, and no memory holds it
_POSITIONS = re.compile(r"encoder\.(left\.|right\.)?embeddings\.position\.weight")
_WORDS = re.compile(r"encoder\.(left\.|right\.)?embeddings\.word\.weight|heads\.mlm\.(bias|decoder\.weight)")


def rebuilt(model: Model, config: ModelConfig, changes: Mapping[str, Tensor], heads: bool = True) -> Model:
    """The model with another config and with `changes`, tensors by our names; `heads`: whether it keeps its heads."""
    labels = next((model.heads[name].out_features for name in ("classifier", "tagger") if name in model.heads), 0)
    keep = tuple(model.heads) if heads else ()
    top: TopConfig = model.top.config if heads and model.top is not None else NO_TOP
    pooler_of = family_of(config.family, model.heads.keys()).pooler_of
    pooler = model.encoder.pooler is not None and (heads or not any(name in pooler_of for name in model.heads))
    with shapes_only():
        new = build_model(config, keep, labels, pooler=pooler, top=top)  # type: ignore[arg-type]
    state = {**model.state_dict(), **changes}
    new.load_state_dict({name: state[name] for name in new.state_dict()}, assign=True)
    return new.eval()


def without_heads(model: Model) -> Model:
    """The encoder alone; its pooler stays, unless it is a head's first matrix (RoBERTa's classifier, DistilBERT)."""
    return rebuilt(model, model.config, {}, heads=False)


def with_positions(model: Model, length: int) -> Model:
    """The model for inputs of up to `length` tokens: its position table cut, or repeated from its first position.

    Repeated positions are a start for training on longer texts: at first a token looks like the one P before
    it. Raises InputError if the model has no learned position table.
    """
    config, offset = model.config, model.config.position_offset
    tables = {name: table for name, table in model.state_dict().items() if _POSITIONS.fullmatch(name)}
    if not tables or config.position_embedding_type != "learned":
        raise InputError("this model has no learned position table to cut or extend; leave --positions out")
    if not 3 <= length <= LONGEST:
        raise InputError(f"{length} positions; expected at least 3, at most {LONGEST:,}")
    rows = torch.cat([torch.arange(offset), offset + torch.arange(length) % config.max_length])
    changed = {name: table[rows] for name, table in tables.items()}  # (P, E) each
    return rebuilt(model, replace(config, max_position_embeddings=length + offset), changed)


def with_rows(model: Model, subwords: Mapping[int, Sequence[int]]) -> Model:
    """The model with a changed or longer vocabulary: row i becomes the mean of the old rows `subwords[i]`.

    So does entry i of the masked-LM head's bias, and row i of an untied decoder. New ids follow the old ones.
    """
    size = max(model.config.vocab_size, *(number + 1 for number in subwords))
    changed = {}
    for name, table in model.state_dict().items():
        if _WORDS.fullmatch(name):
            new = torch.cat([table, table.new_zeros(size - len(table), *table.shape[1:])])  # (V, E) or (V,)
            for number, old in subwords.items():
                new[number] = table[list(old)].mean(0)
            changed[name] = new
    return rebuilt(model, replace(model.config, vocab_size=size), changed)
