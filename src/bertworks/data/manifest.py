"""A store's manifest.json: what is in it, and the check that it is what a build writes.

A manifest may be damaged, edited or hostile: everything that is read of it later is checked here.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from ..files import InputError, read_json, shorten

FORMAT = "bertworks-corpus"
VERSION = 1
MANIFEST = "manifest.json"
PARTS = ".parts"  # the builder's working folder inside a store that is not finished
SPLITS = ("train", "validation")
KINDS = ("documents", "sentences", "tokens")
REBUILD = (
    "build the store again (bertworks corpus build ... --out a new folder), or copy it again from where it is whole"
)
LARGEST = 1 << 48  # of a number in a manifest; there is no corpus of so many bytes

_SIZES = dict.fromkeys(KINDS, int)
# A type; [of items]; (of each item, in order); {"*": of all values} or {name: of its value}, more names are allowed.
_SHAPE = {
    "dtype": str,
    "tokenizer": {"fingerprint": str, "vocab_size": int},
    "settings": dict,
    "versions": {"*": str},
    "source": {"inputs": [(str, int)], "bytes": int, "characters": int, "words": int},
    "counts": {"documents": int, "dropped": {"*": int}, "sentences cut": int, "train": _SIZES, "validation": _SIZES},
    "shards": {split: [{"name": str, **_SIZES}] for split in SPLITS},
    "files": {"*": {"bytes": int, "checksum": str}},
}


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """The manifest of the store in `folder`. Raises InputError if this is no finished store of a version we read."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / PARTS).is_dir():
            raise InputError(f"{folder}: this store is not finished; type the `corpus build` line again, it continues")
        what = "a folder without manifest.json" if folder.is_dir() else "no such folder"
        raise InputError(f"{folder}: {what}; expected a store made by `bertworks corpus build ... --out {folder}`")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f'{path}: not a corpus store\'s manifest (its "format" is not {FORMAT!r})')
    if manifest.get("version") != VERSION:
        found = shorten(manifest.get("version"))
        raise InputError(f"{path}: store version {found}; this program reads version {VERSION}; {REBUILD}")
    missing = [key for key in _SHAPE if key not in manifest]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} missing; {REBUILD}")
    check_shape(manifest, _SHAPE, str(path), REBUILD)
    if found := _contradiction(manifest):
        raise InputError(f"{path}: {found}; {REBUILD}")
    return manifest


def check_shape(value: Any, shape: Any, where: str, advice: str) -> None:
    """Raises InputError if the JSON value of the file `where` is not of this shape (see `_SHAPE`)."""
    if found := _misshapen(value, shape, ""):
        raise InputError(f"{where}: {found}; {advice}")


def _misshapen(value: Any, shape: Any, place: str) -> str:
    """What is not of this shape in `value`, in words; "" if all is."""
    kind = type(shape) if isinstance(shape, dict | list | tuple) else shape
    if not isinstance(value, list if kind is tuple else kind) or isinstance(value, bool):
        names = {dict: "an object", list: "a list", tuple: "a list", str: "a string", int: "an integer"}
        return f"{place[2:] or 'the whole'} is {shorten(value, 40)}; expected {names[kind]}"
    inner: list[tuple[Any, Any, str]] = []
    if isinstance(value, dict) and isinstance(shape, dict) and "*" in shape:
        inner = [(item, shape["*"], f"{place}, {shorten(key, 40)}") for key, item in value.items()]
    elif isinstance(value, dict) and isinstance(shape, dict):
        inner = [(value.get(key), part, f"{place}, {key}") for key, part in shape.items()]
    elif isinstance(shape, list):
        inner = [(item, shape[0], f"{place}, {number}") for number, item in enumerate(value)]
    elif isinstance(shape, tuple):
        if len(value) != len(shape):
            return f"{place[2:]} has {len(value)} entries; expected {len(shape)}"
        inner = [(item, part, place) for item, part in zip(value, shape, strict=True)]
    elif isinstance(value, int) and not 0 <= value < LARGEST:
        return f"{place[2:]} is {shorten(value, 40)}; expected 0 or more"
    return next((found for part in inner if (found := _misshapen(*part))), "")


def _contradiction(manifest: dict[str, Any]) -> str:
    """What cannot be in a manifest of the right shape, in words; "" if nothing."""
    if manifest["dtype"] not in ("uint16", "uint32"):
        return f"dtype is {shorten(manifest['dtype'])}; expected uint16 or uint32"
    for name in manifest["files"]:
        if PurePosixPath(name).is_absolute() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
            return f"{shorten(name)} is no name of a file inside the store"
    if not manifest["shards"]["train"]:
        return "no shard to train on"
    for split in SPLITS:
        shards = manifest["shards"][split]
        for shard in shards:
            if not re.fullmatch(rf"{split}-\d{{5,9}}", shard["name"]):
                return f"{shorten(shard['name'])} is no name of a {split} shard"
            if not 0 < shard["documents"] <= shard["sentences"] <= shard["tokens"]:
                return f"{shard['name']} has a document or a sentence without a token"
        if any(sum(shard[kind] for shard in shards) != manifest["counts"][split][kind] for kind in KINDS):
            return f"the counts of {split} are not the sums of its shards"
    return ""
