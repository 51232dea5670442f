"""The rows of files: records (lists of cells) of text tables, objects of JSON and Parquet, decoded lines of any text.

Quotes of .tsv and .txt tables are ordinary characters, as in GLUE's files, unless the whole file is quoted as pandas
and Excel do (`is_quoted`). Text tables are parsed here and not by pyarrow.csv, which does not know the lines that its
rows begin in.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ..data.corpus import MARKUP, REFUSED_STARTS
from ..data.encodings import UTF8, as_utf8, codec_of, hint
from ..files import InputError, parse_json, read_json, shorten
from ..tokenizer import normalize

MAX_LINE = 16 << 20  # bytes of a line, characters of a cell; a line of 100 MB would take gigabytes of memory
BATCH = 1024  # rows of a Parquet file held at a time
EXPECTED = "expected UTF-8 text, a line each, or a table: .csv, .tsv, .jsonl, .parquet, .xlsx"
_NO_TEXT = (
    rb"\x1f\x8b",
    *(start for start, kind in REFUSED_STARTS.items() if kind != MARKUP),
)  # gzip; <html> is a text
_CELL = re.compile(r'"(?:[^"]|"")*"')
_QUOTED = re.compile(rf'(?:{_CELL.pattern}|[^"\t]*)(?:\t(?:{_CELL.pattern}|[^"\t]*))*')  # a record of a quoted table
_NEEDS = re.compile(r'""|[\t\r\n]')

Cells = Iterator[tuple[int, list[str]]]  # (line, cells) of each record
Objects = Iterator[tuple[int, dict[str, Any]]]  # (line, item or row, counted from 1; object)


def decoded(file: IO[bytes], where: str, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file with their line ends, without a byte order mark.

    Raises InputError, with the line, if it is not of this encoding, is longer than MAX_LINE bytes, or the file is no
    text.
    """
    if codec_of(encoding) not in UTF8:
        file = as_utf8(file, encoding, where)
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if number == 1 and (b"\0" in line or any(re.match(start, line) for start in _NO_TEXT)):
            raise InputError(f"{where}: not a text file; {EXPECTED}; unpack it, or give the encoding utf-16")
        if len(line) > MAX_LINE:
            raise InputError(f"{where}, line {number}: more than {MAX_LINE:,} bytes; expected shorter lines; divide it")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            found = f"{where}, line {number}: byte 0x{line[error.start]:02X} is not UTF-8"
            raise InputError(f"{found}; {hint(line)}, or save the file as UTF-8") from None


# ---- text tables


def csv_records(lines: Iterator[str], path: Path, separator: str = ",") -> Cells:
    """The records of a quoted table; a quoted cell may contain line ends. Blank lines are no records."""
    reader, line = csv.reader(lines, delimiter=separator, strict=True), 1
    try:
        while (cells := _next_record(reader)) is not None:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        advice = "is a quote missing, or the file cut off? Write a quote inside a quoted cell twice"
        raise InputError(f"{path}, the row that begins in line {line}: {error}; {advice}") from None


def _next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """The next record, with long cells; None at the end. The limit of cells is one of the whole process."""
    before = csv.field_size_limit(MAX_LINE)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def tsv_records(lines: Iterator[str], width: int, joined: bool) -> Cells:
    """The records of an unquoted table.

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


def is_quoted(lines: Iterator[str], has_header: bool) -> bool:
    """Whether a table with tabs is quoted: every quote belongs to a quoted cell, and some quoted cell needs its quotes.

    That is one with doubled quotes, a tab or a line end inside, or one of the header. One cell that is not quoted
    rightly, such as a text with a quotation in it, shows that quotes are ordinary characters. Tabs and line ends inside
    show nothing if each line has the same number of tabs, for then each is a whole row.
    """
    record, size, inside = list[str](), 0, False  # inside: whether a quoted cell continues in the next line
    needed, broken, tabs = False, False, set[int]()  # broken: whether a tab or line end is inside a quoted cell
    for line in lines:
        record.append(line)
        size += len(line)
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
    return not inside and (needed or (broken and (len(tabs) > 1 or tabs == {0})))


# ---- JSON and Parquet


def json_objects(path: Path, encoding: str) -> Objects:
    """The object of each line that is not blank."""
    with open(path, "rb") as file:
        for number, line in enumerate(decoded(file, str(path), encoding), 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line, f"{path}, line {number}", finite=False)
            except InputError as error:
                raise InputError(f"{error}; is the line cut off?") from None
            if not isinstance(value, dict):
                raise InputError(f"{path}, line {number}: found a {type(value).__name__}; expected an object")
            yield number, value


def json_list(path: Path) -> Objects:
    """The objects of a list, which may be the value of `data`; or the object of each line."""
    rows = json_items(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: found {shorten(rows)}; expected a list of objects, such as a text and its label")
    yield from enumerate(rows, 1)


def json_items(path: Path) -> Any:
    """The value of a .json file, or of the key `data` in it; or the list of the objects of its lines."""
    try:
        value = read_json(path)
    except InputError:
        with open(path, "rb") as file:
            if not next(decoded(file, str(path)), "").rstrip().endswith("}"):
                raise
        return [row for _, row in json_objects(path, "utf-8")]
    return value["data"] if isinstance(value, dict) and isinstance(value.get("data"), list) else value


def parquet_objects(path: Path, names: Sequence[str]) -> Objects:
    """The cells of these columns of each row; of all columns if there are no names, or one of them is missing."""
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            own = {normalize("NFC", name): name for name in file.schema_arrow.names}
            wanted = [own[name] for name in dict.fromkeys(names)] if names and {*names} <= {*own} else None
            for batch in file.iter_batches(BATCH, columns=wanted):
                for cells in batch.to_pylist():
                    number += 1
                    yield number, cells
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # ValueError: UTF-8, odd dates
        fault = (str(error).splitlines() or [type(error).__name__])[0]
        found = f"{path}: not a readable Parquet file ({shorten(fault, 200)}), after row {number}"
        raise InputError(f"{found}; is it cut off?") from None
