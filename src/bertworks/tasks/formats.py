"""The rows of files: records (lists of cells) of text tables and sheets, objects of JSON and Parquet, lines of text.

Text tables are parsed here and not by pyarrow.csv, which does not know the line in which a row begins.
"""

import csv
import datetime
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..data.encodings import UTF8, as_utf8, codec_of, hint
from ..data.parsers import list_names
from ..files import InputError, parse_json, read_json, shorten
from ..tokenizer import normalize

MAX_CELL = 16 << 20  # characters of a cell in a .csv file
BATCH = 1024  # rows of a Parquet file in memory at a time
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # a cell with doubled quotes
_OPEN = re.compile(r'"(?:[^"]|"")*$')  # a cell that continues on the next line

Records = Iterator[tuple[int, list[str]]]  # (line, cells) of each row
Objects = Iterator[tuple[int, dict[str, Any]]]  # (line, item or row, counted from 1; object)


def decoded(file: IO[bytes], where: str, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file with their line ends, without a byte order mark.

    Raises InputError with the line if the file is not a text of this encoding.
    """
    if codec_of(encoding) not in UTF8:
        file = as_utf8(file, encoding, where)
    for number, line in enumerate(file, 1):
        if number == 1 and b"\0" in line:
            raise InputError(f"{where}: not a text file; expected UTF-8; unpack it, or give the encoding utf-16")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problem = f"{where}, line {number}: byte 0x{line[error.start]:02X} is not UTF-8"
            raise InputError(f"{problem}; {hint(line)}, or save the file as UTF-8") from None


# ---- text tables


def csv_records(lines: Iterator[str], path: Path) -> Records:
    """The rows of a quoted table; a quoted cell may contain line ends. Blank lines are left out."""
    reader, line = csv.reader(lines, strict=True), 1
    try:
        while (cells := _next_record(reader)) is not None:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        advice = "is a quote missing, or the file cut off? Write a quote inside a quoted cell twice"
        if "new-line" in str(error):  # Python's words for a carriage return alone
            error, advice = csv.Error("a carriage return without a line feed"), "end lines with \\n or \\r\\n"
        raise InputError(f"{path}, the row that begins in line {line}: {error}; {advice}") from None


def _next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """The next record, with long cells; None at the end. The limit of a cell is one of the whole process."""
    limit = csv.field_size_limit(MAX_CELL)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def tsv_records(lines: Iterator[str], width: int, official: bool, path: Path) -> Records:
    """The rows of a table with tabs, whose quotes are ordinary characters. Blank lines are left out.

    official: whether rows that are broken by line ends within their cells are put together, as QQP's official train.tsv
    needs; in other files a quoted cell raises InputError. width: cells of a whole row; 0: as many as the first has.
    """
    start, row = 0, ""  # of a row that is short of cells
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line:
            continue
        if row and line.count("\t") + 1 == width:  # a whole row, so the one before is short
            yield start, row.split("\t")
            row = ""
        start, row = (start, f"{row}\n{line}") if row else (number, line)
        cells = row.split("\t")
        width = width or len(cells)
        if not official and '"' in row and (any(map(_QUOTED.fullmatch, cells)) or (width == 1 and _OPEN.match(row))):
            advice = "save a quoted table as .csv; in another one remove the outer quotes"
            raise InputError(f"{path}, line {number}: a quoted cell; {advice}")
        if not official or len(cells) >= width:
            yield start, cells
            row = ""
    if row:
        yield start, row.split("\t")


# ---- JSON and Parquet


def json_objects(path: Path, encoding: str) -> Objects:
    """The object of each line that is not blank."""
    with open(path, "rb") as file:
        for number, line in enumerate(decoded(file, str(path), encoding), 1):
            if line.strip():
                value = parse_json(line, f"{path}, line {number}", finite=False)
                if not isinstance(value, dict):
                    raise InputError(f"{path}, line {number}: found a {type(value).__name__}; expected an object")
                yield number, value


def json_items(path: Path) -> Any:
    """The value of a .json file, or of the key `data` in it."""
    try:
        value = read_json(path)
    except InputError as error:
        advice = "; a file with an object per line is called .jsonl" if "Extra data" in str(error) else ""
        raise InputError(f"{error}{advice}") from None
    return value["data"] if isinstance(value, dict) and isinstance(value.get("data"), list) else value


def json_list(path: Path) -> Objects:
    """The objects of a list, which may be the value of `data`."""
    items = json_items(path)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(f"{path}: found {shorten(items)}; expected a list of objects, such as a text and its label")
    yield from enumerate(items, 1)


def parquet_objects(path: Path, names: Sequence[str]) -> Objects:
    """The cells of these columns of each row; of all columns if there are no names, or one of them is missing."""
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns = {normalize("NFC", name): name for name in file.schema_arrow.names}
            selected = [columns[name] for name in dict.fromkeys(names)] if names and {*names} <= {*columns} else None
            for batch in file.iter_batches(BATCH, columns=selected):
                for values in batch.to_pylist():
                    number += 1
                    yield number, values
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: UTF-8, odd dates
        reason = shorten(str(error).split("\n")[0], 200)
        raise InputError(
            f"{path}: not a readable Parquet file ({reason}), after row {number}; is it cut off?"
        ) from None


# ---- workbooks


def sheet_records(file: IO[bytes], path: Path, sheet: str) -> Records:
    """(row, cells as text) of each row of a sheet that is not empty; empty cells right of the header are left out.

    A cell that is merged over several rows is the value of each of them.
    sheet: its name; "": the only one. Errors and formulas without a saved value are empty. Raises InputError if there
    is not one sheet of this name, or the file is damaged.
    """
    try:
        import python_calamine
    except ImportError:
        message = f"{path}: reading a workbook needs python_calamine: pip install 'bertworks[excel]', or use a .csv"
        raise InputError(message) from None
    try:
        book = python_calamine.CalamineWorkbook.from_filelike(file)
        names = book.sheet_names
        if sheet not in names and (sheet or len(names) != 1):
            raise InputError(f"{path}: sheets {list_names(names)}; expected one; name the sheet to read (sheet)")
        if path.suffix.lower() == ".xlsx":
            _check_width(file, str(path))
        values = book.get_sheet_by_name(sheet or names[0])
        rows, merged = values.to_python(skip_empty_area=False), values.merged_cell_ranges or []
    except InputError:
        raise
    except Exception as error:  # the library raises what its zip and XML readers do
        reason = shorten(f"{type(error).__name__}: {error}", 200)
        message = f"{path}: not a readable {path.suffix} file ({reason})"
        raise InputError(f"{message}; save it again without a password, or save the sheet as .csv") from None
    for (first, left), (last, _) in merged:
        for row in rows[first + 1 : last + 1]:
            row[left : left + 1] = rows[first][left : left + 1]  # nothing right of the last column with a value
    width = 0
    for number, row in enumerate(rows, 1):
        cells = [*map(_sheet_text, row)]
        if any(cells):
            width = width or max(i for i, cell in enumerate(cells, 1) if cell)
            yield number, cells if any(cells[width:]) else cells[:width]


def _sheet_text(value: Any) -> str:
    """A cell as text: whole numbers without a fraction, true and false, dates as ISO writes them; "" if empty."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _check_width(file: IO[bytes], where: str) -> None:
    """Raises InputError for a cell far to the right: calamine would take memory for all cells before it."""
    with zipfile.ZipFile(file) as archive:
        sheets = [archive.read(name) for name in archive.namelist() if name.startswith("xl/worksheets/")]
    if far := re.search(rb' r="([A-Z]{3}\d+)"[^>]*[^/]>', b"".join(sheets)):
        raise InputError(f"{where}, cell {far[1].decode()}: expected at most 702 columns; remove the cell")
