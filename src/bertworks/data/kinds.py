"""Which format a file has, by its name and first bytes; files of a kind that holds no text are refused by that kind."""

import io
import itertools
import re
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
START = 512  # bytes that are looked at


class OtherKind(InputError):
    """A file of a kind that is not read."""


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


def named(names: Iterable[str]) -> str:
    """The first names of fields or columns, for a message."""
    first = [shorten(name, 40) for name in itertools.islice(names, 9)]
    return ", ".join([*first[:8], *(["..."] if len(first) > 8 else [])]) or "none"
