"""Sentence-transformers folders: a model folder, and how the vectors of its tokens become one vector of a text.

    modules.json                        Transformer, Pooling, perhaps Normalize; the folder of each
    sentence_bert_config.json           max_seq_length, do_lower_case
    1_Pooling/config.json               which modes
    config_sentence_transformers.json   a prompt before every text, if there is one

Any other module is refused by name. Shapes: B sequences, L positions, D width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..files import TABLE_BYTES, InputError, clip, read_json, read_json_object, shorten, write_json
from ..tokenizer.settings import check_only
from ..typed import check_fields

MODES = {  # of a text's vectors: the key that turns each on; joined in this order, unless the newer `pooling_mode` says
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
MODULES = "modules.json"
_TRANSFORMER, _POOLING, _OTHERS = "sentence_bert_config.json", "1_Pooling", "config_sentence_transformers.json"
_NORMALIZE = "2_Normalize"
_MODULES = ("Transformer", "Pooling", "Normalize")  # the only ones, in this order
_CROSS = "CrossEncoder"  # its folder is a classifier with one module, the Transformer
# By file: keys that are refused with another value than these.
ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    MODULES: {"kwargs": ([], None)},
    _TRANSFORMER: {
        "transformer_task": ("feature-extraction", None),
        "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}}, None),
        "module_output_name": ("token_embeddings", None),
        **dict.fromkeys(
            ("processing_kwargs", "model_args", "tokenizer_args", "config_args", "model_kwargs"), ({}, None)
        ),
        **dict.fromkeys(("processor_kwargs", "config_kwargs"), ({}, None)),
        **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
    },
    _NORMALIZE: {
        "module_input_name": ("sentence_embedding", None),
        "module_output_name": ("sentence_embedding", None),
    },
    _OTHERS: {
        "model_type": ("SentenceTransformer", None),
        "truncate_dim": (None,),
    },
}


@dataclass(frozen=True)
class Pooling:
    """How a text becomes a vector."""

    modes: tuple[str, ...] = ("mean",)  # of MODES; several are put side by side
    normalize: bool = False  # scale every vector to length 1
    max_length: int | None = None  # tokens an input may have, if the folder says so
    lower_case: bool = False  # lower-case every text, whatever the tokenizer does
    prompt: str = ""  # put before every text

    def __post_init__(self) -> None:
        known = all(isinstance(mode, str) and mode in MODES for mode in self.modes)
        if not known or not self.modes or len({*self.modes}) < len(self.modes):
            shown = " and ".join(map(shorten, self.modes[:8])) or "nothing"
            raise InputError(f"pooling = {shown}; expected some of {', '.join(MODES)}, each once")

    def text(self, text: str) -> str:
        """The text to tokenize for `text`: with the prompt, and lower-cased if the folder says so."""
        whole = self.prompt + text
        return whole.lower() if self.lower_case else whole

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, L, D) of the last layer and (B, L), true for real tokens, to (B, D), or D a mode if there are several.

        Padding must be at the end of a sequence, and every sequence must have a token.
        """
        out = torch.cat([_pooled(mode, states, mask.to(states.dtype)[..., None]) for mode in self.modes], -1)
        return torch.nn.functional.normalize(out, dim=-1) if self.normalize else out


def _pooled(mode: str, states: Tensor, mask: Tensor) -> Tensor:
    """(B, D) of one mode; `mask` is (B, L, 1)."""
    if mode == "cls":
        return states[:, 0]
    if mode == "max":
        return states.masked_fill(mask == 0, -torch.inf).amax(1)
    if mode == "lasttoken":
        return states[torch.arange(len(states), device=states.device), mask.sum((1, 2)).long() - 1]
    if mode == "weightedmean":  # the first token counts once, the second twice, ...
        mask = mask * torch.arange(1, states.shape[1] + 1, device=states.device, dtype=states.dtype)[:, None]
    total = mask.sum(1)
    return (states * mask).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


def read_pooling(folder: Path | str) -> tuple[Path, Pooling | None]:
    """The model folder in a sentence-transformers folder, and its pooling; without a modules.json the folder and None.

    The folder of a CrossEncoder has no pooling either. Raises InputError if it has other modules than Transformer,
    Pooling and Normalize, or settings that are not known.
    """
    folder = Path(folder)
    if not (folder / MODULES).exists():
        return folder, None
    modules = read_json(folder / MODULES, limit=TABLE_BYTES)
    check_fields(modules, [{"type": str, "path": str}], str(folder / MODULES))
    kinds = [_kind(module["type"]) for module in modules]
    if kinds == [_MODULES[0]] and modules[0]["path"] == "" and _table(folder / _OTHERS).get("model_type") == _CROSS:
        if _prompt(folder / _OTHERS):
            raise InputError(f"{folder / _OTHERS}: a prompt before the texts of a {_CROSS}, which is not computed here")
        return folder, None
    if kinds not in (list(_MODULES[:2]), list(_MODULES)):
        raise InputError(
            f"{folder / MODULES}: its modules are {clip(', '.join(kinds), 200) or 'none'}; expected "
            f"{', '.join(_MODULES[:2])} and perhaps {_MODULES[2]}; others are not computed here"
        )
    folders = [_inside(folder, module["path"]) for module in modules]
    pooling = folders[1] / "config.json"
    modes = _modes(pooling)
    for module in modules:
        check_only(module, ONLY[MODULES], str(folder / MODULES))
    paths = [folders[0] / _TRANSFORMER, *(path / "config.json" for path in folders[2:]), folder / _OTHERS]
    for path, only in zip(paths, [_TRANSFORMER, *([_NORMALIZE] if len(folders) > 2 else []), _OTHERS], strict=True):
        check_only(_table(path), ONLY[only], str(path))
    settings = _table(folders[0] / _TRANSFORMER)
    length = settings.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 3):
        raise InputError(
            f"{folders[0] / _TRANSFORMER}: max_seq_length = {shorten(length)}; expected a number of tokens"
        )
    lower, prompt = bool(settings.get("do_lower_case")), _prompt(folder / _OTHERS)
    if prompt and not _table(pooling).get("include_prompt", True):
        raise InputError(f"{pooling}: include_prompt is false, which is not computed here")
    try:
        return folders[0], Pooling(modes, len(folders) > 2, length, lower, prompt)
    except InputError as error:
        raise InputError(f"{pooling}: {error}") from None


def cross_encoder_settings(folder: Path) -> dict[str, Any]:
    """The activation function of a CrossEncoder's folder, as earlier versions have it in config.json; {} of others."""
    stored = _table(folder / _OTHERS)
    name = stored.get("activation_fn") if stored.get("model_type") == _CROSS else None
    return {"sentence_transformers": {"activation_fn": name}} if name else {}


def read_prompts(folder: Path | str) -> dict[str, str]:
    """The prompts of a sentence-transformers folder by name; none of any other folder. Raises InputError."""
    file = Path(folder) / _OTHERS
    prompts = _table(file).get("prompts") or {}
    check_fields(prompts, {str: str}, f"{file}: prompts")
    return dict(prompts)


def write_pooling(folder: Path, pooling: Pooling, width: int) -> None:
    """Make a model folder, of vectors of `width`, one that sentence-transformers loads."""
    names = _MODULES if pooling.normalize else _MODULES[:2]
    paths = ("", _POOLING, "2_Normalize")
    (folder / _POOLING).mkdir(parents=True, exist_ok=True)
    ordered = [mode for mode in MODES if mode in pooling.modes] == [*pooling.modes]
    keys: dict[str, Any] = {key: mode in pooling.modes for mode, key in MODES.items()}  # any version reads these
    newer = {"pooling_mode": list(pooling.modes)}
    write_json(folder / _POOLING / "config.json", {"word_embedding_dimension": width, **(keys if ordered else newer)})
    settings = {"max_seq_length": pooling.max_length, "do_lower_case": pooling.lower_case}
    write_json(folder / _TRANSFORMER, {key: value for key, value in settings.items() if value is not None})
    prompts = {"prompts": {"default": pooling.prompt}, "default_prompt_name": "default"} if pooling.prompt else {}
    write_json(folder / _OTHERS, prompts)
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    write_json(folder / MODULES, modules)


def _kind(name: str) -> str:
    """The class of a module, if it is one of sentence-transformers; else its whole name."""
    package, _, kind = name.rpartition(".")
    return kind if package.startswith("sentence_transformers.") and kind in _MODULES else name


def _inside(folder: Path, path: str) -> Path:
    """A module's folder. Raises InputError if it is not inside `folder`."""
    if Path(path).is_absolute() or ".." in Path(path).parts or "\0" in path or len(path) > 200:
        raise InputError(f"{folder / MODULES}: path = {shorten(path)}; expected a folder inside this one")
    return folder / path


def _table(file: Path) -> Mapping[str, Any]:
    """The settings in a file; none if there is no such file."""
    return read_json_object(file) if file.exists() else {}


def _modes(file: Path) -> tuple[str, ...]:
    if not file.exists():
        raise InputError(f"{file}: no such file; {MODULES} says that it has the pooling")
    settings = _table(file)
    newer = settings.get("pooling_mode")
    if newer is not None:
        return tuple(newer) if isinstance(newer, list) else (newer,)
    unknown = [
        key for key in settings if key.startswith("pooling_mode") and key not in MODES.values() and settings[key]
    ]
    if unknown:
        raise InputError(f"{file}: {clip(', '.join(unknown), 200)} is set; expected one of {', '.join(MODES.values())}")
    return tuple(mode for mode, key in MODES.items() if settings.get(key)) or ("mean",)


def similarity_note(folder: Path | str) -> str:
    """A note if a sentence-transformers folder ranks by another similarity than ours; "" if it does not."""
    file = Path(folder) / _OTHERS
    name = _table(file).get("similarity_fn_name")
    return "" if name in (None, "cosine") else f"{file}: similarity_fn_name = {shorten(name)}; rankings are by cosine"


def _prompt(file: Path) -> str:
    """The prompt before every text that is given without a prompt."""
    settings = _table(file)
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(name, str) or not isinstance(prompts.get(name), str):
        raise InputError(
            f"{file}: default_prompt_name = {shorten(name)}, prompts = {shorten(prompts)}; expected the name of a "
            "prompt, and its text among the prompts"
        )
    return str(prompts[name])
