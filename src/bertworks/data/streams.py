"""Files, folders, globs, compressed files, tar archives -> named byte streams, in a fixed order and constant memory.

Compression and tar are recognised by content, not by name. An archive may be compressed, and so may the files in it; an
archive inside an archive is refused. Nothing is unpacked on disk. Names inside archives read
`enwiki.tar.zst:text/AA/wiki_00`, so that errors can point at the file.
"""

import bz2
import glob
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from ..files import InputError, not_found

CHUNK = 1 << 10  # compressed bytes at a time, of which no library makes more than some 30 MiB
WINDOW = 1 << 31  # bytes that `zstd --long=31` needs to unpack
ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))  # or a frame to skip
BZIP2 = rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"  # with a first block, or empty
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".tbz2", ".txz", ".tzst")


def find_files(inputs: Sequence[str | Path]) -> list[Path]:
    """The files that `inputs` (files, directories, globs) name: in the order given, sorted inside each, each file once.

    Hidden files and folders are left out of directories. Raises InputError for an input that names nothing.
    """
    if not inputs:
        raise InputError("no input given; name files, folders or globs of text")
    files: dict[Path, Path] = {}
    for item in inputs:
        for path in _expand(item):
            files.setdefault(path.resolve(), path)
    return list(files.values())


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
    raise InputError(f"{path}: {not_found(path, 'file or folder')}")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def open_streams(name: str, file: io.BufferedReader) -> Iterator[tuple[str, io.BufferedReader]]:
    """The plain streams inside `file`, with names: itself, decompressed, or each regular file of a tar archive.

    Raises InputError for a damaged archive, and for an archive inside an archive.
    """
    stream = _decompressed(file)
    if not _is_tar(stream):
        yield name, stream
        return
    for member, content in _members(name, stream):
        if not _hidden(Path(member)):
            inside = _decompressed(content)
            if _is_tar(inside):
                raise InputError(f"{name}:{member}: an archive inside an archive; unpack the outer one first")
            yield f"{name}:{member}", inside


def bare_name(name: str) -> str:
    """`name` in lower case without the endings of compression; its own ending tells the format of the content."""
    name = name.lower()
    while name.endswith(SUFFIXES):
        name = name.rpartition(".")[0]
    return name


def _is_tar(stream: io.BufferedReader) -> bool:
    return stream.peek(262)[257:262] == b"ustar"


class _Header(tarfile.TarInfo):
    """A header of an archive; tarfile itself takes a damaged one for the archive's end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError, tarfile.EmptyHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"{error}, where a header or the archive's end is expected") from None


def _members(name: str, stream: io.BufferedReader) -> Iterator[tuple[str, io.BufferedReader]]:
    """Name and content of each regular file of the tar archive `name`."""
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            while member := archive.next():
                if member.isreg():
                    content: Any = archive.extractfile(member)
                    yield member.name, content
                archive.members = []  # type: ignore[attr-defined]  # which would grow with the archive
    except tarfile.TarError as error:
        raise InputError(f"{name}: {error}; the archive is cut or damaged") from None


def _decompressed(stream: io.BufferedReader) -> io.BufferedReader:
    """A stream of the decompressed bytes; `stream` itself if it is not compressed."""
    make = _decompressor(stream)
    return io.BufferedReader(_Decompressed(stream, make), 1 << 16) if make else stream  # type: ignore[type-var]


def _decompressor(stream: io.BufferedReader) -> Callable[[], Any] | None:
    """What makes a decompressor for `stream`; None if it is not compressed."""
    magic = stream.peek(10)[:10]
    if magic.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(31)  # 16 + 15: with gzip's header and checksum
    if re.match(BZIP2, magic):
        return bz2.BZ2Decompressor
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMADecompressor
    return zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj if magic.startswith(ZSTD) else None


class _Decompressed(io.RawIOBase):
    """Decompressed bytes of one compressed stream or of several, with zero bytes between them, in bounded memory.

    A cut stream raises EOFError; zstandard's own reader takes it for a whole one.
    """

    def __init__(self, source: BinaryIO, make: Callable[[], Any]) -> None:
        self.source, self.make, self.decompressor = source, make, make()
        self.rest = b""  # compressed, not read yet
        self.ready = memoryview(b"")  # decompressed, not returned yet

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self.ready:
            chunk, self.rest = self.rest or self.source.read(CHUNK), b""
            if not chunk and not self.decompressor.eof:
                raise EOFError("the compressed stream ends in the middle")
            if not chunk:
                return 0
            if self.decompressor.eof:  # another stream may follow
                chunk = chunk.lstrip(b"\0")
                if not chunk:
                    continue
                self.decompressor = self.make()
            self.ready = memoryview(self.decompressor.decompress(chunk))
            self.rest = self.decompressor.unused_data if self.decompressor.eof else b""
        count = min(len(target), len(self.ready))
        target[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count
