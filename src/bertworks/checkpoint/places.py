"""Where model folders are (`find_model`), and how a new one comes to its place: written beside it, moved when whole."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..files import InputError, flush_folder
from .weights import WEIGHTS

CONFIG = "config.json"


def find_model(path: Path | str) -> Path:
    """The model folder that `path` means: itself, or `model/` in it if it is a run folder.

    Raises InputError if it is the folder of several runs.
    """
    path = Path(path)
    if (path / CONFIG).exists() or not path.is_dir():
        return path
    runs = [str(model.parent) for model in sorted(path.glob("*/model")) if (model / CONFIG).exists()]
    if not (path / "model").exists() and runs:
        raise InputError(f"{path} holds several runs; give one of {', '.join(runs)}")
    return path / "model" if (path / "model").exists() else path


def run_name(folder: Path) -> str:
    """The name of a model folder, of the run where it is a run's `model/`."""
    return folder.parent.name if folder.name == "model" else folder.name


@contextlib.contextmanager
def new_folder(out: Path | str) -> Iterator[Path]:
    """A folder to write, which becomes `out` when all went well; what a killed process left of it is removed first.

    Raises InputError if `out` holds anything.
    """
    out = Path(os.path.abspath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already, and not empty; give a new folder, or remove what is there")
    staging = out.with_name(f".{out.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        yield staging
        move_in(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def move_in(temporary: Path, folder: Path) -> None:
    """Put a finished folder in place: in one step if there is none, else file by file.

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
    for directory in (folder, folder.parent):  # the renames themselves
        flush_folder(directory)


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.name != WEIGHTS and one.read_bytes() == other.read_bytes()
