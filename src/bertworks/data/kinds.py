"""Which format a file has, by its name and first bytes; files of a kind that holds no text are refused by that kind."""

import io
import itertools
from collections.abc import Iterable

from ..files import InputError, shorten
from .streams import bare_name

FORMATS = {".md": "markdown", ".markdown": "markdown", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
EXPECTED = "expected plain text, WikiExtractor, Markdown, JSONL or Parquet, as it is, compressed or in a tar archive"
TABLE = "a table", "save its texts as a column of Parquet, as JSONL or as plain text, or set --input.format text"
OFFICE = "a zip archive, a spreadsheet or an office document", "unpack it, or save the text in it as plain text"
MARKUP = "HTML or XML", "extract its text first (WikiExtractor for a dump of Wikipedia), or set --input.format text"
BINARY = "not text", "save the text in it as plain text"
REFUSED_NAMES = {
    **dict.fromkeys((".csv", ".tsv"), TABLE),
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".docx", ".doc", ".odt", ".pptx", ".epub", ".zip"), OFFICE),
    **dict.fromkeys((".html", ".htm", ".xhtml", ".xml"), MARKUP),
}
REFUSED_STARTS = {
    b"PK\x03\x04": OFFICE,
    b"\xd0\xcf\x11\xe0": OFFICE,
    b"%PDF-": ("a PDF file", BINARY[1]),
    b"{\\rtf": ("an RTF file", BINARY[1]),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    b"Rar!": ("a RAR archive", "unpack it"),
    b"\x04\x22\x4d\x18": ("an lz4 file", "compress it with zstd, gzip, bzip2 or xz instead"),
    b"\x1f\x9d": ("a file made by compress", "compress it with zstd, gzip, bzip2 or xz instead"),
    b"<?xml": MARKUP,
    b"<mediawiki": MARKUP,
    b"<!DOCTYPE": MARKUP,
    b"<!doctype": MARKUP,
    b"<html": MARKUP,
    b"\x89PNG": BINARY,
    b"\xff\xd8\xff": BINARY,
    b"GIF8": BINARY,
    b"\x7fELF": BINARY,
    b"\x93NUMPY": BINARY,
    b"ARROW1": ("an Arrow file", "save it as Parquet"),
    b"SQLite format 3": ("an SQLite database", BINARY[1]),
}


def guess_format(name: str, stream: io.BufferedReader) -> str:
    """The format of a stream: text, wikiextractor, markdown, jsonl or parquet. Raises InputError for other kinds."""
    bare = bare_name(name)
    start = stream.peek(16).removeprefix(b"\xef\xbb\xbf").lstrip()
    refused = next((kind for first, kind in REFUSED_STARTS.items() if start.startswith(first)), None)
    refused = refused or next((kind for ending, kind in REFUSED_NAMES.items() if bare.endswith(ending)), None)
    if refused:
        raise InputError(f"{name}: {refused[0]}; {EXPECTED}; {refused[1]}")
    if bare.endswith(".parquet") or start.startswith(b"PAR1"):
        return "parquet"
    if found := next((kind for ending, kind in FORMATS.items() if bare.endswith(ending)), None):
        return found
    return "wikiextractor" if start.startswith(b"<doc ") else "text"


def named(names: Iterable[str]) -> str:
    """The first names of fields or columns, for a message."""
    first = [shorten(name, 40) for name in itertools.islice(names, 9)]
    return ", ".join([*first[:8], *(["..."] if len(first) > 8 else [])]) or "none"
