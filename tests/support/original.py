"""The original implementation's names of our parameters, and its settings."""

import re
from typing import Any

from bertworks.model.config import ModelConfig

MODULES = {  # ours: the original's scopes
    "encoder.embeddings.norm": "bert/embeddings/LayerNorm",
    "encoder.layers.{}.query": "bert/encoder/layer_{}/attention/self/query",
    "encoder.layers.{}.key": "bert/encoder/layer_{}/attention/self/key",
    "encoder.layers.{}.value": "bert/encoder/layer_{}/attention/self/value",
    "encoder.layers.{}.attention_output": "bert/encoder/layer_{}/attention/output/dense",
    "encoder.layers.{}.attention_norm": "bert/encoder/layer_{}/attention/output/LayerNorm",
    "encoder.layers.{}.intermediate": "bert/encoder/layer_{}/intermediate/dense",
    "encoder.layers.{}.output": "bert/encoder/layer_{}/output/dense",
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
