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

MODES = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}  # behind pooling_mode_: the key of each
MODULES = "modules.json"
_TRANSFORMER, _POOLING, _OTHERS = "sentence_bert_config.json", "1_Pooling", "config_sentence_transformers.json"
_MODULES = ("Transformer", "Pooling", "Normalize")  # the only ones, in this order
_CROSS = "CrossEncoder"  # its folder is a classifier with one module, the Transformer
_ARGUMENTS = ("processing_kwargs", "processor_kwargs", "model_args", "model_kwargs", "tokenizer_args", "config_args")
# By file: keys that are refused with another value than these.
ONLY: dict[str, dict[str, tuple[Any, ...]]] = {
    _TRANSFORMER: {
        "transformer_task": ("feature-extraction", None),
        "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}}, None),
        **dict.fromkeys((*_ARGUMENTS, "config_kwargs"), ({}, None)),
        **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
    },
    _OTHERS: {"model_type": ("SentenceTransformer", None), "truncate_dim": (None,)},
}


@dataclass(frozen=True)
class Pooling:
    """How a text becomes a vector."""

    mode: str = "mean"  # of MODES
    normalize: bool = False  # scale every vector to length 1
    max_length: int | None = None  # tokens an input may have, if the folder says so
    lower_case: bool = False  # lower-case every text, whatever the tokenizer does
    prompt: str = ""  # put before every text

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(f"pooling = {shorten(self.mode)}; expected one of {', '.join(MODES)}")

    def text(self, text: str) -> str:
        """The text to tokenize for `text`: with the prompt, and lower-cased if the folder says so."""
        whole = self.prompt + text
        return whole.lower() if self.lower_case else whole

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """(B, L, D) of the last layer and (B, L), true for real tokens, to (B, D).

        Padding must be at the end of a sequence, and every sequence must have a token.
        """
        weights = mask.to(states.dtype)[..., None]  # (B, L, 1)
        if self.mode == "cls":
            out = states[:, 0]
        elif self.mode == "max":
            out = states.masked_fill(weights == 0, -torch.inf).amax(1)
        else:
            out = (states * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(out, dim=-1) if self.normalize else out


def read_pooling(folder: Path | str) -> tuple[Path, Pooling | None]:
    """The model folder in a sentence-transformers folder, and its pooling; without a modules.json the folder and None.

    The folder of a CrossEncoder has no pooling either. Raises InputError if it has other modules than Transformer,
    Pooling and Normalize, or settings that are not known.
    """
    folder = Path(folder)
    if not (folder / MODULES).exists():
        return folder, None
    modules = read_json(folder / MODULES, limit=TABLE_BYTES)
    check_fields(modules, [{"type": str, "path": str, "kwargs?": ([], None)}], str(folder / MODULES))
    kinds, whole = [_kind(module["type"]) for module in modules], _table(folder / _OTHERS)
    prompt = _prompt(whole, folder / _OTHERS)
    if kinds == ["Transformer"] and modules[0]["path"] == "" and whole.get("model_type") == _CROSS and not prompt:
        return folder, None
    if kinds not in (list(_MODULES[:2]), list(_MODULES)):
        raise InputError(
            f"{folder / MODULES}: its modules are {clip(', '.join(kinds), 200) or 'none'}; expected "
            f"{', '.join(_MODULES[:2])} and perhaps {_MODULES[2]}; others are not computed here"
        )
    for path in (module["path"] for module in modules):
        if path and (Path(path).name != path or path == ".."):
            raise InputError(
                f"{folder / MODULES}: path {shorten(path)}; expected the name of a folder inside, or nothing"
            )
    inner, pooling = (folder / module["path"] for module in modules[:2])
    settings = _table(inner / _TRANSFORMER)
    check_only(settings, ONLY[_TRANSFORMER], str(inner / _TRANSFORMER))
    check_only(whole, ONLY[_OTHERS], str(folder / _OTHERS))
    check_fields(settings, {"max_seq_length?": (range(3, 1 << 31), None)}, str(inner / _TRANSFORMER))
    mode = _mode(pooling / "config.json", prompt)
    length, lower = settings.get("max_seq_length"), bool(settings.get("do_lower_case"))
    return inner, Pooling(mode, len(modules) > 2, length, lower, prompt)


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
    modes = {f"pooling_mode_{key}": mode == pooling.mode for mode, key in MODES.items()}  # any version reads these
    write_json(folder / _POOLING / "config.json", {"word_embedding_dimension": width, **modes})
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


def _table(file: Path) -> Mapping[str, Any]:
    """The settings in a file; empty without the file."""
    return read_json_object(file) if file.exists() else {}


def _mode(file: Path, prompt: str) -> str:
    """The pooling of a module. Raises InputError for several, for others than MODES, and for prompts left out of it."""
    if not file.exists():
        raise InputError(f"{file}: missing; {MODULES} says that it has the pooling")
    settings = _table(file)
    if prompt and not settings.get("include_prompt", True):
        raise InputError(f"{file}: include_prompt is false, which is not computed here")
    keys = {f"pooling_mode_{key}": mode for mode, key in MODES.items()}
    on = [keys.get(key, key) for key, value in settings.items() if key.startswith("pooling_mode_") and value]
    newer = settings.get("pooling_mode", on or ["mean"])
    modes = newer if isinstance(newer, list) else [newer]
    if len(modes) != 1 or modes[0] not in [*MODES]:
        raise InputError(f"{file}: pooling = {shorten(newer)}; expected one of {', '.join(MODES)}")
    return str(modes[0])


def similarity_note(folder: Path | str) -> str:
    """A note if a sentence-transformers folder ranks by another similarity than ours; "" if it does not."""
    file = Path(folder) / _OTHERS
    name = _table(file).get("similarity_fn_name")
    return "" if name in (None, "cosine") else f"{file}: similarity_fn_name = {shorten(name)}; rankings are by cosine"


def _prompt(settings: Mapping[str, Any], file: Path) -> str:
    """The prompt before every text that is given without a prompt."""
    name = settings.get("default_prompt_name")
    if name is None:
        return ""
    check_fields(settings, {"default_prompt_name": str, "prompts": {str: str}}, str(file))
    if name not in settings["prompts"]:
        raise InputError(f"{file}: default_prompt_name = {shorten(name)}; expected the name of one of the prompts")
    return str(settings["prompts"][name])
