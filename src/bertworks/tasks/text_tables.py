"""The records of .csv, .tsv and .txt tables: lists of cells with the line that each begins in.

Quotes of .tsv and .txt files are ordinary characters, as in GLUE's files, unless the whole file is quoted as pandas
and Excel do (`is_quoted`). Both formats are parsed here and not by pyarrow.csv, which does not know the lines that its
rows begin in.
"""

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

from ..files import InputError
from .header import SEPARATE
from .lines import MAX_LINE

CARRIAGE_RETURN = (
    "a carriage return (CR) that is not part of a line end, as in files of old Macs; expected line ends LF or CRLF; "
    "save the file with Unix or Windows line ends"
)
_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED = re.compile(rf'(?:{_CELL.pattern}|[^"\t]*)(?:\t(?:{_CELL.pattern}|[^"\t]*))*')  # a record of a quoted table
_NEEDS = re.compile(r'""|[\t\r\n]')

Records = Iterator[tuple[int, list[str]]]


def csv_records(lines: Iterator[str], path: Path, separator: str = ",") -> Records:
    """(line, cells) of each record; a quoted cell may contain line ends. Blank lines are no records."""
    reader, line = csv.reader(lines, delimiter=separator, strict=True), 1
    try:
        while (cells := _next_record(reader)) is not None:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        where = f"{path}, the row that begins in line {line}"
        if "new-line character" in str(error):
            raise InputError(f"{where}: {CARRIAGE_RETURN}, or quote the cell") from None
        raise InputError(
            f"{where}: {error}; a quote may be missing, or the file be cut off; {SEPARATE}, and write a quote inside a "
            "quoted cell twice"
        ) from None


def _next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """The next record, with long cells; None at the end. The limit of cells is one of the whole process."""
    before = csv.field_size_limit(MAX_LINE)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def tsv_records(lines: Iterator[str], width: int, joined: bool) -> Records:
    """(line, cells) of each record of an unquoted table.

    joined: whether a row that is broken by line ends within its cells is put together (QQP's official train.tsv has
    such rows). width: cells of a whole row; 0: as many as the first has.
    """
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


def is_quoted(lines: Iterator[str], has_header: bool, most: float = math.inf) -> bool:
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
