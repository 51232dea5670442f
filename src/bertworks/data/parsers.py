"""Formats -> documents: the lines, cells and paragraphs of one file's text, and what of them makes a document.

A `Document`'s text has one paragraph a line; paragraphs bound sentences. One document is in memory at a time.
Formats: plain text, WikiExtractor's output, JSONL, Parquet.
"""

import html
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from ..encodings import likely_encoding
from ..files import InputError, parse_json, shorten
from .encodings import codec_of, hint
from .wrapping import columns, joined_paragraphs

MAX_LINE = 16 << 20  # bytes of a line; a file with longer ones is hardly text, and would take much memory
HEADING = 50  # columns of a line that may be a heading in WikiExtractor's output
COMMANDS = "(`corpus build`, `tokenizer train`)"  # that have the flags named here


@dataclass(frozen=True)
class InputOptions:
    """How files become documents."""

    format: Literal["auto", "text", "wikiextractor", "jsonl", "parquet"] = "auto"
    """auto: by file name (.jsonl, .parquet) and first bytes (<doc ...>), else text"""
    documents: Literal["file", "blank-line", "line"] = "file"
    """plain text: a file is one document, or blank lines separate documents, or each line is one"""
    paragraphs: Literal["line", "blank-line"] = "line"
    """plain text: each line is a paragraph, or lines are wrapped and blank lines separate paragraphs"""
    text_field: str = "text"
    """JSONL and Parquet: the field or column that holds the text"""
    # text encoding of the files: utf-8, cp949, euc-kr, utf-16 or another Python codec; Parquet is always UTF-8.
    # Also --encoding
    encoding: str = "utf-8"
    min_document_chars: int = 0
    """leave out documents shorter than this (empty ones always are)"""
    max_document_chars: int = 10_000_000
    """leave out documents longer than this; bounds memory"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", codec_of(self.encoding))
        if self.paragraphs != "line" and self.documents != "file":
            raise InputError(
                f"--input.documents {self.documents} with --input.paragraphs blank-line; expected one of the two"
            )


@dataclass(frozen=True, slots=True)
class Document:
    """One document: `text` with a paragraph a line, and its `source` ("file" or "archive:member", and the line)."""

    text: str
    source: str


def list_names(names: Iterable[str]) -> str:
    """The first eight names of fields or columns, for a message."""
    first = [shorten(name, 40) for name in itertools.islice(names, 9)]
    return ", ".join([*first[:8], *(["..."] if len(first) > 8 else [])]) or "none"


class Lines:
    """The lines of a stream as checked text; `name` is the stream's, for errors."""

    def __init__(self, name: str, stream: io.BufferedReader, options: InputOptions) -> None:
        self.name, self.stream, self.options = name, stream, options
        self.number = 0  # of the last line, from 1

    def __iter__(self) -> Iterator[str]:
        for raw in iter(lambda: self.stream.readline(MAX_LINE + 1), b""):
            self.number += 1
            if len(raw) > MAX_LINE:
                raise InputError(f"{self.where}: a line of more than {MAX_LINE:,} bytes; expected text; divide it")
            line = _decoded(raw, self.where)
            yield (line.removeprefix("\ufeff") if self.number == 1 else line).rstrip("\r\n")

    @property
    def where(self) -> str:
        """File and line, for errors."""
        return f"{self.name}, line {self.number}"


def _decoded(raw: bytes, where: str) -> str:
    """A line or cell as text. Raises InputError for invalid UTF-8 and NUL."""
    try:
        text = raw.decode()
        if "\0" not in text:
            return text
        fault_text = "a NUL byte"
    except UnicodeDecodeError as fault:
        fault_text = f"byte {fault.start + 1} (0x{raw[fault.start]:02x}) is not valid UTF-8"
    advice = "if all files are, or convert this one to UTF-8"
    if not likely_encoding(raw):  # else the advice would drop every letter of text in another encoding
        advice = "convert it, or remove such bytes with `iconv -c -f utf-8 -t utf-8` or `tr -d '\\000'`"
    raise InputError(f"{where}: {fault_text}; {hint(raw)}, {advice}")


class _Paragraphs:
    """Collects a document's paragraphs, and no more of them once it is longer than `max_document_chars`."""

    def __init__(self, options: InputOptions) -> None:
        self.limit = options.max_document_chars
        self.lines: list[str] = []
        self.size = 0

    def add(self, line: str) -> None:
        if line and self.size <= self.limit:
            self.lines.append(line)
            self.size += len(line) + 1

    def take(self, source: str) -> Document:
        document = Document("\n".join(self.lines), source)
        self.lines, self.size = [], 0
        return document


def _text(lines: Lines, options: InputOptions) -> Iterator[Document]:
    paragraphs, first = _Paragraphs(options), 0
    for line in joined_paragraphs(lines, options.max_document_chars) if options.paragraphs == "blank-line" else lines:
        line = line.strip()
        paragraphs.add(line)
        if line:
            first = first or lines.number
        if first and (options.documents == "line" or (options.documents == "blank-line" and not line)):
            yield paragraphs.take(f"{lines.name}, line {first}")
            first = 0
    if options.documents == "file" or not lines.number:  # an empty file is an empty document, so that it is counted
        yield paragraphs.take(lines.name)
    elif first:
        yield paragraphs.take(f"{lines.name}, line {first}")


def _wikiextractor(lines: Lines, options: InputOptions) -> Iterator[Document]:
    paragraphs, first_line, title = _Paragraphs(options), 0, ""
    for line in lines:
        line = line.strip()
        if line.startswith("<doc "):
            first_line, match = lines.number, re.search(r'title="(.*)"', line)
            title = html.unescape(match[1]) if match else ""
        elif line == "</doc>":
            yield paragraphs.take(f"{lines.name}, line {first_line}")
            first_line = 0
        elif line and not first_line:
            raise InputError(f"{lines.where}: text outside of <doc ...>: {line[:60]!r}; expected WikiExtractor output")
        elif line:
            line = html.unescape(line).strip() if "&" in line else line
            first = not paragraphs.lines and line == title
            if not first and not _is_heading(line):
                paragraphs.add(line)
    if first_line:
        where = f"{lines.name}, line {first_line}"
        raise InputError(f"{where}: <doc ...> has no </doc>; the file was cut; extract it again, or leave it out")


def _is_heading(line: str) -> bool:
    """Whether a line is a heading: WikiExtractor writes one as its words and a full stop, like a very short passage."""
    return len(line) <= HEADING and line.endswith(".") and columns(line) <= HEADING


def _jsonl(lines: Lines, options: InputOptions) -> Iterator[Document]:
    for line in lines:
        if not line.strip():
            continue
        where, field = lines.where, options.text_field
        try:
            record = parse_json(line, where, finite=False)  # NaN does no harm in a field that is not read
        except InputError as error:
            raise InputError(f"{error}; expected one JSON object a line") from None
        text = record.get(field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            keys = list_names(record) if isinstance(record, dict) else type(record).__name__
            raise InputError(
                f"{where}: no text in field {field!r}; found {keys}; remove such lines (jq -c 'select(.{field})'), or "
                f"give another --input.text-field {COMMANDS}"
            )
        # JSON can spell a NUL character, or half of a surrogate pair, which is no text
        yield Document(_decoded(text.encode("utf-8", "surrogatepass"), where), where)


PARSERS: dict[str, Callable[[Lines, InputOptions], Iterator[Document]]] = {
    "text": _text,
    "wikiextractor": _wikiextractor,
    "jsonl": _jsonl,
}


def parse_parquet(name: str, stream: io.BufferedReader, options: InputOptions) -> Iterator[Document]:
    import pyarrow as pa

    if not isinstance(stream.raw, io.FileIO):
        raise InputError(f"{name}: Parquet inside an archive or compressed file; it is read from its end: unpack it")
    try:
        for row, value in enumerate(_cells(name, stream, options.text_field), 1):
            where = f"{name}, row {row}"
            yield Document(_decoded(value, where), where)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: names of columns
        fault = shorten(str(error), 200)
        raise InputError(f"{name}: not a readable Parquet file ({fault}); the file is cut or damaged") from None


def _cells(name: str, file: BinaryIO, column: str) -> Iterator[bytes]:
    """The cells of a column as bytes, 64 in memory at a time; b"" for a cell without a value.

    Bytes, because Parquet says that its strings are UTF-8 and no reader checks it. `name` is the file's, for errors.
    Raises InputError if there is no such column, or it holds no text; pyarrow's errors, OSError or UnicodeDecodeError
    (of column names) for a damaged file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    schema = table.schema_arrow
    if column not in schema.names:
        fault = f"no column {column!r}; found {list_names(schema.names)}"
        raise InputError(f"{name}: {fault}; give another --input.text-field {COMMANDS}")
    kind = schema.field(column).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_null(plain)):
        fault = f"column {column!r} holds {kind}; expected text"
        raise InputError(f"{name}: {fault}; give another --input.text-field {COMMANDS}")
    for batch in table.iter_batches(batch_size=64, columns=[column]):
        values = batch.column(0).cast(plain).cast(pa.large_binary())
        yield from (value or b"" for value in values.to_pylist())
