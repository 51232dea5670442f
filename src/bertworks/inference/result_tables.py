"""Predictions as a table: .csv, .tsv or .xlsx. An input without text has no values there but its own."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..files import InputError, to_json
from ..reporting.outputs import check_output
from ..tasks.sheets import require_library, save_sheet
from ..tasks.table import TABLES, ending_of

EMPTY = "empty"  # the field of the result of an input without text
INPUT = "input."  # in front of the columns of an input, among the fields of its result
SEPARATORS = {".csv": ",", ".tsv": "\t"}  # by the end of a file's name
WORKBOOK = ".xlsx"  # the other table that is written
BYTE_ORDER_MARK = "\ufeff"  # at the beginning of a .csv, by which Excel knows UTF-8


def check_file(out: Path | None, data: Iterable[Any] = (), folders: Iterable[Any] = (), excel: bool = False) -> None:
    """Raises InputError for the name of a file that predictions are not written to, or as `check_output`.

    excel: whether the file should be a .csv for Excel.
    """
    check_output(out, data, folders)
    ending = "" if out is None else ending_of(out)
    if excel and ending not in SEPARATORS:
        raise InputError(f"--excel: expected --out with a name that ends in .csv or .tsv, found {out or 'none'}")
    if ending == WORKBOOK:
        require_library("xlsxwriter", f"{out}: writing a workbook")
    elif ending in TABLES and ending not in (*SEPARATORS, ".jsonl"):
        raise InputError(
            f"{out}: predictions are not written as {ending}; give --out a name that ends in .jsonl (JSON lines), "
            ".csv, .tsv or .xlsx"
        )


def write_table(results: Iterable[dict[str, Any]], target: IO[Any], out: Path, excel: bool = False) -> None:
    """Write the results to `target` as the table that the name of `out` asks for. Raises InputError as `save_sheet`.

    target: of a .csv or .tsv a file of text, of a workbook one of bytes. excel: write a byte order mark first.
    """
    rows = table_rows(results)
    if ending_of(out) == WORKBOOK:
        return save_sheet(rows, target, out)
    target.write(BYTE_ORDER_MARK * excel)
    csv.writer(target, delimiter=SEPARATORS[ending_of(out)], lineterminator="\n").writerows(rows)


def table_rows(results: Iterable[dict[str, Any]]) -> Iterator[list[Any]]:
    """The names of the columns, then a row for each result; nothing if there are no results.

    Each field has a column, scores have one for each label, lists are JSON. The columns are those of the first result
    of an input with text. Inputs keep the names of their columns, with `input.` in front, as often as it takes, where
    another column has the name.
    """
    waiting = list[dict[str, Any]]()  # before the first input with text
    header = list[str]()
    for result in results:
        cells = _cells(result)
        if header:
            yield [cells.get(name, "") for name in header]
            continue
        waiting.append(cells)
        if EMPTY not in result:
            header = [*cells]
            yield from _first_rows(header, waiting)
    if waiting and not header:
        yield from _first_rows([name for name in waiting[0] if name != EMPTY], waiting)


def _first_rows(header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
    yield _column_names(header)
    yield from ([cells.get(name, "") for name in header] for cells in rows)


def _column_names(header: Sequence[str]) -> list[str]:
    """A name for each field of the results, all different."""
    results = {field for field in header if not field.startswith(INPUT)}
    taken = results | {field.removeprefix(INPUT) for field in header}
    names = []
    for field in header:
        name = field.removeprefix(INPUT)
        if name != field and name in results:
            while name in taken:
                name = INPUT + name
            taken.add(name)
        names.append(name)
    return names


def _cells(result: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result as cells of a row."""
    cells: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            cells |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            cells[name] = to_json(value) if isinstance(value, list | tuple) else value
    return cells
