"""Tables of one's own: columns, encodings, markup; then the checks of all rows (rows.py)."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...files import InputError
from ...reporting.tables import counted
from ...tasks.base import KindName, Task
from ...tasks.header import NAME_COLUMNS, SEPARATE, nearest_column, seems_text, separator_in
from ...tasks.kinds import OWN_TABLE, own_task, read_rows
from ...tasks.labels import label_in
from ...tasks.table import (
    PLAIN,
    TABLES,
    TableForm,
    column_names,
    ending_of,
    read_table,
)
from ...tasks.table import Row as TableRow
from ...tokenizer import Tokenizer
from .findings import Finding, named, percent
from .rows import Row, Rows, rows_of

MOST_ROWS = 500_000  # that are examined
LABELS = (
    "label",
    "labels",
    "topic",
    "class",
    "category",
    "gold_label",
    "target",
    "sentiment",
    "intent",
    "score",
    "rating",
    "Quality",
)
TEXTS = (  # names of text columns, the likeliest first; two of them are a pair
    ("text",),
    ("sentence",),
    ("document",),
    ("review",),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("a", "b"),
    ("query", "passage"),
    ("anchor", "positive"),
    ("#1 String", "#2 String"),
)
PAIR_ENDS = (("1", "2"), ("_a", "_b"), ("A", "B"))  # of the names of two columns that are a pair: title1, title2
SOME = 0.05  # share of cells from which markup and the like are a warning
LONGEST_NAME = 60  # characters of a column's name
MOST_LABELS = 50  # different cells of a column of labels
_WORD = re.compile(r"[^\W\d_]{2}")  # numbers have single letters, as in 1e-5
_MARKUP = re.compile(r"<(?:br|p|div|a|b|i|span)\b[^>]*>|&(?:amp|lt|gt|quot|nbsp|#\d+);", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are read, and as what."""

    text: tuple[str, ...]
    label: str  # "" if there is none
    kind: KindName | str = ""
    choices: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()  # the flags that would name the columns that are a guess
    form: TableForm = PLAIN  # encoding and sheet of the file

    def __str__(self) -> str:
        texts = ", ".join(map(named, self.text))
        label = f"label in {named(self.label)}" if self.label else "no labels"
        given = [f" (guessed; give {flag})" if flag in self.guessed else "" for flag in ("--text", "--label")]
        if all(given):
            return f"text in {texts}, {label} (guessed; give --text and --label)"
        return f"text in {texts}{given[0]}, {label}{given[1]}"


@dataclass(frozen=True)
class Table:
    """A table, and a second one of development rows if there is one."""

    path: Path
    columns: Columns
    dev: Path | None = None
    tokenizer: Tokenizer | None = None
    max_seq_length: int = 0

    @cached_property
    def header(self) -> list[str]:
        """The names of its columns."""
        return _header(self.path, self.columns.form)

    @cached_property
    def cells(self) -> list[tuple[int, list[str]]]:
        """(line, the cells of all columns) of each row."""
        names = list(dict.fromkeys(self.header))
        return [(row.line, row.values) for row in _read(self.path, names, self.columns.form)]

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        i = list(dict.fromkeys(self.header)).index(name)
        return [cells[i] for _, cells in self.cells]

    @cached_property
    def rows(self) -> Rows:
        """Its rows as those of a task. Raises InputError for rows that the task cannot have."""
        task = _task(self.columns)
        train, dev = ([] if path is None else _rows(task, path, self.columns) for path in (self.path, self.dev))
        return Rows(task, train, dev, self.tokenizer, self.max_seq_length)


def _header(path: Path, form: TableForm) -> list[str]:
    """The names of a table's columns; several without a name, behind commas at the end of a line, are left out."""
    found = column_names(path, form)
    return [name for name in found if name or found.count("") == 1]


def _read(path: Path, names: Sequence[str], form: TableForm) -> Iterator[TableRow]:
    """The rows of a table; a cell that is missing is empty."""
    return itertools.islice(read_table(path, (), optional=names, lists=names, form=form), MOST_ROWS)


def _task(columns: Columns) -> Task:
    if columns.kind in ("choice", "tagging", "span", "regression", "multilabel", "embedding"):
        label = columns.label or ("" if columns.kind == "embedding" else "label")  # an embedder may have no scores
        task = own_task(columns.kind, columns.text, label, columns.choices)
        return replace(task, form=columns.form)
    return Task(OWN_TABLE, columns.text, columns.label or "label", form=columns.form)


def _rows(task: Task, path: Path, columns: Columns) -> list[Row]:
    """Rows of classes, whatever is wrong with them, so that all of it is found; others as they are trained on."""
    if task.kind not in ("single", "pair", "regression"):
        return rows_of(task, read_rows(task, path))
    names = (*columns.text, *([columns.label] if columns.label else []))
    check_columns(path, columns)
    texts = len(columns.text)
    return [
        Row(tuple(row.values[:texts]), label_in(row.values[texts]) or None if columns.label else None, row.line)
        for row in _read(path, names, columns.form)
    ]


def check_columns(path: Path, columns: Columns) -> None:
    """Raises InputError if a column that is read is not in the table."""
    found = column_names(path, columns.form)
    wanted = [*columns.text, *columns.choices, *(columns.label.split(",") if columns.label else ())]
    if missing := [name for name in wanted if name not in found]:
        listed = ", ".join(map(named, found))
        raise InputError(f"{path}: no column {named(missing[0])}; found {listed}{nearest_column(missing[0], found)}")


def is_table(path: Path) -> bool:
    """Whether the name is that of a table, or of a part of one (all.csv#dev)."""
    return ending_of(path) in (*TABLES, ".txt")


def is_lines(path: Path, given: Columns) -> bool:
    """Whether a .txt has one column that nobody named, so that each of its lines is a text."""
    return ending_of(path) == ".txt" and given.text in ((), TEXTS[0]) and len(_header(path, given.form)) == 1


def separated_otherwise(path: Path, given: Columns) -> Iterator[Finding]:
    """A table whose cells are not separated by what its name promises, so that its header is one name."""
    header = _header(path, given.form)
    mark = separator_in(header)
    if mark and header[0] not in given.text and ending_of(path) in (".csv", ".tsv", ".txt"):
        yield Finding("error", f"one column, {named(header[0])}; its cells seem to be separated by {mark!r}", SEPARATE)


def find_columns(path: Path, given: Columns) -> Columns:
    """The columns that were given, and for those that were not the likeliest ones of the table."""
    header = _header(path, given.form)
    if not header:
        raise InputError(f"{path}: an empty file, or no column has a name; expected a table with names of its columns")
    sample = [row.values for row in itertools.islice(_read(path, list(dict.fromkeys(header)), given.form), 2_000)]
    cells = {name: [row[i] for row in sample] for i, name in enumerate(dict.fromkeys(header))}
    label, text, guessed = given.label, given.text, list[str]()
    if not text or (text == ("text",) and "text" not in header):
        guessed.append("--text")
    if not label and given.kind != "embedding":
        others = {name: found for name, found in cells.items() if guessed or name not in text}
        label = _guess_label(others)
        guessed.append("--label")
    if "--text" in guessed:
        text = _guess_text({name: found for name, found in cells.items() if name != label})
    values = [cell for cell in cells.get(label, []) if cell]
    kind = given.kind or ("regression" if _is_scale(values) else "")
    return replace(given, text=text, label=label, kind=kind, guessed=tuple(guessed))


def _guess_label(cells: dict[str, list[str]]) -> str:
    for name in LABELS:
        if name in cells:
            return name
    few = {name: len({*found}) for name, found in cells.items() if found and max(map(len, found)) <= 40}
    for rows in (10, 5):  # of a label, at least: users and days have fewer than classes
        fitting = [name for name, n in few.items() if 1 < n <= min(MOST_LABELS, len(cells[name]) / rows)]
        if fitting:
            return fitting[-1]  # tables have their label last, behind columns such as a source or a split
    return ""


def _guess_text(cells: dict[str, list[str]]) -> tuple[str, ...]:
    for names in TEXTS:
        if all(name in cells for name in names):
            return names
    for first, second in PAIR_ENDS:
        pairs = [(name, name[: -len(first)] + second) for name in cells if name.endswith(first)]
        if found := next((pair for pair in pairs if pair[1] in cells), None):
            return found
    words = [name for name, found in cells.items() if any(_WORD.search(cell) for cell in found)]
    if not words:
        raise InputError("no column of texts; give it with --text")
    return (max(words, key=lambda name: sum(map(len, cells[name]))),)


def _is_scale(values: list[str]) -> bool:
    """Whether labels are values of a scale: numbers, many different ones, with decimals."""
    try:
        numbers = {float(value) for value in values}
    except ValueError:
        return False
    return len(numbers) > 20 and any(value != int(value) for value in numbers)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- checks


def columns(table: Table) -> Iterator[Finding]:
    """A first line that is a row, and a column that is the same in every row."""
    header = table.header
    odd = [name for name in header if len(name) > LONGEST_NAME or _is_number(name) or seems_text(header)]
    if odd:
        listed = "; `predict` and `corpus build` take a list of texts as it is" if seems_text(header) else ""
        yield Finding(
            "warning" if seems_text(header) else "error",  # the question of a form may be a name
            f"the first line seems to be a row, not the names of the columns: {named(odd[0])}",
            f"to train on it, {NAME_COLUMNS}{listed}",
        )
    elif likely := _names_among_cells(table):
        yield Finding(
            "warning",
            f"the first line may be a row, not the names of the columns: {named(likely)} is also a cell of its column",
            "if it is a row, write a line with a name for each column above it",
        )
    for name in (*table.columns.text, table.columns.label):
        if name in table.header and len(table.cells) > 1 and len({*table.column(name)}) == 1:
            cell = table.column(name)[0]
            yield Finding(
                "error",
                f"column {named(name)} has the same cell in every row: {named(cell)}",
                "choose another column with --text or --label",
            )


def _names_among_cells(table: Table) -> str:
    """The name of a column that is also one of its cells, where no column has a usual name; "" if there is none."""
    if any({*names} <= {*table.header} for names in (*TEXTS, *((name,) for name in LABELS))):
        return ""
    return next((name for name in table.header if name in {*table.column(name)}), "")


def encoding(table: Table) -> Iterator[Finding]:
    """Texts that were decoded wrongly once, replacement and control characters, decomposed letters."""
    texts = [(line, cell) for line, cells in table.cells for cell in cells if not cell.isascii() or "\x00" in cell]
    kinds = {
        "the replacement character U+FFFD": (lambda cell: "\ufffd" in cell, "decode the source in its own encoding"),
        "NUL characters": (lambda cell: "\x00" in cell, "the source may be UTF-16; save it as UTF-8"),
    }
    for what, (is_so, advice) in kinds.items():
        if found := [line for line, cell in texts if is_so(cell)]:
            severity = "warning" if len(found) >= 0.001 * len(table.cells) else "note"
            yield Finding(
                severity,  # type: ignore[arg-type]
                f"{counted(len(found), 'cell')} with {what} (line {found[0]}{', ...' if len(found) > 1 else ''})",
                advice,
                {"cells": len(found)},
            )


def markup(table: Table) -> Iterator[Finding]:
    """HTML in texts, and quotes that a .tsv takes for characters."""
    texts = [cell for name in table.columns.text for cell in table.column(name)]
    tags = sum(bool(_MARKUP.search(cell)) for cell in texts)
    if tags >= SOME * max(1, len(texts)):
        yield Finding(
            "warning",
            f"{percent(tags / len(texts))} of the texts have HTML in them",
            "remove tags and entities; a model that is served plain text never sees them",
            {"share": round(tags / len(texts), 4)},
        )
    quoted = sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in texts)
    if ending_of(table.path) in (".tsv", ".txt") and quoted > 0.5 * len(texts):
        yield Finding(
            "warning",
            f"{percent(quoted / len(texts))} of the texts are in quotes, which are ordinary characters in a .tsv",
            "save the table as .csv, or without quotes",
        )


CHECKS: dict[str, Callable[[Table], Iterable[Finding]]] = {
    "columns": columns,
    "encoding": encoding,
    "markup": markup,
}
