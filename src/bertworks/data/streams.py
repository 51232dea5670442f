"""Files, folders, globs, compressed files, tar archives -> named byte streams, in a fixed order and constant memory.

Compression and tar are recognised by content, not by name, and may be nested (a tar of .bz2 files in a .zst). Nothing
is unpacked on disk. Names inside archives read `enwiki.tar.zst:text/AA/wiki_00`, so that errors can point at the file.
"""

import bz2
import glob
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from ..files import InputError

BUFFER = 1 << 20
# `zstd --long=27` and larger need a window beyond the decoder's default limit; 31 is the format's practical maximum.
MAX_WINDOW = 1 << 31
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".tbz2", ".txz", ".tzst")


class _Zstd(io.RawIOBase):
    """Decompressed bytes of a .zst stream. The library's own reader takes a cut file for a whole one; this raises."""

    def __init__(self, source: BinaryIO) -> None:
        self.source = source
        self.decoder: Any = None
        self.rest = b""  # compressed, unread
        self.ready = memoryview(b"")  # decompressed, not handed out yet

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self.ready:
            chunk = self.rest or self.source.read(1 << 16)
            if not chunk:
                if self.decoder is not None:
                    raise EOFError("the zstd stream ends in the middle")
                return 0
            if self.decoder is None:
                self.decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
            self.ready = memoryview(self.decoder.decompress(chunk))
            self.rest = self.decoder.unused_data if self.decoder.eof else b""
            if self.decoder.eof:  # another frame may follow
                self.decoder = None
        count = min(len(target), len(self.ready))
        target[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count


def find_files(inputs: Sequence[str | Path]) -> list[Path]:
    """The files that `inputs` (files, directories, globs) name: in the order given, sorted inside each, each file once.

    Hidden files and folders are left out of directories. Raises InputError for an input that names nothing.
    """
    if not inputs:
        raise InputError("no input given; name files, folders or globs of text")
    found: dict[Path, Path] = {}
    for item in inputs:
        for path in _expand(item):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _expand(item: str | Path) -> list[Path]:
    path = Path(item)
    if path.is_dir():
        files = [p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path))]
        if not files:
            raise InputError(f"{path}: no files in this folder; expected text files or archives")
        return sorted(files)
    if path.exists():
        return [path]
    if glob.has_magic(str(item)):
        files = [p for p in map(Path, glob.glob(str(item), recursive=True)) if p.is_file()]
        if files:
            return sorted(files)
        raise InputError(f"{item}: no file matches this pattern")
    raise InputError(f"{path}: no such file or folder")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def open_streams(name: str, file: Any) -> Iterator[tuple[str, io.BufferedReader]]:
    """The plain streams inside `file`, with names: itself, decompressed, or each regular file of a tar archive."""
    stream: io.BufferedReader = io.BufferedReader(file, BUFFER)
    while (inner := _decompress(stream)) is not None:
        stream = io.BufferedReader(inner, BUFFER)
    if stream.peek(262)[257:262] != b"ustar":
        yield name, stream
        return
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and not _hidden(Path(member.name)):
                yield from open_streams(f"{name}:{member.name}", content)
            # The list of members seen would grow with the archive. tarfile still works with only the last one in it.
            archive.members = []  # type: ignore[attr-defined]


def _decompress(stream: io.BufferedReader) -> Any:
    """A raw stream of the decompressed bytes, or None if `stream` is not compressed."""
    magic = stream.peek(6)[:6]
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(stream)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(stream)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _Zstd(stream)
    return None


def bare_name(name: str) -> str:
    """`name` in lower case, without the endings of compression: what tells the format of what is inside."""
    name = name.lower()
    while name.endswith(SUFFIXES):
        name = name.rpartition(".")[0]
    return name
