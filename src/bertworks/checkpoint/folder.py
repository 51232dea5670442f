"""The model folder: Hugging Face's layout and tensor names, read and written (docs/models.md).

    config.json  model.safetensors  tokenizer.json  vocab.txt  tokenizer_config.json  README.md (model card)

`load_model` gives the encoder with whatever heads a folder has, `initial_model` a start for training, `save_folder`
writes. Weights are read from safetensors alone: a pickle can run code. A killed `save_folder` leaves the old folder or
the new one, or at worst one without config.json, which nothing reads.
"""

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from ..files import InputError, NotWritten, atomic_write, read_table, write_json, write_text
from ..model.config import ModelConfig
from ..model.encoder import Encoder
from ..model.heads import NO_TOP, HeadName, Model, build_head, build_model
from ..model.prepare import initialise
from ..model.top import Top, TopConfig
from ..tokenizer import Tokenizer
from . import hf
from .card import model_card
from .families import family_in, family_of
from .locate import CONFIG as CONFIG
from .locate import find_model as find_model
from .locate import move_in
from .locate import run_name as run_name
from .names import Family, heads_in
from .weights import WEIGHTS, check_finite, read_weights

_LABELLED = {"classifier", "tagger"}  # heads whose outputs have names
SPARE, ROUND = 1_024, 8  # rows a padded embedding table may have more than its tokenizer has tokens; it has 8 n rows


class InitialModel(NamedTuple):
    """A model to train on, and what to tell about it."""

    model: Model
    fresh: list[str]  # parts the folder did not have, initialised by seed: heads, pooler
    unused: list[str]  # parts or tensors of the folder that this model has no place for


def read_config(path: Path | str) -> tuple[ModelConfig, dict[str, Any]]:
    """The encoder's shape and the whole of config.json (labels: `hf.labels_from_hf`) of a model or run folder.

    Raises InputError if folder or file is missing, or holds a model that would be computed differently.
    """
    path = find_model(path)
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; expected a model folder with {CONFIG} and {WEIGHTS}")
    if not (path / CONFIG).exists():
        inner = next((f"; there is one in {p.parent}" for p in sorted(path.glob(f"*/{CONFIG}"))), "")
        raise InputError(f"{path}: no {CONFIG} in this folder, so it is not (or not yet) a model folder{inner}")
    settings = hf.by_family(read_table(path / CONFIG))
    return hf.config_from_hf(settings, str(path / CONFIG)), settings


def load_model(path: Path | str, finite: bool = True) -> Model:
    """The encoder of a model or run folder with whatever heads it has, in float32 on the CPU, in evaluation mode.

    Raises InputError if a file is missing or damaged, if any tensor is missing, left over or of another shape, or, but
    for `finite=False`, if one holds NaN or infinity.
    """
    path = find_model(path)
    config, settings = read_config(path)
    return assemble(config, settings, read_weights(path), path, finite)


def assemble(
    config: ModelConfig, settings: dict[str, Any], tensors: dict[str, Tensor], path: Path | str, finite: bool = True
) -> Model:
    """The model of a config.json and of tensors under its family's names; `path` names them in errors."""
    held = _Held.of(config, settings, tensors, Path(path))
    labels = held.label_count() if held.parts & _LABELLED else 0
    with torch.device("meta"):  # shapes only: the values come from the file
        top = hf.top_of(settings, str(Path(path) / CONFIG))
        try:
            model = build_model(config, heads_in(held.parts), labels, pooler="pooler" in held.parts, top=top)
        except (InputError, ValueError) as error:  # a top or a head that an encoder of this shape cannot have
            raise InputError(f"{Path(path) / CONFIG}: {error}") from None
    state = held.family.match(held.tensors, model.state_dict(), str(path))
    model.load_state_dict(held.own(state, finite), assign=True)
    return model.eval()


class _Held(NamedTuple):
    """What a folder holds."""

    family: Family
    settings: dict[str, Any]
    tensors: dict[str, Tensor]  # by canonical names
    parts: set[str]
    unread: list[str]  # tensors that a model of its class does not read
    path: Path

    @classmethod
    def of(cls, config: ModelConfig, settings: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> "_Held":
        family = family_in(config.family, tensors, settings)
        unread, tensors = family.unread_in(tensors), family.canonical(tensors, str(path))
        if not config.tie_word_embeddings:
            tensors = family.untied(tensors)
        layers = config.num_hidden_layers
        if config.shared_layers != "all" and layers > len(tensors):  # before anything is built of such a size
            raise InputError(f"{path}: num_hidden_layers = {layers:,} in {CONFIG}, but only {len(tensors):,} tensors")
        parts = family.parts_of(tensors, settings)
        hf.check_pooling(parts, settings, str(path / CONFIG))
        return cls(family, settings, tensors, parts, unread, path)

    def own(self, state: Mapping[str, Tensor], finite: bool = True) -> dict[str, Tensor]:
        """Our tensors in float32, in memory of their own: what safetensors gives may be a view of the file.

        Raises InputError, but for `finite=False`, if one holds NaN or infinity.
        """
        own = {name: tensor.to(torch.float32, copy=True) for name, tensor in state.items()}
        if finite:
            check_finite({self.family.their_name(name): tensor for name, tensor in own.items()}, self.path)
        return own

    def labels(self) -> list[str] | None:
        return hf.labels_from_hf(self.settings, str(self.path / CONFIG))

    def label_count(self) -> int:
        """Classes of the classifier or tagger: as config.json names them, else rows of its matrix."""
        if (labels := self.labels()) is not None:
            return len(labels)
        matrices = [f"{self.family.modules[f'heads.{name}']}.weight" for name in sorted(_LABELLED & self.parts)]
        return next((len(self.tensors[name]) for name in matrices if name in self.tensors), 2)


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


def initial_model(
    path: Path | str,
    heads: tuple[HeadName, ...],
    labels: int | Sequence[str],
    seed: int,
    dropout: float | None = None,
    top: TopConfig = NO_TOP,
) -> InitialModel:
    """A model with these heads to train on: weights from a model or run folder where it has them, else by `seed`.

    `labels` are the classes of a classifier or tagger, or their number; the folder's own head is taken only if it has
    the same ones, its outputs put in the order of these. `dropout`,
    if given, replaces both rates. `top` stands between encoder and heads; if the folder has another one, that and its
    heads are left. The encoder itself must be complete. Raises InputError like `load_model`.
    """
    path = find_model(path)
    config, settings = read_config(path)
    if dropout is not None:
        config = dataclasses.replace(
            config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, classifier_dropout=None
        )
    held = _Held.of(config, settings, read_weights(path), path)
    family, tensors, has = held.family, held.tensors, held.parts
    count, theirs = labels if isinstance(labels, int) else len(labels), held.labels() or []
    if has & _LABELLED:
        same = isinstance(labels, int) or {*theirs} == {*labels}
        if not same or held.label_count() != count:
            has = has - _LABELLED
    if hf.top_of(settings, str(path / CONFIG)) != top:
        has = has & {"mlm", "nsp", "sop", "pooler"}
    with torch.device("meta"):
        model = build_model(config, heads, count, top=top)
    wants = parts_in(model)
    part_of = {name: family.part_of(name, held.parts) for name in tensors}
    taken = {name: tensor for name, tensor in tensors.items() if part_of[name] in {"body", *(wants & has)}}
    expected = {name: t for name, t in model.state_dict().items() if _our_part(name) not in wants - has}
    state = family.match(taken, expected, str(path))
    if not isinstance(labels, int):
        for name in (name for name in state if _our_part(name) in _LABELLED):
            state[name] = state[name][[theirs.index(label) for label in labels]]
    model.load_state_dict(held.own(state), strict=False, assign=True)
    _add_fresh(model, wants - has, count, torch.Generator().manual_seed(seed), top)
    left = {part_of[name] if part_of[name] in family.parts else name for name in tensors.keys() - taken.keys()}
    return InitialModel(model, sorted(wants - has), sorted({*left, *held.unread}))


def _add_fresh(model: Model, parts: set[str], labels: int, generator: torch.Generator, top: TopConfig) -> None:
    """Put initialised parts in place of those that have no weights yet."""
    config, width = model.config, model.encoder.width
    if "pooler" in parts:
        model.encoder.pooler = nn.Linear(width, width)
        initialise(model.encoder.pooler, config.initializer_range, generator)
    if "top" in parts:
        model.top = Top(top, config, width)
        initialise(model.top, config.initializer_range, generator)
    for name in heads_in(parts):
        model.heads[name] = build_head(name, config, labels, width if model.top is None else model.top.width)
        initialise(model.heads[name], config.initializer_range, generator)


def parts_in(model: Model) -> set[str]:
    """The names of a model's heads, and `pooler` and `top` if it has them; a top without weights is none."""
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

    tokenizer_source: a tokenizer, or a folder that has one; None writes none. facts: what the model card tells about
    the run. labels: names of the classes of a classifier or tagger. max_length: tokens an input may have, if fewer
    than the model has positions (a fine-tuned one should get no longer inputs than it has seen). task: what
    `hf.task_of` shall find again. Raises InputError if the tokenizer does not fit the embedding table or the disk is
    full (an existing folder then stays as it was), ValueError if labels and head disagree.
    """
    folder = Path(os.path.abspath(folder))
    tokenizer = tokenizer_source if isinstance(tokenizer_source, Tokenizer | None) else Tokenizer.load(tokenizer_source)
    if tokenizer is not None:
        check_size(tokenizer, model.config, "save_folder")
    top = None if model.top is None else model.top.config
    config = hf.config_to_hf(model.config, parts_in(model), _labels(model, labels), task, top)
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed run
        temporary.mkdir(parents=True)
        with atomic_write(temporary / WEIGHTS) as file:
            file.write(safetensors.torch.save(_their_tensors(model), metadata={"format": "pt"}))
        if tokenizer is not None:
            tokenizer.save(temporary, model_max_length=max_length or model.config.max_length)
        write_text(temporary / "README.md", model_card(config, model.config, _sizes(model), facts or {}))
        write_json(temporary / CONFIG, config)
        move_in(temporary, folder)
    except OSError as error:
        raise NotWritten(f"{folder}: could not write the model folder: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _their_tensors(model: Model) -> dict[str, Tensor]:
    """The weights under Hugging Face's names; without the prefix if there is no head, as BertModel writes them."""
    family = family_of(model.config.family, "classifier" in model.heads)
    prefix = "" if model.heads or model.config.direction == "pair" else f"{family.prefix}."
    tensors = {
        family.their_name(name).removeprefix(prefix): tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in model.state_dict().items()
    }
    if "mlm" in model.heads and not model.config.tie_word_embeddings:
        for copy, original in family.tied.items():  # else transformers would start the bias it reads anew
            if copy not in tensors:
                tensors[copy] = tensors[original].clone()
    return tensors


def _labels(model: Model, labels: list[str] | None) -> list[str] | None:
    head = next((model.heads[name] for name in model.heads if name in _LABELLED), None)
    if head is None:
        return None
    count: int = head.out_features  # type: ignore[assignment]
    labels = [f"LABEL_{i}" for i in range(count)] if labels is None else labels
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for a classifier with {count} outputs")
    return labels


def _sizes(model: Model) -> dict[str, int]:
    """Parameters of each part, and in all."""
    parts = {"encoder": model.encoder, **({"top": model.top} if model.top else {}), **dict(model.heads.items())}
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    return {**counts, "total": sum(counts.values())}


def is_padded(rows: int, tokens: int) -> bool:
    """Whether an embedding table of `rows` may be that of a vocabulary of fewer `tokens`, made larger for speed."""
    return rows % ROUND == 0 and tokens < rows <= tokens + SPARE


def check_size(tokenizer: Tokenizer, config: ModelConfig, where: str) -> str:
    """A note for the user if the embedding table has more rows than the tokenizer has tokens; "" if they are equal.

    Raises InputError if it has fewer, over a thousand more, or a number that tables are not padded to: then the
    tokenizer is another model's, or its file was cut.
    """
    rows, tokens = config.vocab_size, tokenizer.vocab_size
    if rows != tokens and not is_padded(rows, tokens):
        raise InputError(
            f"{where}: the tokenizer has {tokens} tokens, the model's embedding table {rows} rows; use the tokenizer "
            "the model was trained with"
        )
    spare = f"the embedding table has {rows - tokens} rows more than the tokenizer has tokens ({tokens:,}); "
    return f"{spare}no token has them, and no prediction names them" if rows > tokens else ""


def _our_part(name: str) -> str:
    """The part that one of our parameters belongs to: the name of a head, "pooler", "top" or "body"."""
    words = name.split(".")
    if words[0] in ("heads", "top"):
        return words[1] if words[0] == "heads" else "top"
    return "pooler" if words[1] == "pooler" else "body"
