"""Predictions as a table: .csv, .tsv or .xlsx."""

import csv
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..files import InputError, to_json
from ..reporting.outputs import check_output, naming
from ..tasks.sheets import require_openpyxl, save_sheet
from ..tasks.table import TABLES, ending_of

EMPTY = "empty"  # the field of the result of an input without text
INPUT = "input."  # in front of the columns of an input, among the fields of its result
SEPARATORS = {".csv": ",", ".tsv": "\t"}  # by the end of a file's name
WORKBOOK = ".xlsx"  # the other table that is written

Blank = Callable[[], dict[str, Any]]


def check_file(out: Path | None, data: Iterable[Any] = (), folders: Iterable[Any] = ()) -> None:
    """Raises InputError for the name of a file that predictions are not written to, or as `check_output`."""
    check_output(out, data, folders)
    if out is None:
        return
    ending = ending_of(out)
    if ending == WORKBOOK:
        require_openpyxl(f"{out}: writing")
    elif ending in TABLES and ending not in (*SEPARATORS, ".jsonl"):
        raise InputError(
            f"{out}: predictions are not written as {ending}; give --out a name that ends in .jsonl (JSON lines), "
            ".csv, .tsv or .xlsx"
        )


def write_table(results: Iterable[dict[str, Any]], target: IO[Any], out: Path, blank: Blank | None = None) -> None:
    """Write the results to `target` as the table that the name of `out` asks for. Raises InputError as `save_sheet`.

    target: of a .csv or .tsv a file of text, of a workbook one of bytes. blank: as in `table_rows`.
    """
    rows = table_rows(results, blank)
    if ending_of(out) == WORKBOOK:
        save_sheet(rows, target, out)
    else:
        csv.writer(target, delimiter=SEPARATORS[ending_of(out)], lineterminator="\n").writerows(rows)


def table_rows(results: Iterable[dict[str, Any]], blank: Blank | None = None) -> Iterator[list[Any]]:
    """The names of the columns, then a row for each result.

    Each field has a column, scores have one for each label, lists are JSON.

    The first result that is not of an empty input has all the columns. Inputs keep the names of their columns, with
    `input.` in front, as often as it takes, where another column has the name. If an input had no text, the last
    column, `empty`, is true there, and the other cells of its row are empty. blank: returns a result whose fields are
    the columns if there is no prediction.
    """
    # whether an input is empty is known at the end
    with naming(tempfile.gettempdir()), tempfile.TemporaryFile("w+", encoding="utf-8") as rows:
        header, known, some = _write_rows(results, rows)
        rows.seek(0)
        if blank and not known:
            header = [*_cells(blank())]
        names = _column_names(header)
        if names:
            yield [*names, EMPTY] if some else names
        for line in rows:
            cells = json.loads(line)
            values = [cells.get(name, "") for name in header]
            yield [*values, "true" if EMPTY in cells else ""] if some else values


def _column_names(header: Sequence[str]) -> list[str]:
    """A name for each field of the results, all different; `empty` is never that of an input."""
    results = {EMPTY, *(field for field in header if not field.startswith(INPUT))}
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


def _write_rows(results: Iterable[dict[str, Any]], rows: IO[str]) -> tuple[list[str], bool, bool]:
    """Write the cells of each result as a line of JSON.

    Returns the columns, whether they are those of a prediction, and whether an input was empty.
    """
    header: list[str] = []
    known = some = False  # whether the header is that of a prediction; whether an input was empty
    for result in results:
        cells, empty = _cells(result), EMPTY in result
        if not (known or empty) or not header:
            header, known = [name for name in cells if name != EMPTY], not empty
        some |= empty
        rows.write(to_json(cells) + "\n")
    return header, known, some


def _cells(result: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result as cells of a row."""
    cells: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            cells |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            cells[name] = to_json(value) if isinstance(value, list | tuple) else value
    return cells
