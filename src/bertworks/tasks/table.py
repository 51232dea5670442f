"""Rows with named columns: files of every format, and data in memory. Errors name file and line.

    .csv                      comma separated, quoted as in RFC 4180, first line = column names
    .tsv .txt                 tab separated, first line = column names; quotes: formats.py
    .jsonl                    one object per line
    .json                     a list of objects, or one object per line
    .parquet                  row group by row group; its rows are counted from 1
    .xlsx .xls .xlsb .ods     one sheet, cells as text, first row = column names (the extra `excel`; sheets.py)
    in memory                 DataFrames, datasets and lists of dictionaries (records.py)

Text files are UTF-8, or have the encoding that is declared (`TableForm`), with or without a byte order mark, with Unix
or Windows line ends. Names of columns are compared in their composed form (NFC).
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..data.parsers import list_names
from ..files import InputError, not_found, shorten
from ..tokenizer import normalize
from .formats import (
    Cells,
    Objects,
    csv_records,
    decoded,
    is_quoted,
    json_list,
    json_objects,
    parquet_objects,
    tsv_records,
)
from .records import Records, Source
from .rows import check_characters
from .sheets import SHEETS, sheet_records

OBJECTS = (".jsonl", ".json", ".parquet")  # files whose rows are objects
TABLES = (".csv", ".tsv", *OBJECTS, *SHEETS)  # .txt is one too where a table is asked for: NSMC's files
PARTS = ("train", "dev")
SAMPLE = 1024  # objects at the beginning of a file or in memory whose keys are its columns


class TableForm(NamedTuple):
    """What a table's name does not say about the file."""

    encoding: str = "utf-8"  # of .csv, .tsv, .txt and .jsonl files; any of Python's
    sheet: str = ""  # name of the sheet of a workbook; "": its only one
    unquoted: bool = False  # whether quotes of .tsv and .txt files are ordinary characters whatever they look like
    header_row: int = 0  # row or line with the names of the columns, from 1; 0: the first
    joined: bool = False  # whether .tsv rows that are broken by line ends are put together; needs known labels


PLAIN = TableForm()


def form_facts(form: TableForm) -> dict[str, Any]:
    """What results.json says of the form of a run's tables; {} of plain ones."""
    stored = ("encoding", "sheet", "header_row")
    return {name: value for name in stored if (value := getattr(form, name)) != getattr(PLAIN, name)}


class Row(NamedTuple):
    """The wanted cells of one row, in the order asked for."""

    line: int  # where the row begins in the file, counted from 1; of Parquet the row
    values: list[str]


class MissingColumn(InputError):
    """A table has no column of the name that was asked for."""


def read_table(
    source: Source | str,
    columns: Sequence[str],
    header: Sequence[str] = (),
    optional: Sequence[str] = (),
    lists: Sequence[str] = (),
    form: TableForm = PLAIN,
) -> Iterator[Row]:
    """The named columns of every row, then the optional ones, "" where there is none.

    header: the names of all columns, if the file begins without them. lists: columns whose cells may be lists, which
    cells.py reads. Raises InputError with file and line, while iterating.
    """
    source = Path(source) if isinstance(source, str) else source
    columns, optional, lists = ([normalize("NFC", name) for name in names] for names in (columns, optional, lists))
    if has_objects(source):
        yield from _from_objects(source, columns, optional, lists, form)
    else:
        assert isinstance(source, Path)
        yield from _from_records(source, columns, optional, list(header), form)


def has_objects(source: Source) -> bool:
    """Whether rows are objects, whose values may have any type."""
    return isinstance(source, Records) or ending_of(source) in OBJECTS


def objects_of(source: Source, names: Sequence[str], form: TableForm = PLAIN) -> Objects:
    """(line, object) of each row of a source that `has_objects`, with these columns at least, where there are such."""
    if isinstance(source, Records):
        return source.rows(names)
    path, ending = _existing(source), ending_of(source)
    if ending == ".parquet":
        return parquet_objects(path, names)
    return json_objects(path, form.encoding) if ending == ".jsonl" else json_list(path)


def names_of(source: Source, form: TableForm = PLAIN) -> tuple[str, ...]:
    """The composed names of a source's columns, of JSON all keys of its first objects; () of a file not there."""
    if isinstance(source, Path) and not source.is_file():
        return ()
    if isinstance(source, Records) and source.own:
        return (*source.own,)
    if has_objects(source):
        objects = itertools.islice(objects_of(source, (), form), SAMPLE)
        return (*dict.fromkeys(normalize("NFC", name) for _, value in objects for name in value),)
    assert isinstance(source, Path)
    with open(source, "rb") as file:
        return tuple(_header(_records_of(file, source, 0, form, 1))[1])


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
    """The file, and which part of it is meant by `all.csv#train` or `all.csv#dev`; "" for all (sampling.in_part)."""
    path = Path(path)
    name, _, part = path.name.rpartition("#")
    if part not in PARTS or not name or path.exists():
        return path, ""
    return path.with_name(name), part


def ending_of(path: Path | str) -> str:
    """How the name of a file ends, in small letters: .csv for a.csv, A.CSV, and the part a.csv#dev."""
    return part_of(path)[0].suffix.lower()


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: {not_found(path)}")
    return path


# ---- cells of text tables and sheets


def _records_of(file: IO[bytes], path: Path, width: int, form: TableForm, most: int | None = None) -> Cells:
    """(line, cells) of each record from the header on. most: lines that decide about quotes."""
    ending = ending_of(path)
    if ending in SHEETS:
        records = sheet_records(file, path, form.sheet, form.header_row)
    else:
        quoted = ending == ".csv"
        if not quoted and not form.unquoted:
            quoted = is_quoted(itertools.islice(decoded(file, str(path), form.encoding), most), not width)
            file.seek(0)
        lines = decoded(file, str(path), form.encoding)
        if quoted:
            records = csv_records(lines, path, "," if ending == ".csv" else "\t")
        else:
            records = tsv_records(lines, width, form.joined)
    return itertools.dropwhile(lambda record: record[0] < form.header_row, records) if form.header_row else records


def _header(records: Cells) -> tuple[int, list[str]]:
    """The line and the composed names of the header; no names of an empty file."""
    line, names = next(records, (1, []))
    return line, [normalize("NFC", name) for name in names]


def _from_records(
    path: Path, columns: Sequence[str], optional: Sequence[str], header: list[str], form: TableForm
) -> Iterator[Row]:
    """Rows of cells; the first record is the header, if none was given."""
    if ending_of(path) not in (*TABLES, ".txt"):
        expected = f"expected a file that ends in {', '.join(TABLES)} or .txt"
        raise InputError(f"{path}: {expected}; a file with a word per line needs --kind tagging")
    with open(_existing(path), "rb") as file:
        records = _records_of(file, path, len(header), form)
        first, header = (1, header) if header else _header(records)
        advice = "; --header-row gives another row" if ending_of(path) in SHEETS else ""
        _check_header(header, columns, optional, location(path, first), advice)
        indices = [header.index(name) if name in header else -1 for name in (*columns, *optional)]
        for line, cells in records:
            if len(cells) != len(header):
                found = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}, but the header has {len(header)}"
                raise InputError(f"{path}, line {line}: {found}; is the line cut off?")
            yield Row(line, [cells[i] if i >= 0 else "" for i in indices])


def _check_header(
    header: Sequence[str], columns: Sequence[str], optional: Sequence[str], where: str, advice: str = ""
) -> None:
    """Raises InputError if a column is missing or not the only one of its name."""
    found = list_names(header) if header else "nothing: the file is empty"
    if len(header) == 1 and ";" in header[0]:
        advice = "; is it divided by semicolons? expected commas, or tabs in a .tsv"
    for name in columns:
        if name not in header:
            raise MissingColumn(f"{where}: no column {shorten(name)}; found {found}{advice}")
    for name in (*columns, *optional):
        if header.count(name) > 1:
            raise InputError(f"{where}: several columns {shorten(name)}; found {found}; rename one of them")


# ---- objects


def _from_objects(
    source: Source, columns: Sequence[str], optional: Sequence[str], lists: Sequence[str], form: TableForm
) -> Iterator[Row]:
    wanted, where = (*columns, *optional), locator(source)
    if isinstance(source, Records) and source.own:
        _check_header([*source.own], columns, optional, str(source))
    for line, found in objects_of(source, wanted, form):
        cells = {normalize("NFC", name): cell for name, cell in found.items()}
        for name in columns:
            if name not in cells:
                raise MissingColumn(f"{where(line)}: no key {shorten(name)}; found {list_names(cells)}")
        yield Row(line, [_text(cells.get(name), name in lists, f"{where(line)}: {shorten(name)}") for name in wanted])


def _text(value: Any, may_be_list: bool, where: str) -> str:
    """A value as text: strings as they are; numbers, booleans and lists as JSON writes them.

    Where a list may be, also objects with a `text`, such as the answers to a question.
    """
    if value is None:
        return ""
    items = value if may_be_list and isinstance(value, list) else [value]
    if may_be_list and items and all(isinstance(item, dict) and "text" in item for item in items):
        return json.dumps(value, ensure_ascii=False)
    wrong = [item for item in items if not isinstance(item, str | int | float)]
    if wrong:
        expected = "a string" + (", or a list of strings" if may_be_list else "")
        inside = " with a " + type(wrong[0]).__name__ + " in it" if items is value else ""
        raise InputError(f"{where} is a {type(value).__name__}{inside}; expected {expected}")
    if any(isinstance(item, float) and not math.isfinite(item) for item in items):
        raise InputError(f"{where} is {shorten(value)}; expected a text or a finite number")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    check_characters(text, where)
    return text
