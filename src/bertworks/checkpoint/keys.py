"""What fields of ModelConfig and keys of config.json do not say one to one, family by family.

Each family reads more fields from a config.json, and writes more keys of it; families.py names the functions.
"""

from typing import Any

from ..files import shorten
from ..model.config import ModelConfig
from .names import Settings


def write_positions(_: ModelConfig) -> dict[str, Any]:
    return {"position_embedding_type": "absolute"}


def read_roberta(settings: Settings) -> dict[str, Any]:
    pad = settings.get("pad_token_id", 1)
    return {"position_offset": pad + 1 if isinstance(pad, int) else 0}  # else its own field refuses it


def read_albert(settings: Settings) -> dict[str, Any]:
    groups, inner = settings.get("num_hidden_groups", 1), settings.get("inner_group_num", 1)
    layers = settings.get("num_hidden_layers", 12)
    if inner != 1 or groups not in (1, layers):
        raise ValueError(
            f"num_hidden_groups = {shorten(groups)}, inner_group_num = {shorten(inner)}; expected 1 group "
            f"(all layers share) or {shorten(layers)} (none do), and 1 layer in each"
        )
    return {"embedding_size": settings.get("embedding_size", 128), "shared_layers": "all" if groups == 1 else "none"}


def write_albert(config: ModelConfig) -> dict[str, Any]:
    groups = 1 if config.shared_layers == "all" else config.num_hidden_layers
    return {
        "classifier_dropout_prob": config.head_dropout,
        "embedding_size": config.embedding_width,
        "num_hidden_groups": groups,
        "inner_group_num": 1,
        **write_positions(config),
    }


def read_distilbert(settings: Settings) -> dict[str, Any]:
    return {"position_embedding_type": "sinusoidal"} if settings.get("sinusoidal_pos_embds") else {}


def write_distilbert(config: ModelConfig) -> dict[str, Any]:
    sinusoidal = config.position_embedding_type == "sinusoidal"
    return {"seq_classif_dropout": config.head_dropout, "qa_dropout": 0.0, "sinusoidal_pos_embds": sinusoidal}


def read_jina(settings: Settings) -> dict[str, Any]:
    """Its formula is RoBERTa's, heads and pooler too, with rotary positions in place of a table."""
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    theta = _unscaled_theta(rope, "rope_parameters", settings.get("rope_theta", 20000.0))
    if "head_dim" in settings:
        raise ValueError(f"head_dim = {shorten(settings['head_dim'])}; expected no head_dim: heads share hidden_size")
    return {"family": "roberta", "position_embedding_type": "rotary", "rope_theta": theta}


def _unscaled_theta(table: Any, name: str, otherwise: Any) -> Any:
    """The base of rotary positions in a table of config.json. Raises ValueError for positions that are scaled."""
    if not isinstance(table, dict) or table.keys() - {"rope_type", "type", "rope_theta"}:
        raise ValueError(f"{name} = {shorten(table)}; expected rope_type and rope_theta alone")
    kind = table.get("rope_type", table.get("type", "default"))
    if kind != "default":
        raise ValueError(
            f"{name}: rope_type = {shorten(kind)}; expected default: no scaling of positions is computed here"
        )
    return table.get("rope_theta", otherwise)


def write_jina(config: ModelConfig) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta}}


# ---- ModernBERT (Warner et al. 2024)

_BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
_SAME = (  # keys that one field sets: the encoder has one setting for all of them
    (False, _BIASES),
    ("gelu", ("hidden_activation", "classifier_activation")),
    (0.0, ("embedding_dropout", "mlp_dropout")),
)
_KINDS = ("full_attention", "sliding_attention")


def write_modernbert(config: ModelConfig) -> dict[str, Any]:
    """The keys that no field has one to one. Of layers and rotary positions the old ones, which every version reads."""
    return {
        **dict.fromkeys(_BIASES, config.bias),
        "decoder_bias": True,
        "mlp_dropout": config.hidden_dropout_prob,
        "classifier_dropout": config.head_dropout,
        "classifier_activation": config.hidden_act,
        "classifier_pooling": config.classifier_pooling,
        "global_attn_every_n_layers": config.global_every if config.attention_window else 1,
        "local_attention": 2 * config.attention_window or 128,
        "global_rope_theta": config.rope_theta,
        "local_rope_theta": config.local_rope_theta or config.rope_theta,
    }


def read_modernbert(settings: Settings) -> dict[str, Any]:
    """The fields that these keys set. Raises ValueError for what this encoder does not compute."""
    for usual, keys in _SAME:
        values = [settings.get(key, usual) for key in keys]
        if any(value != values[0] for value in values):
            pairs = ", ".join(f"{key} = {shorten(value)}" for key, value in zip(keys, values, strict=True))
            raise ValueError(f"{pairs}; expected one value: the encoder has one setting for them")
    expected: dict[str, Any] = {"decoder_bias": True, "rope_scaling": None}
    for key, only in expected.items():
        if settings.get(key, only) != only:
            raise ValueError(f"{key} = {shorten(settings[key])}; expected {only}: nothing else is computed here")
    theta, local_theta = _thetas(settings)
    fields = {
        "bias": settings.get("norm_bias", False),
        "classifier_pooling": settings.get("classifier_pooling", "cls"),
        "rope_theta": theta,
    }
    every = _every(settings)
    if every == 1:  # no layer is local
        return fields
    local = {"global_every": every, "attention_window": _span(settings)}
    return fields | local | {"local_rope_theta": 0.0 if local_theta == theta else local_theta}


def _span(settings: Settings) -> Any:
    """The attention span of local layers in each direction. Raises ValueError for none, and if two keys differ."""
    both = settings.get("local_attention", 128)
    half = both // 2 if isinstance(both, int) else both
    span = settings.get("sliding_window", half)  # transformers 5 lets it win, older versions do not read it
    if isinstance(span, int) and (span < 1 or ("local_attention" in settings and span != half)):
        raise ValueError(
            f"sliding_window = {shorten(span)}, local_attention = {shorten(both)}; expected at least 1, and twice that"
        )
    return span


def _every(settings: Settings) -> int:
    """Every how many layers one sees all tokens. Raises ValueError for another pattern."""
    every, layers = settings.get("global_attn_every_n_layers", 3), settings.get("num_hidden_layers", 22)
    types = settings.get("layer_types")
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"global_attn_every_n_layers = {shorten(every)}; expected a number of at least 1")
    if types is None:
        return every
    names = types if isinstance(types, list) else []
    second = next((i for i, kind in enumerate(names) if i and kind == _KINDS[0]), max(len(names), 1))
    for n in (every, second):
        if len(names) == layers and names == [_KINDS[int(i % n > 0)] for i in range(len(names))]:
            return n
    raise ValueError(
        f"layer_types = {shorten(types)}; expected {layers}, of which layers 0, n, 2 n, ... are full_attention and the "
        "others sliding_attention"
    )


def _thetas(settings: Settings) -> list[Any]:
    """The bases of rotary positions in global and in local layers. Raises ValueError for positions that are scaled."""
    tables = settings.get("rope_parameters", {})
    if not isinstance(tables, dict) or tables.keys() - {*_KINDS}:
        raise ValueError(f"rope_parameters = {shorten(tables)}; expected a table for each of {', '.join(_KINDS)}")
    old = (settings.get("global_rope_theta", 160000.0), settings.get("local_rope_theta", 10000.0))
    return [
        _unscaled_theta(tables.get(kind, {}), f"rope_parameters.{kind}", theta)
        for kind, theta in zip(_KINDS, old, strict=True)
    ]
