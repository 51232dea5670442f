"""What training starts from: a model folder with the heads that a task needs, or two language models joined to one.

Training reads a folder. So weights in memory, which a caller may have changed, are written into the run folder first.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..files import InputError
from ..model.bert import Encoder, encoders_in
from ..model.build import build_head, build_model
from ..model.comparators import FeatureHead
from ..model.config import NO_TOP, HeadName, TopConfig
from ..model.heads import Model
from ..model.initialization import initialize
from ..reporting.outputs import check_output_folder
from .folder import FolderContents, load_encoder, load_tokenizer, parts_in, read_config, save_folder
from .locate import CONFIG, EXPECTED, ModelLike, find_model, refuse_export
from .metadata import LABELLED, metadata_of, top_of
from .names import heads_in, our_part
from .weights import read_weights, shapes_only, weights_checksum

START = "start"  # in a run folder: the weights from which it began, if a model in memory was given


class TrainableModel(NamedTuple):
    """A model to train on, and what to report about it."""

    model: Model
    fresh: list[str]  # parts the folder did not have, initialised by seed: heads, pooler
    unused: list[str]  # parts or tensors of the folder that this model does not have


def initial_model(
    path: Path | str,
    heads: tuple[HeadName, ...],
    labels: int | Sequence[str],
    seed: int,
    dropout: float | None = None,
    top: TopConfig = NO_TOP,
) -> TrainableModel:
    """A model with these heads to train on: weights from a model or run folder where it has them, else by `seed`.

    labels: the classes of a classifier or tagger, or their number. The folder's own head is used only if it has the
    same classes; its outputs are put in the order of `labels`. dropout: replaces both rates. top: what is between
    encoder and heads; if the folder has another one, its top and its heads are not used. The encoder itself must be
    complete. Raises InputError like `load_model`.
    """
    path = find_model(path)
    config, settings = read_config(path)
    if dropout is not None:
        config = dataclasses.replace(
            config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, classifier_dropout=None
        )
    contents = FolderContents.of(config, settings, read_weights(path), path)
    family, tensors = contents.family, contents.tensors
    has = _usable_parts(contents, labels, top)
    count = labels if isinstance(labels, int) else len(labels)
    with shapes_only():
        model = build_model(config, heads, count, top=top)
    wants = parts_in(model)
    part_of = {name: family.part_of(name, contents.parts) for name in tensors}
    used = {name: tensor for name, tensor in tensors.items() if part_of[name] in {"body", *(wants & has)}}
    expected = {name: t for name, t in model.state_dict().items() if our_part(name) not in wants - has}
    state = family.match(used, expected, str(path))
    if not isinstance(labels, int):
        folder_labels = contents.labels() or []
        for name in (name for name in state if our_part(name) in LABELLED):
            state[name] = state[name][[folder_labels.index(label) for label in labels]]
    model.load_state_dict(contents.in_memory(state), strict=False, assign=True)
    _add_fresh(model, wants - has, count, torch.Generator().manual_seed(seed), top)
    left = {part_of[name] if part_of[name] in family.parts else name for name in tensors.keys() - used.keys()}
    return TrainableModel(model, sorted(wants - has), sorted({*left, *contents.unread}))


def _usable_parts(contents: FolderContents, labels: int | Sequence[str], top: TopConfig) -> set[str]:
    """The parts of a folder that a model with these labels and this top can use."""
    parts = contents.parts
    if parts & LABELLED:
        count = labels if isinstance(labels, int) else len(labels)
        same = isinstance(labels, int) or {*(contents.labels() or [])} == {*labels}
        if not same or contents.label_count() != count:
            parts = parts - LABELLED
    if top_of(contents.settings, str(contents.path / CONFIG)) != top:
        parts = parts & {"mlm", "nsp", "sop", "pooler"}
    return parts


def _add_fresh(model: Model, parts: set[str], labels: int, generator: torch.Generator, top: TopConfig) -> None:
    """Replace the parts that have no weights by initialised ones."""
    config, width = model.config, model.encoder.width
    if "pooler" in parts:
        model.encoder.pooler.to_empty(device="cpu")
        initialize(model.encoder.pooler, config.initializer_range, generator)
    if "top" in parts:
        model.top = FeatureHead(top, config, width)
        initialize(model.top, config.initializer_range, generator)
    for name in heads_in(parts):
        model.heads[name] = build_head(name, config, labels, width if model.top is None else model.top.width)
        initialize(model.heads[name], config.initializer_range, generator)


def concatenate(left: Path | str, right: Path | str, out: Path | str) -> None:
    """Write the folder `out` with the encoders of a left-to-right and a right-to-left model; their heads are left out.

    Raises InputError if directions, shapes or vocabularies do not fit together, or if either folder is unfit.
    """
    folders = [find_model(left), find_model(right)]
    check_output_folder(out, [left, right])
    encoders = [load_encoder(folder) for folder in folders]
    for folder, encoder, direction in zip(folders, encoders, ("left", "right"), strict=True):
        if encoder.config.direction != direction:
            raise InputError(
                f"{folder}: direction = {encoder.config.direction!r}; expected {direction!r}, an encoder pre-trained "
                f"with objective = {'ltr' if direction == 'left' else 'rtl'!r}"
            )
    try:
        shapes = [dataclasses.replace(encoder.config, direction="pair") for encoder in encoders]
    except ValueError as error:
        raise InputError(f"{folders[0]} and {folders[1]}: {error}; train them again") from None
    tokenizers = [load_tokenizer(folder) for folder in folders]
    if shapes[0] != shapes[1] or tokenizers[0].fingerprint != tokenizers[1].fingerprint:
        raise InputError(
            f"{folders[0]} and {folders[1]} have different shapes or tokenizers; train both by one recipe on one store"
        )
    model = build_model(shapes[0], (), pooler=False)
    for target, source in zip(encoders_in(model), encoders, strict=True):
        state = {name: tensor for name, tensor in source.state_dict().items() if not name.startswith("pooler.")}
        target.load_state_dict(state)
    save_folder(out, model, tokenizers[0])


# ---- a model in memory


def network_of(model: Any) -> Model | None:
    """The model in memory that a Predictor, a LoadedModel or itself is; None for everything else."""
    loaded = getattr(model, "loaded", model)
    network = getattr(loaded, "model", loaded)
    return network if isinstance(network, Model) else None


def start_folder(model: ModelLike, out: Path) -> Path:
    """The folder that a run in `out` begins with: the model's own; of weights in memory `out`/start, which is written.

    Raises InputError if the model is none, or if the run began with other weights.
    """
    folder, network = find_model(model), network_of(model)
    if isinstance(model, Encoder):
        raise InputError(f"model: an Encoder; {EXPECTED}")
    if network is None:
        return folder
    refuse_export(folder)
    metadata = metadata_of(folder, read_config(folder)[1], network)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as temporary:
        written = Path(temporary) / START
        save_folder(written, network, load_tokenizer(folder), **metadata)
        start = out / START
        if not start.exists():
            written.rename(start)
        elif weights_checksum(start) != weights_checksum(written):
            raise InputError(
                f"{out}: this run began with other weights, which are in {start}; give another output folder"
            )
    return start
