"""The model folder: Hugging Face's layout and tensor names, read and written (docs/models.md).

    config.json  model.safetensors  tokenizer.json  vocab.txt  tokenizer_config.json  README.md (model card)

`load_model` reads a folder with whatever heads it has, `save_folder` writes one; start.py makes a model to train on.
Weights are read from safetensors alone, because a pickle can run code. A killed `save_folder` leaves the old folder or
the new one, or at worst one without config.json, which nothing reads.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..files import InputError, NotWritten, atomic_write, not_found, read_json_object, shorten, write_json, write_text
from ..model.bert import Encoder
from ..model.build import build_model
from ..model.config import ModelConfig, TopConfig
from ..model.heads import Model
from ..pretrained import BUNDLED
from ..tensors import write_tensors
from ..tokenizer import Tokenizer
from . import hf
from .card import model_card
from .families import family_in, family_of
from .locate import CONFIG as CONFIG
from .locate import find_model as find_model
from .locate import move_in
from .locate import run_name as run_name
from .metadata import LABELLED, TASK, labels_of, stored_task, top_of
from .names import Family, heads_in, listed
from .pooling import cross_encoder_settings
from .weights import WEIGHTS, check_finite, read_weights, shapes_only

ROUND, SPARE = 8, 1_024  # embedding tables are padded to a multiple of a power of two from 8 to 1,024


def read_config(path: Path | str) -> tuple[ModelConfig, dict[str, Any]]:
    """The encoder's shape and all settings of config.json, of a model or run folder.

    Raises InputError if folder or file is missing, or holds a model that would be computed differently.
    """
    path = find_model(path)
    if not path.is_dir():
        raise InputError(
            f"{path}: {not_found(path, 'folder')}; expected a model folder on this machine, with {CONFIG} and "
            f"{WEIGHTS}, or a name: {', '.join(BUNDLED)} or org/name"
        )
    if not (path / CONFIG).exists():
        what = (
            "this is an unfinished run; rerun its command" if (path / "state").is_dir() else "this is no model folder"
        )
        raise InputError(f"{path}: no {CONFIG}: {what}")
    settings = read_json_object(path / CONFIG)
    hf.check_supported(settings, str(path / CONFIG))
    settings = hf.by_family(settings) | cross_encoder_settings(path)
    return hf.config_from_hf(settings, str(path / CONFIG)), settings


def read_task(path: Path | str) -> dict[str, Any]:
    """What a model or run folder stores of the task that it was fine-tuned for; {} if it stores none.

    Raises InputError like `read_config`, or if a stored value has the wrong type.
    """
    return stored_task(read_config(path)[1].get(TASK) or {}, str(find_model(path) / CONFIG))


def load_model(path: Path | str, finite: bool = True) -> Model:
    """The encoder of a model or run folder with whatever heads it has, in float32 on the CPU, in evaluation mode.

    Raises InputError if a file is missing or damaged, if any tensor is missing, left over or of another shape, or, but
    for `finite=False`, if one holds NaN or infinity.
    """
    path = find_model(path)
    config, settings = read_config(path)
    model = assemble(config, settings, read_weights(path), path, finite)
    model.folder = model.encoder.folder = path
    return model


def assemble(
    config: ModelConfig, settings: dict[str, Any], tensors: dict[str, Tensor], path: Path | str, finite: bool = True
) -> Model:
    """The model of a config.json and of tensors under its family's names; `path` names them in errors."""
    contents = FolderContents.of(config, settings, tensors, Path(path))
    labels = contents.label_count() if contents.parts & LABELLED else 0
    with shapes_only():  # shapes only: the values come from the file
        top = top_of(settings, str(Path(path) / CONFIG))
        try:
            model = build_model(config, heads_in(contents.parts), labels, pooler="pooler" in contents.parts, top=top)
        except (InputError, ValueError) as error:  # a top or a head that an encoder of this shape cannot have
            raise InputError(f"{Path(path) / CONFIG}: {error}") from None
    try:
        state = contents.family.match(contents.tensors, model.state_dict(), str(path))
    except InputError as error:
        named = shorten(settings.get("architectures"))
        raise InputError(f"{error}\n  heads are read as architectures in {CONFIG} says: {named}") from None
    model.load_state_dict(contents.in_memory(state, finite), assign=True)
    return model.eval()


class FolderContents(NamedTuple):
    """The config.json and the tensors of a folder, and what they say of its parts."""

    family: Family
    settings: dict[str, Any]
    tensors: dict[str, Tensor]  # by canonical names
    parts: set[str]
    unread: list[str]  # names of tensors that a model of its class does not read
    path: Path

    @classmethod
    def of(
        cls, config: ModelConfig, settings: dict[str, Any], tensors: dict[str, Tensor], path: Path
    ) -> "FolderContents":
        """Raises InputError if tensors and settings contradict each other."""
        family = family_in(config.family, tensors, settings)
        _refuse_adapters(tensors, path)
        tensors = family.separated(tensors)
        unread, tensors = family.unread_in(tensors), family.canonical(tensors, str(path))
        if not config.tie_word_embeddings:
            tensors = family.untied(tensors)
        parts = family.parts_of(tensors, settings)
        hf.check_pooling(parts, settings, str(path / CONFIG))
        return cls(family, settings, tensors, parts, unread, path)

    def in_memory(self, state: Mapping[str, Tensor], finite: bool = True) -> dict[str, Tensor]:
        """Float32 copies of tensors by our names; those of safetensors may be views of the file.

        Raises InputError, but for `finite=False`, if one holds NaN or infinity.
        """
        copies = {name: tensor.to(torch.float32, copy=True) for name, tensor in state.items()}
        if finite:
            check_finite({self.family.hf_name(name): tensor for name, tensor in copies.items()}, self.path)
        return copies

    def labels(self) -> list[str] | None:
        """Names of the classes of its classifier or tagger; None if config.json has none."""
        return labels_of(self.settings, str(self.path / CONFIG))

    def label_count(self) -> int:
        """Number of classes of its classifier or tagger: the names in config.json, else the rows of the matrix."""
        if (labels := self.labels()) is not None:
            return len(labels)
        matrices = [f"{self.family.modules[f'heads.{name}']}.weight" for name in sorted(LABELLED & self.parts)]
        return next((len(self.tensors[name]) for name in matrices if name in self.tensors), 2)


def _refuse_adapters(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises InputError for a folder with LoRA adapters, which change what its weights compute."""
    adapters = [name for name in tensors if re.search(r"lora|\.parametrizations\.", name, re.IGNORECASE)]
    adapters += [name for name in ("adapter_config.json",) if (path / name).exists()]
    if adapters:
        raise InputError(
            f"{path}: LoRA adapters ({listed(adapters, 2)}), which are not computed here; expected their sum with the "
            "weights: merge them with the library that wrote them"
        )


def load_encoder(path: Path | str) -> Encoder:
    """The encoder of a model or run folder in evaluation mode; heads are read and dropped. Errors: see `load_model`."""
    return load_model(path).encoder


def load_tokenizer(path: Path | str) -> Tokenizer:
    """The tokenizer of a model or run folder. Raises InputError if it is missing, or `check_size` refuses it."""
    path = find_model(path)
    config, _ = read_config(path)
    tokenizer = Tokenizer.load(path)
    check_size(tokenizer, config, str(path))
    return tokenizer


def parts_in(model: Model) -> set[str]:
    """The names of a model's heads, and `pooler` and `top` if it has them. A top counts only if it has weights."""
    beside = {"pooler": model.encoder.pooler, "top": model.top}
    return {*model.heads, *(name for name, part in beside.items() if part is not None and [*part.parameters()])}


def save_folder(
    folder: Path | str,
    model: Model,
    tokenizer_source: Path | Tokenizer | None,
    facts: dict[str, Any] | None = None,
    labels: list[str] | None = None,
    max_length: int | None = None,
    task: dict[str, Any] | None = None,
) -> None:
    """Write a model folder, float32 whatever the model's precision, tied tensors once.

    tokenizer_source: a tokenizer, or a folder that has one; None writes none. facts: what the model card reports of
    the run. labels: names of the classes of a classifier or tagger. max_length: tokens an input may have, if fewer
    than the model has positions (a fine-tuned one should get no longer inputs than it has seen). task: what
    `metadata.task_of` shall find. Raises InputError if the tokenizer does not fit the embedding table or the disk is
    full (an existing folder then stays as it was), ValueError if labels and head disagree.
    """
    folder = Path(os.path.abspath(folder))
    tokenizer = tokenizer_source if isinstance(tokenizer_source, Tokenizer | None) else Tokenizer.load(tokenizer_source)
    if tokenizer is not None:
        check_size(tokenizer, model.config, "save_folder")
    config = hf.config_to_hf(model.config, parts_in(model), _labels(model, labels), task, _top(model))
    card = model_card(config, model.config, part_sizes(model), facts or {})
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed run
        temporary.mkdir(parents=True)
        with atomic_write(temporary / WEIGHTS) as file:
            write_tensors(file, _their_tensors(model), {"format": "pt"})
        if tokenizer is not None:
            tokenizer.save(temporary, model_max_length=max_length or model.config.max_length)
        write_text(temporary / "README.md", card)
        write_json(temporary / CONFIG, config)
        move_in(temporary, folder)
    except OSError as error:
        raise NotWritten(f"{folder}: could not write the model folder: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _their_tensors(model: Model) -> dict[str, Tensor]:
    """The weights under Hugging Face's names; without the prefix if there is no head, as BertModel writes them."""
    parts = parts_in(model)
    family = family_of(hf.type_to_write(model.config, parts, _top(model)), parts)
    prefix = "" if model.heads or model.config.direction == "pair" else f"{family.prefix}."
    tensors = {
        family.hf_name(name).removeprefix(prefix): tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in model.state_dict().items()
    }
    tensors = family.stacked(tensors)
    if "mlm" in model.heads and not model.config.tie_word_embeddings:
        for copy, original in family.tied.items():  # without it transformers initialises the bias at random
            if copy not in tensors:
                tensors[copy] = tensors[original].clone()
    return tensors


def _top(model: Model) -> TopConfig | None:
    return None if model.top is None else model.top.config


def _labels(model: Model, labels: list[str] | None) -> list[str] | None:
    head = next((model.heads[name] for name in model.heads if name in LABELLED), None)
    if head is None:
        return None
    count: int = head.out_features  # type: ignore[assignment]
    labels = [f"LABEL_{i}" for i in range(count)] if labels is None else labels
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for a classifier with {count} outputs")
    return labels


def part_sizes(model: Model) -> dict[str, int]:
    """Parameters of each part, and in all."""
    parts = {"encoder": model.encoder, **({"top": model.top} if model.top else {}), **dict(model.heads.items())}
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    return {**counts, "total": sum(counts.values())}


def is_padded(rows: int, tokens: int) -> bool:
    """Whether an embedding table of `rows` may belong to a vocabulary of fewer `tokens`, padded for speed."""
    largest = rows & -rows  # power of two that divides the rows
    return largest >= ROUND and tokens < rows < tokens + min(largest, SPARE)


def check_size(tokenizer: Tokenizer, config: ModelConfig, where: str) -> str:
    """A note for the user if the embedding table has more rows than the tokenizer has tokens; "" if they are equal.

    Raises InputError if it has fewer, or more without being padded (`is_padded`): then the tokenizer is another
    model's, or its file was cut.
    """
    rows, tokens = config.vocab_size, tokenizer.vocab_size
    added = {*tokenizer.added, *tokenizer.roles.values()}
    if beyond := [token for token in tokenizer.vocab[rows:] if token in added]:
        raise InputError(
            f"{where}: the embedding matrix has {rows:,} rows, and none for the added tokens {listed(beyond, 5)}; take "
            "them out of the tokenizer's files, or train rows for them (resize_token_embeddings of transformers)"
        )
    if rows != tokens and not is_padded(rows, tokens):
        raise InputError(
            f"{where}: the tokenizer has {tokens} tokens, the model's embedding table {rows} rows; use the "
            "tokenizer the model was trained with"
        )
    spare = f"the embedding table has {rows - tokens} rows more than the tokenizer has tokens ({tokens:,}); "
    return f"{spare}no token has them, and no prediction names them" if rows > tokens else ""
