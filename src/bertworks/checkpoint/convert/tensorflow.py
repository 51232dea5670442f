"""Checkpoints of google-research/bert and google-research/albert under Hugging Face's names.

Tables turn their names into ours, and the family's table (families.py) ours into Hugging Face's; from there on a
checkpoint is read like any folder.
Their kernels are [in, out] and are transposed here. `gelu` of both programs is the tanh form, `gelu_new` here:
that of BERT since February 2019; the checkpoints it published before were trained with the exact form.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ...files import InputError, read_json_object
from ..families import FAMILIES, LAYERS
from ..names import listed
from .tensorflow_files import Bundle, find_prefix, open_bundle

CONFIGS = {"bert_config.json": "bert", "albert_config.json": "albert"}  # file beside a checkpoint: its family
_VARIABLES = {  # whole variables: our parameters; those of heads as run_classifier.py and run_squad.py name them
    "bert/embeddings/word_embeddings": "encoder.embeddings.word.weight",
    "bert/embeddings/position_embeddings": "encoder.embeddings.position.weight",
    "bert/embeddings/token_type_embeddings": "encoder.embeddings.token_type.weight",
    "cls/predictions/output_bias": "heads.mlm.bias",
    "cls/squad/output_weights": "heads.span.weight",
    "cls/squad/output_bias": "heads.span.bias",
    "output_weights": "heads.classifier.weight",
    "output_bias": "heads.classifier.bias",
}
_SCOPES = {  # with a kernel and a bias, or with gamma and beta: our modules
    "bert/embeddings/LayerNorm": "encoder.embeddings.norm",
    "bert/pooler/dense": "encoder.pooler",
    "cls/predictions/transform/dense": "heads.mlm.dense",
    "cls/predictions/transform/LayerNorm": "heads.mlm.norm",
}
_BERT_LAYER = {hf.replace(".", "/"): name for name, hf in LAYERS["bert"].items()}  # which Hugging Face took over
_ALBERT_LAYER = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.output",
    "LayerNorm": "attention_norm",
    "ffn_1/intermediate/dense": "feed_forward.intermediate",
    "ffn_1/intermediate/output/dense": "feed_forward.output",
    "LayerNorm_1": "output_norm",
}


_PAIRS = "cls/seq_relationship"


def _names(pair: str, layer: str, inside: dict[str, str], more: dict[str, str]) -> tuple[dict[str, str], ...]:
    """Variables and scopes of a program. pair: our head of sentence pairs. layer: the scope of one, {} its number."""
    pairs = {f"{_PAIRS}/output_weights": f"heads.{pair}.weight", f"{_PAIRS}/output_bias": f"heads.{pair}.bias"}
    layers = {f"{layer}/{scope}": f"encoder.layers.{{}}.{module}" for scope, module in inside.items()}
    return _VARIABLES | pairs, _SCOPES | layers | more


_PROJECTION = {"bert/encoder/embedding_hidden_mapping_in": "encoder.embeddings.projection"}
_NAMES = {
    "bert": _names("nsp", "bert/encoder/layer_{}", _BERT_LAYER, {}),
    "albert": _names("sop", "bert/encoder/transformer/group_{}/inner_group_0", _ALBERT_LAYER, _PROJECTION),
}
KINDS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_IGNORED = {
    "optimizer slot": re.compile(r".*/(adam_[mv]|lamb_[mv]|Adam(_1)?|LAMB(_1)?|Momentum|ExponentialMovingAverage)"),
    "count of training steps": re.compile(r"global_step|save_counter|(.*/)?beta[12]_power(_\d+)?"),
}


@dataclass(frozen=True)
class OriginalCheckpoint:
    """A checkpoint under Hugging Face's names."""

    prefix: Path
    settings: dict[str, Any]  # as a config.json has them
    tensors: dict[str, Tensor]  # by Hugging Face's names, kernels transposed, of the type they are stored in
    names: dict[str, str]  # Hugging Face's name: the original's
    ignored: dict[str, str]  # the original's name: why it is no part of a model


def read_original(path: Path | str, hidden_act: str | None = None) -> OriginalCheckpoint:
    """The checkpoint that `path` means (`tensorflow_files.find_prefix`) with the config file beside it.

    hidden_act: in place of what the config file says, for checkpoints older than the tanh form. Raises InputError if
    anything is missing or damaged, or a tensor has a name that neither program gives.
    """
    prefix = find_prefix(path)
    settings = read_settings(prefix.parent)
    if hidden_act is not None:
        settings["hidden_act"] = hidden_act
    bundle = open_bundle(prefix)
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in bundle.variables:
        raise InputError(
            f"{prefix}: a checkpoint of objects (Keras, TensorFlow 2); only those named by variable are read"
        )
    ignored = {name: why for name in bundle.variables for why, names in _IGNORED.items() if names.fullmatch(name)}
    names = {name: hf_name(name, settings["model_type"]) for name in bundle.variables.keys() - ignored.keys()}
    foreign = sorted(name for name, hf in names.items() if hf is None)
    if foreign:
        raise InputError(
            f"{prefix}: {len(foreign)} variables that are no part of {settings['model_type'].upper()} as "
            f"google-research/{settings['model_type']} names them: {listed(foreign)}"
        )
    originals = {hf: name for name in sorted(names) if (hf := names[name]) is not None}
    if len(originals) < len(names):
        raise InputError(f"{prefix}: two variables for one tensor, with and without module/ before their names")
    tensors = {hf: _read(bundle, name) for hf, name in originals.items()}
    return OriginalCheckpoint(prefix, settings, tensors, originals, ignored)


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a checkpoint's config file as a config.json has them.

    Raises InputError for no config file, and for two.
    """
    files = [name for name in CONFIGS if (folder / name).exists()]
    if len(files) != 1:
        what = " and ".join(files) or "no config file"
        raise InputError(f"{folder}: {what}; expected one of {', '.join(CONFIGS)} beside the checkpoint")
    settings = read_json_object(folder / files[0])
    activation = settings.get("hidden_act", "gelu")
    settings["hidden_act"] = "gelu_new" if activation == "gelu" else activation
    return {"layer_norm_eps": 1e-12, **settings, "model_type": CONFIGS[files[0]]}


def hf_name(name: str, family: str) -> str | None:
    """Hugging Face's name of a variable; None if the family has none of that name."""
    (variables, scopes), table = _NAMES[family], FAMILIES[family]
    name = name.removeprefix("module/")  # of checkpoints that were exported for TensorFlow Hub
    if name in variables:
        return table.hf_name(variables[name])
    scope, _, kind = name.rpartition("/")
    number = re.search(r"(?<=/layer_)\d+|(?<=/group_)\d+", scope)
    pattern = scope if number is None else f"{scope[: number.start()]}{{}}{scope[number.end() :]}"
    if pattern not in scopes or kind not in KINDS:
        return None
    return table.hf_name(f"{scopes[pattern].format(number and number[0])}.{KINDS[kind]}")


def _read(bundle: Bundle, name: str) -> Tensor:
    """A variable; kernels are transposed to [out, in]."""
    tensor = bundle.read(name)
    return tensor.T.contiguous() if name.endswith("/kernel") else tensor
