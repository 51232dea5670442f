"""Files -> documents, for pre-training (paper, section 3.1: whole documents in order, text passages only).

`Reader` finds the files of its inputs, unpacks them (streams.py), guesses the format of each by name and first bytes,
and has it parsed (parsers.py). It refuses files of a kind that holds no text, and names that kind.

Next-sentence prediction draws its neighbours from inside a document. So the user declares what counts as one
(`InputOptions.documents`), and a build checks it first (`check_documents` in sentences.py). The order of documents
depends on the inputs alone.
"""

import contextlib
import errno
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
from .parsers import NO_FIELD, PARSERS, Document, InputOptions, Lines, parse_parquet
from .streams import Allowance, bare_name, find_files, open_span, open_streams

__all__ = ["Document", "InputOptions", "Reader", "guess_format", "read_documents"]

DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zstandard.ZstdError)
FORMATS = {".md": "markdown", ".markdown": "markdown", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
EXPECTED = "expected plain text, WikiExtractor, Markdown, JSONL or Parquet, as it is, compressed or in a tar archive"
AS_TEXT = ", or set --input.format text"  # the end of some advice
TABLE = "a table", f"save its texts as a column of Parquet, as JSONL or as plain text{AS_TEXT}"
OFFICE = "a zip archive, a spreadsheet or an office document", "unpack it, or save the text in it as plain text"
MARKUP = "HTML or XML", f"extract its text first (WikiExtractor for a dump of Wikipedia){AS_TEXT}"
BINARY = "not text", "save the text in it as plain text"
REFUSED_NAMES = {
    **dict.fromkeys((".csv", ".tsv"), TABLE),
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt", ".pptx", ".epub", ".zip"), OFFICE),
    **dict.fromkeys((".html", ".htm", ".xhtml", ".xml"), MARKUP),
}
_CONTROL = rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]"  # bytes that no text has
PARQUET = rb"PAR1(?s:.){0,11}" + _CONTROL
# First bytes as regular expressions. A text may begin with the name of a format, so each expression asks for more than
# letters: bytes that no text has, or a structure that no sentence has.
REFUSED_STARTS = {
    rb"PK\x03\x04": OFFICE,
    rb"\xd0\xcf\x11\xe0": OFFICE,
    rb"%PDF-\d\.\d[ \t]*[\r\n]": ("a PDF file", BINARY[1]),
    rb"\{\\rtf\d+\\": ("an RTF file", BINARY[1]),
    rb"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    rb"Rar!\x1a\x07": ("a RAR archive", "unpack it"),
    rb"\x04\x22\x4d\x18": ("an lz4 file", "compress it with zstd, gzip, bzip2 or xz instead"),
    rb"\x1f\x9d": ("a file made by compress", "compress it with zstd, gzip, bzip2 or xz instead"),
    rb"<\?xml\s+version\s*=": MARKUP,
    rb"<mediawiki(\s+[\w:-]+\s*=|\s*>\s*<)": MARKUP,
    rb"(?i:<!doctype\s+(html|\w+\s*(>|\[|public\b|system\b)))": MARKUP,
    rb"(?i:<html(\s[^<>]*)?>\s*<[a-z!/])": MARKUP,
    rb"\x89PNG": BINARY,
    rb"\xff\xd8\xff": BINARY,
    rb"GIF8[79]a(?s:.){0,6}" + _CONTROL: BINARY,
    rb"\x7fELF": BINARY,
    rb"\x93NUMPY": BINARY,
    rb"ARROW1\x00\x00": ("an Arrow file", "save it as Parquet"),
    rb"SQLite format 3\x00": ("an SQLite database", BINARY[1]),
}
START = 512  # bytes of a file that decide its format


class OtherKind(InputError):
    """A file of a kind that holds no plain text."""


def guess_format(name: str, stream: io.BufferedReader) -> str:
    """The format of a stream: text, wikiextractor, markdown, jsonl or parquet. Raises OtherKind for other kinds."""
    bare = bare_name(name)
    start = stream.peek(START)[:START].removeprefix(b"\xef\xbb\xbf").lstrip()
    refused = next((kind for first, kind in REFUSED_STARTS.items() if re.match(first, start)), None)
    refused = refused or next((kind for ending, kind in REFUSED_NAMES.items() if bare.endswith(ending)), None)
    if refused:
        raise OtherKind(f"{name}: {refused[0]}; {EXPECTED}; {refused[1]}")
    if bare.endswith(".parquet") or re.match(PARQUET, start):
        return "parquet"
    if found := next((kind for ending, kind in FORMATS.items() if bare.endswith(ending)), None):
        return found
    return "wikiextractor" if start.startswith(b"<doc ") else "text"


class Reader:
    """Iterates over the documents of `inputs`, composed (NFC), and counts what it leaves out. Use it once.

    `counts`: files; documents (kept), and documents left out by reason: empty, short, long, "no field"; files left out:
    "other kind". `position` of `size`: bytes of the input files read so far.
    """

    def __init__(self, inputs: Sequence[str | Path], options: InputOptions | None = None) -> None:
        self.options = options or InputOptions()
        self.files = find_files(inputs)
        self.size = sum(path.stat().st_size for path in self.files)
        self.counts: Counter[str] = Counter()
        self._before = 0
        self._file: io.FileIO | None = None
        self._where = ""  # what is read now, for errors

    @property
    def position(self) -> int:
        """Bytes of the input files (as they are on disk) read so far."""
        return self._before + (self._file.tell() if self._file and not self._file.closed else 0)

    def __iter__(self) -> Iterator[Document]:
        for path in self.files:
            self._where = str(path)
            with self._faults_named(), open(path, "rb", buffering=0) as self._file:
                allowance = Allowance(self._where)
                for name, stream in open_streams(str(path), self._file, self.options.max_window, allowance):
                    self._where = name
                    self.counts["files"] += 1
                    yield from self._documents(name, stream, allowance)
                self._before += path.stat().st_size

    @contextlib.contextmanager
    def _faults_named(self) -> Iterator[None]:
        """Raise InputError, which names the file, for one that cannot be read."""
        try:
            yield
        except PermissionError:
            raise InputError(f"{self._where}: no permission to read this file") from None
        except DAMAGED as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):  # the disk of temporary files
                raise
            if isinstance(error, (lzma.LZMAError, zstandard.ZstdError)) and "memory" in str(error).lower():
                found = f"needs a window of more than {self.options.max_window:,} bytes ({error})"
                advice = "raise --input.max-window if there is memory for it" if self.options.flags else "unpack it"
                raise InputError(f"{self._where}: {found}; {advice}") from None
            found = f"cannot be read to its end ({type(error).__name__}: {error})"
            raise InputError(f"{self._where}: {found}; the file is cut or damaged") from None

    def _documents(self, name: str, stream: io.BufferedReader, allowance: Allowance) -> Iterator[Document]:
        try:
            format = self.options.format if self.options.format != "auto" else guess_format(name, stream)
        except OtherKind as error:
            if self.options.other_kinds == "refuse":
                skip = "; or leave such files out with --input.other-kinds skip"
                raise InputError(f"{error}{skip}" if self.options.flags else str(error).removesuffix(AS_TEXT)) from None
            self.counts["other kind"] += 1
            return
        if self.options.encoding not in UTF8 and format != "parquet":
            remedy = ", or set --input.invalid repair" if self.options.flags else ""
            stream = as_utf8(stream, self.options.encoding, name, self.options.invalid == "repair", remedy)
            format = self.options.format if self.options.format != "auto" else guess_format(name, stream)
        if format == "parquet":
            found = parse_parquet(name, stream, self.options)
        else:
            found = PARSERS[format](Lines(name, stream, self.options, allowance.earn), self.options)
        yield from self._kept(found)

    def _kept(self, found: Iterable[Document]) -> Iterator[Document]:
        """The documents that are not left out, composed; all are counted."""
        for document in found:
            if (reason := self._why_dropped(document)) is None:
                self.counts["documents"] += 1
                yield Document(normalize("NFC", document.text), document.source)
            else:
                self.counts[reason] += 1

    def _why_dropped(self, document: Document) -> str | None:
        text = document.text
        if document is NO_FIELD:
            return "no field"
        if not text or text.isspace():
            return "empty"
        if len(text) < self.options.min_document_chars:
            return "short"
        return "long" if len(text) > self.options.max_document_chars else None


class RangeReader(Reader):
    """Iterates over the documents of a range of one plain file; `counts` has the file if the range begins it.

    The range begins and ends between two documents. Messages name lines of the whole file, whose number is counted
    when there is something to report.
    """

    def __init__(self, path: Path, options: InputOptions, start: int, stop: int, format: str) -> None:
        super().__init__([path], options)
        self.start, self.stop, self.format = start, stop, format

    def __iter__(self) -> Iterator[Document]:
        try:
            yield from self._read(0 if self.start == 0 else None)
        except InputError:
            if self.start == 0:
                raise
            for _ in self._read(self._lines_before()):
                pass
            raise

    def _read(self, before: int | None) -> Iterator[Document]:
        """The documents. before: lines of the file before the range, if they have been counted."""
        self._where = str(self.files[0])
        self.counts["files"] += self.start == 0
        with self._faults_named(), open(self.files[0], "rb", buffering=0) as self._file:
            stream = open_span(self._file, self.start, self.stop)
            lines = Lines(self._where, stream, self.options, lambda count: None, before)
            yield from self._kept(PARSERS[self.format](lines, self.options))

    def _lines_before(self) -> int:
        with open(self.files[0], "rb", buffering=0) as file:
            stream = open_span(file, 0, self.start, 1 << 20)
            return sum(block.count(b"\n") for block in iter(stream.read1, b""))


def read_documents(inputs: Sequence[str | Path], options: InputOptions | None = None) -> Iterator[Document]:
    """The documents of `inputs`: files, directories and globs; .gz, .bz2, .xz, .zst and tar archives of any format.

    Files are read in the order given, sorted inside a directory or glob, archive members in archive order. Raises
    InputError with file and line for a file that cannot be read.
    """
    return iter(Reader(inputs, options))
