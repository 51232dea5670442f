"""Check the file or folder that a user names for output, before anything is computed.

A subcommand would otherwise replace what it reads, or compute for an hour and then find no folder to write to. Those
that write a file call `check_output` first, those that write a folder `check_output_folder`, or `new_folder` of
checkpoint/folder.py.
"""

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..files import InputError

OWN_FILES = (  # files of run folders, model folders and exports that are read again
    *("recipe.toml", "demo.toml", "results.json", "log.jsonl", "predictions.jsonl", "examples.jsonl"),
    *("trained_on.npy", "*predictions.json", "types.json", "cell.json", "*.lock", "*.md"),
    *("config.json", "*_config.json", "config_*.json", "certificate.json", "modules.json", "made.json", "*.index.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
    *("*model*.safetensors", "state.*", "best.*", "reference.safetensors", "start.safetensors"),
    *("*.bin", "*.onnx", "*.onnx.data", "*.pt", "*.pt2"),
)
RUN_MODEL = "model"  # the model folder in a run folder


def check_output(
    out: Path | str | None, data: Iterable[Any] = (), folders: Iterable[Any] = (), makes_folder: bool = False
) -> None:
    """Raises InputError if the file `out` cannot be written, or is one that is read: its content would be lost.

    data: files (`a.csv#dev` too), folders and globs of text that are read; other values are in memory, and left out.
    folders: run folders and model folders, whose own files are protected. makes_folder: whether the writer makes the
    folder of `out`. None: standard output, which needs no check.
    """
    if out is None:
        return
    out = Path(out)
    _check_place(out, makes_folder)
    if not out.is_file():  # new, or a pipe or a device
        return
    if any(_is_same(out, one) for path in _paths(data) for one in _files(path)):
        raise InputError(f"{out} is a file that is read; name another file to write")
    own = any(fnmatch.fnmatch(out.name, name) for name in OWN_FILES)
    parts = [*((path, path) for path in _paths(data))]
    parts += [(folder, one) for folder in _paths(folders) if own for one in _around(folder)]
    for folder, part in parts:
        if any(_is_same(parent, part) for parent in out.resolve().parents):
            raise InputError(f"{out} is a file of {folder}, which is read; name another file to write")


def check_output_folder(out: Path | str, folders: Iterable[Any] = ()) -> None:
    """Raises InputError if the folder `out` is a file, cannot be made, or is one of the folders that are read."""
    _check_folder(Path(out), next(one for one in (Path(out), *Path(out).absolute().parents) if os.path.lexists(one)))
    for folder in _paths(folders):
        if any(_is_same(Path(out), one) for one in _around(folder)):
            raise InputError(f"{out} is a folder that is read; name another folder to write")


def _check_place(out: Path, makes_folder: bool) -> None:
    if os.path.isdir(out):
        raise InputError(f"{out}: a folder; expected a file to write; name a file in it, such as {out / 'out.jsonl'}")
    parents = [out.parent, *out.parent.parents]
    folder = next((one for one in parents if os.path.lexists(one)), out.parent) if makes_folder else out.parent
    if not os.path.lexists(folder):
        raise InputError(f"{out}: there is no folder {folder}; make it first")
    replaced = not out.is_symlink() and (out.is_file() or not os.path.lexists(out))  # else written in place
    _check_folder(out, folder, replaced)


def _check_folder(out: Path, folder: Path, written: bool = True) -> None:
    """Raises InputError if `folder`, in which `out` is to be, is none, or takes no files if they are `written`."""
    if not os.path.isdir(folder):
        raise InputError(f"{out}: {folder} is no folder; expected one to write to; name a place in a folder")
    if written and not os.access(folder, os.W_OK):
        raise InputError(f"{out}: no permission to write in {folder}; name another folder")


def _paths(values: Iterable[Any]) -> Iterator[Path]:
    """The values that are paths. An empty text is no path, and `-` is standard input."""
    return (Path(value) for value in values if isinstance(value, str | Path) and str(value) not in ("", "-"))


def _files(path: Path) -> Iterator[Path]:
    """The files that the name of an input means: itself, the file of which it is a part, those that match a glob."""
    yield path
    if os.path.lexists(path):
        return
    name, mark, _ = path.name.rpartition("#")
    if mark and name:
        yield path.with_name(name)
    elif glob.has_magic(str(path)):
        yield from map(Path, glob.iglob(str(path), recursive=True))


def _around(folder: Path) -> Iterator[Path]:
    """A run folder or model folder, the model folder in it, and the run folder around it."""
    yield from (folder, folder / RUN_MODEL)
    if folder.name == RUN_MODEL:
        yield folder.parent


def _is_same(one: Path, other: Path) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)
