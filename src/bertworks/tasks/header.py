"""The first line of a table: the names of its columns, and what it is instead where a name is missing."""

import difflib
from collections.abc import Sequence

from ..data.parsers import list_names
from ..files import InputError, shorten

SEPARATE = "save it with commas as .csv, or with tabs as .tsv"
NAME_COLUMNS = "write a first line with a name for each column"


class MissingColumn(InputError):
    """A table has no column of the name that was asked for."""


def check_header(header: list[str], columns: Sequence[str], optional: Sequence[str], where: str) -> None:
    """Raises InputError if a column is missing or not the only one of its name."""
    found = list_names(header) if header else "nothing: the file is empty"
    missing = [name for name in columns if name not in header]
    if missing:
        hint = nearest_column(missing[0], header)
        if mark := separator_in(header):
            hint = f"; its cells seem to be separated by {mark!r}; {SEPARATE}"
        elif seems_text(header):
            hint = f"; the first line seems to be a text, not the names of the columns; {NAME_COLUMNS}"
        raise MissingColumn(f"{where}: no column {shorten(missing[0])}; found {found}{hint}")
    double = [name for name in (*columns, *optional) if header.count(name) > 1]
    if double:
        raise InputError(f"{where}: several columns {shorten(double[0])}; found {found}; rename one of them")


def separator_in(header: Sequence[str]) -> str:
    """What seems to separate the cells of a table whose header was read as a single name; "" if nothing does."""
    return next((mark for mark in ";\t,|" if len(header) == 1 and mark in header[0]), "")


def seems_text(header: Sequence[str]) -> bool:
    """Whether the only name of a table is a text: four words or more, or a sentence with its period."""
    words = header[0].split() if len(header) == 1 else []
    return len(words) > 3 or (len(words) > 1 and words[-1][-1] in ".!?。")


def nearest_column(name: str, names: Sequence[str]) -> str:
    """The hint of a message about a column that is none of `names`."""
    near = difflib.get_close_matches(name, names, 1)
    if near and "," in near[0]:  # typed as it is, it would be two names
        return f" ({shorten(near[0])} has a comma: rename the column, or name it in Python, in a list)"
    return f" (did you mean {shorten(near[0])}?)" if near else ""
