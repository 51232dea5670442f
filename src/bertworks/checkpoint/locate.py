"""Find a model folder; put a new one in place: it is written beside its final path and moved there when complete."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ..files import InputError, flush_folder, shorten
from ..pretrained import folder_of, name_of
from .names import listed
from .weights import CERTIFICATE as CERTIFICATE
from .weights import WEIGHTS
from .weights import is_export as is_export
from .weights import refuse_export as refuse_export

CONFIG = "config.json"
EXPECTED = "expected a model folder, a run folder, a model name, or what load_model or Predictor returns"


class InFolder(Protocol):
    """What was loaded from a folder or written to one: a Predictor, a model, the results of a run."""

    @property
    def folder(self) -> Any: ...


ModelLike = Path | str | InFolder
"""A model folder, run folder or model name; a Predictor, LoadedModel or Model; the results of a run."""


def find_model(model: ModelLike) -> Path:
    """The model folder that `model` means: itself, `model/` in a run folder, or the folder that it was loaded from.

    A name (`mini`, `org/name@revision`) is looked up, and downloaded if necessary (`pretrained.folder_of`).
    Raises InputError if it is no model, was loaded from no folder, or is the folder of several runs.
    """
    if not isinstance(model, str | Path):
        folder = getattr(model, "folder", None)
        if not isinstance(folder, str | Path):
            what = "was not loaded from a folder, so its tokenizer is unknown"
            what = what if hasattr(model, "folder") else f"({shorten(model)})"
            raise InputError(f"model: a {type(model).__name__} {what}; {EXPECTED}")
        model = folder
    path = folder_of(model)
    if (path / CONFIG).exists() or not path.is_dir():
        return path
    if (path / "model").exists():
        return path / "model"
    inside = [*path.glob("*/model"), *path.glob("*/*/model")]
    if runs := sorted(str(model.parent) for model in inside if (model / CONFIG).exists()):
        raise InputError(f"{path} holds several runs; give one of {listed(runs)}")
    return path


def run_folder(model: Path) -> Path:
    """The run folder, if a model folder is its `model/`; else the folder itself."""
    return model.parent if model.name == "model" else model


def run_name(model: Path) -> str:
    """The name of a model folder: of the run where it is a run's `model/`, `org/name` of a download."""
    name = name_of(model)
    return run_folder(model).name if name is None else name.partition("@")[0]


def _nothing(folder: Path) -> bool:
    return False


@contextlib.contextmanager
def new_folder(out: Path | str, replaces: Callable[[Path], bool] = _nothing) -> Iterator[Path]:
    """A folder to write, which becomes `out` (of a link: its target) when the block ends without an error.

    It is written in a hidden folder beside `out`, which a killed process leaves. replaces: whether an earlier folder
    may be replaced. Raises InputError if `out` holds anything else, before or after it was written.
    """
    out = Path(os.path.realpath(out))
    _refuse_existing(out, replaces)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".new", dir=out.parent) as work:
        staging, earlier = Path(work) / out.name, Path(work) / f"{out.name}.earlier"
        yield staging
        if replaces(out):
            out.rename(earlier)
        try:
            staging.rename(out)  # in one step, and refused if another process has filled `out` meanwhile
        except OSError:
            _refuse_existing(out, _nothing)
            if earlier.exists():
                earlier.rename(out)
            raise
        _flush(out)


def _refuse_existing(out: Path, replaces: Callable[[Path], bool]) -> None:
    if out.exists() and not replaces(out) and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty; give a new folder, or empty this one")


def move_in(temporary: Path, folder: Path) -> None:
    """Put a finished folder in place: in one step if it is new, else file by file.

    Where more than weights and card change, a kill between two files would leave a folder that mixes two models; so
    config.json goes first and comes back last.
    """
    if not folder.exists() or not any(folder.iterdir()):
        temporary.rename(folder)
    else:
        names = sorted((file.name for file in temporary.iterdir()), key=lambda name: name == CONFIG)
        changed = [name for name in names if not _same(temporary / name, folder / name)]
        if set(changed) - {WEIGHTS, "README.md"}:
            (folder / CONFIG).unlink(missing_ok=True)
        for name in names:
            os.replace(temporary / name, folder / name)
    _flush(folder)


def _flush(folder: Path) -> None:
    """The renames themselves: those in the folder, and its own."""
    for directory in (folder, folder.parent):
        flush_folder(directory)


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.name != WEIGHTS and one.read_bytes() == other.read_bytes()
