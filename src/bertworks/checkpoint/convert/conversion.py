"""A model of any supported kind to a model folder (`bertworks convert`): mapped, written, read back and compared.

The folder is written beside its final path and moved there only after a check: every tensor of the source is in it,
unchanged, and its config.json gives the same settings.

Shapes: P positions, E width of the embedding matrices.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...files import InputError
from ...model.config import ModelConfig
from ...model.heads import Model
from ..folder import assemble, check_size, load_model, save_folder
from ..locate import new_folder
from ..metadata import metadata_of
from ..names import listed
from ..pooling import write_pooling
from ..weights import check_finite
from .options import ConvertOptions
from .sources import Source, read_source

LONGEST = 1 << 20  # positions; more is a typing error, and no memory holds it
_POSITION_TABLES = "encoder.embeddings.position.weight", "encoder.right.embeddings.position.weight"


class Row(NamedTuple):
    """One tensor of the mapping."""

    source_name: str
    name: str  # in our model
    shape: tuple[int, ...]  # as it is written


@dataclass(frozen=True)
class Conversion:
    """The report of a conversion."""

    source: str  # kind of the source
    mapping: list[Row]
    ignored: dict[str, str]  # name in the source: reason
    notes: list[str]  # warnings and changes


def convert(source: Path | str, out: Path | str, options: ConvertOptions | None = None) -> Conversion:
    """Write the model in `source` to the new folder `out`, read it back and compare.

    Raises InputError if the source is none that is known, is damaged or contradicts itself, or if `out` holds anything.
    """
    options, out = options or ConvertOptions(), Path(out)
    with new_folder(out) as staging:
        original = read_source(source, options)
        check_finite({original.names[name]: tensor for name, tensor in original.tensors.items()}, original.folder)
        config, tensors = with_positions(original, options.positions)
        model = assemble(config, original.settings, tensors, original.folder, finite=False)
        _write(staging, model, original, options)
        names = {name: original.family.hf_name(name) for name in model.state_dict()}
        copy = load_model(staging)
        state = copy.state_dict()
        differing = [name for name, tensor in state.items() if not _equal(original.tensors[names[name]], tensor)]
        if differing or copy.config != config:
            what = listed(differing) or "the settings"
            raise InputError(f"{out}: not written: read back, {what} differ; a bug of bertworks or a fault of the disk")
    tied = sorted(original.tensors.keys() - names.values())  # `assemble` has compared them
    copies = dict.fromkeys((original.names[name] for name in tied), "equal copy of a tensor it is tied to")
    mapping = [Row(original.names[names[name]], name, tuple(tensor.shape)) for name, tensor in state.items()]
    return Conversion(original.kind, mapping, original.ignored | copies, _notes(original, options))


def _equal(before: Tensor, after: Tensor) -> bool:
    """Whether two tensors are equal in float32; of a position table the rows that both have are compared."""
    rows = min(len(before), len(after))
    return torch.equal(before[:rows].to(torch.float32), after[:rows])


def with_positions(source: Source, length: int) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Config and tensors for inputs of up to `length` tokens; 0: unchanged.

    The position table is cut, or repeated from its first position.
    Repeated positions are an initialization for training on longer texts: at first a token looks like the one P before
    it. Raises InputError if the model has no learned position table.
    """
    config, offset = source.config, source.config.position_offset
    if not length:
        return config, source.tensors
    names = [source.family.hf_name(name) for name in _POSITION_TABLES]
    tables = {name: source.tensors[name] for name in names if name in source.tensors}
    if not tables or config.position_embedding_type != "learned":
        raise InputError("this model has no learned position table to cut or extend; leave --positions out")
    if not 3 <= length <= LONGEST:
        raise InputError(f"{length} positions; expected at least 3, at most {LONGEST:,}")
    rows = torch.cat([torch.arange(offset), offset + torch.arange(length) % config.max_length])
    changed = {name: table[rows] for name, table in tables.items()}  # (P, E) each
    return replace(config, max_position_embeddings=length + offset), source.tensors | changed


def _notes(original: Source, options: ConvertOptions) -> list[str]:
    """What changed, and what needs attention."""
    notes = []
    kinds = {str(t.dtype).removeprefix("torch.") for t in original.tensors.values()} - {"float32"}
    if kinds:
        how = "values are rounded" if "float64" in kinds else "every value stays what it was"
        notes.append(f"{' and '.join(sorted(kinds))} became float32; {how}")
    if original.tokenizer is None:
        notes.append("warning: no tokenizer.json, vocab.txt or vocab.json beside the weights: no tokenizer is written")
    elif spare := check_size(original.tokenizer, original.config, str(original.folder)):
        notes.append(f"warning: {spare}; if a line was removed from the vocabulary, all later ids are wrong")
    length, new = original.config.max_length, options.positions
    if new > length:
        notes.append(
            f"warning: positions {length} to {new - 1} are copies of the first ones; train the model on longer texts "
            f"before you rely on more than {length} tokens"
        )
    elif 0 < new < length:
        notes.append(f"positions cut from {length} to {new}")
    return notes


def _write(folder: Path, model: Model, original: Source, options: ConvertOptions) -> None:
    """Write every file of the new folder; that of a sentence-transformers folder keeps its pooling."""
    metadata = metadata_of(original.folder, original.settings, model)
    pooling = original.pooling
    if options.positions:
        metadata["max_length"] = options.positions
        pooling = pooling and replace(pooling, max_length=options.positions)
    facts = {"title": "Converted encoder", "made": f"converted by bertworks from a {original.kind}"}
    save_folder(folder, model, original.tokenizer, facts, **metadata)
    if pooling is not None:
        write_pooling(folder, pooling, model.encoder.width)
