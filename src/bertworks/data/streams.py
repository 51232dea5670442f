"""Files, folders, globs, compressed files, tar archives -> named byte streams, in a fixed order and constant memory.

Compression and tar are recognised by content, not by name, and may be nested (a tar of .bz2 files in a .zst). Nothing
is unpacked on disk. Names inside archives read `enwiki.tar.zst:text/AA/wiki_00`, so that errors can point at the file.

A small file can claim to be a large one. So four things have limits: the nesting, the headers of an archive, a
decompressor's memory (its "window"), and what a file unpacks to without text (`Allowance`). A decompressor gets so few
bytes at a time that it cannot return more than some 30 MiB.
"""

import bz2
import glob
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from ..files import InputError, not_found

BUFFER = 1 << 16
CHUNK = 1 << 10  # compressed bytes at a time: zstd makes at most 32 MiB of 1 KiB (a block of 4 bytes can say 128 KiB)
MAX_DEPTH = 8  # compressions and archives inside each other
FREE = 1 << 22  # bytes that any file may unpack to
SHARE = 100  # more bytes for each byte of the file and each character of text in it; text shrinks 3 to 10 times
MAX_HEADER = 1 << 18  # bytes of one header of a tar archive; long names and attributes have some thousand
MAX_NAME = 1000  # last characters of a member's name that are kept, since every document carries the name
MAX_WINDOW = 1 << 27  # bytes that `zstd --long` (without a number) needs, and the limit of the zstd program
ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))  # or a frame to skip
BZIP2 = rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"  # with a first block, or empty
SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".tar", ".tgz", ".tbz2", ".txz", ".tzst")


class Allowance:
    """How much an input file may still unpack to: FREE bytes, and SHARE more for each byte of it and character of text.

    All that a file unpacks to counts: text, blank lines, empty documents, headers, members that are skipped. So an
    archive may hold much of these beside enough text, and a file that is not packed never reaches the limit.
    """

    def __init__(self, name: str) -> None:
        self.name, self.left = name, FREE

    def earn(self, count: int) -> None:
        """Note that `count` bytes of the file were read, or as many characters of text found."""
        self.left += SHARE * count

    def spend(self, count: int) -> None:
        """Note that `count` bytes were unpacked. Raises InputError if they are too many."""
        self.left -= count
        if self.left < 0:
            found = f"unpacks to more than {FREE:,} bytes and {SHARE} times its own size and the text in it"
            raise InputError(f"{self.name}: {found}; expected text; leave it out, or unpack it first")


class _Section(io.RawIOBase):
    """The next `length` bytes of another stream, which stays open when this one is closed."""

    def __init__(self, source: Any, count: Callable[[int], None], length: int) -> None:
        """count: called with the number of bytes of each reading."""
        self.source, self.count, self.left = source, count, length

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        size: int = self.source.readinto(memoryview(target)[: self.left])
        self.left -= size
        self.count(size)
        return size

    def seekable(self) -> bool:
        return isinstance(self.source, io.FileIO)  # streams from archives and compressions would begin again

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("seek")
        position: int = self.source.seek(offset, whence)
        return position


def open_span(file: io.FileIO, start: int, stop: int, buffer: int = BUFFER) -> io.BufferedReader:
    """A stream of the bytes from `start` to `stop` of a file, which stays open when the stream is closed."""
    file.seek(start)
    return _buffered(file, lambda count: None, stop - start, buffer)


def _buffered(
    source: Any, count: Callable[[int], None], length: int = 1 << 62, buffer: int = BUFFER
) -> io.BufferedReader:
    stream: io.BufferedReader = io.BufferedReader(_Section(source, count, length), buffer)
    return stream


class _Decompressed(io.RawIOBase):
    """Decompressed bytes of a .zst or .xz stream, in bounded memory.

    The libraries' own readers do not serve: zstandard's takes a cut file for a whole one, lzma's has no memory limit.
    """

    def __init__(self, source: BinaryIO, make: Callable[[], Any], padding: bytes = b"") -> None:
        """`make` returns a decompressor; `padding` is a byte that may separate two streams in one file."""
        self.source, self.make, self.padding = source, make, padding
        self.decompressor: Any = None
        self.rest = b""  # compressed, unread
        self.ready = memoryview(b"")  # decompressed, not returned yet

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self.ready:
            chunk = self.rest or self.source.read(CHUNK)
            if not chunk:
                if self.decompressor is not None:
                    raise EOFError("the compressed stream ends in the middle")
                return 0
            if self.decompressor is None:
                chunk = chunk.lstrip(self.padding)
                self.rest = b""
                if not chunk:
                    continue
                self.decompressor = self.make()
            self.ready = memoryview(self.decompressor.decompress(chunk))
            self.rest = self.decompressor.unused_data if self.decompressor.eof else b""
            if self.decompressor.eof:  # another stream may follow
                self.decompressor = None
        count = min(len(target), len(self.ready))
        target[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count


class _Header(tarfile.TarInfo):
    """A header of an archive. tarfile reads headers of any size, and takes a damaged one for the archive's end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        try:
            header = super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError, tarfile.EmptyHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"{error}, where a header or the archive's end is expected") from None
        if header.type in _IN_MEMORY and header.size > MAX_HEADER:
            raise tarfile.ReadError(f"a header of more than {MAX_HEADER:,} bytes")
        return header


_GNU_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)  # headers whose content tarfile holds in memory:
_IN_MEMORY = (*_GNU_LONG, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


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
    raise InputError(f"{path}: {not_found(path, 'file or folder')}")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def open_streams(
    name: str, file: Any, max_window: int = MAX_WINDOW, allowance: Allowance | None = None, depth: int = 0
) -> Iterator[tuple[str, io.BufferedReader]]:
    """The plain streams inside `file`, with names: itself, decompressed, or each regular file of a tar archive.

    max_window: bytes of memory that a .zst or .xz file may ask for. allowance: what the file may unpack to; the caller
    notes in it how much text it found. depth: compressions and archives around `file`. Raises InputError for more than
    MAX_DEPTH of them inside each other, and for a file that unpacks to more than its allowance.
    """
    allowance = allowance or Allowance(name)
    stream = _buffered(file, allowance.spend if depth else allowance.earn)
    while (inner := _decompress(stream, max_window)) is not None:
        stream = _buffered(inner, allowance.spend)
        depth = _deeper(depth, name)
    if not _is_tar(stream):
        yield name, stream
        return
    for member, content in _members(name, stream):
        if not _hidden(Path(member)):
            inside = f"{name}:{member[-MAX_NAME:]}"
            yield from open_streams(inside, content, max_window, allowance, _deeper(depth, name))


def is_plain(stream: io.BufferedReader) -> bool:
    """Whether `stream` is neither compressed nor an archive."""
    return _decompress(stream, MAX_WINDOW) is None and not _is_tar(stream)


def _is_tar(stream: io.BufferedReader) -> bool:
    return stream.peek(262)[257:262] == b"ustar"


def _deeper(depth: int, name: str) -> int:
    if depth == MAX_DEPTH:
        found = f"more than {MAX_DEPTH} compressions or archives inside each other"
        raise InputError(f"{name}: {found}; expected a file with text; unpack it, or leave it out")
    return depth + 1


def _members(name: str, stream: io.BufferedReader) -> Iterator[tuple[str, Any]]:
    """Name and content of each regular file of the tar archive `name`."""
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            while member := archive.next():
                if member.isreg() or member.type not in tarfile.SUPPORTED_TYPES:
                    content = archive.extractfile(member)
                    assert content is not None  # which it is for folders and links alone
                    yield member.name, content
                # Both would grow with the archive. tarfile still works with only the last member in its list.
                archive.members = []  # type: ignore[attr-defined]
                archive.pax_headers.clear()  # type: ignore[attr-defined]
    except (tarfile.TarError, ValueError, RecursionError) as error:  # headers can announce headers for ever
        detail = f"{type(error).__name__}: {error}"
        raise InputError(f"{name}: cannot be read to its end ({detail}); the archive is cut or damaged") from None


def _decompress(stream: io.BufferedReader, max_window: int) -> Any:
    """A raw stream of the decompressed bytes, or None if `stream` is not compressed."""
    magic = stream.peek(10)[:10]
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream, mode="rb")
    if re.match(BZIP2, magic):
        return bz2.BZ2File(stream)
    if magic.startswith(b"\xfd7zXZ\x00"):
        memory = max_window + (8 << 20)  # the decoder's own memory beside the window
        return _Decompressed(stream, lambda: lzma.LZMADecompressor(memlimit=memory), b"\0")
    if magic.startswith(ZSTD):
        decompressor = zstandard.ZstdDecompressor(max_window_size=max_window)
        return _Decompressed(stream, decompressor.decompressobj)
    return None


def bare_name(name: str) -> str:
    """`name` in lower case without the endings of compression; its own ending tells the format of the content."""
    name = name.lower()
    while name.endswith(SUFFIXES):
        name = name.rpartition(".")[0]
    return name
