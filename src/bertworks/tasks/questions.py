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

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, parse_json, shorten
from .base import Task
from .formats import json_items
from .labels import truth, whole_number
from .records import Source
from .rows import check_characters
from .table import locator, names_of, read_table, suffix_of

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


class Place(NamedTuple):
    """The characters `start` up to `end` of a context."""

    start: int
    end: int


def locate(context: str, text: str, start: int) -> Place | None:
    """Where `text` is: at the character `start`, else where it occurs if it occurs once; None if neither.

    White space may differ in length.
    """
    words = text.split()
    if not words:
        return None
    if start >= 0 and context.startswith(text, start):
        return Place(start, start + len(text))
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    if start >= 0 and (found := pattern.match(context, start)):
        return Place(*found.span())
    places = [Place(*found.span()) for found in pattern.finditer(context)]
    return places[0] if len(places) == 1 else None


def read(task: Task, path: Source, labelled: bool = True) -> list[Question]:
    """The questions of one file; answers are not looked at unless `labelled`.

    Raises InputError with file and place if it is damaged, has another layout, or uses an id twice.
    """
    rows = None
    if isinstance(path, Path) and suffix_of(path) == ".json":
        articles = json_items(path)
        first = articles[0] if isinstance(articles, list) and articles else None
        if not isinstance(first, dict) or "paragraphs" in first:
            rows = _of_squad(articles, path, labelled)
    found: dict[str, Question] = {}
    for where, question in rows or _of_table(task, path, labelled):
        if question.id in found:
            raise InputError(f"{where}: the id {shorten(question.id)} is there twice; give each question its own")
        for text in (question.question, question.context, *(text for text, _ in question.answers)):
            check_characters(text, f"{where}, question {shorten(question.id)}")
        found[question.id] = question
    if not found:
        raise InputError(f"{path}: no questions in this file")
    return [*found.values()]


# ---- SQuAD's layout


def _of_squad(articles: Any, path: Path, labelled: bool) -> Iterator[tuple[str, Question]]:
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
                text, answers = _part(item, "question", str, inside), Answers()
                if labelled and not truth(item.get("is_impossible"), f"{inside}: 'is_impossible'"):
                    answers = _with_places(_part(item, "answers", list | dict, inside), inside)
                yield where, Question(name, text, context, answers, labelled and not answers, title=title)


def _with_places(items: Any, where: str) -> Answers:
    """The answers that are no white space, each with its offset: of a list of objects, or of an object of two lists."""
    if isinstance(items, dict):
        texts, places = _part(items, "text", list, where), _part(items, START, list, where)
        if len(texts) != len(places):
            raise InputError(f"{where}: answers {shorten(items)}; expected as many values of {START} as of text")
        items = [{"text": text, START: place} for text, place in zip(texts, places, strict=True)]
    answers = (
        (_part(answer, "text", str, where), whole_number(_part(answer, START, object, where), f"{where}: {START}"))
        for answer in items
    )
    return tuple((text, start) for text, start in answers if text.strip())


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


def _of_table(task: Task, path: Source, labelled: bool) -> Iterator[tuple[str, Question]]:
    """(place in the file, question) for each row."""
    place, names = locator(path), names_of(path, task.form)
    label = ("answers" if task.label not in names and "answers" in names else task.label) if labelled else ""
    columns = (*task.text, *([label] if labelled else []))
    optional = ("id", START, "is_impossible")
    for line, cells in read_table(path, columns, task.header, optional, (label,), task.form):
        *texts, name, start, impossible = cells
        where, answers = place(line), Answers()
        if labelled and not truth(impossible, f"{where}: 'is_impossible'"):
            answers = _answers_in(texts[2], start.strip(), texts[1], where)
        yield where, Question(name.strip() or str(line), texts[0], texts[1], answers, labelled and not answers, line)


def _answers_in(cell: str, start: str, context: str, where: str) -> Answers:
    """The answers in a cell: a text, or in JSON a list of texts, or objects of texts and offsets."""
    found: Any = None
    if cell.lstrip().startswith(("{", "[")) and cell not in context:
        try:
            found = parse_json(cell, where)
        except InputError:
            example = f'{{"text": [...], "{START}": [...]}}'
            raise InputError(f"{where}: answers {shorten(cell)}; expected a text, or JSON as in {example}") from None
    if isinstance(found, list) and not start and all(isinstance(one, str) for one in found):
        return tuple((text, context.find(text)) for text in found if text.strip())
    if isinstance(found, dict | list):
        return _with_places(found, where)
    if not cell.strip():
        return ()
    place = whole_number(start, f"{where}: {START}") if start else context.find(cell)
    if start and place < 0:
        raise InputError(f"{where}: {START} {shorten(start)}; expected a whole number of characters, or nothing")
    return ((cell, place),)
