"""A model of any known kind to a model folder (`bertworks convert`): mapped, written, read back and compared.

The folder is written beside its final path and moved there only after a check: every tensor of the source is in it,
unchanged, and its config.json gives the same settings.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ...files import InputError, read_json
from ...model.heads import Model
from ..folder import CONFIG, assemble, check_size, load_model, save_folder
from ..locate import new_folder
from ..metadata import metadata_of
from ..names import listed
from ..pooling import Pooling, write_pooling
from ..weights import check_finite
from .options import ConvertOptions
from .resize import with_positions, without_heads
from .sources import Source, read_source


class Row(NamedTuple):
    """One tensor of the mapping."""

    theirs: str  # the source's name
    ours: str
    shape: tuple[int, ...]  # as it is written


@dataclass(frozen=True)
class Converted:
    """The report of a conversion."""

    what: str  # the source
    mapping: list[Row]
    ignored: dict[str, str]  # name in the source: why
    notes: list[str]  # warnings and changes


def convert(source: Path | str, out: Path | str, options: ConvertOptions | None = None) -> Converted:
    """Write the model in `source` to the new folder `out`, read it back and compare.

    Raises InputError if the source is none that is known, is damaged or contradicts itself, or if `out` holds anything.
    """
    options, out = options or ConvertOptions(), Path(out)
    if options.to != "sentence-transformers" and (options.pooling is not None or options.normalize is not None):
        raise InputError("--pooling and --normalize are for --to sentence-transformers; add it, or leave them out")
    with new_folder(out) as staging:
        return _converted(source, staging, out, options)


def _converted(source: Path | str, staging: Path, out: Path, options: ConvertOptions) -> Converted:
    """Write the model to `staging`, which will be moved to `out`. Raises InputError if it reads back differently."""
    found = read_source(source, options.do_lower_case, options.hidden_act, options.allow_pickle)
    check_finite({found.names[name]: tensor for name, tensor in found.tensors.items()}, found.folder)
    model = assemble(found.config, found.settings, found.tensors, found.folder, finite=False)
    changed, notes = _changed(model, found, options)
    _write(staging, changed, found, options)
    back = load_model(staging)
    canonical, state = {ours: found.family.their_name(ours) for ours in model.state_dict()}, back.state_dict()
    differing = [ours for ours, tensor in state.items() if not _same(found.tensors[canonical[ours]], tensor)]
    if differing or back.config != changed.config:
        what = listed(differing) or "the settings"
        raise InputError(f"{out}: not written: read back, {what} differ; a bug of bertworks, or a fault of the disk")
    twice = sorted(found.tensors.keys() - canonical.values())  # `assemble` has seen that they are equal
    dropped = sorted(canonical.keys() - state.keys())
    copies = dict.fromkeys((found.names[name] for name in twice), "equal copy of a tensor it is tied to")
    heads = dict.fromkeys((found.names[canonical[ours]] for ours in dropped), "part of a head that was left out")
    rows = [Row(found.names[canonical[ours]], ours, tuple(tensor.shape)) for ours, tensor in state.items()]
    return Converted(found.what, rows, found.ignored | copies | heads, notes)


def _same(original: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are equal in float32; of a position table the rows that both have are compared."""
    rows = min(len(original), len(tensor))
    return torch.equal(original[:rows].to(torch.float32), tensor[:rows])


def _changed(model: Model, found: Source, options: ConvertOptions) -> tuple[Model, list[str]]:
    """The model to write, and the notes about it."""
    notes = []
    kinds = {str(t.dtype).removeprefix("torch.") for t in found.tensors.values()} - {"float32"}
    if kinds:
        how = "values are rounded" if "float64" in kinds else "every value stays what it was"
        notes.append(f"{' and '.join(sorted(kinds))} became float32; {how}")
    if found.tokenizer is None:
        notes.append("warning: there is no tokenizer beside the weights, so none is written")
    elif spare := check_size(found.tokenizer, model.config, str(found.folder)):
        notes.append(f"warning: {spare}; if a line was removed from the vocabulary, all later ids are wrong")
    had = model.config.max_length
    if options.positions not in (0, had):
        model = with_positions(model, options.positions)
        if options.positions > had:
            notes.append(
                f"warning: positions {had} to {options.positions - 1} are copies of the first ones; train the model on "
                f"longer texts before you rely on more than {had} tokens"
            )
        else:
            notes.append(f"positions cut from {had} to {options.positions}")
    if model.heads and (options.drop_heads or options.to == "sentence-transformers"):
        notes.append(f"heads left out: {', '.join(model.heads)}")
        model = without_heads(model)
    if found.pooling and options.to != "sentence-transformers":
        notes.append("the source's pooling is left out; --to sentence-transformers keeps it")
    return model, notes


def _write(folder: Path, model: Model, found: Source, options: ConvertOptions) -> None:
    """Write every file of the new folder."""
    metadata = metadata_of(found.folder, found.settings, model)
    if options.positions:
        metadata["max_length"] = options.positions
    facts = {"title": "Converted encoder", "made": f"converted by bertworks from a {found.what}"}
    save_folder(folder, model, found.tokenizer, facts, **metadata)
    if options.to == "folder":
        return
    if read_json(folder / CONFIG)["model_type"] == "bertworks" or found.tokenizer is None:
        why = "has no tokenizer" if found.tokenizer is None else "is of a kind that transformers does not compute"
        raise InputError(f"{found.folder}: this model {why}, so sentence-transformers cannot load it")
    pooling = found.pooling or Pooling()
    length = metadata["max_length"] if options.positions or not pooling.max_length else pooling.max_length
    chosen = replace(
        pooling,
        mode=options.pooling or pooling.mode,
        normalize=pooling.normalize if options.normalize is None else options.normalize,
        max_length=length,
    )
    write_pooling(folder, chosen, model.encoder.width)
