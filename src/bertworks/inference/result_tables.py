"""Predictions as a table: .csv or .tsv."""

import csv
from collections.abc import Iterable, Mapping
from typing import IO, Any

from ..files import to_json

SEPARATORS = {".csv": ",", ".tsv": "\t"}  # by the end of a file's name


def write_table(results: Iterable[dict[str, Any]], target: IO[str], separator: str) -> None:
    """A row for each result: a column for each field, of scores one for each label; lists as JSON.

    The first result that is not of an empty input has all the columns. Inputs keep the names of their columns, with
    `input.` in front where a field of the results has the same name. Cells of an input without text are empty.
    """
    writer, waiting = csv.writer(target, delimiter=separator, lineterminator="\n"), list[dict[str, Any]]()
    header: list[str] = []
    for result in results:
        waiting.append(result)
        if header or "empty" not in result:
            header = header or _write_header(writer, result)
            for one in waiting:
                cells = _cells(one)
                writer.writerow([cells.get(name, "") for name in header])
            waiting = []
    if waiting:  # no input has text
        _write_header(writer, waiting[0])
        writer.writerows(_cells(one).values() for one in waiting)


def _write_header(writer: Any, result: dict[str, Any]) -> list[str]:
    """Write the names of the columns, and return those of the cells."""
    cells = list(_cells(result))
    shown = [name.removeprefix("input.") for name in cells]
    writer.writerow([name if shown.count(short) > 1 else short for name, short in zip(cells, shown, strict=True)])
    return cells


def _cells(result: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result as cells of a row."""
    cells: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            cells |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            cells[name] = to_json(value) if isinstance(value, list | tuple) else value
    return cells
