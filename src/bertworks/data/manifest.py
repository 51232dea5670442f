"""A store's manifest.json: what it holds, and the check that a build could have written it.

A manifest may be damaged, edited or hostile. So all of it that is used later is checked here.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from ..files import InputError, check_version, not_found, read_json, shorten
from ..typed import check_fields

FORMAT = "bertworks-corpus"
VERSION = 1  # of the format; a bertworks reads every format from 1 to its own, and refuses newer ones by name
MANIFEST = "manifest.json"
PARTS = ".parts"  # the builder's working folder inside a store that is not finished
SPLITS = ("train", "validation")
KINDS = ("documents", "sentences", "tokens")
REBUILD = (
    "build the store again (bertworks corpus build ... --out a new folder), or copy it again from where it is whole"
)
COUNT = range(1 << 48)  # more bytes than any corpus has

_SIZES = dict.fromkeys(KINDS, COUNT)
_FIELDS = {
    "dtype": str,
    "tokenizer": {"fingerprint": str, "vocab_size": COUNT},
    "settings": dict,
    "versions": {str: str},
    "source": {"inputs": [[str, COUNT]], "bytes": COUNT, "characters": COUNT, "words": COUNT},
    "counts": {
        "documents": COUNT,
        "dropped": {str: COUNT},
        "sentences cut": COUNT,
        "train": _SIZES,
        "validation": _SIZES,
    },
    "shards": {split: [{"name": str, **_SIZES}] for split in SPLITS},
    "files": {str: {"bytes": COUNT, "checksum": str}},
}


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """The manifest of the store in `folder`. Raises InputError if this is no finished store of a version we read."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / PARTS).is_dir():
            advice = "rerun the `corpus build` command: it continues, or says what it needs"
            raise InputError(f"{folder}: this store is not finished; {advice}")
        what = "a folder without manifest.json" if folder.is_dir() else not_found(folder, "folder")
        raise InputError(f"{folder}: {what}; expected a store made by `bertworks corpus build ... --out {folder}`")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f'{path}: not a corpus store\'s manifest (its "format" is not {FORMAT!r})')
    check_version(manifest.get("version"), range(1, VERSION + 1), str(path), REBUILD)
    check_fields(manifest, _FIELDS, str(path), REBUILD)
    if contradiction := _contradiction(manifest):
        raise InputError(f"{path}: {contradiction}; {REBUILD}")
    return manifest


def _contradiction(manifest: dict[str, Any]) -> str:
    """What contradicts itself in a manifest whose fields have the right form, in words; "" if nothing."""
    if manifest["dtype"] not in ("uint16", "uint32"):
        return f"dtype is {shorten(manifest['dtype'])}; expected uint16 or uint32"
    for name in manifest["files"]:
        if PurePosixPath(name).is_absolute() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
            return f"{shorten(name)} is not the name of a file inside the store"
    if not manifest["shards"]["train"]:
        return "no shard to train on"
    for split in SPLITS:
        for shard in manifest["shards"][split]:
            if not re.fullmatch(rf"{split}-\d{{5,9}}", shard["name"]):
                return f"{shorten(shard['name'])} is not the name of a {split} shard"
    return ""


def flag_of(key: str) -> str:
    """The flag of `corpus build` that sets a setting of a manifest: input.text_field -> --input.text-field."""
    return "--encoding" if key == "input.encoding" else f"--{key.replace('_', '-')}"
