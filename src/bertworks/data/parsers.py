"""Formats -> documents: the lines, cells and paragraphs of one file's text, and what of them makes a document.

A `Document`'s text has one paragraph a line; paragraphs bound sentences. One document is in memory at a time.
Formats: plain text, Markdown, WikiExtractor's output, JSONL, Parquet.
"""

import contextlib
import errno
import html
import io
import itertools
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, ClassVar, Literal

from ..encodings import likely_encoding
from ..files import InputError, parse_json, shorten
from .encodings import codec_of, hint
from .streams import MAX_WINDOW
from .wrapping import joined_paragraphs

MAX_BLANK = 1 << 20  # bytes of blank lines in a row; a small compressed file can hold 50 GB of them


@dataclass(frozen=True)
class InputOptions:
    """How files become documents."""

    format: Literal["auto", "text", "wikiextractor", "markdown", "jsonl", "parquet"] = "auto"
    """auto: by file name (.md, .jsonl, .parquet) and first bytes (<doc ...>), else text"""
    documents: Literal["file", "blank-line", "line"] = "file"
    """plain text: a file is one document, or blank lines separate documents, or each line is one"""
    paragraphs: Literal["line", "blank-line"] = "line"
    """plain text: each line is a paragraph, or lines are wrapped and blank lines separate paragraphs"""
    text_field: str = "text"
    """JSONL and Parquet: the field or column that holds the text"""
    missing: Literal["refuse", "skip"] = "refuse"
    """JSONL: lines without text in that field: stop and name the line, or leave them out and count them"""
    # files that hold no plain text (images, PDF, spreadsheets, HTML, ...), in archives too: stop and name the file, or
    # leave them out and count them
    other_kinds: Literal["refuse", "skip"] = "refuse"
    # encoding of the files: utf-8, cp949, euc-kr, utf-16 or another one of Python's; Parquet is always UTF-8.
    # Also --encoding
    encoding: str = "utf-8"
    invalid: Literal["refuse", "repair"] = "refuse"
    """invalid bytes and NUL bytes: stop and name file and line, or replace (U+FFFD) and remove (NUL) them"""
    min_document_chars: int = 0
    """leave out documents shorter than this (empty ones always are)"""
    max_document_chars: int = 10_000_000
    """leave out documents longer than this; bounds memory"""
    max_line_bytes: int = 16 << 20
    """refuse longer lines: such a file is hardly text; bounds memory"""
    max_heading_width: int = 50
    """WikiExtractor: a line ending in "." of at most this many columns is a heading (an ideograph fills two)"""
    max_window: int = MAX_WINDOW
    """refuse .zst and .xz files that hold more bytes than this in memory (zstd --long=31 needs 2147483648)"""

    flags: ClassVar[bool] = True  # whether advice may name flags (--input.*): the caller's user can set them

    def advised(self, advice: str, flag: str) -> str:
        """The advice of a message, with that of setting a flag if there are flags."""
        return f"{advice}, or {flag}" if self.flags else advice

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", codec_of(self.encoding))
        if self.documents == self.paragraphs == "blank-line":
            raise InputError("--input.documents and --input.paragraphs cannot both be blank-line; set one of the two")
        if self.documents == "line" and self.paragraphs != "line":
            raise InputError("--input.documents line with --input.paragraphs blank-line; expected one of the two: a "
                             "document of one line is not wrapped")  # fmt: skip


@dataclass(frozen=True)
class FixedOptions(InputOptions):
    """Options that the user of a verb or function cannot set."""

    flags: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Document:
    """One document: `text` with a paragraph a line, and its `source` ("file" or "archive:member", and the line)."""

    text: str
    source: str


NO_FIELD = Document("", "")  # stands for a line without the text field


def list_names(names: Iterable[str]) -> str:
    """The first eight names of fields or columns, for a message."""
    first = [shorten(name, 40) for name in itertools.islice(names, 9)]
    return ", ".join([*first[:8], *(["..."] if len(first) > 8 else [])]) or "none"


class Lines:
    """The lines of a stream as checked text. `name`: the stream's, for errors; `number`: of the last line, from 1.

    `before`: the lines of the file before the stream's first one, None if nobody has counted them yet.
    The parsers call `found` with the number of
    characters of text in a line, which lets the file unpack to more (`streams.Allowance`).
    """

    def __init__(
        self,
        name: str,
        stream: io.BufferedReader,
        options: InputOptions,
        found: Callable[[int], None],
        before: int | None = 0,
    ) -> None:
        self.name, self.stream, self.options, self.found = name, stream, options, found
        self.number, self.whole = before or 0, before == 0

    def __iter__(self) -> Iterator[str]:
        limit, blank = self.options.max_line_bytes, 0
        for raw in iter(partial(self.stream.readline, limit + 1), b""):
            self.number += 1
            if len(raw) > limit:
                advice = self.options.advised("divide it", "raise --input.max-line-bytes if this is text")
                raise self.error(f"a line of more than {limit:,} bytes", advice)
            blank = blank + len(raw) if raw.isspace() else 0
            if blank > MAX_BLANK:
                raise self.error(f"more than {MAX_BLANK:,} bytes of blank lines", "expected text; leave the file out")
            if b"\0" in raw:
                raw = self._without_nul(raw)
            line = _decoded(raw, self.options, self.error)
            yield (line.removeprefix("\ufeff") if self.number == 1 and self.whole else line).rstrip("\r\n")

    def error(self, found: str, advice: str) -> InputError:
        """An InputError that names file and line."""
        return InputError(f"{self.name}, line {self.number}: {found}; {advice}")

    def _without_nul(self, raw: bytes) -> bytes:
        if self.options.invalid == "refuse":
            advice = "expected UTF-8 text; convert the file or leave it out"
            advice = self.options.advised(advice, "set --input.invalid repair")
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise self.error("UTF-16 text", f"give --encoding utf-16; {advice}")
            raise self.error("a NUL byte", advice)
        return raw.replace(b"\0", b"")


def _decoded(raw: bytes, options: InputOptions, error: Callable[[str, str], InputError]) -> str:
    """A line or cell as text; raises `error` for invalid UTF-8, or repairs it."""
    try:
        return raw.decode()
    except UnicodeDecodeError as fault:
        if options.invalid == "repair":
            return raw.decode(errors="replace")
        found = f"byte {fault.start + 1} (0x{raw[fault.start]:02x}) is not valid UTF-8"
        if likely_encoding(raw):  # a repair would drop every letter of it
            raise error(found, f"{hint(raw)} if all files are, or convert this one to UTF-8") from None
        advice = options.advised(f"{hint(raw)}, or convert it to UTF-8", "set --input.invalid repair")
        raise error(found, advice) from None


class _Paragraphs:
    """Collects a document's paragraphs, and no more of them once it is longer than `max_document_chars`."""

    def __init__(self, options: InputOptions, found: Callable[[int], None]) -> None:
        self.limit, self.found = options.max_document_chars, found
        self.lines: list[str] = []
        self.size = 0

    def add(self, line: str) -> None:
        self.found(len(line))
        if line and self.size <= self.limit:
            self.lines.append(line)
            self.size += len(line) + 1

    def all_of(self, lines: Iterable[str]) -> list[str]:
        for line in lines:
            self.add(line)
        return self.lines

    def take(self, source: str) -> Document:
        document = Document("\n".join(self.lines), source)
        self.lines, self.size = [], 0
        return document


def _text(lines: Lines, options: InputOptions) -> Iterator[Document]:
    paragraphs, first = _Paragraphs(options, lines.found), 0
    for line in _unwrapped(lines, options, lines.found) if options.paragraphs == "blank-line" else lines:
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


def _unwrapped(lines: Iterable[str], options: InputOptions, found: Callable[[int], None]) -> Iterator[str]:
    """The paragraphs of hard-wrapped text, cut at the longest document allowed; see `joined_paragraphs`."""
    return joined_paragraphs(lines, lambda group: _Paragraphs(options, found).all_of(group))


RULE = re.compile(r"\s*([-*_=]\s*){3,}$")  # a Markdown rule, or the underline of a heading
EMPHASIS = re.compile(r"(?<!\w)[_*]{1,3}(?=\S)|(?<=\S)[_*]{1,3}(?!\w)")  # at the edges of words; not 2*3, not a_name


def _markdown(lines: Lines, options: InputOptions) -> Iterator[Document]:
    paragraphs = _Paragraphs(options, lines.found)
    kept = ("" if line.startswith("#") or RULE.match(line) else line for line in lines)
    for paragraph in _unwrapped(kept, options, lines.found):
        paragraphs.add(EMPHASIS.sub("", paragraph) if "_" in paragraph or "*" in paragraph else paragraph)
    yield paragraphs.take(lines.name)


def _wikiextractor(lines: Lines, options: InputOptions) -> Iterator[Document]:
    paragraphs, begun, title = _Paragraphs(options, lines.found), 0, ""
    for line in lines:
        line = line.strip()
        if line.startswith("<doc "):
            begun, found = lines.number, re.search(r'title="(.*)"', line)
            title = html.unescape(found[1]) if found else ""
        elif line == "</doc>":
            yield paragraphs.take(f"{lines.name}, line {begun}")
            begun = 0
        elif line and not begun:
            raise lines.error(f"text outside of <doc ...>: {line[:60]!r}", "expected WikiExtractor output")
        elif line:
            line = html.unescape(line).strip() if "&" in line else line
            first = not paragraphs.lines and line == title
            if not first and not _is_heading(line, options.max_heading_width):
                paragraphs.add(line)
    if begun:
        lines.number = begun
        raise lines.error("<doc ...> has no </doc>", "the file was cut; extract it again, or leave it out")


def _is_heading(line: str, width: int) -> bool:
    """Whether a line is a heading: WikiExtractor writes one as its words and a full stop, like a very short passage."""
    if len(line) > width or not line.endswith("."):
        return False
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line) <= width


def _jsonl(lines: Lines, options: InputOptions) -> Iterator[Document]:
    for line in lines:
        if not line.strip():
            continue
        where = f"{lines.name}, line {lines.number}"
        try:
            record = parse_json(line, where, finite=False)  # NaN does no harm in a field that is not read
        except InputError as error:
            raise InputError(f"{error}; expected one JSON object a line") from None
        field = record.get(options.text_field) if isinstance(record, dict) else None
        if not isinstance(field, str) and options.missing == "skip":
            yield NO_FIELD
            continue
        if not isinstance(field, str):
            keys = list_names(record) if isinstance(record, dict) else type(record).__name__
            advice = f"give every line the field {options.text_field!r}"
            flags = "give its name with --input.text-field, or leave such lines out with --input.missing skip"
            advice = options.advised(advice, flags)
            raise lines.error(f"no text in field {options.text_field!r}; found {keys}", advice)
        lines.found(len(field))
        yield Document(_value(field, options, lines.error), where)


def _value(text: str, options: InputOptions, error: Callable[[str, str], InputError]) -> str:
    """A text value of JSONL or Parquet, checked or repaired as lines of text are."""
    if "\0" in text or not text.isascii():
        if options.invalid == "repair":
            return text.replace("\0", "").encode("utf-8", "replace").decode()
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
            advice = options.advised("remove it", "set --input.invalid repair")
            raise error("a lone surrogate (\\ud800 to \\udfff)", advice) from None
        if "\0" in text:
            raise error("a NUL character", options.advised("remove it", "set --input.invalid repair"))
    return text


PARSERS: dict[str, Callable[[Lines, InputOptions], Iterator[Document]]] = {
    "text": _text,
    "wikiextractor": _wikiextractor,
    "markdown": _markdown,
    "jsonl": _jsonl,
}


def parse_parquet(name: str, stream: io.BufferedReader, options: InputOptions) -> Iterator[Document]:
    import pyarrow as pa

    with contextlib.ExitStack() as stack:
        file: BinaryIO = stream
        if not stream.seekable():  # Parquet is read from its end; a stream from an archive cannot be
            file = stack.enter_context(tempfile.TemporaryFile())
            while block := stream.read(1 << 20):
                file.write(block)
        try:
            for row, value in enumerate(_cells(name, file, options), 1):
                fail = lambda found, advice, row=row: InputError(f"{name}, row {row}: {found}; {advice}")  # noqa: E731
                yield Document(_value(_decoded(value, options, fail), options, fail), f"{name}, row {row}")
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: names of columns
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            fault = shorten(str(error), 200)
            raise InputError(f"{name}: not a readable Parquet file ({fault}); the file is cut or damaged") from None


def _cells(name: str, file: BinaryIO, options: InputOptions) -> Iterator[bytes]:
    """The cells of column `options.text_field` as bytes, 64 in memory at a time; b"" for a cell without a value.

    Bytes, because Parquet says that its strings are UTF-8 and no reader checks it. `name` is the file's, for errors.
    Raises InputError if there is no such column, or it holds no text; pyarrow's errors, OSError or UnicodeDecodeError
    (of column names) for a damaged file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    schema, text_field = table.schema_arrow, options.text_field
    advice = options.advised(f"give the texts' column the name {text_field!r}", "set --input.text-field")
    if text_field not in schema.names:
        raise InputError(f"{name}: no column {text_field!r}; found {list_names(schema.names)}; {advice}")
    kind = schema.field(text_field).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_null(plain)):
        raise InputError(f"{name}: column {text_field!r} holds {kind}; expected text; {advice}")
    for batch in table.iter_batches(batch_size=64, columns=[text_field]):
        column = batch.column(0).cast(plain) if plain != kind else batch.column(0)
        yield from (value or b"" for value in column.cast(pa.large_binary()).to_pylist())
