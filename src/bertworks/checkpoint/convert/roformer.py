"""Rotary BERT as RoFormer (Su et al. 2021), which transformers 4 reads too: `bertworks convert --to roformer`.

Both rotate pairs of a head's elements by the same angles. RoFormer pairs neighbours; the encoder here pairs element i
of the first half with element i of the second. So the rows of the query and key matrices change their order inside each
head. Both sides of every scalar product change alike, and nothing else does.

Shapes: D width, N heads, H head size, P positions.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...files import InputError
from ...model.attention import rotation
from ...model.config import ModelConfig
from ...model.heads import Model, build_model
from ...model.prepare import shapes_only
from ...tokenizer import Tokenizer
from ..card import model_card
from ..families import BERT, ROTARY
from ..folder import part_sizes, parts_in, write_files
from ..hf import config_to_hf, type_to_write
from ..metadata import Metadata
from ..names import heads_in
from ..weights import read_weights

_THETA = 10000.0  # the one base of wavelengths that RoFormer has
_HEADS = {"mlm": "ForMaskedLM", "tagger": "ForTokenClassification", "span": "ForQuestionAnswering"}
_TABLE = "encoder.embed_positions.weight"


def fitted(model: Model, where: str) -> tuple[Model, list[str]]:
    """The model without the parts that RoFormer does not have, and their names: pooler, next-sentence head.

    Raises InputError if RoFormer computes something else than this model.
    """
    heads = {*model.heads} - {"nsp", "sop"}
    if why := _misfit(model, heads):
        raise InputError(f"{where}: RoFormer cannot compute this model: {why}")
    labels = model.heads["tagger"].out_features if "tagger" in heads else 0
    with shapes_only():
        new = build_model(model.config, heads_in(heads), labels, pooler=False)  # type: ignore[arg-type]
    state = model.state_dict()
    new.load_state_dict({name: state[name] for name in new.state_dict()}, assign=True)
    return new.eval(), sorted(parts_in(model) - parts_in(new))


def _misfit(model: Model, heads: set[str]) -> str:
    """What RoFormer does not have of a model with these heads; empty if it computes the same."""
    config = model.config
    head_act = config.rules.mlm_act or config.hidden_act
    if len(heads) > 1 or not heads <= _HEADS.keys():  # its classifiers pool by hidden_act, where BERT has tanh
        return f"found the heads {', '.join(sorted(heads))}, expected one of {', '.join(_HEADS)}; add --drop-heads"
    if model.top is not None or type_to_write(config, heads - {"mlm"}, None) != ROTARY:
        return "expected rotary positions and else BERT's own settings; leave --to roformer out"
    if config.rope_theta != _THETA:
        return f"found rope_theta = {config.rope_theta:g}, expected {_THETA:g}; leave --to roformer out"
    if "mlm" in heads and head_act != config.hidden_act:
        return f"found hidden_act = {config.hidden_act}, expected its masked-LM head's {head_act}; add --drop-heads"
    return ""


def write_roformer(
    folder: Path, model: Model, tokenizer: Tokenizer | None, facts: dict[str, Any], metadata: Metadata
) -> None:
    """Write a model that is `fitted` as a folder of RoFormer."""
    parts, shape = parts_in(model), model.config
    config = config_to_hf(shape, parts - {"mlm"}, metadata["labels"])  # its class has any activation in that head
    config = {key: value for key, value in config.items() if not key.startswith(("bertworks_", "rope_"))}
    head = next((_HEADS[name] for name in model.heads), "Model")
    config |= {"architectures": [f"RoFormer{head}"], "model_type": "roformer", "rotary_value": False}
    config["embedding_size"] = shape.hidden_size
    card = model_card(config, shape, part_sizes(model), facts)
    write_files(folder, config, _tensors(model), card, tokenizer, metadata["max_length"] or shape.max_length)


def _tensors(model: Model) -> dict[str, Tensor]:
    """The weights under RoFormer's names, the table of its rotations too."""
    config, prefix = model.config, "roformer." if model.heads else ""
    order = _interleaved(config)
    tensors = {
        _their_name(name, prefix): (tensor[order] if _rotated(name) else tensor).contiguous()
        for name, tensor in model.state_dict().items()
    }
    if "mlm" in model.heads and not config.tie_word_embeddings:
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    cos, sin = rotation(
        config.max_position_embeddings, config.hidden_size // config.num_attention_heads, _THETA, torch.device("cpu")
    )
    return {**tensors, f"{prefix}{_TABLE}": torch.cat([sin, cos], -1)}  # (P, H)


def read_roformer(folder: Path, model: Model) -> Model:
    """The model in a folder of RoFormer that was written from `model`."""
    tensors, prefix = read_weights(folder), "roformer." if model.heads else ""
    order = _interleaved(model.config).argsort()
    found = {name: tensors[_their_name(name, prefix)] for name in model.state_dict()}
    with shapes_only():
        back, _ = fitted(model, str(folder))
    back.load_state_dict({name: t[order] if _rotated(name) else t for name, t in found.items()}, assign=True)
    return back


def _their_name(name: str, prefix: str) -> str:
    theirs = BERT.their_name(name)
    return f"{prefix}{theirs.removeprefix('bert.')}" if theirs.startswith("bert.") else theirs


def _rotated(name: str) -> bool:
    return name.startswith("encoder.layers.") and name.split(".")[3] in ("query", "key")


def _interleaved(config: ModelConfig) -> Tensor:
    """(D,) rows of a query or key matrix in RoFormer's order: in each head 0, H / 2, 1, H / 2 + 1, ..."""
    N, D = config.num_attention_heads, config.hidden_size
    return torch.arange(D).view(N, 2, D // N // 2).transpose(1, 2).reshape(-1)
