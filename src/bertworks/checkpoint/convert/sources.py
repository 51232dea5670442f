"""What can be converted: a Hugging Face folder, one with a pytorch_model.bin, an original TensorFlow checkpoint.

Each becomes a `Source`: settings and tensors under Hugging Face's full names, and their names in the source.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ...files import InputError
from ...model.config import ModelConfig
from ...tokenizer import Tokenizer
from .. import hf
from ..families import family_in
from ..folder import CONFIG, check_size, find_model, read_config
from ..names import Family
from ..pooling import Pooling, read_pooling
from ..weights import read_weights, weights_name
from .options import ConvertOptions
from .tensorflow import read_original
from .tensorflow_files import prefixes

_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")


@dataclass(frozen=True)
class Source:
    """A model as it was found."""

    kind: str  # of the source, for the report
    folder: Path
    config: ModelConfig
    family: Family
    settings: dict[str, Any]  # as a config.json has them
    tensors: dict[str, Tensor]  # by Hugging Face's full names, of the type they are stored in
    names: dict[str, str]  # Hugging Face's full name: the source's
    ignored: dict[str, str]  # the source's name: why it is no part of a model
    tokenizer: Tokenizer | None
    pooling: Pooling | None  # of a sentence-transformers folder


def read_source(path: Path | str, options: ConvertOptions) -> Source:
    """The model that `path` means: a model, run or sentence-transformers folder, or a TensorFlow checkpoint.

    Raises InputError if it is none of these, or damaged.
    """
    folder, pooling = read_pooling(find_model(path))
    if not (folder / CONFIG).exists():
        return _original(path, options)
    if options.hidden_act is not None:
        raise InputError(f"{folder}: {CONFIG} says which activation was trained; leave --hidden-act out")
    config, settings = read_config(folder)
    kind, raw = f"folder with {weights_name(folder)}", read_weights(folder, options.allow_pickle)
    family = family_in(config.family, raw, settings)
    raw = family.separated(raw)
    every = family.canonical({name: name for name in raw}, str(folder))
    names = every if config.tie_word_embeddings else family.untied(every)
    tensors = {name: raw[original] for name, original in names.items()}
    ignored = dict.fromkeys(raw.keys() - every.values(), "nothing that is learned")
    ignored |= dict.fromkeys(family.unread_in(raw), "a pooler that a model of this class does not read")
    ignored |= dict.fromkeys({*every.values()} - {*names.values()}, "not read beside a decoder's own bias")
    tokenizer = _tokenizer(folder, config, options.do_lower_case)
    return Source(kind, folder, config, family, settings, tensors, names, ignored, tokenizer, pooling)


def _original(path: Path | str, options: ConvertOptions) -> Source:
    """A TensorFlow checkpoint."""
    if Path(path).is_dir() and not prefixes(Path(path)):
        raise InputError(f"{path}: neither {CONFIG} nor a TensorFlow checkpoint (.index) in this folder")
    read = read_original(path, options.hidden_act)
    folder = read.prefix.parent
    config = hf.config_from_hf(read.settings, str(folder))
    family = family_in(config.family, read.tensors, read.settings)
    kind, tokenizer = f"TensorFlow checkpoint {read.prefix.name}", _tokenizer(folder, config, options.do_lower_case)
    return Source(kind, folder, config, family, read.settings, read.tensors, read.names, read.ignored, tokenizer, None)


def _tokenizer(folder: Path, config: ModelConfig, do_lower_case: bool | None) -> Tokenizer | None:
    """The tokenizer beside the weights; None without one."""
    files = [name for name in _VOCABULARIES if next(folder.glob(name), None)]
    if not files:
        return None
    tokenizer = Tokenizer.load(folder, do_lower_case)
    check_size(tokenizer, config, f"{folder / files[0]}")
    return tokenizer
