"""config.json of the four families, both ways. Names of tensors: names.py and families.py."""

import contextlib
import dataclasses
from collections.abc import Container, Mapping
from typing import Any

from ..config import from_dict
from ..files import InputError, shorten
from ..model.config import ACTIVATIONS, ModelConfig
from ..model.top import TopConfig
from .families import FAMILIES, family_of
from .names import TOP

TASK = "bertworks_task"  # our key in config.json
_PLAIN = (  # fields that BERT's own config.json has
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "classifier_dropout",
    "tie_word_embeddings",
)
_KEYS = {  # what a family calls them otherwise
    "albert": {"classifier_dropout": "classifier_dropout_prob"},
    "distilbert": {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
}
_FIXED = {"distilbert": {"type_vocab_size": 0, "layer_norm_eps": 1e-12}}  # what its config.json has no key for
_DEFAULTS: dict[str, dict[str, Any]] = {  # of transformers, for keys that a config.json leaves out
    "roberta": {"vocab_size": 50265, "pad_token_id": 1},
    "albert": {
        "vocab_size": 30000,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
    },
    "distilbert": {"num_hidden_layers": 6, "classifier_dropout": 0.2},
}
_SHORT = {"position_embedding_type": "positions", "layer_type": "layers"}  # of our own keys
_PROBLEMS = {"regression": "regression", "multilabel": "multi_label_classification"}  # of all other kinds: single_label
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "gelu_python": "gelu", "swish": "silu"}
_ALONE = " (bertworks alone computes this model)"  # behind a number, so that classes of transformers refuse the folder
_KINDS = {"classifier": ("single", "pair", "regression", "multilabel"), "choice": ("choice",)}  # tasks of a head
_KINDS |= {"tagger": ("tagging",), "span": ("span",)}
_SAME_AS = {"xlm-roberta": ("XLMRoberta", "roberta"), "camembert": ("Camembert", "roberta")}  # classes; family


def own_key(name: str) -> str:
    """Our key in config.json for a field of which other software knows nothing, or not this value."""
    return f"bertworks_{_SHORT.get(name, name)}"


def by_family(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json under its family's names: what XLM-R and CamemBERT call theirs is RoBERTa, tensor by tensor."""
    found, classes = settings.get("model_type"), settings.get("architectures")
    if not isinstance(found, str) or found not in _SAME_AS:
        return {**settings}
    prefix, family = _SAME_AS[found]
    renamed: dict[str, Any] = {"model_type": family}
    if isinstance(classes, list):
        theirs = FAMILIES[family].bare.removesuffix("Model")
        renamed["architectures"] = [name.replace(prefix, theirs) if isinstance(name, str) else name for name in classes]
    return {**settings, **renamed}


def check_pooling(parts: Container[str], settings: Mapping[str, Any], where: str) -> None:
    """Raises InputError for a decoder of other software whose pooler reads the first token: ours reads the last."""
    if settings.get("is_decoder") and settings.get("model_type") in ("bert", "roberta", None) and "pooler" in parts:
        raise InputError(
            f"{where}: is_decoder is set, and there is a pooler on the first token, which sees nothing but itself; "
            "such models are not read. One without a pooler is (BertLMHeadModel)"
        )


def config_from_hf(settings: Mapping[str, Any], where: str) -> ModelConfig:
    """ModelConfig from the keys of a config.json. Raises InputError for anything that would be computed differently."""
    _check_types(settings, where)
    kind = settings.get("model_type", "bert" if "hidden_size" in settings else None)
    family = settings.get(own_key("family"), "bert") if kind == "bertworks" else kind
    if not isinstance(family, str) or family not in FAMILIES:
        raise InputError(
            f"{where}: model_type = {shorten(kind)}; expected one of {', '.join([*FAMILIES, *_SAME_AS])} (or bertworks)"
        )
    positions = settings.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise InputError(f"{where}: position_embedding_type = {shorten(positions)}; expected absolute")
    if settings.get("add_cross_attention"):
        raise InputError(f"{where}: add_cross_attention is set; only encoders are read")
    values = _values(family, _with_number(settings, family) if kind == "bertworks" else settings, where)
    activation = values.get("hidden_act", "gelu")
    values["hidden_act"] = _SYNONYMS.get(activation, activation) if isinstance(activation, str) else activation
    if not isinstance(activation, str) or values["hidden_act"] not in ACTIVATIONS:
        raise InputError(f"{where}: hidden_act = {shorten(activation)}; expected one of {', '.join(ACTIVATIONS)}")
    if settings.get("is_decoder") and FAMILIES[family].causal:  # of transformers: a token sees what stands left of it
        values["direction"] = "left"
    ours = {f.name: settings.get(own_key(f.name)) for f in dataclasses.fields(ModelConfig)}
    return from_dict(ModelConfig, values | {name: value for name, value in ours.items() if value is not None}, where)


def _check_types(settings: Mapping[str, Any], where: str) -> None:
    """Raises InputError for keys beside the encoder's shape that are not what they can be."""
    for key, kind in (("architectures", list), ("problem_type", str), (TASK, dict)):
        value = settings.get(key)
        if value is not None and not isinstance(value, kind):
            raise InputError(f"{where}: {key} = {shorten(value)}; expected a {kind.__name__}")
    if not all(isinstance(name, str) for name in settings.get("architectures") or ()):
        raise InputError(f"{where}: architectures = {shorten(settings['architectures'])}; expected names of classes")


def _values(family: str, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields that other software's keys stand for."""
    keys, fixed = _KEYS.get(family, {}), _FIXED.get(family, {})
    given = {name: settings.get(keys.get(name, name)) for name in _PLAIN if name not in fixed}
    values = {"family": family, **_DEFAULTS.get(family, {}), **fixed}
    values |= {name: value for name, value in given.items() if value is not None}
    if values.get("classifier_dropout") == values.get("hidden_dropout_prob", 0.1):
        values.pop("classifier_dropout", None)  # it is what "none" means
    if family == "roberta":
        pad = values["pad_token_id"]
        values["position_offset"] = pad + 1 if isinstance(pad, int) else 0  # if not, it is refused for its type
    if family == "albert":
        values["embedding_size"] = settings.get("embedding_size", 128)
        values["shared_layers"] = _shared(settings, values.get("num_hidden_layers", 12), where)
    if family == "distilbert" and settings.get("sinusoidal_pos_embds"):
        values["position_embedding_type"] = "sinusoidal"
    return values


def _shared(settings: Mapping[str, Any], layers: int, where: str) -> str:
    groups, inner = settings.get("num_hidden_groups", 1), settings.get("inner_group_num", 1)
    if inner != 1 or groups not in (1, layers):
        raise InputError(
            f"{where}: num_hidden_groups = {shorten(groups)}, inner_group_num = {shorten(inner)}; expected 1 group "
            f"(all layers share) or {shorten(layers)} (none do), and 1 layer in each"
        )
    return "all" if groups == 1 else "none"


def config_to_hf(
    config: ModelConfig,
    parts: set[str],
    labels: list[str] | None,
    task: Mapping[str, Any] | None = None,
    top: TopConfig | None = None,
) -> dict[str, Any]:
    """config.json of a model with these parts (see `Family.parts_of`).

    labels: names of the classes of its classifier or tagger. task: what `task_of` shall find; its `kind` decides the
    `problem_type` of transformers. top: what stands between encoder and head.

    What transformers would compute differently gets model_type `bertworks`: no segment embeddings (its BertModel always
    adds one), recurrent layers, a top, a right context, everything that came after BERT's relatives. A left context
    alone is its `is_decoder`, unless a head reads the pooler, which is on the last token here. Sinusoidal positions are
    a table like learned ones to whoever reads the folder; only our key tells them apart, for training.

    A class of transformers that is named by the caller would read a `bertworks` folder too, with a warning, and start
    the weights it does not find by chance. So a rate of dropout, which every class takes, is written as a text.
    """
    plain = _plain_settings(config)
    read = {**vars(ModelConfig()), **_values(config.family, plain, "config.json")}
    own = {name: value for name, value in vars(config).items() if value != read[name]}
    causal = config.direction == "left" and FAMILIES[config.family].causal is not None
    same = {"classifier_dropout"}
    same |= {"position_embedding_type"} if config.position_embedding_type == "sinusoidal" else set()
    same |= {"direction"} if causal and "pooler" not in parts else set()
    segments = config.type_vocab_size > 0 or config.family == "distilbert"
    known = own.keys() <= same and segments and top is None
    out = {
        "architectures": _architectures(config, parts, top),
        "model_type": config.family if known else "bertworks",
        **plain,
        **{own_key(name): value for name, value in own.items() if value is not None},
    }
    if not known:
        rate = _KEYS.get(config.family, {}).get("hidden_dropout_prob", "hidden_dropout_prob")
        out[rate] = f"{config.hidden_dropout_prob!r}{_ALONE}"
        if config.family != "bert":
            out[own_key("family")] = config.family
    if causal:
        out["is_decoder"] = True
    if top is not None:
        out[TOP] = dataclasses.asdict(top)
    if labels is not None:
        out |= _label_settings(labels, "classifier" in parts, task)
    if task:
        out[TASK] = dict(task)
    return out


def _with_number(settings: Mapping[str, Any], family: str) -> Mapping[str, Any]:
    """The settings of a folder for bertworks alone, with the number that `config_to_hf` wrote as a text."""
    key = _KEYS.get(family, {}).get("hidden_dropout_prob", "hidden_dropout_prob")
    value = settings.get(key)
    if not isinstance(value, str) or not value.endswith(_ALONE):
        return settings
    with contextlib.suppress(ValueError):  # else it is refused for its type
        value = float(value.removesuffix(_ALONE))
    return {**settings, key: value}


def _plain_settings(config: ModelConfig) -> dict[str, Any]:
    """The config in the family's own keys, as far as they go."""
    keys, fixed = _KEYS.get(config.family, {}), _FIXED.get(config.family, {})
    out = {keys.get(name, name): getattr(config, name) for name in _PLAIN if name not in fixed}
    if config.family == "distilbert":
        sinusoidal = config.position_embedding_type == "sinusoidal"
        return out | {"seq_classif_dropout": config.head_dropout, "qa_dropout": 0.0, "sinusoidal_pos_embds": sinusoidal}
    if config.family == "albert":
        out |= {"classifier_dropout_prob": config.head_dropout, "embedding_size": config.embedding_width}
        groups = 1 if config.shared_layers == "all" else config.num_hidden_layers
        out |= {"num_hidden_groups": groups, "inner_group_num": 1}
    return {**out, "position_embedding_type": "absolute"}


def _architectures(config: ModelConfig, parts: set[str], top: TopConfig | None) -> list[str]:
    """The classes of transformers that have these parts."""
    family = family_of(config.family, "classifier" in parts)
    reads = parts | {"pooler"} if top is not None else parts  # with a top a class may do without its pooler
    heads = parts - {"pooler", "top"}
    if heads == {"mlm"} and "top" not in parts:
        masked = next(name for name in family.classes if name.endswith("ForMaskedLM"))
        return [family.causal if family.causal and config.direction == "left" else masked]
    fits = [name for name, has in family.classes.items() if has <= reads and has - {"pooler"} == heads]
    return fits or [family.bare]


def _label_settings(labels: list[str], classifier: bool, task: Mapping[str, Any] | None) -> dict[str, Any]:
    out: dict[str, Any] = {"id2label": {str(i): label for i, label in enumerate(labels)}}
    out["label2id"] = {label: i for i, label in enumerate(labels)}
    if classifier:
        kind = (task or {}).get("kind") or ("regression" if len(labels) == 1 else "single")
        out["problem_type"] = _PROBLEMS.get(kind, "single_label_classification")
    return out


def top_of(settings: Mapping[str, Any], where: str) -> TopConfig:
    """What stands between encoder and head; the defaults if a folder says nothing."""
    return from_dict(TopConfig, settings.get(TOP, {}), where)


def task_of(settings: Mapping[str, Any], head: str, where: str = "config.json") -> dict[str, Any]:
    """What a folder was fine-tuned for: `kind` and whatever else the run stored, such as a tuned threshold.

    A folder of other software has none: then `kind` is told from its head and its `problem_type`. Raises InputError if
    something stored is not of its type, or the kind not one of this head.
    """
    problems = {theirs: ours for ours, theirs in _PROBLEMS.items()}
    one = "regression" if len(settings.get("id2label") or ()) == 1 else "single"
    kind = problems.get(settings.get("problem_type") or "", one) if head == "classifier" else _KINDS[head][0]
    task = {"kind": kind, **(settings.get(TASK) or {})}
    if task["kind"] not in _KINDS[head]:
        expected = ", ".join(_KINDS[head])
        raise InputError(f"{where}: {TASK}.kind = {shorten(task['kind'])} of a {head}; expected {expected}")
    from_dict(_Task, {key: value for key, value in task.items() if key in vars(_Task())}, f"{where}: {TASK}")
    return task


@dataclasses.dataclass(frozen=True)
class _Task:
    """What a task's settings may hold that is read again, and of which type."""

    name: str = ""
    version_2: bool = False
    null_score_diff_threshold: float = 0.0
    characters: bool = False
    doc_stride: int = 1
    max_query_length: int = 1
    n_best_size: int = 1
    max_answer_length: int = 1

    def __post_init__(self) -> None:
        for name in ("doc_stride", "max_query_length", "n_best_size", "max_answer_length"):
            if not 1 <= getattr(self, name) < 1 << 31:
                raise ValueError(f"{name} = {shorten(getattr(self, name))}; expected 1 or more")


def labels_from_hf(settings: Mapping[str, Any], where: str) -> list[str] | None:
    """Names of a classifier's classes in order, None if config.json names none.

    Raises InputError if their numbers have gaps, or a name is no text that can be written.
    """
    names = settings.get("id2label")
    if not names:
        return None
    try:
        by_number = {int(number): str(label) for number, label in names.items()}
        labels = [by_number[i] for i in range(len(names))]
        "".join(labels).encode()
    except (KeyError, ValueError, AttributeError):
        raise InputError(f"{where}: id2label = {shorten(names)}; expected one label for each number from 0") from None
    return labels
