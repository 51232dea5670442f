"""A folder as files of limited size, and back: for machines that receive and return no larger ones.

PARTS/part-00, part-01, ... are together one tar archive, compressed by Zstandard; PARTS/parts.json has the size and the
checksum of each. It is written last.
"""

import shutil
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import zstandard

from bertworks.files import InputError, atomic_write, checksum, read_json_object, write_json

INDEX = "parts.json"


def pack(folder: Path, parts: Path, mib: float, level: int) -> list[Path]:
    """Write the folder as parts of at most `mib` MiB in place of those of an earlier call, and return their paths.

    level: of Zstandard, 1 to 19.
    """
    parts.mkdir(parents=True, exist_ok=True)
    index, zstd = dict[str, Any](), zstandard.ZstdCompressor(level, threads=-1)
    with tempfile.TemporaryFile() as file:
        with zstd.stream_writer(file, closefd=False) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
            archive.add(folder, ".")
        file.seek(0)
        for number, block in enumerate(iter(partial(file.read, int(mib * 2**20)), b"")):
            path = parts / f"part-{number:02}"
            with atomic_write(path) as part:
                part.write(block)
            index[path.name] = {"bytes": len(block), "checksum": checksum(path)}
    for path in {*parts.glob("part-*")} - {parts / name for name in index}:
        path.unlink()
    write_json(parts / INDEX, index)
    return [parts / name for name in index]


def receive(parts: Path, folder: Path) -> bool:
    """Write the folder of which these are the parts; False if it exists, and so is whole.

    Raises InputError that names the first part that is missing or was changed; then nothing is written.
    """
    if folder.exists():
        return False
    index = read_json_object(parts / INDEX)
    with tempfile.TemporaryDirectory(dir=folder.absolute().parent) as work, tempfile.TemporaryFile() as file:
        for name, expected in index.items():
            path = parts / name
            found = {"bytes": path.stat().st_size, "checksum": checksum(path)} if path.is_file() else "no such file"
            if found != expected:
                raise InputError(f"{path}: {found}; expected {expected}, as in {INDEX}; send it again")
            with path.open("rb") as part:
                shutil.copyfileobj(part, file)
        file.seek(0)
        with zstandard.ZstdDecompressor().stream_reader(file) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(Path(work, "folder"), filter="data")
        Path(work, "folder").rename(folder)
    return True
