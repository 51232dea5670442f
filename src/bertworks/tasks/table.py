"""Tables of text: CSV, TSV and JSON lines, read row by row; errors name file and line.

    .csv    comma separated, quoted as in RFC 4180, first line = column names
    .tsv    tab separated, quotes are ordinary characters (as in GLUE's files), first line = column names
    .jsonl  one object a line

UTF-8 with or without a byte order mark, Unix or Windows line ends.
"""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError

TABLES = (".csv", ".tsv", ".jsonl")
FIELD_LIMIT = 1 << 30  # characters of a CSV field; the standard library's own limit is 131,072


class Row(NamedTuple):
    """The wanted cells of one row, in the order asked for."""

    line: int  # where the row begins in the file, counted from 1
    values: list[str]


def read_table(path: Path | str, columns: Sequence[str], header: Sequence[str] = ()) -> Iterator[Row]:
    """The named columns of every row. Raises InputError with file and line, while iterating.

    `header`: the names of all columns, if the file begins without them.
    """
    path = Path(path)
    if path.suffix not in TABLES:
        raise InputError(f"{path}: expected a file that ends in {', '.join(TABLES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with open(path, "rb") as file:
        lines = decoded(file, str(path))
        if path.suffix == ".jsonl":
            yield from _json_rows(lines, columns, path)
        else:
            records = _csv_records(lines, path) if path.suffix == ".csv" else _tsv_records(lines)
            yield from _chosen(itertools.chain([(0, list(header))] if header else (), records), columns, path)


def decoded(lines: Iterable[bytes], where: str) -> Iterator[str]:
    """Lines as text, a byte order mark removed. Raises InputError with the line that is not UTF-8."""
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where}, line {number}: byte 0x{line[error.start]:02X} is not UTF-8; save the file as UTF-8"
            ) from None


def _csv_records(lines: Iterator[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record; a quoted cell may contain line ends."""
    csv.field_size_limit(FIELD_LIMIT)
    reader, line = csv.reader(lines, strict=True), 1
    try:
        for cells in reader:
            if cells:  # blank lines are no records
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, the row that begins in line {line}: {error}; a quote may be missing, or the file be cut off"
        ) from None


def _tsv_records(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        if line.strip("\r\n"):
            yield number, line.rstrip("\r\n").split("\t")


def _chosen(records: Iterator[tuple[int, list[str]]], columns: Sequence[str], path: Path) -> Iterator[Row]:
    """The wanted cells; the first record is the header."""
    _, header = next(records, (0, []))
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(f"{path}, line 1: no column {missing[0]!r}; found {', '.join(map(repr, header)) or 'nothing'}")
    places = [header.index(name) for name in columns]
    for line, cells in records:
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {line}: {len(cells)} cells, but the header has {len(header)}; is the line cut off?"
            )
        yield Row(line, [cells[place] for place in places])


def _json_rows(lines: Iterator[str], columns: Sequence[str], path: Path) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number}: not valid JSON ({error.msg}); is the line cut off?") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: found a {type(row).__name__}; expected an object")
        yield Row(number, [_cell(row, name, f"{path}, line {number}") for name in columns])


def _cell(row: dict[str, Any], name: str, where: str) -> str:
    """A JSON value as text: strings as they are, whole numbers and booleans (labels) as JSON writes them."""
    if name not in row:
        raise InputError(f"{where}: no key {name!r}; found {', '.join(map(repr, row)) or 'none'}")
    value = row[name]
    if value is None:
        return ""
    if not isinstance(value, str | int):
        raise InputError(f"{where}: {name!r} is a {type(value).__name__}; expected a string")
    return value if isinstance(value, str) else json.dumps(value)
