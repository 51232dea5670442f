"""The original implementation's names of our parameters, its settings, and a tiny checkpoint of it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig

from .tf_writer import write_bundle

MODULES = {  # ours: the original's scopes
    "encoder.embeddings.norm": "bert/embeddings/LayerNorm",
    "encoder.layers.{}.attention.query": "bert/encoder/layer_{}/attention/self/query",
    "encoder.layers.{}.attention.key": "bert/encoder/layer_{}/attention/self/key",
    "encoder.layers.{}.attention.value": "bert/encoder/layer_{}/attention/self/value",
    "encoder.layers.{}.attention.output": "bert/encoder/layer_{}/attention/output/dense",
    "encoder.layers.{}.attention_norm": "bert/encoder/layer_{}/attention/output/LayerNorm",
    "encoder.layers.{}.feed_forward.intermediate": "bert/encoder/layer_{}/intermediate/dense",
    "encoder.layers.{}.feed_forward.output": "bert/encoder/layer_{}/output/dense",
    "encoder.layers.{}.output_norm": "bert/encoder/layer_{}/output/LayerNorm",
    "encoder.pooler": "bert/pooler/dense",
    "heads.mlm.dense": "cls/predictions/transform/dense",
    "heads.mlm.norm": "cls/predictions/transform/LayerNorm",
}
WHOLE = {
    "encoder.embeddings.word.weight": "bert/embeddings/word_embeddings",
    "encoder.embeddings.position.weight": "bert/embeddings/position_embeddings",
    "encoder.embeddings.token_type.weight": "bert/embeddings/token_type_embeddings",
    "heads.mlm.bias": "cls/predictions/output_bias",
    "heads.nsp.weight": "cls/seq_relationship/output_weights",
    "heads.nsp.bias": "cls/seq_relationship/output_bias",
}


def theirs(name: str) -> str:
    """The original's name of our parameter."""
    if name in WHOLE:
        return WHOLE[name]
    module, kind = name.rsplit(".", 1)
    number = re.search(r"\d+", module)
    scope = MODULES[re.sub(r"\d+", "{}", module)].format(number and number[0])
    if scope.endswith("LayerNorm"):
        return f"{scope}/{'gamma' if kind == 'weight' else 'beta'}"
    return f"{scope}/{'kernel' if kind == 'weight' else 'bias'}"


def config_of(settings: dict[str, Any]) -> ModelConfig:
    """The original calls its tanh form "gelu"."""
    return ModelConfig(**{**settings, "hidden_act": {"gelu": "gelu_new"}.get(act := settings["hidden_act"], act)})


def write_original(folder: Path, vocab: Sequence[str]) -> None:
    """A checkpoint of one layer of random numbers, with bert_config.json and vocab.txt."""
    settings: dict[str, Any] = {"vocab_size": len(vocab), "hidden_size": 8, "num_hidden_layers": 1}
    settings |= {"num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32, "hidden_act": "gelu"}
    folder.mkdir()
    (folder / "bert_config.json").write_text(json.dumps(settings | {"type_vocab_size": 2}))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab))
    weights = {theirs(n): value.numpy() for n, value in build_model(config_of(settings), seed=4).state_dict().items()}
    arrays = {name: (array.T.copy() if name.endswith("/kernel") else array) for name, array in weights.items()}
    write_bundle(folder / "bert_model.ckpt", arrays)
