"""The rows of a sheet of an .xlsx file as text, and rows as such a file. It needs openpyxl, of the extra `excel`."""

import contextlib
import datetime
import functools
import importlib.util
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..data.parsers import list_names
from ..data.streams import FREE, SHARE
from ..files import InputError, shorten
from ..reporting.outputs import naming

MAX_ROWS, MAX_CELL = 1_048_576, 32_767  # of a sheet, and characters of a cell
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")  # in XML
_OLD = bytes.fromhex("d0cf11e0a1b11ae1")  # the container of .xls files, and of encrypted .xlsx files


def sheet_records(file: IO[bytes], path: Path, sheet: str) -> Iterator[tuple[int, list[str]]]:
    """(row, cells) of each row that is not empty, from the first one, which names the columns; all equally long.

    sheet: its name; "": the file's only one. Raises InputError if there is no such sheet, it has several and none is
    named, the file is damaged, or a cell holds an error of Excel or a formula without a saved value.
    """
    require_openpyxl(f"{path}: reading")
    import openpyxl

    _check_size(file, path)
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    except Exception as error:  # the library raises what its zip and XML readers do
        raise _damaged(path, error) from None
    try:
        found = _sheet_of(book, sheet, path)
        yield from _records(found, path, functools.cache(lambda: _formulas(file, found.title)))
    except InputError:
        raise
    except Exception as error:
        raise _damaged(path, error) from None
    finally:
        book.close()


def require_openpyxl(what: str) -> None:
    """Raises InputError if the library is missing; `what` begins the message."""
    if importlib.util.find_spec("openpyxl") is None:
        raise InputError(
            f"{what} .xlsx needs openpyxl, which is not installed: pip install 'bertworks[excel]'; or use a .csv"
        )


def save_sheet(rows: Iterable[Sequence[Any]], file: IO[bytes], path: Path) -> None:
    """Write rows as the one sheet of a workbook; texts stay texts, also those that begin like a formula.

    path: the file's name, for messages. Raises InputError for what a sheet cannot hold: rows beyond 1,048,576, cells
    beyond 32,767 characters.
    """
    import openpyxl
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.writer.excel import ExcelWriter

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    with naming(tempfile.gettempdir()), _closing(sheet):  # the library keeps the rows there until the end
        for number, row in enumerate(rows, 1):
            if number > MAX_ROWS:
                raise InputError(f"{path}: more than {MAX_ROWS:,} rows, which a sheet cannot hold; write a .csv")
            cells = []
            for value in row:
                if isinstance(value, str) and len(value) > MAX_CELL:
                    found = f"a cell of {len(value):,} characters in row {number}; a sheet holds {MAX_CELL:,}"
                    raise InputError(f"{path}: {found}; write a .csv")
                cell = WriteOnlyCell(sheet, _FORBIDDEN.sub("\ufffd", value) if isinstance(value, str) else value)
                if isinstance(value, str):
                    cell.data_type = "s"  # "=1+1" of an input is no formula
                cells.append(cell)
            sheet.append(cells)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:  # `book.save` leaves its own open on a full disk
        ExcelWriter(book, archive).save()


@contextlib.contextmanager
def _closing(sheet: Any) -> Iterator[None]:
    """Close the sheet at the end; one that is left open after an error prints a traceback when it is collected."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            sheet.close()
        raise
    sheet.close()


def _check_size(file: IO[bytes], path: Path) -> None:
    """Raises InputError if the file is no zip archive, or unpacks to more than its size allows."""
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        if not path.stat().st_size:
            raise InputError(f"{path}: an empty file; expected an .xlsx workbook with a table") from None
        file.seek(0)
        if file.read(8) == _OLD:
            raise InputError(f"{path}: a workbook with a password, or an old .xls file; expected an .xlsx file without "
                             "a password; save it so, or save the sheet as .csv") from None  # fmt: skip
        raise _damaged(path, error) from None
    if size > FREE + SHARE * path.stat().st_size:
        found = f"unpacks to {size:,} bytes, more than {FREE:,} and {SHARE} times its own size"
        raise InputError(f"{path}: {found}; expected a table of texts; save the sheet as .csv")
    file.seek(0)


def _damaged(path: Path, error: Exception) -> InputError:
    fault = shorten(f"{type(error).__name__}: {error}", 200)
    return InputError(f"{path}: not a readable .xlsx file ({fault}); open it and save it again, or save it as .csv")


def _sheet_of(book: Any, name: str, path: Path) -> Any:
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    found = f"{path}: sheets {list_names(sheets)}"
    if name and name not in sheets:
        raise InputError(f"{found}; no sheet {name!r}; name one of them with --sheet")
    if not name and len(sheets) != 1:
        raise InputError(f"{found}; expected one; name the sheet to read with --sheet")
    return sheets[name or next(iter(sheets))]


def _formulas(file: IO[bytes], sheet: str) -> set[tuple[int, int]]:
    """Row and column of every cell that has a formula: a book is read either with formulas or with their values."""
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True)
    try:
        rows = book[sheet].iter_rows()
        return {(cell.row, cell.column) for row in rows for cell in row if cell.data_type == "f"}
    finally:
        book.close()


def _records(sheet: Any, path: Path, formulas: Callable[[], set[tuple[int, int]]]) -> Iterator[tuple[int, list[str]]]:
    width = 0
    for number, row in enumerate(sheet.iter_rows(), 1):
        for cell in row:
            # a formula whose saved value is an empty text has the type "str"; cells that the file lacks have no `row`
            bare = cell.value is None and cell.data_type == "n" and hasattr(cell, "row")
            if bare and (cell.row, cell.column) in formulas():
                raise InputError(
                    f"{path}, sheet {sheet.title!r}, cell {cell.coordinate}: a formula without a saved value; open the "
                    "file in a spreadsheet program and save it, or write the value into the cell"
                )
        cells = [_text(cell, f"{path}, sheet {sheet.title!r}, row {number}") for cell in row]
        while cells and not cells[-1] and (not width or len(cells) > width):
            cells.pop()  # empty cells right of the table
        if any(cells):
            width = width or len(cells)
            yield number, cells + [""] * (width - len(cells))


def _text(cell: Any, where: str) -> str:
    """A cell as text: whole numbers without a fraction, true and false, dates as ISO writes them; "" if empty."""
    value = cell.value
    if cell.data_type == "e":
        raise InputError(f"{where}, column {cell.column_letter}: the error {value}; mend the cell, or empty it")
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)
