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
from .rows import text_of
from .table import locator, names_of, read_table, suffix_of

START = "answer_start"
Answers = tuple[tuple[str, int], ...]  # texts, and the character of the context where each begins; -1: nowhere
Places = Iterator[tuple[str, "Question"]]  # questions with their places in the file
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


def locate(context: str, text: str, start: int) -> tuple[int, int] | None:
    """Where `text` begins and ends: at the character `start`, else where it occurs if it occurs once; None if neither.

    White space may differ in length.
    """
    words = text.split()
    if not words:
        return None
    if start >= 0 and context.startswith(text, start):
        return start, start + len(text)
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    if start >= 0 and (match := pattern.match(context, start)):
        return match.span()
    places = [match.span() for match in pattern.finditer(context)]
    return places[0] if len(places) == 1 else None


def read(task: Task, path: Source, labelled: bool = True) -> list[Question]:
    """The questions of one file; answers are not looked at unless `labelled`.

    Raises InputError with file and place if it is damaged, has another layout, or uses an id twice.
    """
    rows = _of_table(task, path, labelled)
    if isinstance(path, Path) and suffix_of(path) == ".json":
        articles = json_items(path)
        first = articles[0] if isinstance(articles, list) and articles else None
        if not isinstance(first, dict) or "paragraphs" in first:
            rows = _of_squad(articles, path, labelled)
    questions: dict[str, Question] = {}
    for where, question in rows:
        if question.id in questions:
            raise InputError(f"{where}: the id {shorten(question.id)} is there twice; give each question its own")
        for text in (question.question, question.context, *(text for text, _ in question.answers)):
            text_of(text, f"{where}, question {shorten(question.id)}")
        questions[question.id] = question
    return [*questions.values()]


def _of_squad(articles: Any, path: Path, labelled: bool) -> Places:
    """Each question of SQuAD's layout with its place; paragraphs are counted through all articles, from 1."""
    number, where = 0, str(path)
    try:
        for article in articles if isinstance(articles, list) else articles["data"]:
            title = ""
            for paragraph in article["paragraphs"]:
                number += 1
                where = f"{path}, paragraph {number}"
                context = paragraph["context"]
                title = title or str(article.get("title") or context)
                for item in paragraph["qas"]:
                    inside, answers = f"{where}, question {shorten(str(item['id']))}", Answers()
                    if labelled and not truth(item.get("is_impossible"), f"{inside}: 'is_impossible'"):
                        answers = _with_places(item["answers"], inside)
                    impossible = labelled and not answers
                    yield where, Question(str(item["id"]), item["question"], context, answers, impossible, title=title)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: {type(error).__name__} {error}; {LAYOUT}") from None


def _with_places(items: Any, where: str) -> Answers:
    """The answers that are no white space, each with its offset: of a list of objects, or of an object of two lists."""
    try:
        if isinstance(items, dict):
            items = [{"text": text, START: start} for text, start in zip(items["text"], items[START], strict=True)]
        answers = [(item["text"], item[START]) for item in items if item["text"].strip()]
    except (KeyError, TypeError, AttributeError, ValueError):
        expected = f'texts with their places, as {{"text": [...], "{START}": [...]}}'
        raise InputError(f"{where}: answers {shorten(items)}; expected {expected}") from None
    return tuple((text, whole_number(start, f"{where}: {START}")) for text, start in answers)


def _of_table(task: Task, path: Source, labelled: bool) -> Places:
    """The question of each row of a table with its place."""
    place, names = locator(path), names_of(path, task.form)
    label = ("answers" if task.label not in names and "answers" in names else task.label) if labelled else ""
    columns = (*task.text, *([label] if labelled else []))
    optional = ("id", START, "is_impossible")
    for line, values in read_table(path, columns, task.header, optional, (label,), task.form):
        *texts, name, start, impossible = values
        where, answers = place(line), Answers()
        if labelled and not truth(impossible, f"{where}: 'is_impossible'"):
            answers = _answers_in(texts[2], start.strip(), texts[1], where)
        yield where, Question(name.strip() or str(line), texts[0], texts[1], answers, labelled and not answers, line)


def _answers_in(cell: str, start: str, context: str, where: str) -> Answers:
    """The answers in a cell: a text, or in JSON texts with their offsets."""
    if cell.lstrip().startswith(("{", "[")) and cell not in context:
        items = parse_json(cell, f"{where}: answers")
        return _with_places(items, where)
    if not cell.strip():
        return ()
    place = whole_number(start, f"{where}: {START}") if start else context.find(cell)
    if start and place < 0:
        raise InputError(f"{where}: {START} {shorten(start)}; expected a whole number of characters, or nothing")
    return ((cell, place),)
