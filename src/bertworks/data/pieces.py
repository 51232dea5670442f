"""Input files -> pieces that workers read on their own: a few files together, one file, or a range of a large one.

A large file is divided where one of its documents ends, if it is plain text with blank lines between documents,
WikiExtractor's output, or JSONL. Compressed files, archives and Parquet are read whole. The pieces depend on
the files alone. So does the order of documents, whoever reads which piece.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..files import InputError
from .corpus import RangeReader, Reader, guess_format
from .encodings import UTF8
from .parsers import InputOptions
from .streams import is_plain

PIECE_BYTES = 1 << 24  # of the files of a piece, or of a range of one; about eight parts of plain text
STEP = 1 << 20  # bytes in which the end of a document is looked for at once
LONGEST_END = 64  # more bytes than a match of ENDS needs, but for blank lines beyond the first
ENDS = {  # by format: what ends a document, with the line's end
    "jsonl": re.compile(rb"\n"),
    "text": re.compile(rb"\n(\r?\n)+"),
    "wikiextractor": re.compile(rb"\n</doc>\r?\n"),
}


@dataclass(frozen=True)
class Piece:
    """What one task reads."""

    files: tuple[Path, ...]
    size: int  # bytes on disk
    start: int = 0  # of a range: its first byte
    stop: int = 0  # the byte after its last one; 0: the files are read whole
    format: str = ""  # of a range

    @property
    def note(self) -> str:
        """The name of the file that says which parts a reading of this piece has made."""
        key = "\0".join([*(str(file.absolute()) for file in self.files), str(self.start), str(self.stop)])
        return f"read-{hashlib.blake2b(key.encode('utf-8', 'surrogateescape'), digest_size=16).hexdigest()}.json"

    def reader(self, options: InputOptions) -> Reader:
        """A reader of its documents."""
        if self.stop:
            return RangeReader(self.files[0], options, self.start, self.stop, self.format)
        return Reader(self.files, options)


def divide(files: Iterable[Path], options: InputOptions) -> Iterator[Piece]:
    """The pieces of `files`, in their order. Reads the large ones here and there."""
    group: list[Path] = []
    size = 0
    for path in files:
        found = path.stat().st_size
        if group and size + found > PIECE_BYTES:
            yield Piece(tuple(group), size)
            group, size = [], 0
        if found > PIECE_BYTES:
            yield from _ranges(path, found, options)
        else:
            group, size = [*group, path], size + found
    if group:
        yield Piece(tuple(group), size)


def _ranges(path: Path, size: int, options: InputOptions) -> Iterator[Piece]:
    """The ranges of a large file; the whole file if it cannot be divided."""
    format = _format_of_ranges(path, options)
    if not format:
        yield Piece((path,), size)
        return
    start = 0
    with open(path, "rb") as file:
        while start < size:
            stop = _end_of_document(file, ENDS[format], start + PIECE_BYTES, size)
            yield Piece((path,), stop - start, start, stop, format)
            start = stop


def _format_of_ranges(path: Path, options: InputOptions) -> str:
    """The format of a file that can be divided, else "". A file that cannot be read is left to its reader."""
    if options.encoding not in UTF8:
        return ""  # its bytes may have a line end inside a character
    try:
        with open(path, "rb") as file:
            if not is_plain(file):
                return ""
            format = options.format if options.format != "auto" else guess_format(str(path), file)
    except (OSError, InputError):
        return ""
    if format == "text" and options.documents == "file":
        return ""  # the whole file is one document
    return format if format in ENDS else ""


def _end_of_document(file: io.BufferedReader, end: re.Pattern[bytes], start: int, size: int) -> int:
    """The offset after the first end of a document from `start` on; the size of the file if there is none."""
    while start < size:
        file.seek(start)
        if found := end.search(file.read(STEP + LONGEST_END)):
            return start + found.end()
        start += STEP
    return size
