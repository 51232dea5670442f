"""Files -> documents, for pre-training (paper, section 3.1: whole documents in order, text passages only).

`Reader` finds the files of its inputs, unpacks them (streams.py), guesses the format of each by name and first bytes,
and has it parsed (parsers.py). It refuses files of a kind that holds no text, and names that kind.

Next-sentence prediction draws its neighbours from inside a document. So the user declares what counts as one
(`InputOptions.documents`), and a build checks it first (`check_documents` in sentences.py). The order of documents
depends on the inputs alone.
"""

import contextlib
import io
import lzma
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import zstandard

from ..files import InputError
from ..tokenizer import normalize
from .encodings import UTF8, as_utf8
from .parsers import COMMANDS, PARSERS, Document, InputOptions, Lines, parse_parquet
from .streams import bare_name, find_files, open_streams

__all__ = ["Document", "InputOptions", "Reader", "guess_format", "read_documents"]

DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zstandard.ZstdError)
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
EXPECTED = "expected plain text, WikiExtractor, JSONL or Parquet, as it is, compressed or in a tar archive"
AS_TEXT = f", or set --input.format text {COMMANDS}"
TABLE = "a table", f"save its texts as a column of Parquet, as JSONL or as plain text{AS_TEXT}"
OFFICE = "a zip archive, a spreadsheet or an office document", "unpack it, or save the text in it as plain text"
MARKDOWN = "Markdown", f"convert it: pandoc -t plain --wrap=none{AS_TEXT}"
MARKUP = "HTML or XML", f"extract its text first (WikiExtractor for a dump of Wikipedia){AS_TEXT}"
ARCHIVE = "a 7z, RAR, lz4 or compress file", "unpack it, or compress it with zstd, gzip, bzip2 or xz instead"
BINARY = "no text file (a PDF, RTF, image, database or program)", "save the text in it as plain text"
REFUSED_NAMES = {
    **dict.fromkeys((".csv", ".tsv"), TABLE),
    **dict.fromkeys((".md", ".markdown"), MARKDOWN),
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt", ".pptx", ".epub", ".zip"), OFFICE),
    **dict.fromkeys((".html", ".htm", ".xhtml", ".xml"), MARKUP),
}
_CONTROL = rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]"  # bytes that no text has
PARQUET = rb"PAR1(?s:.){0,11}" + _CONTROL
# First bytes as regular expressions. A text may begin with the name of a format, so each expression asks for more than
# letters: bytes that no text has, or a structure that no sentence has.
REFUSED_STARTS = {
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": OFFICE,
    rb"7z\xbc\xaf|Rar!\x1a\x07|\x04\x22\x4d\x18|\x1f\x9d": ARCHIVE,
    rb"%PDF-\d\.\d[ \t]*[\r\n]|\{\\rtf\d+\\|ARROW1\x00\x00|SQLite format 3\x00": BINARY,
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a(?s:.){0,6}" + _CONTROL + rb"|\x7fELF|\x93NUMPY": BINARY,
    rb"<\?xml\s+version\s*=|<mediawiki(\s+[\w:-]+\s*=|\s*>\s*<)": MARKUP,
    rb"(?i:<!doctype\s+(html|\w+\s*(>|\[|public\b|system\b))|<html(\s[^<>]*)?>\s*<[a-z!/])": MARKUP,
}
START = 512  # bytes of a file that decide its format


def guess_format(name: str, stream: io.BufferedReader) -> str:
    """The format of a stream: text, wikiextractor, jsonl or parquet. Raises InputError for other kinds of files."""
    bare = bare_name(name)
    start = stream.peek(START)[:START].removeprefix(b"\xef\xbb\xbf").lstrip()
    refused = next((kind for first, kind in REFUSED_STARTS.items() if re.match(first, start)), None)
    refused = refused or next((kind for suffix, kind in REFUSED_NAMES.items() if bare.endswith(suffix)), None)
    if refused:
        raise InputError(f"{name}: {refused[0]}; {EXPECTED}; {refused[1]}")
    if re.match(PARQUET, start):
        return "parquet"
    if format := next((kind for suffix, kind in FORMATS.items() if bare.endswith(suffix)), None):
        return format
    return "wikiextractor" if start.startswith(b"<doc ") else "text"


class Reader:
    """Iterates over the documents of `inputs`, composed (NFC), and counts what it leaves out. Use it once.

    `counts`: files; documents (kept), and documents left out by reason: empty, short, long.
    `position` of `size`: bytes of the input files read so far.
    """

    def __init__(self, inputs: Sequence[str | Path], options: InputOptions | None = None) -> None:
        self.options = options or InputOptions()
        self.files = find_files(inputs)
        self.size = sum(path.stat().st_size for path in self.files)
        self.counts: Counter[str] = Counter()
        self._before = 0
        self._file: io.BufferedReader | None = None
        self._where = ""  # what is read now, for errors

    @property
    def position(self) -> int:
        """Bytes of the input files (as they are on disk) read so far."""
        return self._before + (self._file.tell() if self._file and not self._file.closed else 0)

    def __iter__(self) -> Iterator[Document]:
        for path in self.files:
            with self._opened(path) as self._file:
                for name, stream in open_streams(str(path), self._file):
                    self._where = name
                    self.counts["files"] += 1
                    yield from self._filtered(self._parsed(name, stream))
                self._before += path.stat().st_size

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[io.BufferedReader]:
        """The open file. Raises InputError, which names the file, for one that cannot be read."""
        self._where = str(path)
        try:
            with open(path, "rb") as file:
                yield file
        except PermissionError:
            raise InputError(f"{self._where}: no permission to read this file") from None
        except DAMAGED as error:
            fault = f"cannot be read to its end ({type(error).__name__}: {error})"
            raise InputError(f"{self._where}: {fault}; the file is cut or damaged") from None

    def _parsed(self, name: str, stream: io.BufferedReader) -> Iterator[Document]:
        format = self._format(name, stream)
        if self.options.encoding not in UTF8 and format != "parquet":
            stream = as_utf8(stream, self.options.encoding, name)
            format = self._format(name, stream)
        if format == "parquet":
            return parse_parquet(name, stream, self.options)
        return PARSERS[format](Lines(name, stream, self.options), self.options)

    def _format(self, name: str, stream: io.BufferedReader) -> str:
        return self.options.format if self.options.format != "auto" else guess_format(name, stream)

    def _filtered(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The documents that are not left out, composed; all are counted."""
        for document in documents:
            if (reason := self._why_dropped(document.text)) is None:
                self.counts["documents"] += 1
                yield Document(normalize("NFC", document.text), document.source)
            else:
                self.counts[reason] += 1

    def _why_dropped(self, text: str) -> str | None:
        if not text or text.isspace():
            return "empty"
        if len(text) < self.options.min_document_chars:
            return "short"
        return "long" if len(text) > self.options.max_document_chars else None


def read_documents(inputs: Sequence[str | Path], options: InputOptions | None = None) -> Iterator[Document]:
    """The documents of `inputs`: files, directories and globs; .gz, .bz2, .xz, .zst and tar archives of any format.

    Files are read in the order given, sorted inside a directory or glob, archive members in archive order. Raises
    InputError with file and line for a file that cannot be read.
    """
    return iter(Reader(inputs, options))
