"""The BERT family in Hugging Face's names: one table of modules used in both directions, and config.json both ways.

Folders with and without the `bert.` prefix are read, and the old `gamma` and `beta` of LayerNorm. Each tensor of a
folder is used exactly once: what is missing, left over or of another shape is an error that lists it.
"""

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, get_args

from torch import Tensor

from ..config import from_dict
from ..files import InputError
from ..model.config import ACTIVATIONS, ModelConfig
from ..model.heads import HeadName
from ..model.top import TopConfig

MODULES = {  # ours: theirs; {} is the number of a layer; `weight` and `bias` are called so on both sides
    "encoder.embeddings.word": "bert.embeddings.word_embeddings",
    "encoder.embeddings.position": "bert.embeddings.position_embeddings",
    "encoder.embeddings.token_type": "bert.embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "encoder.layers.{}.query": "bert.encoder.layer.{}.attention.self.query",
    "encoder.layers.{}.key": "bert.encoder.layer.{}.attention.self.key",
    "encoder.layers.{}.value": "bert.encoder.layer.{}.attention.self.value",
    "encoder.layers.{}.attention_output": "bert.encoder.layer.{}.attention.output.dense",
    "encoder.layers.{}.attention_norm": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "encoder.layers.{}.intermediate": "bert.encoder.layer.{}.intermediate.dense",
    "encoder.layers.{}.output": "bert.encoder.layer.{}.output.dense",
    "encoder.layers.{}.output_norm": "bert.encoder.layer.{}.output.LayerNorm",
    "encoder.layers.{}.recurrent": "bert.encoder.layer.{}.recurrent",  # ours alone, like all that follows "top"
    "encoder.pooler": "bert.pooler.dense",
    "heads.mlm.dense": "cls.predictions.transform.dense",
    "heads.mlm.norm": "cls.predictions.transform.LayerNorm",
    "heads.mlm": "cls.predictions",  # its bias; the matrix is the word embedding table
    "heads.nsp": "cls.seq_relationship",
    "heads.classifier": "classifier",
    "heads.choice": "classifier",  # the class of the folder says which of the three it is
    "heads.tagger": "classifier",
    "heads.span": "qa_outputs",
    "top.weighting": "top.weighting",
    "top.bilstm.{}": "top.bilstm.{}",
}
PARTS = {  # the beginning of their names
    "mlm": "cls.predictions.",
    "nsp": "cls.seq_relationship.",
    "classifier": "classifier.",
    "choice": "classifier.",
    "tagger": "classifier.",
    "span": "qa_outputs.",
    "pooler": "bert.pooler.",
    "top": "top.",
}
ARCHITECTURES: dict[str, set[str]] = {  # the parts each class of transformers has, beside layers and embeddings
    "BertForPreTraining": {"mlm", "nsp", "pooler"},
    "BertForMaskedLM": {"mlm"},
    "BertLMHeadModel": {"mlm"},  # sees the left side alone
    "BertForNextSentencePrediction": {"nsp", "pooler"},
    "BertForSequenceClassification": {"classifier", "pooler"},
    "BertForMultipleChoice": {"choice", "pooler"},
    "BertForTokenClassification": {"tagger"},
    "BertForQuestionAnswering": {"span"},
    "BertModel": set(),  # it may have been made without the pooler
}
TIED = {  # written by some versions of transformers; accepted where equal to what it is tied to
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
TASK, TOP = "bertworks_task", "bertworks_top"  # our keys in config.json
OURS = {  # settings of an encoder that other software does not know, where they are not BERT's own
    "position_embedding_type": "bertworks_positions",
    "direction": "bertworks_direction",
    "layer_type": "bertworks_layers",
    "family": "bertworks_family",
    "embedding_size": "bertworks_embedding_size",
    "position_offset": "bertworks_position_offset",
    "shared_layers": "bertworks_shared_layers",
    "norm": "bertworks_norm",
    "feed_forward": "bertworks_feed_forward",
    "rope_theta": "bertworks_rope_theta",
    "attention_window": "bertworks_attention_window",
    "global_every": "bertworks_global_every",
}
_PROBLEMS = {"regression": "regression", "multilabel": "multi_label_classification"}  # of all other kinds: single_label
_BUFFERS = re.compile(r"^(bert\.)?embeddings\.(position_ids|token_type_ids)$")  # constants of old versions
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}


RIGHT = "bert_right"  # prefix of the right encoder of a pair; the left one is `bert`


def their_name(ours: str) -> str:
    """Hugging Face's name of our parameter, for instance `encoder.layers.3.query.weight`. KeyError if there is none."""
    ours, right = re.subn(r"^encoder\.right\.", "encoder.", ours)
    ours = re.sub(r"^encoder\.left\.", "encoder.", ours)
    module, inner, kind = re.fullmatch(r"(.*?)((?:\.cells\.\d+)?)\.(\w+)", ours).groups()  # type: ignore[union-attr]
    number = re.search(r"\.(\d+)(?=\.|$)", module)
    pattern = module if number is None else module.replace(number[0], ".{}", 1)
    name = MODULES[pattern].format(number and number[1]) + f"{inner}.{kind}"
    return re.sub("^bert", RIGHT, name) if right else name


def canonical(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The tensors of a folder under today's full names; constants of old versions left out.

    Raises InputError if two tensors claim one name.
    """
    out: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if _BUFFERS.match(name):
            continue
        full = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
        full = f"bert.{full}" if full.startswith(("embeddings.", "encoder.", "pooler.")) else full
        if full in out:
            raise InputError(f"{where}: two tensors for {full}, with and without prefix or in old and new spelling")
        out[full] = tensor
    return out


def parts_of(names: Iterable[str], settings: Mapping[str, Any]) -> set[str]:
    """Which heads a folder has, and `pooler`: by its tensors, or promised by `architectures`.

    Three heads are called `classifier` there; the architecture tells which. That of an architecture that is not in the
    table is none of ours; where none claims it, it is a classifier if there is a pooler for it to read.
    """
    names, classes = list(names), settings.get("architectures") or []
    found = {part for part, prefix in PARTS.items() if any(name.startswith(prefix) for name in names)}
    known = set[str]().union(*(ARCHITECTURES.get(name, set()) for name in classes))
    if settings.get(TOP):  # its heads may read something else
        known.discard("pooler")
    same_name = {part for part, prefix in PARTS.items() if prefix == PARTS["classifier"]}
    usual = "pooler" in found and ARCHITECTURES.keys() >= set(classes) and not known & same_name
    found -= same_name - known - ({"classifier"} if usual else set())
    if "pooler" not in found:
        found.discard("nsp")
    return found | known


def check_pooling(parts: Container[str], settings: Mapping[str, Any], where: str) -> None:
    """Raises InputError for a decoder of other software whose pooler reads the first token: ours reads the last."""
    if settings.get("is_decoder") and settings.get("model_type") != "bertworks" and "pooler" in parts:
        raise InputError(
            f"{where}: is_decoder is set, and there is a pooler on the first token, which sees nothing but itself; "
            "such models are not read. One without a pooler is (BertLMHeadModel)"
        )


def part_of(name: str, wanted: Container[str] = PARTS) -> str:
    """The part a tensor belongs to by their name, of those `wanted`; else "body" of the encoder, or "other"."""
    part = next((part for part, prefix in PARTS.items() if part in wanted and name.startswith(prefix)), None)
    body = name.startswith(("bert.", f"{RIGHT}.")) and not name.startswith(PARTS["pooler"])
    return part or ("body" if body else "other")


def match(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Our state dict from a folder's tensors (canonical names); `expected` holds our names and shapes.

    Raises InputError that lists every tensor that is missing, left over, of another shape, or tied but different.
    """
    left, taken, faults = dict(tensors), {}, []
    for name, target in expected.items():
        theirs = their_name(name)
        tensor = left.pop(theirs, None)
        if tensor is None:
            faults.append(f"{theirs}: missing")
        elif tensor.shape != target.shape or not tensor.is_floating_point():
            faults.append(
                f"{theirs}: found {_form(tensor)}, expected {_form(target)}{_REASONS.get(theirs, ' by config.json')}"
            )
        else:
            taken[name] = tensor
    for copy, original in TIED.items():
        if copy in left and original in tensors and not left.pop(copy).equal(tensors[original]):
            faults.append(f"{copy}: differs from {original}, to which it is tied here; untied decoders are not read")
    faults += [f"{name}: left over, no part of the model takes it" for name in left]
    if faults:
        shown = faults[:8] + ([f"... and {len(faults) - 8} more"] if len(faults) > 8 else [])
        raise InputError(f"{where}: tensors and config.json do not fit together\n  " + "\n  ".join(shown))
    return taken


_REASONS = {"bert.embeddings.word_embeddings.weight": " (vocab_size, hidden_size in config.json)"}


def _form(tensor: Tensor) -> str:
    return f"{'x'.join(map(str, tensor.shape))} {str(tensor.dtype).removeprefix('torch.')}"


def config_from_hf(settings: Mapping[str, Any], where: str) -> ModelConfig:
    """ModelConfig from the keys of a config.json. Raises InputError for anything that would be computed differently."""
    kind = settings.get("model_type", "bert" if "hidden_size" in settings else None)
    if kind not in ("bert", "bertworks"):
        raise InputError(f"{where}: model_type = {kind!r}; expected bert (or bertworks)")
    positions = settings.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise InputError(f"{where}: position_embedding_type = {positions!r}; expected absolute")
    if settings.get("add_cross_attention"):
        raise InputError(f"{where}: add_cross_attention is set; only encoders are read")
    names = [f.name for f in dataclasses.fields(ModelConfig) if f.name not in OURS]
    values = {name: settings[name] for name in names if settings.get(name) is not None}
    activation = values.get("hidden_act", "gelu")
    values["hidden_act"] = _SYNONYMS.get(activation, activation) if isinstance(activation, str) else activation
    if values["hidden_act"] not in ACTIVATIONS:
        raise InputError(f"{where}: hidden_act = {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    values |= {name: settings[key] for name, key in OURS.items() if settings.get(key)}
    if settings.get("is_decoder"):  # of transformers: a token sees what stands left of it
        values.setdefault("direction", "left")
    return from_dict(ModelConfig, values, where)


def config_to_hf(
    config: ModelConfig,
    parts: set[str],
    labels: list[str] | None,
    task: Mapping[str, Any] | None = None,
    top: TopConfig | None = None,
) -> dict[str, Any]:
    """config.json of a model with these parts (see `parts_of`).

    labels: names of the classes of its classifier or tagger. task: what `task_of` shall find; its `kind` decides the
    `problem_type` of transformers. top: what stands between encoder and head.

    What transformers would compute differently gets model_type `bertworks`: no segment embeddings (its BertModel always
    adds one), recurrent layers, a top, a right context. A left context alone is its `is_decoder`, unless a head reads
    the pooler, which is on the last token here. Sinusoidal positions are a table like learned ones to whoever reads the
    folder; only our key tells them apart, for training.
    """
    reads = parts | {"pooler"} if top is not None else parts  # with a top a class may do without its pooler
    heads = parts - {"pooler", "top"}
    fits = [name for name, has in ARCHITECTURES.items() if has <= reads and has - {"pooler"} == heads]
    left, plain = config.direction == "left", ModelConfig()
    if "mlm" in parts and parts <= {"mlm", "pooler"}:
        fits = ["BertLMHeadModel" if left else "BertForMaskedLM"]
    values = dataclasses.asdict(config)
    own = {key: values.pop(name) for name, key in OURS.items()}
    known = config.direction == "both" or (left and "pooler" not in parts)
    known = known and config.layer_type == "attention" and config.type_vocab_size > 0 and top is None
    out = {
        "architectures": fits or ["BertModel"],
        "model_type": "bert" if known else "bertworks",
        **values,
        "position_embedding_type": "absolute",
        **{key: own[key] for name, key in OURS.items() if own[key] != getattr(plain, name)},
    }
    if left:
        out["is_decoder"] = True
    if top is not None:
        out[TOP] = dataclasses.asdict(top)
    if labels is not None:
        out["id2label"] = {str(i): label for i, label in enumerate(labels)}
        out["label2id"] = {label: i for i, label in enumerate(labels)}
        if "classifier" in parts:
            kind = (task or {}).get("kind") or ("regression" if len(labels) == 1 else "single")
            out["problem_type"] = _PROBLEMS.get(kind, "single_label_classification")
    if task:
        out[TASK] = dict(task)
    return out


def top_of(settings: Mapping[str, Any], where: str) -> TopConfig:
    """What stands between encoder and head; the defaults if a folder says nothing."""
    return from_dict(TopConfig, settings.get(TOP, {}), where)


def task_of(settings: Mapping[str, Any], head: str) -> dict[str, Any]:
    """What a folder was fine-tuned for: `kind` and whatever else the run stored, such as a tuned threshold.

    A folder of other software has none: then `kind` is told from its head and its `problem_type`.
    """
    kinds = {"choice": "choice", "tagger": "tagging", "span": "span"}
    problems = {theirs: ours for ours, theirs in _PROBLEMS.items()}
    one = "regression" if len(settings.get("id2label") or ()) == 1 else "single"
    kind = kinds.get(head) or problems.get(settings.get("problem_type", ""), one)
    return {"kind": kind, **settings.get(TASK, {})}


def labels_from_hf(settings: Mapping[str, Any], where: str) -> list[str] | None:
    """Names of a classifier's classes in order, None if config.json names none. Raises InputError if they have gaps."""
    names = settings.get("id2label")
    if not names:
        return None
    try:
        by_number = {int(number): str(label) for number, label in names.items()}
        return [by_number[i] for i in range(len(by_number))]
    except (KeyError, ValueError, AttributeError):
        raise InputError(f"{where}: id2label = {names!r}; expected one label for each number from 0") from None


def heads_in(parts: set[str]) -> tuple[HeadName, ...]:
    """The heads among `parts`, in the order models are built in."""
    return tuple(head for head in get_args(HeadName) if head in parts)
