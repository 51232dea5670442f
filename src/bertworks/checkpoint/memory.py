"""A model as an argument: a model folder, a run folder, or a model that is loaded already.

Training reads a folder. So weights in memory, which a caller may have changed, are written into the run folder first.
"""

import tempfile
from pathlib import Path
from typing import Any

from ..files import InputError, shorten
from ..model.encoder import Encoder
from ..model.heads import Model
from .folder import load_tokenizer, read_config, save_folder
from .locate import InFolder, find_model, refuse_export
from .metadata import metadata_of
from .weights import weights_checksum

START = "start"  # in a run folder: the weights from which it began, if a model in memory was given
EXPECTED = "expected a model folder, a run folder, or what load_model or Predictor returns"


ModelLike = Path | str | InFolder
"""A model folder or run folder; a Predictor, LoadedModel or Model; the results of a run."""


def network_of(model: Any) -> Model | None:
    """The model in memory that a Predictor, a LoadedModel or itself is; None for everything else."""
    loaded = getattr(model, "loaded", model)
    network = getattr(loaded, "model", loaded)
    return network if isinstance(network, Model) else None


def origin_of(model: Any) -> Path:
    """The folder that a model is in or was loaded from. Raises InputError if it is none, or came from no folder."""
    path = model if isinstance(model, str | Path) else getattr(getattr(model, "loaded", model), "folder", None)
    if path is None:
        what = "was not loaded from a folder, so its tokenizer is unknown" if network_of(model) is not None else ""
        raise InputError(f"model: a {type(model).__name__} {what or f'({shorten(model)})'}; {EXPECTED}")
    return find_model(path)


def start_folder(model: ModelLike, out: Path) -> Path:
    """The folder that a run in `out` begins with: the model's own; of weights in memory `out`/start, which is written.

    Raises InputError if the model is none, or if the run began with other weights.
    """
    folder, network = origin_of(model), network_of(model)
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
            raise InputError(f"{out}: this run began with other weights, which are in {start}; give another --out")
    return start
