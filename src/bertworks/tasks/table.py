"""Tables of text: CSV, TSV, JSON lines and Parquet, read row by row; errors name file and line.

    .csv       comma separated, quoted as in RFC 4180, first line = column names
    .tsv .txt  tab separated, quotes are ordinary characters (as in GLUE's files), first line = column names
    .jsonl     one object a line
    .parquet   row group by row group; its rows are counted from 1
    .xlsx      one sheet, cells as text, first row = column names (the extra `excel`; sheets.py)

UTF-8, or the encoding that is declared (`TableForm`), with or without a byte order mark, Unix or Windows line ends.
Names of columns are compared in their composed form (NFC).

One file can serve twice: `all.csv#dev` is about a fifth of its rows, `all.csv#train` the others. A hash of the row's
first text decides, so that neither the order of the rows nor a text that occurs twice changes sides. Other files of
rows are divided in the same way, by document (sentences.py, questions.py).
"""

import csv
import glob
import hashlib
import itertools
import json
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..data.encodings import UTF8, codec_of
from ..data.parsers import list_names
from ..files import InputError, not_found, parse_json, shorten
from ..tokenizer import normalize
from .header import SEPARATE, MissingColumn, check_header, nearest_column
from .lines import MAX_LINE, decoded, refuse_kind
from .records import Records, Source
from .rows import check_characters
from .sheets import sheet_records

TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")  # .txt is one too where a table is asked for: NSMC's files
PARTS = ("train", "dev")
DEV_SHARE = 5  # one row of so many is in the dev part
BATCH = 1024  # rows of a Parquet file held at a time
CARRIAGE_RETURN = (
    "a carriage return (CR) that is not part of a line end, as in files of old Macs; expected line ends LF or CRLF; "
    "save the file with Unix or Windows line ends"
)
_CSV_LIMIT = threading.RLock()  # held while the process has our limit


class TableForm(NamedTuple):
    """What a table's name does not say about the file."""

    encoding: str = "utf-8"  # of .csv, .tsv, .txt and .jsonl files; any of Python's
    sheet: str = ""  # name of the sheet of an .xlsx file; "": its only one


PLAIN = TableForm()


def form_facts(form: TableForm) -> dict[str, str]:
    """What results.json says of the form of a run's tables, which `form_of` reads; {} of plain ones."""
    return {name: value for name, value in form._asdict().items() if value != PLAIN._asdict()[name]}


def form_of(results: Mapping[str, Any]) -> TableForm:
    """The form of a run's tables. Raises InputError for an encoding that Python does not know."""
    found = TableForm(**{name: str(results[name]) for name in TableForm._fields if name in results})
    return found._replace(encoding=codec_of(found.encoding))


class Row(NamedTuple):
    """The wanted cells of one row, in the order asked for."""

    line: int  # where the row begins in the file, counted from 1; of Parquet the row
    values: list[str]


def read_table(
    path: Source | str,
    columns: Sequence[str],
    header: Sequence[str] = (),
    optional: Sequence[str | int] = (),
    lists: Sequence[str] = (),
    joined: bool = False,
    divided_by: int = 0,
    form: TableForm = PLAIN,
) -> Iterator[Row]:
    """The named columns of every row, then the optional ones, "" where there is none.

    header: the names of all columns, if the file begins without them. lists: columns whose cells may be lists, which
    `as_list` reads. joined: whether a .tsv row that is broken by line ends within its cells is put together (QQP's
    official train.tsv has such); labels should be known, or two damaged lines could pass for one row. divided_by:
    which of the columns decides whether a row is in the part #train or #dev. form: encoding and sheet of the file.
    An optional column of a .csv, .tsv or .xlsx file may be given by its position, from 0: a name may be there twice.

    Raises InputError with file and line, while iterating. Rows in memory (records.py) are read as a file's are.
    """
    optional = [name if isinstance(name, int) else normalize("NFC", name) for name in optional]
    named = [name for name in optional if isinstance(name, str)]
    columns, lists = ([normalize("NFC", name) for name in names] for names in (columns, lists))
    if isinstance(path, Records):
        if path.columns:
            check_header([*path.columns], columns, named, str(path))
        for line, cells in path.rows((*columns, *named)):
            yield _from_object(line, cells, columns, named, lists, path)
        return
    ending, (path, part) = ending_of(path), part_of(path)
    if ending not in (*TABLES, ".txt"):
        if path.is_file():
            with open(path, "rb") as file:
                refuse_kind(file.read(16), str(path))
        found = f"{not_found(path)}, which" if path.is_dir() else "expected a file that"
        raise InputError(f"{path}: {found} ends in {', '.join(TABLES)} or .txt")
    if not path.is_file():
        raise InputError(f"{path}: {not_found(path)}{_deeper(path)}")
    rows: Iterator[Row] = _from_records(path, columns, list(header), optional, joined, form)
    if ending in (".jsonl", ".parquet"):
        objects = (
            _json_objects(path, form.encoding) if ending == ".jsonl" else _parquet_objects(path, (*columns, *named))
        )
        rows = (_from_object(line, value, columns, named, lists, path) for line, value in objects)
    for row in rows:
        if in_part(row.values[divided_by], part):
            yield row


def _deeper(path: Path) -> str:
    """The end of a message about a file that is not there: in which folders beside it there is one of its name."""
    found = [other.parent.name for other in sorted(path.parent.glob(f"*/{glob.escape(path.name)}"))]
    return f"; there is one in {list_names(found)} of {path.parent}" if found else ""


def column_names(path: Path | str, form: TableForm = PLAIN) -> list[str]:
    """The names of a table's columns; of JSON lines, all keys of its first objects. Raises InputError as `read_table`.

    Names are in composed form (NFC).
    """
    ending, (path, _) = ending_of(path), part_of(path)
    if ending == ".parquet":
        from pyarrow import ArrowException, parquet

        try:
            return [normalize("NFC", name) for name in parquet.read_schema(path).names]
        except (ArrowException, OSError) as error:
            raise InputError(f"{path}: not a readable Parquet file ({shorten(str(error), 200)})") from None
    if ending == ".jsonl":
        objects = (value for _, value in itertools.islice(_json_objects(path, form.encoding), BATCH))
        return [*dict.fromkeys(normalize("NFC", name) for value in objects for name in value)]
    with open(path, "rb") as file:
        records = _records_of(file, path, 0, False, form)
        return [normalize("NFC", name) for name in next(records, (0, []))[1]]


def _records_of(
    file: IO[bytes], path: Path, width: int, joined: bool, form: TableForm
) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record of a sheet, a .csv, or a table with tabs (`_tsv_records`)."""
    if ending_of(path) != ".xlsx":
        lines = decoded(file, str(path), form.encoding)
        return _csv_records(lines, path) if ending_of(path) == ".csv" else _tsv_records(lines, width, joined)
    if form.encoding not in UTF8:
        raise InputError(f"{path}: a workbook has no encoding; leave --encoding {form.encoding} out")
    return sheet_records(file, path, form.sheet)


def location(path: Source | str, line: int) -> str:
    """How messages name a row: `a.csv, line 3`, `a.parquet, row 3`, `train.iloc[2]`."""
    if isinstance(path, Records):
        return path.location(line)
    rows = ending_of(path) in (".parquet", ".xlsx")
    return f"{path}, {'row' if rows else 'line'} {line}"


def check_end(path: Source, where: str, labels: Sequence[str], what: str) -> None:
    """Raises InputError if the file ends in what may be half a label: it begins another one and occurs once.

    For files whose labels are known from the file alone. where: the place that the message names.
    """
    last, others = labels[-1] if labels else "", labels[:-1]
    whole = sorted({label for label in others if label.startswith(last)})
    if not isinstance(path, Path):
        return
    if last and whole and last not in whole and path.is_file() and path.read_bytes().endswith(last.encode()):
        raise InputError(
            f"{where}: the file ends in the {what} {shorten(last)}, which is nowhere else and may be the beginning of "
            f"{shorten(whole[0])}; complete the line, or end it with a line end if it is whole"
        )


def as_list(cell: str) -> list[str] | None:
    """The strings of a cell that is a JSON list, its numbers and booleans as text; None if it is none."""
    if not cell.lstrip().startswith("["):
        return None
    try:
        values = parse_json(cell, "a cell")
    except InputError:
        return None
    if not all(isinstance(value, str | int | float) for value in values):
        return None
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def part_of(path: Path | str) -> tuple[Path, str]:
    """The file, and which part of it is meant: train, dev, or "" for all."""
    path = Path(path)
    name, _, part = path.name.rpartition("#")
    if part not in PARTS or not name or path.exists():
        return path, ""
    return path.with_name(name), part


def ending_of(path: Path | str) -> str:
    """How the name of a file ends, in small letters: .csv for a.csv, A.CSV, and the part a.csv#dev."""
    return part_of(path)[0].suffix.lower()


def in_part(text: str, part: str) -> bool:
    """Whether a row is in a part of its file; `text` is that of the row, or of the document that it belongs to."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return not part or part == PARTS[int.from_bytes(digest) % DEV_SHARE == 0]


# ---- CSV and TSV


def _from_records(
    path: Path, columns: Sequence[str], header: list[str], optional: Sequence[str | int], joined: bool, form: TableForm
) -> Iterator[Row]:
    """Rows of cells; the first record is the header, if none was given."""
    with open(path, "rb") as file:
        records = _records_of(file, path, len(header), joined, form)
        header = header or [normalize("NFC", name) for name in next(records, (0, []))[1]]
        if ending_of(path) in (".tsv", ".txt") and any("\r" in name for name in header):
            raise InputError(f"{path}, line 1: {CARRIAGE_RETURN}")
        check_header(header, columns, [name for name in optional if isinstance(name, str)], f"{path}, line 1")
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


def _csv_records(lines: Iterator[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record; a quoted cell may contain line ends."""
    reader, line = csv.reader(lines, strict=True), 1
    try:
        while (cells := next_record(reader)) is not None:
            if cells:  # blank lines are no records
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        if "new-line character" in str(error):
            raise InputError(
                f"{path}, the row that begins in line {line}: {CARRIAGE_RETURN}, or quote the cell"
            ) from None
        raise InputError(
            f"{path}, the row that begins in line {line}: {error}; a quote may be missing, or the file be cut off; "
            f"{SEPARATE}, and write a quote inside a quoted cell twice"
        ) from None


def next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """The next record, with cells of up to MAX_LINE characters; None at the end.

    The limit is that of the whole process, so it is given back after each record: a reader may be left half read.
    """
    with _CSV_LIMIT:
        before = csv.field_size_limit(MAX_LINE)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(before)


def _tsv_records(lines: Iterator[str], width: int, joined: bool) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record. width: cells of a whole one; 0: as many as the first has."""
    begun: list[str] = []  # a record that is short of cells
    start = 0
    for number, line in enumerate(lines, 1):
        if not line.strip("\r\n"):
            continue
        cells = line.rstrip("\r\n").split("\t")
        width = width or len(cells)
        if begun and len(cells) < width and len(begun) + len(cells) - 1 <= width:
            cells, number = [*begun[:-1], f"{begun[-1]}\n{cells[0]}", *cells[1:]], start
        elif begun:
            yield start, begun
        begun, start = (cells, number) if joined and len(cells) < width else ([], 0)
        if not begun:
            yield number, cells
    if begun:
        yield start, begun


# ---- JSON lines and Parquet


def _json_objects(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(decoded(file, str(path), encoding), 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, f"{path}, line {number}", finite=False)
            except InputError as error:
                raise InputError(f"{error}; is the line cut off?") from None
            if not isinstance(value, dict):
                raise InputError(f"{path}, line {number}: found a {type(value).__name__}; expected an object")
            yield number, value


def _parquet_objects(path: Path, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row, the wanted cells of it); other columns are not read."""
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            ours = {normalize("NFC", name): name for name in file.schema_arrow.names}
            # if a column is missing, all: the message lists those that there are
            wanted = [ours[name] for name in dict.fromkeys(names)] if {*names} <= {*ours} else list(ours.values())
            for batch in file.iter_batches(BATCH, columns=wanted):
                for cells in _rows_of(batch):
                    number += 1
                    yield number, cells
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: UTF-8, odd dates
        fault = (str(error).splitlines() or [type(error).__name__])[0]
        after = f", after row {number}" if number else ""
        raise InputError(
            f"{path}{after}: not a readable Parquet file ({shorten(fault, 200)}); is it cut off?"
        ) from None


def _rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a batch. Where some cell cannot be read they come one by one, up to the row that has it."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):
        rows = (batch.slice(i, 1).to_pylist()[0] for i in range(batch.num_rows))
    yield from rows


def _from_object(
    line: int,
    value: dict[str, Any],
    columns: Sequence[str],
    optional: Sequence[str],
    lists: Sequence[str],
    path: Source,
) -> Row:
    where = location(path, line)
    value = {normalize("NFC", name): cell for name, cell in value.items()}
    missing = [name for name in columns if name not in value]
    if missing:
        raise MissingColumn(
            f"{where}: no key {shorten(missing[0])}; found {list_names(value)}{nearest_column(missing[0], [*value])}"
        )
    wanted = (*columns, *optional)
    return Row(line, [_text(value.get(name), name in lists, f"{where}: {shorten(name)}") for name in wanted])


def _text(value: Any, may_be_list: bool, where: str) -> str:
    """A value as text: strings as they are; numbers, booleans and lists as JSON writes them."""
    if value is None:
        return ""
    items = value if may_be_list and isinstance(value, list) else [value]
    wrong = [item for item in items if not isinstance(item, str | int | float)]
    if wrong:
        expected = "a string" + (", or a list of strings" if may_be_list else "")
        inside = " with a " + type(wrong[0]).__name__ + " in it" if items is value else ""
        raise InputError(f"{where} is a {type(value).__name__}{inside}; expected {expected}")
    if any(isinstance(item, float) and not math.isfinite(item) for item in items):
        raise InputError(f"{where} is {shorten(value)}; expected a text or a finite number")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_LINE:
        raise InputError(f"{where} has {len(text):,} characters; expected at most {MAX_LINE:,}; divide it")
    check_characters(text, where)
    return text
