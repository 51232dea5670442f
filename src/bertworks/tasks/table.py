"""Rows with named columns: files of every format, and data in memory. Errors contain file and line.

    .csv                      comma separated, quoted as in RFC 4180, first line = column names
    .tsv .txt                 tab separated, first line = column names, quotes are ordinary characters
    .jsonl                    one object per line
    .json                     a list of objects
    .parquet                  row group by row group; its rows are counted from 1
    .xlsx .xls .xlsb .ods     one sheet, cells as text, first row = column names (the extra `excel`)
    in memory                 DataFrames, datasets and lists of dictionaries (records.py)

Text files are UTF-8, or have the encoding that is declared (`TableForm`), with or without a byte order mark, with Unix
or Windows line ends. Names of columns are compared in their composed form (NFC).
"""

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..data.parsers import list_names
from ..files import InputError, not_found, shorten
from ..tokenizer import normalize
from . import formats
from .records import MemoryTable, Source
from .rows import check_characters

OBJECTS = (".jsonl", ".json", ".parquet")  # files whose rows are objects
SHEETS = (".xlsx", ".xlsb", ".xls", ".ods")
TABLES = (".csv", ".tsv", *OBJECTS, *SHEETS)  # .txt is one too where a table is expected: NSMC's files
PARTS = ("train", "dev")
SAMPLE = 1024  # objects at the beginning of a file or in memory whose keys are its columns


class TableForm(NamedTuple):
    """What a table's name does not say about the file."""

    encoding: str = "utf-8"  # of .csv, .tsv, .txt and .jsonl files; any of Python's
    sheet: str = ""  # name of the sheet of a workbook; "": its only one
    official: bool = False  # whether a .tsv is a file of a built-in task (formats.tsv_records)


PLAIN = TableForm()


class Row(NamedTuple):
    """The values of one row in the requested columns, in their order."""

    line: int  # where the row begins in the file, counted from 1; of Parquet and sheets the row
    values: list[str]


class MissingColumn(InputError):
    """A table has no column of a requested name."""


def read_table(
    source: Source | str,
    columns: Sequence[str],
    header: Sequence[str] = (),
    optional: Sequence[str] = (),
    lists: Sequence[str] = (),
    form: TableForm = PLAIN,
) -> Iterator[Row]:
    """The named columns of every row, then the optional ones, "" where they are missing.

    header: the names of all columns, if the file begins without them. lists: columns whose values may be lists, which
    `labels.as_list` reads. Raises InputError with file and line, while iterating.
    """
    source, where = Path(source) if isinstance(source, str) else source, locator(source)
    columns, optional, lists = ([normalize("NFC", name) for name in names] for names in (columns, optional, lists))
    wanted = (*columns, *optional)
    if not has_objects(source):
        yield from _rows_of_records(source, columns, optional, list(header), form)  # type: ignore[arg-type]
        return
    for line, item in objects_of(source, wanted, form):
        values = {normalize("NFC", name): value for name, value in item.items()}
        if missing := [name for name in columns if name not in values]:
            found = list_names(names_of(source, form))
            raise MissingColumn(f"{where(line)}: no column {shorten(missing[0])}; found {found}")
        yield Row(line, [_text(values.get(name), name in lists, where, line, name) for name in wanted])


def has_objects(source: Source) -> bool:
    """Whether rows are objects, whose values may have any type."""
    return isinstance(source, MemoryTable) or suffix_of(source) in OBJECTS


def objects_of(source: Source, names: Sequence[str], form: TableForm = PLAIN) -> formats.Objects:
    """(line, object) of each row of a source that `has_objects`, with at least the existing ones of these columns."""
    if isinstance(source, MemoryTable):
        return source.rows(names)
    check_exists(source)
    if suffix_of(source) == ".parquet":
        return formats.parquet_objects(source, names)
    return formats.json_objects(source, form.encoding) if suffix_of(source) == ".jsonl" else formats.json_list(source)


def names_of(source: Source, form: TableForm = PLAIN) -> tuple[str, ...]:
    """The composed names of a source's columns, of JSON all keys of its first objects; () of a missing file."""
    if isinstance(source, Path) and not source.is_file():
        return ()
    if isinstance(source, MemoryTable) and source.columns:
        return (*source.columns,)
    if has_objects(source):
        objects = itertools.islice(objects_of(source, (), form), SAMPLE)
        return (*dict.fromkeys(normalize("NFC", name) for _, value in objects for name in value),)
    with open(source, "rb") as file:  # type: ignore[arg-type]
        _, names = next(_records_of(file, source, 0, form), (1, []))  # type: ignore[arg-type]
    return tuple(normalize("NFC", name) for name in names)


def locator(source: Source | str) -> Callable[[int], str]:
    """How messages refer to a row: `a.csv, line 3`, `a.parquet, row 3`, `a.json, item 3`, `train.iloc[2]`."""
    if isinstance(source, MemoryTable):
        return source.location
    units = {".parquet": "row", ".json": "item"} | dict.fromkeys(SHEETS, "row")
    start = f"{source}, {units.get(suffix_of(source), 'line')} "
    return lambda line: start + str(line)


def part_of(path: Path | str) -> tuple[Path, str]:
    """The file, and the part of it that `all.csv#train` or `all.csv#dev` means; "" for all (sampling.in_part)."""
    path = Path(path)
    name, _, part = path.name.rpartition("#")
    if part not in PARTS or not name or os.path.exists(path):
        return path, ""
    return path.with_name(name), part


def suffix_of(path: Path | str) -> str:
    """How the name of a file ends, in small letters: .csv for a.csv, A.CSV, and the part a.csv#dev."""
    return part_of(path)[0].suffix.lower()


def check_exists(path: Path) -> None:
    """Raises InputError if there is no such file."""
    if not os.path.isfile(path):
        raise InputError(f"{path}: {not_found(path)}")


# ---- rows of text tables and sheets


def _records_of(file: IO[bytes], path: Path, width: int, form: TableForm) -> formats.Records:
    """(line, cells) of each record, the header included."""
    suffix = suffix_of(path)
    if suffix in SHEETS:
        return formats.sheet_records(file, path, form.sheet)
    lines = formats.decoded(file, str(path), form.encoding)
    if suffix == ".csv":
        return formats.csv_records(lines, path)
    return formats.tsv_records(lines, width, form.official, path)


def _rows_of_records(
    path: Path, columns: Sequence[str], optional: Sequence[str], header: list[str], form: TableForm
) -> Iterator[Row]:
    if suffix_of(path) not in (*TABLES, ".txt"):
        expected = f"expected a file that ends in {', '.join(TABLES)} or .txt"
        raise InputError(f"{path}: {expected}; a file with a word per line needs the kind tagging")
    check_exists(path)
    with open(path, "rb") as file:
        records = _records_of(file, path, len(header), form)
        first, names = (1, header) if header else next(records, (1, []))
        header = [normalize("NFC", name) for name in names]
        _check_header(header, columns, optional, locator(path)(first))
        indices = [header.index(name) if name in header else -1 for name in (*columns, *optional)]
        for line, cells in records:
            if len(cells) != len(header):
                problem = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}, but the header has {len(header)}"
                advice = "is the line cut off?"
                if len(cells) > len(header):
                    advice = "does a text contain a comma or a tab? In a .csv file put it in quotes"
                raise InputError(f"{path}, line {line}: {problem}; {advice}")
            yield Row(line, [cells[i] if i >= 0 else "" for i in indices])


def _check_header(header: Sequence[str], columns: Sequence[str], optional: Sequence[str], where: str) -> None:
    """Raises InputError if a column is missing or not the only one of its name."""
    names = list_names(header) if header else "nothing: the file is empty"
    advice = "; is it divided by semicolons? expected commas, or tabs in a .tsv" if ";" in "".join(header[:1]) else ""
    for name in (*columns, *optional):
        if name in columns and name not in header:
            raise MissingColumn(f"{where}: no column {shorten(name)}; found {names}{advice}")
        if header.count(name) > 1:
            raise InputError(f"{where}: several columns {shorten(name)}; found {names}; rename one of them")


# ---- values of objects


def _text(value: Any, may_be_list: bool, where: Callable[[int], str], line: int, name: str) -> str:
    """A value as text: strings as they are; numbers, booleans and lists as JSON writes them.

    Where a list may be, also objects with a `text`, such as the answers to a question.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        check_characters(value, f"{where(line)}: {shorten(name)}")
        return value
    items = value if may_be_list and isinstance(value, list) else [value]
    allowed = (
        dict if may_be_list and all(isinstance(item, dict) and "text" in item for item in items) else str | int | float
    )
    if not all(isinstance(item, allowed) for item in items):
        expected = "a string" + (", or a list of strings" if may_be_list else "")
        raise InputError(f"{where(line)}: {shorten(name)} is {shorten(value)}; expected {expected}")
    if any(isinstance(item, float) and not math.isfinite(item) for item in items):
        raise InputError(f"{where(line)}: {shorten(name)} is {shorten(value)}; expected a text or a finite number")
    text = json.dumps(value, ensure_ascii=False)
    check_characters(text, f"{where(line)}: {shorten(name)}")
    return text
