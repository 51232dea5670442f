"""The inputs of `bertworks predict` and `features`: lines, rows of a table, questions, or data in memory.

`Columns` says which columns of a table hold the texts; without it those of fine-tuning are read.
"""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..files import InputError, not_found
from ..tasks.base import Task
from ..tasks.catalogue import TASKS
from ..tasks.cells import as_list
from ..tasks.header import MissingColumn
from ..tasks.lines import decoded
from ..tasks.questions import read as read_questions
from ..tasks.records import EXPECTED, Records, Source, is_table, refuse_no_rows, source_of
from ..tasks.rows import text_rows_of
from ..tasks.selection import refuse_idle_sheet
from ..tasks.sentences import Tagged, between_blanks, between_words, words_of
from ..tasks.table import (
    PLAIN,
    TABLES,
    TableForm,
    column_names,
    ending_of,
    location,
    part_of,
    read_table,
)
from .result_tables import SEPARATORS, WORKBOOK

TEXT = ".txt"  # a table, or lines of text (`_is_table`)
TEXT_COLUMNS = {"span": ("question", "context")}  # of a kind, by default; of all other kinds: text
BLANK = ("a",)  # the text of an input that is in no file


class Item(NamedTuple):
    """One input of a file."""

    name: dict[str, Any]  # its line in the file, or the id of a question
    texts: Sequence[str]  # one or two texts; of a multiple choice a text, then the choices
    cells: Mapping[str, str] | None = None  # the same as in the file, by column; None: `texts` alone are known
    words: Sequence[str] | Tagged | None = None  # of a text to tag, if the table divides it into words (or characters)

    @property
    def empty(self) -> bool:
        return not any(text.strip() for text in self.texts)

    @property
    def echo(self) -> dict[str, str]:
        """The input by its columns; of texts without columns by their numbers."""
        return dict(self.cells or {f"text{i or ''}": text for i, text in enumerate(self.texts)})


class Columns(NamedTuple):
    """The columns of a table that hold texts."""

    text: tuple[str, ...] = ()  # one or two; (): those of fine-tuning on one's own table, else the default of the kind
    choices: tuple[str, ...] = ()
    form: TableForm = PLAIN  # encoding of the file, and its sheet
    found: bool = False  # whether `text` is what fine-tuning stored, not what was given
    words: tuple[str, ...] = ()  # the columns whose texts were divided into words by fine-tuning
    characters: bool = False  # whether these words are characters

    def or_those_of(self, settings: Mapping[str, Any], names: Collection[str]) -> "Columns":
        """The columns, where not given those that fine-tuning stored; `names`: the columns of the table.

        A table that lacks the words of a tagger, but has the usual column, has texts to tag there.
        """
        text, choices, words = (tuple(settings.get(name, ())) for name in ("text", "choices", "words"))
        text = text or (words if "text" not in names or {*words} <= {*names} else ())
        columns = Columns(self.text or text, self.choices or choices, self.form, not self.text)
        return columns._replace(words=words, characters=bool(settings.get("characters")))


def read_inputs(data: Any, kind: str, columns: Columns, whole: bool = False) -> Iterator[Item]:
    """The inputs of a file for a folder of this kind, or of data in memory: texts, tuples of texts, or a table.

    whole: whether the cells are those of all columns, of a file with a header (.csv, .tsv, .xlsx). Raises InputError
    with file and line, or with the row.
    """
    text = columns.text or TEXT_COLUMNS.get(kind, ("text",))
    if not isinstance(data, str):
        data = in_memory(data)
        if is_table(data):
            yield from _rows_of(source_of(data, "data", (*text, *columns.choices)), kind, columns, text)  # type: ignore[arg-type]  # a table
        else:
            yield from (Item({"line": number}, row) for number, row in enumerate(text_rows_of(data, "data"), 1))
        return
    refuse_idle_sheet(columns.form.sheet, [data])
    path = Path(data)
    if _is_questions(data, kind):
        for question in read_questions(Task("prediction", ("question", "context"), kind="span"), path, False):
            cells = {"question": question.question, "context": question.context}
            yield Item({"id": question.id}, [*cells.values()], cells)
    elif _is_table(data, columns, text):
        yield from _rows_of(path, kind, columns, text, _further_columns(data, columns, text) if whole else {})
    else:
        _warn_of_tabs(data, columns.form)
        for number, line in read_lines(data, columns.form.encoding):
            yield Item({"line": number}, (line,))


def _is_questions(file: str, kind: str) -> bool:
    return kind == "span" and ending_of(file) == ".json"


def _is_table(file: str, columns: Columns, text: tuple[str, ...]) -> bool:
    """Whether a file is a table; a .txt is one if its text columns are given, or its first line names them."""
    if file == "-" or ending_of(file) != TEXT:
        return ending_of(file) in TABLES
    if columns.text and not columns.found:
        return True
    names = _names_of(file, columns.form)
    return len(names) > 1 and {*text, *columns.choices} <= {*names}


def _further_columns(file: str, columns: Columns, text: tuple[str, ...]) -> dict[str, int]:
    """The positions of the columns that are not the model's, by a name for each, of a file with a header.

    A name that is there again gets a number, as in note.2; a column without a name is called column.3, or has the next
    free number.
    """
    if ending_of(file) not in (*SEPARATORS, WORKBOOK) or not part_of(file)[0].is_file():
        return {}
    names, found = column_names(file, columns.form), dict[str, int]()
    for position, name in enumerate(names):
        if name in (*text, *columns.choices):
            continue
        shown, number = name or f"column.{position + 1}", 1
        while shown in found or (shown != name and shown in names):
            shown, number = f"{name or 'column'}.{number + 1}", number + 1
        found[shown] = position
    return found


def blank_input(file: Any, kind: str, columns: Columns, whole: bool) -> Item:
    """An input as those of the file, of a made-up text; of data in memory a text."""
    if not isinstance(file, str):
        return Item({}, BLANK)
    text = columns.text or TEXT_COLUMNS.get(kind, ("text",))
    if _is_questions(file, kind):
        return Item({"id": ""}, BLANK * 2, dict.fromkeys(TEXT_COLUMNS["span"], ""))
    if not _is_table(file, columns, text):
        return Item({"line": 1}, BLANK)
    wanted = (*text, *columns.choices)
    more = _further_columns(file, columns, text) if whole else {}
    texts = _with_beginning(BLANK * len(wanted), len(text), columns.choices)
    return Item({"line": 1}, texts, dict.fromkeys((*wanted, *more), ""))


def in_memory(data: Any) -> Any:
    """Data in memory, with a length. Raises InputError for what has no rows."""
    refuse_no_rows(data, "data", f"{EXPECTED}, of texts, or of tuples of texts")
    return data if hasattr(data, "__len__") else [*data]


def _warn_of_tabs(file: str, form: TableForm) -> None:
    if file != "-" and ending_of(file) == TEXT and len(_names_of(file, form)) > 1:
        print(
            f"{file}: each line is read as a text, although the first line has tabs; if it is a table, name its text "
            "column with --text",
            file=sys.stderr,
        )


def _rows_of(
    source: Source, kind: str, columns: Columns, text: tuple[str, ...], more: Mapping[str, int] = MappingProxyType({})
) -> Iterator[Item]:
    """The inputs of a table; `more`: positions of columns that are kept besides. Raises InputError with the row."""
    wanted = (*text, *columns.choices)
    lists, divided_by = (text if kind == "tagging" else ()), int(kind == "span")
    may_be_list = isinstance(source, Records) or ending_of(source) in (".jsonl", ".parquet")
    try:
        for row in read_table(source, wanted, (), [*more.values()], lists, divided_by=divided_by, form=columns.form):
            cells, values = dict(zip((*wanted, *more), row.values, strict=True)), row.values[: len(wanted)]
            words: Sequence[str] | Tagged | None = None
            if lists and (text == columns.words or (may_be_list and as_list(values[0]) is not None)):
                words = words_of(values[0], columns.characters, location(source, row.line))
                if as_list(values[0]) is None and not columns.characters:
                    words = between_blanks(values[0])
                else:
                    values = [between_words(columns.characters).join(words)]
            yield Item({"line": row.line}, _with_beginning(values, len(text), columns.choices), cells, words)
    except MissingColumn as error:
        how = "in a list" if isinstance(source, Records) else "with a comma between"
        raise InputError(f"{error}; name the text column, or two {how}, with --text") from None


def _with_beginning(values: Sequence[str], texts: int, choices: Sequence[str]) -> Sequence[str]:
    """A text and its choices; a second text, if there is one, begins every choice (tasks/choice.py)."""
    if not choices or texts == 1:
        return values
    return [values[0], *(f"{values[1]} {choice}" for choice in values[2:])]


def read_lines(file: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Every line of a text file with its number, blank ones too; "-" is standard input. Raises InputError."""
    if file != "-" and not Path(file).is_file():
        raise InputError(f"{file}: {not_found(file)}; a text itself is given with --string")
    with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as opened:
        for number, line in enumerate(decoded(opened, "standard input" if file == "-" else file, encoding), 1):
            yield number, line.rstrip("\r\n")


def columns_for(settings: Mapping[str, Any], data: Any, columns: Columns) -> Columns:
    """The columns of a table that are read: those given, or those of fine-tuning, or of the official files.

    settings: what the folder stores of its task.
    """
    names = () if columns.text else _names_of(data, columns.form)
    return _official(columns.or_those_of(settings, names), settings, names)


def _official(columns: Columns, settings: Mapping[str, Any], names: Collection[str]) -> Columns:
    """The columns of the official files of the known task that a model was fine-tuned on, if this table has them."""
    task = TASKS.get(settings.get("name", ""))
    if columns.text or task is None or not {*task.text, *task.choices} <= {*names}:
        return columns
    form = columns.form._replace(unquoted=True)  # as these files are read for training
    return columns._replace(text=task.text, choices=task.choices, form=form)


def _names_of(data: Any, form: TableForm) -> Collection[str]:
    """The names of a table's columns; () of a file that is not there, and of what is no table."""
    if isinstance(data, str):
        known = ending_of(data) in (*TABLES, TEXT) and part_of(data)[0].is_file()
        return column_names(data, form) if known else ()
    source = source_of(data, "data") if is_table(data) else None
    if not isinstance(source, Records):
        return ()
    return source.columns or (tuple(data[0]) if isinstance(data, Sequence) else ())
