"""The rows of a sheet of a workbook as text, and rows as an .xlsx file. Both need the extra `excel`.

Reading (python-calamine): rows of merged cells above the names of the columns are titles; a cell that is merged over
several rows is the value of each of them. calamine gives errors of Excel and formulas without a saved value as empty
cells, so these are looked for in an .xlsx file itself.
"""

import datetime
import functools
import importlib.util
import itertools
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from ..data.parsers import list_names
from ..data.streams import FREE, SHARE
from ..files import InputError, shorten
from ..reporting.outputs import naming

SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
MAX_ROWS, MAX_COLUMNS, MAX_CELL = 1_048_576, 16_384, 32_767  # of a sheet, and characters of a cell
MAX_CELLS = 20_000_000  # that are read
_CELL = re.compile(rb'<(?:\w+:)?c\s[^>]*?\br="([A-Z]+)([0-9]+)"[^>]*(?<!/)>')  # a cell in XML that is not empty
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")  # in XML
_OLD = bytes.fromhex("d0cf11e0a1b11ae1")  # the container of .xls files, and of encrypted .xlsx files


def require_library(module: str, what: str) -> None:
    """Raises InputError if the library is missing; `what` begins the message."""
    if importlib.util.find_spec(module) is None:
        raise InputError(f"{what} needs {module}: pip install 'bertworks[excel]', or use a .csv")


# ---- reading


def sheet_records(file: IO[bytes], path: Path, sheet: str, header_row: int) -> Iterator[tuple[int, list[str]]]:
    """(row, cells) of each row that is not empty, from the one that names the columns; all equally long.

    sheet: its name; "": the file's only one. header_row: row with the names of the columns, from 1; 0: the first row
    that is no title. Raises InputError if there is no such sheet, it has several and none is named, the file is
    damaged, or a cell holds an error of Excel or a formula without a saved value.
    """
    require_library("python_calamine", f"{path}: reading a workbook")
    import python_calamine

    _check_archive(file, path)
    try:
        book = python_calamine.CalamineWorkbook.from_filelike(file)
        name = _name_of(book.sheet_names, sheet, path)
        if path.suffix.lower() in (".xlsx", ".xlsm"):
            _check_cells(_sheet_xml(file, name), f"{path}, sheet {name!r}")
        found = book.get_sheet_by_name(name)
        rows = [[*map(_text, row)] for row in found.to_python(skip_empty_area=False)]
        merged = found.merged_cell_ranges or []
    except InputError:
        raise
    except Exception as error:  # the library raises what its zip and XML readers do
        raise _damaged(path, error) from None
    wide = [range(first, last + 1) for (first, left), (last, right) in merged if right > left]
    for (first, left), (last, _) in merged:
        for row in rows[first + 1 : last + 1]:
            row[left : left + 1] = rows[first][left : left + 1]
    yield from _whole_rows(rows, header_row or _header_row(rows, wide))


def _header_row(rows: Sequence[Sequence[str]], wide: Sequence[range]) -> int:
    """The first row that is no title, from 1. A title has merged columns (`wide`) and fewer cells than the next row."""
    filled = [i for i, row in enumerate(rows) if any(row)]
    for i, following in itertools.pairwise(filled):
        is_merged = any(i in merged for merged in wide)
        if not is_merged or sum(map(bool, rows[i])) >= sum(map(bool, rows[following])):
            return i + 1
    return filled[0] + 1 if len(filled) == 1 else 1


def _whole_rows(rows: Sequence[list[str]], first: int) -> Iterator[tuple[int, list[str]]]:
    width = 0
    for number, cells in enumerate(rows[first - 1 :], first):
        while cells and not cells[-1] and (not width or len(cells) > width):
            cells.pop()  # empty cells right of the table
        if any(cells):
            width = width or len(cells)
            yield number, cells + [""] * (width - len(cells))


def _text(value: Any) -> str:
    """A cell as text: whole numbers without a fraction, true and false, dates as ISO writes them; "" if empty."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _name_of(names: Sequence[str], name: str, path: Path) -> str:
    found = f"{path}: sheets {list_names(names)}"
    if name and name not in names:
        raise InputError(f"{found}; no sheet {name!r}; name one of them with --sheet")
    if not name and len(names) != 1:
        raise InputError(f"{found}; expected one; name the sheet to read with --sheet")
    return name or names[0]


def _check_archive(file: IO[bytes], path: Path) -> None:
    """Raises InputError if the file is no zip archive, or unpacks to more than its size allows. .xls files are none."""
    start = file.read(len(_OLD))
    file.seek(0)
    if path.suffix.lower() == ".xls" and start == _OLD:
        return
    if not start:
        raise InputError(f"{path}: an empty file; expected a workbook with a table")
    if start == _OLD:
        found = f"{path}: a workbook with a password, or an old .xls file with another name"
        raise InputError(f"{found}; expected neither; save it again, or save the sheet as .csv")
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        raise _damaged(path, error) from None
    if size > FREE + SHARE * path.stat().st_size:
        found = f"unpacks to {size:,} bytes, more than {FREE:,} and {SHARE} times its own size"
        raise InputError(f"{path}: {found}; expected a table of texts; save the sheet as .csv")
    file.seek(0)


def _damaged(path: Path, error: Exception) -> InputError:
    fault = shorten(f"{type(error).__name__}: {error}", 200)
    return InputError(
        f"{path}: not a readable {path.suffix} file ({fault}); open it and save it again, or save it as .csv"
    )


def _sheet_xml(file: IO[bytes], sheet: str) -> bytes:
    """The XML of a sheet of an .xlsx file."""
    with zipfile.ZipFile(file) as archive:
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        targets = {link.get("Id"): link.get("Target", "").removeprefix("/xl/") for link in links}
        ids = {
            one.get("name"): next(value for key, value in one.items() if key.endswith("}id"))
            for one in book.iter()
            if one.tag.endswith("}sheet")
        }
        return archive.read(f"xl/{targets[ids[sheet]]}")


def _check_cells(content: bytes, where: str) -> None:
    """Raises InputError for a cell with an error, or with a formula without a saved value; and for too large a sheet.

    calamine holds all cells up to the furthest ones, whether they are in the file or not.
    """
    cells = _CELL.findall(content)
    width = max(
        (functools.reduce(lambda n, c: 26 * n + c - 64, letters, 0) for letters in {a for a, _ in cells}), default=0
    )
    height = max((int(row[:9]) for _, row in cells), default=0)
    if width > MAX_COLUMNS or width * height > MAX_CELLS:
        found = f"cells in {height:,} rows and {width:,} columns"
        raise InputError(f"{where}: {found}; expected at most {MAX_CELLS:,} cells; remove those beyond the table")
    if b't="e"' not in content and b"<f" not in content:
        return
    for cell in ElementTree.fromstring(content).iter():
        if not cell.tag.endswith("}c"):
            continue
        parts = {part.tag.rpartition("}")[2]: part.text for part in cell}
        if cell.get("t") == "e":
            raise InputError(f"{where}, cell {cell.get('r')}: the error {parts.get('v')}; mend the cell, or empty it")
        if "f" in parts and not parts.get("v") and cell.get("t") != "str":  # an empty text is a value
            found = f"{where}, cell {cell.get('r')}: a formula without a saved value"
            raise InputError(f"{found}; open the file in a spreadsheet program and save it, or write the value")


# ---- writing


def save_sheet(rows: Iterable[Sequence[Any]], file: IO[bytes], path: Path) -> None:
    """Write rows as the one sheet of an .xlsx file; texts stay texts, also those that begin like a formula.

    path: the file's name, for messages. Raises InputError for what a sheet cannot hold: rows beyond 1,048,576, cells
    beyond 32,767 characters.
    """
    import xlsxwriter

    with naming(tempfile.gettempdir()), tempfile.TemporaryFile() as buffer:
        book = xlsxwriter.Workbook(buffer, {"constant_memory": True})
        sheet = book.add_worksheet("predictions")
        try:
            for number, row in enumerate(rows):
                if number == MAX_ROWS:
                    raise InputError(f"{path}: more than {MAX_ROWS:,} rows, which a sheet cannot hold; write a .csv")
                for column, value in enumerate(row):
                    if not isinstance(value, str):
                        sheet.write(number, column, value)
                    elif len(value) > MAX_CELL:
                        found = f"a cell of {len(value):,} characters in row {number + 1}; a sheet holds {MAX_CELL:,}"
                        raise InputError(f"{path}: {found}; write a .csv")
                    else:
                        sheet.write_string(number, column, _FORBIDDEN.sub("\ufffd", value))
            book.close()
        except BaseException:
            book.fileclosed = True  # else it is written when it is collected
            raise
        buffer.seek(0)
        shutil.copyfileobj(buffer, file)
