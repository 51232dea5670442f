"""The files that a killed command leaves: digests to compare, and those that are not whole."""

import contextlib
import hashlib
import json
import re
import tomllib
from pathlib import Path

import safetensors.numpy

from hostile_base import settled, without_clock

UNCOMPARED = re.compile(r"(\.png|\.svg|README\.md)$")
LOCKS = re.compile(r"(^|/)\.?[^/]*\.lock$")  # stay behind: removing a lock file is a race
EVENTS = re.compile(r"events\.out\.tfevents\.[^/]*")  # TensorBoard's: the name has a clock, a machine and a process


def contents(folder: Path) -> dict[str, str]:
    """A digest of every file, by its path; clocks and the machine are taken out of JSON, what is drawn is not read."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not LOCKS.search(name):
            found[name] = "" if UNCOMPARED.search(name) else hashlib.blake2b(_bytes(path), digest_size=16).hexdigest()
    return found


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    with contextlib.suppress(ValueError):  # of a file that is not whole
        if path.suffix in (".json", ".jsonl"):
            return without_clock(data.decode(), path.suffix == ".jsonl").encode()
    if path.name == "state.safetensors":  # its progress counts seconds
        size = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:size])
        metadata = header["__metadata__"]
        metadata["progress"] = settled(json.loads(metadata["progress"]))
        metadata.pop("checksum", None)  # of the seconds too
        return json.dumps(header, sort_keys=True).encode() + data[size:]
    return data


def half_written(folder: Path, reference: dict[str, str] | None) -> list[str]:
    """The files of a killed command that are not whole though they have their final names.

    reference: what a command leaves that writes its output once; None: of a command that writes some files again.
    """
    wrong = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part.startswith(".") for part in name.split("/")) and not _whole(path):
            wrong.append(name)
    if reference is not None and not wrong:
        final = {name: digest for name, digest in contents(folder).items() if not re.search(r"(^|/)\.", name)}
        wrong = sorted(name for name, digest in final.items() if reference.get(name, digest) != digest)
    return wrong


def _whole(path: Path) -> bool:
    """Whether a file can be read to its end, as far as its kind says where that is."""
    try:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".toml":
            tomllib.loads(path.read_text())
        elif path.suffix == ".safetensors":
            safetensors.numpy.load_file(path)
    except (ValueError, OSError, safetensors.SafetensorError):
        return not path.exists()
    return True


def differences(reference: dict[str, str], found: dict[str, str]) -> dict[str, list[str]]:
    """Names of files that differ or are missing, and of those that should not be there."""
    mismatches = sorted(name for name in reference if found.get(name) != reference[name])
    return {"mismatches": mismatches, "leftovers": sorted(found.keys() - reference.keys())}
