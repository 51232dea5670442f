"""Tables of text: CSV, TSV, JSON lines and Parquet, read row by row; errors name file and line.

    .csv       comma separated, quoted as in RFC 4180, first line = column names
    .tsv .txt  tab separated, first line = column names. Quotes are ordinary characters, as in GLUE's files, unless the
               whole file is quoted as pandas and Excel do (`_is_quoted`); the files of a known task never are
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
import functools
import glob
import hashlib
import itertools
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..data.encodings import UTF8, codec_of
from ..data.parsers import list_names
from ..files import InputError, not_found, shorten
from ..tokenizer import normalize
from .header import SEPARATE, MissingColumn, check_header, nearest_column
from .lines import MAX_LINE, decoded, refuse_kind
from .objects import BATCH, json_objects, parquet_objects, text_of_value
from .records import Records, Source
from .sheets import sheet_records

TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx")  # .txt is one too where a table is asked for: NSMC's files
PARTS = ("train", "dev")
DEV_SHARE = 5  # one row of so many is in the dev part
CARRIAGE_RETURN = (
    "a carriage return (CR) that is not part of a line end, as in files of old Macs; expected line ends LF or CRLF; "
    "save the file with Unix or Windows line ends"
)
_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED = re.compile(rf'(?:{_CELL.pattern}|[^"\t]*)(?:\t(?:{_CELL.pattern}|[^"\t]*))*')  # a record of a quoted table
_NEEDS = re.compile(r'""|[\t\r\n]')
_NAMES_FROM = 1 << 20  # characters at the beginning of a file that decide whether its column names are quoted
_CSV_LIMIT = threading.RLock()  # held while the process has our limit


class TableForm(NamedTuple):
    """What a table's name does not say about the file."""

    encoding: str = "utf-8"  # of .csv, .tsv, .txt and .jsonl files; any of Python's
    sheet: str = ""  # name of the sheet of an .xlsx file; "": its only one
    unquoted: bool = False  # whether quotes of .tsv and .txt files are ordinary characters whatever they look like


PLAIN = TableForm()


def form_facts(form: TableForm) -> dict[str, str]:
    """What results.json says of the form of a run's tables, which `form_of` reads; {} of plain ones."""
    stored = {"encoding": form.encoding, "sheet": form.sheet}
    return {name: value for name, value in stored.items() if value != PLAIN._asdict()[name]}


def form_of(results: Mapping[str, Any]) -> TableForm:
    """The form of a run's tables. Raises InputError for an encoding that Python does not know."""
    encoding, sheet = (str(results.get(name, getattr(PLAIN, name))) for name in ("encoding", "sheet"))
    return TableForm(codec_of(encoding), sheet)


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
    cells.py reads. joined: whether a .tsv row that is broken by line ends within its cells is put together (QQP's
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
        objects = json_objects(path, form.encoding) if ending == ".jsonl" else parquet_objects(path, (*columns, *named))
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
        objects = (value for _, value in itertools.islice(json_objects(path, form.encoding), BATCH))
        return [*dict.fromkeys(normalize("NFC", name) for value in objects for name in value)]
    with open(path, "rb") as file:
        records = _records_of(file, path, 0, False, form, _NAMES_FROM)
        return [normalize("NFC", name) for name in next(records, (0, []))[1]]


def _records_of(
    file: IO[bytes], path: Path, width: int, joined: bool, form: TableForm, most: float = math.inf
) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record of a sheet, a .csv, or a table with tabs (`_tsv_records`). most: of `_is_quoted`."""
    if ending_of(path) != ".xlsx":
        lines = functools.partial(decoded, file, str(path), form.encoding)
        if ending_of(path) == ".csv":
            return _csv_records(lines(), path)
        quoted = not form.unquoted and _is_quoted(lines(), not width, most)
        file.seek(0)
        return _csv_records(lines(), path, "\t") if quoted else _tsv_records(lines(), width, joined)
    if form.encoding not in UTF8:
        raise InputError(f"{path}: a workbook has no encoding; leave --encoding {form.encoding} out")
    return sheet_records(file, path, form.sheet)


def location(path: Source | str, line: int) -> str:
    """How messages name a row: `a.csv, line 3`, `a.parquet, row 3`, `a.json, item 3`, `train.iloc[2]`."""
    if isinstance(path, Records):
        return path.location(line)
    counted = {".parquet": "row", ".xlsx": "row", ".json": "item"}
    return f"{path}, {counted.get(ending_of(path), 'line')} {line}"


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


def _csv_records(lines: Iterator[str], path: Path, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each record; a quoted cell may contain line ends."""
    reader, line = csv.reader(lines, delimiter=separator, strict=True), 1
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


def _is_quoted(lines: Iterator[str], has_header: bool, most: float) -> bool:
    """Whether a table with tabs is quoted: every quote belongs to a quoted cell, and some quoted cell needs its quotes.

    That is one with doubled quotes, a tab or a line end inside, or one of the header. One cell that is not quoted
    rightly, such as a text with a quotation in it, shows that quotes are ordinary characters. Tabs and line ends inside
    show nothing if each line has the same number of tabs, for then each is a whole row. most: characters to look at.
    """
    record, size, inside, needed = list[str](), 0, False, False  # inside: whether a quoted cell goes on
    broken, tabs, seen = False, set[int](), 0  # broken: whether a tab or line end is inside a quoted cell
    try:
        for line in lines:
            record.append(line)
            size, seen = size + len(line), seen + len(line)
            if line.strip("\r\n"):
                tabs.add(line.count("\t"))
            inside ^= line.count('"') % 2 == 1
            if inside and size <= MAX_LINE:
                continue
            whole = "".join(record).rstrip("\r\n")
            if '"' in whole:
                if inside or not _QUOTED.fullmatch(whole):
                    return False
                need = [cell for cell in _CELL.findall(whole) if _NEEDS.search(cell[1:-1])]
                needed |= has_header or any("\n" not in cell and "\t" not in cell for cell in need)
                broken |= bool(need)
            has_header = has_header and not whole
            record, size = [], 0
            if seen > most:
                break
    except InputError:  # the reader names the fault
        return False
    return not inside and (needed or (broken and (len(tabs) > 1 or tabs == {0})))


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


# ---- JSON lines, Parquet and rows in memory


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
    return Row(line, [text_of_value(value.get(name), name in lists, f"{where}: {shorten(name)}") for name in wanted])
