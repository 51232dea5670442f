"""The rows of a sheet of a workbook as text, read by python-calamine (the extra `excel`).

A cell that is merged over several rows is the value of each of them. calamine returns errors of Excel and formulas
without a saved value as empty cells, so these are searched in an .xlsx file itself.
"""

import datetime
import functools
import re
import zipfile
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from ..data.parsers import list_names
from ..files import InputError, shorten
from .formats import Cells

SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
MAX_CELLS = 20_000_000  # that are read of an .xlsx file
_CELL = re.compile(rb'<(?:\w+:)?c\s[^>]*?\br="([A-Z]{1,3})([0-9]{1,7})"[^>]*(?<!/)>')  # a cell that is not empty


def sheet_records(file: IO[bytes], path: Path, sheet: str, header_row: int) -> Cells:
    """(row, cells) of each row that is not empty; empty cells right of the names of the columns are left out.

    sheet: its name; "": the file's only one. header_row: of the names, from 1; 0: the first that is not empty. Raises
    InputError if there is no such sheet, it has several and none is named, the file is damaged, or a cell holds an
    error of Excel or a formula without a saved value.
    """
    try:
        import python_calamine
    except ImportError:
        message = f"{path}: reading a workbook needs python_calamine: pip install 'bertworks[excel]', or use a .csv"
        raise InputError(message) from None
    try:
        book = python_calamine.CalamineWorkbook.from_filelike(file)
        name = _sheet_name(book.sheet_names, sheet, path)
        if path.suffix.lower() in (".xlsx", ".xlsm"):
            _check_values(file, name, f"{path}, sheet {name!r}")
        found = book.get_sheet_by_name(name)
        rows = [[*map(_text, row)] for row in found.to_python(skip_empty_area=False)]
        merged = found.merged_cell_ranges or []
    except InputError:
        raise
    except Exception as error:  # the library raises what its zip and XML readers do
        fault = shorten(f"{type(error).__name__}: {error}", 200)
        message = f"{path}: not a readable {path.suffix} file ({fault})"
        raise InputError(f"{message}; save it again without a password, or save the sheet as .csv") from None
    for (first, left), (last, _) in merged:
        for row in rows[first + 1 : last + 1]:
            row[left : left + 1] = rows[first][left : left + 1]  # nothing right of the last column with a value
    header = next(filter(any, rows[max(0, header_row - 1) :]), [])
    width = max((i for i, cell in enumerate(header, 1) if cell), default=0)
    for number, cells in enumerate(rows, 1):
        if any(cells):
            yield number, cells if any(cells[width:]) else cells[:width]


def _text(value: Any) -> str:
    """A cell as text: whole numbers without a fraction, true and false, dates as ISO writes them; "" if empty."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _sheet_name(names: list[str], name: str, path: Path) -> str:
    if name not in names and (name or len(names) != 1):
        expected = f"no sheet {name!r}; name one of them" if name else "expected one; name the sheet to read"
        raise InputError(f"{path}: sheets {list_names(names)}; {expected} as sheet")
    return name or names[0]


def _check_values(file: IO[bytes], sheet: str, where: str) -> None:
    """Raises InputError for a cell of an .xlsx file with an error, or with a formula without a saved value."""
    with zipfile.ZipFile(file) as archive:
        book, links = (
            ElementTree.fromstring(archive.read(f"xl/{name}")) for name in ("workbook.xml", "_rels/workbook.xml.rels")
        )
        element = next(one for one in book.iterfind(".//{*}sheet") if one.get("name") == sheet)
        identity = next(value for key, value in element.items() if key.endswith("}id"))
        target = next(link.get("Target", "") for link in links if link.get("Id") == identity)
        content = archive.read(f"xl/{target.removeprefix('/xl/')}")
    cells = _CELL.findall(content)
    columns = {letters for letters, _ in cells}
    width = max((functools.reduce(lambda n, c: 26 * n + c - 64, letters, 0) for letters in columns), default=0)
    height = max((int(row) for _, row in cells), default=0)
    if width * height > MAX_CELLS:  # calamine holds all cells up to the furthest ones, and ends the process
        found = f"cells in {height:,} rows and {width:,} columns"
        raise InputError(f"{where}: {found}; expected at most {MAX_CELLS:,} cells; remove those beyond the table")
    if b't="e"' not in content and b"<f" not in content:
        return
    for cell in ElementTree.fromstring(content).iterfind(".//{*}c"):
        value, kind = cell.findtext("{*}v"), cell.get("t")
        if kind == "e":
            raise InputError(f"{where}, cell {cell.get('r')}: the error {value}; mend the cell, or empty it")
        if cell.find("{*}f") is not None and not value and kind != "str":  # an empty text is a value
            found = f"{where}, cell {cell.get('r')}: a formula without a saved value"
            raise InputError(f"{found}; open the file in a spreadsheet program and save it, or write the value")
