"""The inputs of `bertworks predict` and `features`: lines, rows of a table, sentences, questions, or data in memory.

Files are read by the readers of labelled data (tasks/), without the labels. `Columns` says which columns of a table
hold the texts; without it those of fine-tuning are read.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, not_found
from ..tasks.base import Task
from ..tasks.catalogue import TASKS
from ..tasks.column_files import ENDINGS, is_column_file
from ..tasks.formats import decoded
from ..tasks.labels import as_list
from ..tasks.questions import read as read_questions
from ..tasks.records import EXPECTED, Source, is_table, refuse_no_rows, source_of
from ..tasks.rows import text_rows_of
from ..tasks.sampling import in_part, rows_in_part
from ..tasks.sentences import Tagged, between_blanks, between_words, words_of
from ..tasks.sentences import read as read_sentences
from ..tasks.table import (
    PLAIN,
    TABLES,
    MissingColumn,
    TableForm,
    has_objects,
    locator,
    names_of,
    part_of,
    read_table,
    suffix_of,
)

TEXT = ".txt"  # a table, or lines of text (`_is_table`)
TEXT_COLUMNS = {"span": ("question", "context")}  # of a kind, by default; of all other kinds: text


class InputRow(NamedTuple):
    """One input of a file."""

    name: dict[str, Any]  # its line in the file, or the id of a question
    texts: Sequence[str]  # one or two texts; of a multiple choice a text, then the choices
    words: Sequence[str] | Tagged | None = None  # of a text to tag, if the file divides it into words (or characters)

    @property
    def empty(self) -> bool:
        return not any(text.strip() for text in self.texts)


class Columns(NamedTuple):
    """The columns of a table that hold texts."""

    text: tuple[str, ...] = ()  # one or two; (): those of fine-tuning on one's own table, else the default of the kind
    choices: tuple[str, ...] = ()
    form: TableForm = PLAIN  # encoding of the file, its sheet and the row of its header
    found: bool = False  # whether `text` is what fine-tuning stored, not what was given
    words: tuple[str, ...] = ()  # the columns whose texts were divided into words by fine-tuning
    characters: bool = False  # whether these words are characters


def read_inputs(data: Any, kind: str, columns: Columns) -> Iterator[InputRow]:
    """The inputs of a file for a folder of this kind, or of data in memory: texts, tuples of texts, or a table.

    Raises InputError with file and line, or with the row.
    """
    columns = columns._replace(text=columns.text or TEXT_COLUMNS.get(kind, ("text",)))
    if isinstance(data, str):
        yield from _of_file(*part_of(data), kind, columns)
        return
    data = in_memory(data)
    if is_table(data) and (table := source_of(data, "data", (*columns.text, *columns.choices))):
        yield from _of_table(table, kind, columns)
    else:
        yield from (InputRow({"line": number}, row) for number, row in enumerate(text_rows_of(data, "data"), 1))


def in_memory(data: Any) -> Any:
    """Data in memory, with a length. Raises InputError for what has no rows."""
    refuse_no_rows(data, "data", f"{EXPECTED}, of texts, or of tuples of texts")
    return data if hasattr(data, "__len__") else [*data]


def _of_file(path: Path, part: str, kind: str, columns: Columns) -> Iterator[InputRow]:
    suffix = suffix_of(path)
    if kind == "tagging" or suffix in ENDINGS:
        task = Task("prediction", ("character",) if columns.characters else columns.text[:1], form=columns.form)
        given = not columns.found and task.text[0].isdecimal()
        if suffix in ENDINGS or (path.is_file() and is_column_file(path, task, tagged_only=not given)):
            return _of_sentences(path, part, columns, task, kind == "tagging")
    if suffix == ".json" and kind == "span":
        return _of_questions(path, part, columns)
    if _is_table(path, columns):
        items = _of_table(path, kind, columns)
    else:
        items = (InputRow({"line": number}, (line,)) for number, line in _lines(str(path), columns.form.encoding))
    return (item for item in items if in_part(item.texts[int(kind == "span")], part)) if part else items


def _is_table(path: Path, columns: Columns) -> bool:
    """Whether a file is a table; a .txt is one if its text columns are given, or its first line names them."""
    if suffix_of(path) != TEXT:
        return suffix_of(path) in TABLES
    if not columns.found and columns.text not in (("text",), *TEXT_COLUMNS.values()):
        return True
    names = names_of(path, columns.form)
    return len(names) > 1 and {*columns.text, *columns.choices} <= {*names}


def _of_questions(path: Path, part: str, columns: Columns) -> Iterator[InputRow]:
    task = Task("prediction", columns.text, kind="span", form=columns.form)
    for question in rows_in_part(read_questions(task, path, False), part):
        yield InputRow({"id": question.id}, (question.question, question.context))


def _of_sentences(path: Path, part: str, columns: Columns, task: Task, words: bool) -> Iterator[InputRow]:
    """The sentences of a file with a word per line. words: whether a tagger reads them."""
    if columns.found and not task.text[0].isdecimal() and not columns.characters:
        task = replace(task, text=("words",))  # a name that fine-tuning stored may be that of another format
    for row in rows_in_part(read_sentences(task, path, labelled=False), part):
        yield InputRow({"line": row.line}, (row.text,), row if words else None)


def _of_table(source: Source, kind: str, columns: Columns) -> Iterator[InputRow]:
    """The inputs of a table. Raises InputError with the row."""
    lists, place = (columns.text if kind == "tagging" else ()), locator(source)
    try:
        for line, values in read_table(source, (*columns.text, *columns.choices), lists=lists, form=columns.form):
            texts: Sequence[str] = values
            words: Sequence[str] | Tagged | None = None
            if lists and (columns.text == columns.words or (has_objects(source) and as_list(texts[0]) is not None)):
                if as_list(texts[0]) is None and not columns.characters:
                    words = between_blanks(texts[0])
                else:
                    words = words_of(texts[0], columns.characters, place(line))
                    texts = [between_words(columns.characters).join(words)]
            if columns.choices and len(columns.text) == 2:  # the second text begins every choice (tasks/choice.py)
                texts = [texts[0], *(f"{texts[1]} {choice}" for choice in texts[2:])]
            yield InputRow({"line": line}, texts, words)
    except MissingColumn as error:
        raise InputError(f"{error}; name the text column, or two, as text") from None


def _lines(file: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """(line number, line) of a text file, or of standard input ("-"). Raises InputError with file and line."""
    if file != "-" and not Path(file).is_file():
        raise InputError(f"{file}: {not_found(file)}")
    with contextlib.nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as opened:
        for number, line in enumerate(decoded(opened, "standard input" if file == "-" else file, encoding), 1):
            yield number, line.rstrip("\r\n")


def columns_for(settings: Mapping[str, Any], data: Any, columns: Columns) -> Columns:
    """The columns of a table that are read: those given, or those of fine-tuning, or of the official files.

    settings: what the folder stores of its task. A table that lacks the words of a tagger, but has the usual column,
    has texts to tag there.
    """
    names = () if columns.text else _names_of(data, columns.form)
    text, choices, words = (tuple(settings.get(name, ())) for name in ("text", "choices", "words"))
    text = columns.text or text or (words if "text" not in names or {*words} <= {*names} else ())
    choices, form = columns.choices or choices, columns.form
    task = TASKS.get(settings.get("name", ""))
    if not text and task is not None and {*task.text, *task.choices} <= {*names}:
        text, choices, form = task.text, task.choices, form._replace(official=True)  # as these files are trained on
    return Columns(text, choices, form, not columns.text, words, bool(settings.get("characters")))


def _names_of(data: Any, form: TableForm) -> tuple[str, ...]:
    """The names of a table's columns; () for a missing file, and for data without columns."""
    if isinstance(data, str):
        path = part_of(data)[0]
        return names_of(path, form) if suffix_of(path) in (*TABLES, TEXT) else ()
    source = source_of(data, "data") if is_table(data) and len(data) else None
    return () if source is None else names_of(source)
