"""config.json to the encoder's shape and back, by the table of its family (families.py).

What transformers computes too is written under its own keys; the rest under `bertworks_` and the field's name. A folder
that transformers would compute differently has model_type `bertworks`, and the number of its format.
"""

import contextlib
import dataclasses
from collections.abc import Container, Mapping
from typing import Any

from ..config import from_dict
from ..files import InputError, check_version, clip, shorten
from ..model.config import ACTIVATION_NAMES, ModelConfig, TopConfig
from ..tokenizer.settings import check_only
from ..typed import check_fields
from .families import FAMILIES, ROTARY, family_of
from .metadata import TASK, label_settings
from .names import TOP, Family

FORMAT = "bertworks_format"  # our key: the number of the format, in folders for bertworks alone
LATEST = 1  # the format that is written; folders without a number are older, and read too
_WORDS = """
vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act hidden_dropout_prob
attention_probs_dropout_prob max_position_embeddings type_vocab_size initializer_range layer_norm_eps pad_token_id
classifier_dropout tie_word_embeddings
"""
_PLAIN = _WORDS.split()  # fields that BERT's own config.json has
_SHORT = {"position_embedding_type": "positions", "layer_type": "layers"}  # of our own keys
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "gelu_python": "gelu", "swish": "silu"}
_ALONE = " (bertworks alone computes this model)"  # behind a number, so that classes of transformers refuse the folder
_ALIASES = {alias: (name, classes) for name, f in FAMILIES.items() for alias, classes in f.aliases.items()}


def own_key(name: str) -> str:
    """Our key in config.json for a field that other software has not, or not with this value."""
    return f"bertworks_{_SHORT.get(name, name)}"


ONLY: dict[str, tuple[Any, ...]] = {  # refused with another value than these
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_FORM = {
    "architectures?": ([str], None),
    "problem_type?": (str, None),
    "sentence_transformers?": ({"activation_fn?": (str, None)}, None),
    "sbert_ce_default_activation_function?": (str, None),
    f"{TASK}?": (dict, None),
}
_OWN_KEYS = {FORMAT, TASK, TOP, *(own_key(f.name) for f in dataclasses.fields(ModelConfig))}


# ---- reading


def by_family(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json under its family's names: XLM-R and CamemBERT become RoBERTa, whose tensors they have."""
    model_type, classes = settings.get("model_type"), settings.get("architectures")
    if not isinstance(model_type, str) or model_type not in _ALIASES:
        return dict(settings)
    family, prefix = _ALIASES[model_type]
    renamed: dict[str, Any] = {"model_type": family}
    if isinstance(classes, list):
        new = FAMILIES[family].bare.removesuffix("Model")
        renamed["architectures"] = [name.replace(prefix, new) if isinstance(name, str) else name for name in classes]
    return {**settings, **renamed}


def check_supported(settings: Mapping[str, Any], where: str) -> None:
    """Raises InputError for a setting whose model is not computed here, or is computed by a program of the folder."""
    check_only(settings, ONLY, where)
    programs = settings.get("auto_map")
    code = [name for key, name in programs.items() if key.startswith("AutoModel")] if isinstance(programs, dict) else []
    if code:
        raise InputError(
            f"{where}: auto_map names the program {shorten(code[0])}, which is not run here; remove auto_map if "
            "transformers' own class computes the same"
        )


def check_pooling(parts: Container[str], settings: Mapping[str, Any], where: str) -> None:
    """Raises InputError for a decoder of other software whose pooler reads the first token: ours reads the last."""
    family = FAMILIES.get(settings.get("model_type", "bert"))
    if settings.get("is_decoder") and family and family.causal and "pooler" in parts:
        raise InputError(
            f"{where}: is_decoder is set, and there is a pooler on the first token, which sees nothing but itself; "
            "such models are not read. One without a pooler is (BertLMHeadModel)"
        )


def config_from_hf(settings: Mapping[str, Any], where: str) -> ModelConfig:
    """ModelConfig from the keys of a config.json. Raises InputError for anything that would be computed differently."""
    check_fields(settings, _FORM, where)
    _check_format(settings, where)
    kind = settings.get("model_type", "bert" if "hidden_size" in settings else None)
    name = settings.get(own_key("family"), "bert") if kind == "bertworks" else kind
    if not isinstance(name, str) or name not in FAMILIES:
        raise InputError(
            f"{where}: model_type = {shorten(kind)}; expected one of {', '.join([*FAMILIES, *_ALIASES])} (or bertworks)"
        )
    positions, usual = settings.get("position_embedding_type"), "rotary" if name == ROTARY else "absolute"
    if positions not in (None, usual):
        raise InputError(f"{where}: position_embedding_type = {shorten(positions)}; expected {usual}")
    try:
        values = _values(name, _with_number(settings, FAMILIES[name]) if kind == "bertworks" else settings)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    activation = values.get("hidden_act", "gelu")
    values["hidden_act"] = _SYNONYMS.get(activation, activation) if isinstance(activation, str) else activation
    if not isinstance(activation, str) or values["hidden_act"] not in ACTIVATION_NAMES:
        raise InputError(f"{where}: hidden_act = {shorten(activation)}; expected one of {', '.join(ACTIVATION_NAMES)}")
    if settings.get("is_decoder") and FAMILIES[name].causal:  # of transformers: a token sees what is left of it
        values["direction"] = "left"
    own = {f.name: settings.get(own_key(f.name)) for f in dataclasses.fields(ModelConfig)}
    own = {field: value for field, value in own.items() if value is not None}
    if kind != "bertworks":
        _check_own(name, own, {**vars(ModelConfig()), **values}, where)
    return from_dict(ModelConfig, values | own, where)


def _check_own(name: str, own: Mapping[str, Any], expected: Mapping[str, Any], where: str) -> None:
    """Raises InputError if one of our keys contradicts the keys of a model type, by which other software computes."""
    for field, value in own.items():
        if value != expected[field] and not _same_outputs(name, field, value):
            raise InputError(
                f"{where}: {own_key(field)} = {shorten(value)}; expected {shorten(expected[field])}, as {name}'s own "
                "keys say: correct or remove one of them"
            )


def _same_outputs(name: str, field: str, value: Any) -> bool:
    """Whether an encoder of this model type computes the same, though one of our keys has another value than its own.

    Rates and initialization change training alone. A table of sinusoidal positions is read like a learned one.
    """
    if field == "position_embedding_type":
        return value == "sinusoidal" and name != ROTARY and field not in FAMILIES[name].fixed
    in_rotary = field == "family" and name == ROTARY and value in ("bert", "roberta")
    return field in ("classifier_dropout", "start") or in_rotary


def _check_format(settings: Mapping[str, Any], where: str) -> None:
    """Raises InputError for a folder that a newer bertworks wrote, by its number or by a key that is not known here."""
    check_version(settings.get(FORMAT, 0), range(LATEST + 1), where, "restore the file")
    unknown = [key for key in settings if key.startswith("bertworks_") and key not in _OWN_KEYS]
    if unknown and settings.get("model_type") == "bertworks":
        raise InputError(
            f"{where}: {clip(unknown[0])} is not known to this version, so the model may be computed differently; "
            "install a newer bertworks"
        )


def _values(family: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that other software's keys set. Raises ValueError for what no field can say."""
    table = FAMILIES[family]
    given = {name: settings.get(table.keys.get(name, name)) for name in _PLAIN if name not in table.fixed}
    values = {"family": family, **table.defaults, **table.fixed}
    values |= {name: value for name, value in given.items() if value is not None}
    if values.get("classifier_dropout") == values.get("hidden_dropout_prob", 0.1):
        values.pop("classifier_dropout", None)  # "none" means the same
    return values | table.read({key: value for key, value in settings.items() if value is not None})


def _with_number(settings: Mapping[str, Any], family: Family) -> Mapping[str, Any]:
    """The settings of a folder for bertworks alone, with the number that `config_to_hf` wrote as a text."""
    key = family.keys.get("hidden_dropout_prob", "hidden_dropout_prob")
    value = settings.get(key)
    if not isinstance(value, str) or not value.endswith(_ALONE):
        return settings
    with contextlib.suppress(ValueError):  # else it is refused for its type
        value = float(value.removesuffix(_ALONE))
    return {**settings, key: value}


# ---- writing


def config_to_hf(
    config: ModelConfig,
    parts: set[str],
    labels: list[str] | None,
    task: Mapping[str, Any] | None = None,
    top: TopConfig | None = None,
) -> dict[str, Any]:
    """config.json of a model with these parts (see `Family.parts_of`).

    labels: names of the classes of its classifier or tagger. task: what `metadata.task_of` shall find. top: its top.

    BERT and RoBERTa with rotary positions are written as `jina_embeddings_v3`, which computes the same.

    A model that transformers would compute differently gets model_type `bertworks`: no segment embeddings (its
    BertModel always adds one), recurrent layers, a top, a right context, everything that came after BERT's relatives. A
    left context alone is its `is_decoder`, unless a head reads the pooler, which is on the last token here. Sinusoidal
    positions are a table like learned ones to other software; only our key tells them apart, for training.

    A class of transformers that the caller names would read a `bertworks` folder too, and would start the weights it
    does not find at random with a mere warning. So a rate of dropout, which every class reads, is written as a text.
    """
    name = type_to_write(config, parts, top)
    family, (plain, own) = FAMILIES[name], _keys(name, config)
    is_standard = _is_standard(name, config, parts, top)
    causal = config.direction == "left" and family.causal is not None
    out = {
        "architectures": _architectures(name, config, parts, top) or [family.bare],
        "model_type": name if is_standard else "bertworks",
        **plain,
        **{own_key(name): value for name, value in own.items() if value is not None},
    }
    if not is_standard:
        rate = family.keys.get("hidden_dropout_prob", "hidden_dropout_prob")
        out[rate] = f"{config.hidden_dropout_prob!r}{_ALONE}"
        out[FORMAT] = LATEST
        if config.family != "bert":
            out[own_key("family")] = config.family
    if causal:
        out["is_decoder"] = True
    if top is not None:
        out[TOP] = dataclasses.asdict(top)
    if labels is not None:
        out |= label_settings(labels, "classifier" in parts, task)
    if task:
        out[TASK] = dict(task)
    return out


def type_to_write(config: ModelConfig, parts: set[str], top: TopConfig | None) -> str:
    """The model type whose names a folder of this model has: its family's, or that of rotary positions if that fits."""
    rotary = config.family in ("bert", "roberta") and config.position_embedding_type == "rotary"
    return ROTARY if rotary and _is_standard(ROTARY, config, parts, top) else config.family


def _keys(name: str, config: ModelConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of config.json under a model type, and the fields that they do not say."""
    family = FAMILIES[name]
    plain = {family.keys.get(field, field): getattr(config, field) for field in _PLAIN if field not in family.fixed}
    plain |= family.write(config)
    read = {**vars(ModelConfig()), **_values(name, plain)}
    return plain, {field: value for field, value in vars(config).items() if value != read[field]}


def _is_standard(name: str, config: ModelConfig, parts: set[str], top: TopConfig | None) -> bool:
    """Whether transformers computes the same by this model type, though some fields are not in its config.json."""
    family, (_, own) = FAMILIES[name], _keys(name, config)
    decoder = config.direction == "left" and family.causal is not None and "pooler" not in parts
    same = all(_same_outputs(name, field, value) or (field == "direction" and decoder) for field, value in own.items())
    has_segments = config.type_vocab_size > 0 or "type_vocab_size" in family.fixed
    return same and has_segments and top is None and (name != ROTARY or _has_rotary_class(config, parts))


def _has_rotary_class(config: ModelConfig, parts: set[str]) -> bool:
    """Whether a rotary class of transformers has these heads: none is for multiple choice, all MLM heads are GELU."""
    exact = "mlm" not in parts or (config.rules.mlm_act or config.hidden_act) == "gelu"
    return exact and bool(_architectures(ROTARY, config, parts, None))


def _architectures(name: str, config: ModelConfig, parts: set[str], top: TopConfig | None) -> list[str]:
    """The classes of transformers that have these parts; none if no class has them."""
    family = family_of(name, parts)
    reads = parts | {"pooler"} if top is not None else parts  # with a top a class may do without its pooler
    heads = parts - {"pooler", "top"} - family.beside
    if heads == {"mlm"} and "top" not in parts:
        masked = next(name for name in family.classes if name.endswith("ForMaskedLM"))
        return [family.causal if family.causal and config.direction == "left" else masked]
    return [name for name, has in family.classes.items() if has <= reads and has - {"pooler"} == heads]
