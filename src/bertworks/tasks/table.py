"""Rows with named columns: files of every format, and data in memory. Errors name file and line.

    .csv                      comma separated, quoted as in RFC 4180, first line = column names
    .tsv .txt                 tab separated, first line = column names; quotes: text_tables.py
    .jsonl                    one object per line
    .json                     a list of objects, or one object per line
    .parquet                  row group by row group; its rows are counted from 1
    .xlsx .xls .xlsb .ods     one sheet, cells as text, first row = column names (the extra `excel`; sheets.py)
    in memory                 DataFrames, datasets and lists of dictionaries (records.py)

Text files are UTF-8, or have the encoding that is declared (`TableForm`), with or without a byte order mark, with Unix
or Windows line ends. Names of columns are compared in their composed form (NFC).
"""

import functools
import glob
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..data.encodings import UTF8, codec_of
from ..data.parsers import list_names
from ..files import InputError, not_found, shorten
from ..tokenizer import normalize
from .header import MissingColumn, check_header, nearest_column
from .lines import decoded, refuse_kind
from .objects import json_list, json_objects, parquet_names, parquet_objects, text_of_value
from .records import Records, Source
from .sheets import SHEETS, sheet_records
from .text_tables import CARRIAGE_RETURN, csv_records, is_quoted, tsv_records

OBJECTS = (".jsonl", ".json", ".parquet")  # files whose rows are objects
TABLES = (".csv", ".tsv", *OBJECTS, *SHEETS)  # .txt is one too where a table is asked for: NSMC's files
PARTS = ("train", "dev")
SAMPLE = 1024  # objects at the beginning of a .json or .jsonl file whose keys are its columns
NAMES_FROM = 1 << 20  # characters at the beginning of a file that decide whether its column names are quoted


class TableForm(NamedTuple):
    """What a table's name does not say about the file."""

    encoding: str = "utf-8"  # of .csv, .tsv, .txt and .jsonl files; any of Python's
    sheet: str = ""  # name of the sheet of a workbook; "": its only one
    unquoted: bool = False  # whether quotes of .tsv and .txt files are ordinary characters whatever they look like
    header_row: int = 0  # row or line with the names of the columns, from 1; 0: the first (in a sheet, behind titles)
    joined: bool = False  # whether .tsv rows that are broken by line ends are put together; needs known labels


PLAIN = TableForm()
STORED = ("encoding", "sheet", "header_row")  # fields that results.json keeps


def form_facts(form: TableForm) -> dict[str, Any]:
    """What results.json says of the form of a run's tables, which `form_of` reads; {} of plain ones."""
    return {name: value for name in STORED if (value := getattr(form, name)) != getattr(PLAIN, name)}


def form_of(results: Mapping[str, Any]) -> TableForm:
    """The form of a run's tables. Raises InputError for an encoding that Python does not know."""
    encoding, sheet, row = (results.get(name, getattr(PLAIN, name)) for name in STORED)
    return TableForm(codec_of(str(encoding)), str(sheet), header_row=row if isinstance(row, int) else 0)


class Row(NamedTuple):
    """The wanted cells of one row, in the order asked for."""

    line: int  # where the row begins in the file, counted from 1; of Parquet the row
    values: list[str]


def read_table(
    source: Source | str,
    columns: Sequence[str],
    header: Sequence[str] = (),
    optional: Sequence[str | int] = (),
    lists: Sequence[str] = (),
    form: TableForm = PLAIN,
) -> Iterator[Row]:
    """The named columns of every row, then the optional ones, "" where there is none.

    header: the names of all columns, if the file begins without them. lists: columns whose cells may be lists, which
    cells.py reads. An optional column of a text table or sheet may be given by its position, from 0: a name may be
    there twice. Raises InputError with file and line, while iterating.
    """
    source = Path(source) if isinstance(source, str) else source
    optional = [name if isinstance(name, int) else normalize("NFC", name) for name in optional]
    columns, lists = ([normalize("NFC", name) for name in names] for names in (columns, lists))
    if not has_objects(source):
        assert isinstance(source, Path)
        yield from _from_records(source, columns, list(header), optional, form)
        return
    named = [name for name in optional if isinstance(name, str)]
    if isinstance(source, Records) and source.columns:
        check_header([*source.columns], columns, named, str(source))
    where = locator(source)
    for line, cells in objects_of(source, (*columns, *named), form):
        yield _from_object(where(line), line, cells, columns, named, lists)


def has_objects(source: Source) -> bool:
    """Whether rows are objects, whose values may have any type."""
    return isinstance(source, Records) or ending_of(source) in OBJECTS


def objects_of(source: Source, names: Sequence[str], form: TableForm = PLAIN) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each row of a source that `has_objects`, with these columns at least, where there are such."""
    if isinstance(source, Records):
        return source.rows(names)
    path = check_file(source)
    if ending_of(path) == ".parquet":
        return parquet_objects(path, names)
    return json_objects(path, form.encoding) if ending_of(path) == ".jsonl" else json_list(path)


def check_file(path: Path) -> Path:
    """The path. Raises InputError if there is no such file."""
    if not path.is_file():
        beside = [other.parent.name for other in sorted(path.parent.glob(f"*/{glob.escape(path.name)}"))]
        hint = f"; there is one in {list_names(beside)} of {path.parent}" if beside else ""
        raise InputError(f"{path}: {not_found(path)}{hint}")
    return path


def column_names(path: Path | str, form: TableForm = PLAIN) -> list[str]:
    """The composed names of a file's columns; of JSON all keys of its first objects. Raises InputError."""
    path = Path(path)
    if ending_of(path) == ".parquet":
        return [normalize("NFC", name) for name in parquet_names(path)]
    if ending_of(path) in OBJECTS:
        objects = (value for _, value in itertools.islice(objects_of(path, (), form), SAMPLE))
        return [*dict.fromkeys(normalize("NFC", name) for value in objects for name in value)]
    with open(check_file(path), "rb") as file:
        records = _records_of(file, path, 0, form, NAMES_FROM)
        return [normalize("NFC", name) for name in next(records, (0, []))[1]]


def names_of(source: Source, form: TableForm = PLAIN) -> tuple[str, ...]:
    """The composed names of the columns of a table or data in memory; () of a file that is not there."""
    if isinstance(source, Records):
        return source.columns or tuple(next(source.rows(()), (0, {}))[1])
    return tuple(column_names(source, form)) if source.is_file() else ()


def locator(source: Source | str) -> Callable[[int], str]:
    """How messages name a row: `a.csv, line 3`, `a.parquet, row 3`, `a.json, item 3`, `train.iloc[2]`."""
    if isinstance(source, Records):
        return source.location
    counted = {".parquet": "row", ".json": "item"} | dict.fromkeys(SHEETS, "row")
    start = f"{source}, {counted.get(ending_of(source), 'line')} "
    return lambda line: start + str(line)


def location(source: Source | str, line: int) -> str:
    """How messages name this row."""
    return locator(source)(line)


def part_of(path: Path | str) -> tuple[Path, str]:
    """The file, and which part of it is meant by `all.csv#train` or `all.csv#dev`; "" for all (draws.in_part)."""
    path = Path(path)
    name, _, part = path.name.rpartition("#")
    if part not in PARTS or not name or path.exists():
        return path, ""
    return path.with_name(name), part


def ending_of(path: Path | str) -> str:
    """How the name of a file ends, in small letters: .csv for a.csv, A.CSV, and the part a.csv#dev."""
    return part_of(path)[0].suffix.lower()


# ---- cells of text tables and sheets


def _records_of(
    file: IO[bytes], path: Path, width: int, form: TableForm, most: float = math.inf
) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record from the names of the columns on. most: characters that decide about quotes."""
    ending = ending_of(path)
    if ending in SHEETS:
        if form.encoding not in UTF8:
            raise InputError(f"{path}: a workbook has no encoding; leave --encoding {form.encoding} out")
        return sheet_records(file, path, form.sheet, form.header_row)
    lines = functools.partial(decoded, file, str(path), form.encoding)
    quoted = ending == ".csv"
    if not quoted and not form.unquoted:
        quoted = is_quoted(lines(), not width, most)
        file.seek(0)
    if quoted:
        records = csv_records(lines(), path, "," if ending == ".csv" else "\t")
    else:
        records = tsv_records(lines(), width, form.joined)
    return itertools.dropwhile(lambda record: record[0] < form.header_row, records) if form.header_row else records


def _from_records(
    path: Path, columns: Sequence[str], header: list[str], optional: Sequence[str | int], form: TableForm
) -> Iterator[Row]:
    """Rows of cells; the first record is the header, if none was given."""
    if ending_of(path) not in (*TABLES, ".txt"):
        if path.is_file():
            with open(path, "rb") as file:
                refuse_kind(file.read(16), str(path))
        found = f"{not_found(path)}, which" if path.is_dir() else "expected a file that"
        words = "" if path.is_dir() else "; a file with a word per line needs --kind tagging"
        raise InputError(f"{path}: {found} ends in {', '.join(TABLES)} or .txt{words}")
    with open(check_file(path), "rb") as file:
        records = _records_of(file, path, len(header), form)
        first = 1
        if not header:
            first, names = next(records, (1, []))
            header = [normalize("NFC", name) for name in names]
            if ending_of(path) in SHEETS and first > 1 and not form.header_row:
                print(f"{path}: the names of the columns are read from row {first}; --header-row names another row",
                      file=sys.stderr)  # fmt: skip
        if ending_of(path) in (".tsv", ".txt") and any("\r" in name for name in header):
            raise InputError(f"{path}, line {first}: {CARRIAGE_RETURN}")
        try:
            check_header(header, columns, [name for name in optional if isinstance(name, str)], location(path, first))
        except MissingColumn as error:
            raise MissingColumn(f"{error}{_later_header(records, columns)}") from None
        indices = [
            name if isinstance(name, int) else header.index(name) if name in header else -1
            for name in (*columns, *optional)
        ]
        for line, cells in records:
            if len(cells) != len(header):
                found = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}"
                raise InputError(
                    f"{path}, line {line}: {found}, but the header has {len(header)}; is the line cut off?"
                )
            yield Row(line, [cells[i] if i >= 0 else "" for i in indices])


def _later_header(records: Iterator[tuple[int, list[str]]], columns: Sequence[str]) -> str:
    """The end of a message about a missing column, if one of the next rows has the names of the columns."""
    for line, cells in itertools.islice(records, 10):
        if {*columns} <= {normalize("NFC", cell) for cell in cells}:
            return f"; row {line} has the names of the columns: give --header-row {line}"
    return ""


# ---- objects


def _from_object(
    where: str, line: int, cells: dict[str, Any], columns: Sequence[str], optional: Sequence[str], lists: Sequence[str]
) -> Row:
    cells = {normalize("NFC", name): cell for name, cell in cells.items()}
    missing = [name for name in columns if name not in cells]
    if missing:
        raise MissingColumn(
            f"{where}: no key {shorten(missing[0])}; found {list_names(cells)}{nearest_column(missing[0], [*cells])}"
        )
    wanted = (*columns, *optional)
    return Row(line, [text_of_value(cells.get(name), name in lists, f"{where}: {shorten(name)}") for name in wanted])
