"""Questions about paragraphs and their answers: files in SQuAD's layout, and tables of one's own.

    .json     data > paragraphs > context, qas > id, question, answers > text, answer_start; version 2.0 has
              is_impossible besides. SQuAD 1.1 and 2.0, KorQuAD 1.0 and many others are written so. A list of objects
              is a table.
    tables    `Task.text` names the columns of the question and of the context, `Task.label` that of the answer's text.
              A column `answer_start` says where the answer begins in the context, counted in characters; where it is
              missing or empty, the first occurrence is taken. A column `id` names the questions; else the line does.
              A column `is_impossible` may say that there is no answer, as in SQuAD 2.0. The column of the answer may
              hold several with their places, as the Hub's `squad`: {"text": [...], "answer_start": [...]}.

A question without an answer is one that its paragraph does not answer (SQuAD 2.0).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, shorten
from .base import Task
from .cells import as_list, as_objects, truth, whole_number
from .formats import MAX_LINE, json_items
from .records import Source
from .table import ending_of, location, names_of, read_table

START = "answer_start"
Answers = tuple[tuple[str, int], ...]  # texts, and the character of the context where each begins; -1: nowhere
LAYOUT = "expected SQuAD's layout: data > paragraphs > context, qas > id, question, answers > text, answer_start"


class Question(NamedTuple):
    """A question about a text."""

    id: str
    question: str
    context: str
    answers: Answers = ()
    impossible: bool = False  # the context has no answer
    line: int = 0  # where the row begins in a table, counted from 1
    title: str = ""  # of the article; of one without a title its first context

    @property
    def labelled(self) -> bool:
        return self.impossible or bool(self.answers)


def read(task: Task, path: Source, labelled: bool = True) -> list[Question]:
    """The questions of one file; answers are not looked at unless `labelled`.

    Raises InputError with file and place if it is damaged, has another layout, or uses an id twice.
    """
    found: list[Question] = []
    places: dict[str, str] = {}
    rows = _table(task, path, labelled)
    if isinstance(path, Path) and ending_of(path) == ".json":
        articles = json_items(path)
        first = articles[0] if isinstance(articles, list) and articles else None
        if not isinstance(first, dict) or "paragraphs" in first:
            rows = _squad(articles, path, labelled)
    for where, question in rows:
        first = places.setdefault(question.id, where.rpartition(", ")[2])
        if len(places) == len(found):
            raise InputError(f"{where}: the id {shorten(question.id)} is already that of {first}; give each its own")
        _encodable(question, f"{where}, question {shorten(question.id)}")
        found.append(question)
    if not found:
        raise InputError(f"{path}: no questions in this file")
    return found


def _encodable(question: Question, where: str) -> None:
    """Raises InputError for what no tokenizer takes: halves of characters, which JSON may hold, and endless texts."""
    if len(question.question) + len(question.context) > MAX_LINE:
        size = len(question.question) + len(question.context)
        raise InputError(f"{where}: {size:,} characters; expected at most {MAX_LINE:,}; divide the context")
    try:
        "".join((question.question, question.context, *(text for text, _ in question.answers))).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise InputError(f"{where}: U+{half:04X} is half a character; save the text as UTF-8 again") from None


# ---- SQuAD's layout


def _squad(articles: Any, path: Path, labelled: bool) -> Iterator[tuple[str, Question]]:
    """(place in the file, question) for each; paragraphs are counted through all articles, from 1."""
    number = 0
    for article in articles if isinstance(articles, list) else _part(articles, "data", list, f"{path}"):
        title = ""
        for paragraph in _part(article, "paragraphs", list, f"{path}, after paragraph {number}"):
            number += 1
            where = f"{path}, paragraph {number}"
            context = _part(paragraph, "context", str, where)
            title = title or str(article.get("title") or context)
            for item in _part(paragraph, "qas", list, where):
                name = str(_part(item, "id", str | int, where))
                inside = f"{where}, question {shorten(name)}"
                text = _part(item, "question", str, inside)
                answers, impossible = _answers(item, inside) if labelled else ((), False)
                yield where, Question(name, text, context, answers, impossible, title=title)


def _answers(item: Any, where: str) -> tuple[Answers, bool]:
    """The answers of one question, and whether it has none. Those of an impossible question are only plausible."""
    if truth(item.get("is_impossible"), f"{where}: 'is_impossible'"):
        return (), True
    answers = _listed(_part(item, "answers", list | dict, where), where)
    return answers, not answers


def _listed(items: Any, where: str) -> Answers:
    """The answers that are no white space, each with its offset: of a list of objects, or of an object of two lists."""
    if isinstance(items, dict):
        texts, places = _part(items, "text", list, where), _part(items, START, list, where)
        if len(texts) != len(places):
            raise InputError(f"{where}: answers {shorten(items)}; expected as many values of {START} as of text")
        items = [{"text": text, START: place} for text, place in zip(texts, places, strict=True)]
    given = (
        (_part(answer, "text", str, where), whole_number(_part(answer, START, object, where), f"{where}: {START}"))
        for answer in items
    )
    return tuple((text, start) for text, start in given if text.strip())


def _part(value: Any, key: str, kind: Any, where: str) -> Any:
    """value[key]. Raises InputError if there is none, or none of that type."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: found a {type(value).__name__} instead of an object with {key!r}; {LAYOUT}")
    if key not in value:
        raise InputError(f"{where}: no {key!r}; found {', '.join(map(repr, value)) or 'nothing'}; {LAYOUT}")
    if not isinstance(value[key], kind):
        raise InputError(f"{where}: {key!r} is a {type(value[key]).__name__}; {LAYOUT}")
    return value[key]


# ---- tables


def _table(task: Task, path: Source, labelled: bool) -> Iterator[tuple[str, Question]]:
    """(place in the file, question) for each row."""
    names = names_of(path, task.form)
    label = ("answers" if task.label not in names and "answers" in names else task.label) if labelled else ""
    columns = (*task.text, *([label] if labelled else []))
    optional = ("id", START, "is_impossible")
    lists = (label,) if labelled else ()
    for row in read_table(path, columns, task.header, optional, lists, task.form):
        cells, where = dict(zip((*columns, *optional), row.values, strict=True)), location(path, row.line)
        question, context = (cells[name] for name in task.text)
        impossible = labelled and truth(cells["is_impossible"], f"{where}: 'is_impossible'")
        answers = _answers_in(cells[label], cells[START].strip(), context, where) if labelled and not impossible else ()
        name = cells["id"].strip() or str(row.line)
        yield where, Question(name, question, context, answers, labelled and not answers, row.line)


def _answers_in(cell: str, start: str, context: str, where: str) -> Answers:
    """The answers in a cell: a text, a list of texts, or objects of texts and offsets, as JSON or Python write them."""
    found = as_objects(cell)
    if isinstance(found, list) or (isinstance(found, dict) and "text" in found):
        return _listed(found, where)
    if cell.lstrip().startswith(("{'text'", '{"text"')):
        raise InputError(f'{where}: answers {shorten(cell)}; expected JSON, as in {{"text": [...], "{START}": [...]}}')
    if not cell.strip():
        return ()
    texts = None if cell in context else as_list(cell)
    if texts is not None and (not start or len(texts) < 2):
        return tuple((text, _number(start, where) if start else context.find(text)) for text in texts if text.strip())
    return ((cell, _number(start, where) if start else context.find(cell)),)


def _number(text: str, where: str) -> int:
    found = whole_number(text, f"{where}: {START}")
    if found < 0:
        raise InputError(f"{where}: {START} {shorten(text)}; expected a whole number of characters, or nothing")
    return found
