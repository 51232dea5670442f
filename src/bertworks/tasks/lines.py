"""Lines of text files, decoded and limited; files that are no text are refused by their kind."""

import re
from collections.abc import Iterator
from typing import IO

from ..data.corpus import MARKUP, PARQUET, REFUSED_STARTS
from ..data.encodings import UTF8, as_utf8, codec_of, hint
from ..data.streams import BZIP2, ZSTD
from ..files import InputError

MAX_LINE = 16 << 20  # bytes of a line, characters of a cell; a line of 100 MB would take gigabytes of memory
EXPECTED = "expected UTF-8 text, a line each, or a table: .csv, .tsv, .jsonl, .parquet, .xlsx"
_COMPRESSED = ("a compressed file", "unpack it")
_REFUSED = {  # by regular expressions of first bytes
    **{start: kind for start, kind in REFUSED_STARTS.items() if kind != MARKUP},  # a text may begin with <html>
    **dict.fromkeys((rb"\x1f\x8b", BZIP2, rb"\xfd7zXZ", *map(re.escape, ZSTD)), _COMPRESSED),
    PARQUET: ("a Parquet file", "give it a name that ends in .parquet"),
    rb"\xff\xfe": ("UTF-16 text", "give --encoding utf-16, or save it as UTF-8"),
    rb"\xfe\xff": ("UTF-16 text", "give --encoding utf-16, or save it as UTF-8"),
}


def refuse_kind(start: bytes, where: str) -> None:
    """Raises InputError if a file that begins with these bytes is no text; the message names its kind."""
    for first, (found, advice) in _REFUSED.items():
        if re.match(first, start):
            raise InputError(f"{where}: {found}; {EXPECTED}; {advice}")


def decoded(file: IO[bytes], where: str, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file with their line ends, without a byte order mark.

    Raises InputError, with the line, if it is not of this encoding, is longer than MAX_LINE bytes, or the file is no
    text.
    """
    if codec_of(encoding) not in UTF8:
        file = as_utf8(file, encoding, where)
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1:
            refuse_kind(line, where)
        if len(line) > MAX_LINE:
            raise InputError(f"{where}, line {number}: more than {MAX_LINE:,} bytes; expected shorter lines; divide it")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            found = f"{where}, line {number}: byte 0x{line[error.start]:02X} is not UTF-8"
            raise InputError(f"{found}; {hint(line)}, or save the file as UTF-8") from None
