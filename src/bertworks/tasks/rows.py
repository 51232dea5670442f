"""Checks of rows that a caller gives in Python: everything unfit is an error that contains the row.

Texts are strings. A list of them may be any iterable: a list, an array, a column of a table. Rows to train or evaluate
on are the named tuples of the task types: Example, Choice, Tagged, Question.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from ..files import InputError, shorten

S = TypeVar("S")
T = TypeVar("T")
TEXT_FIELDS = ("text", "pair", "choices", "question", "context")  # of Example, Choice, Tagged and Question
TYPES = "an Example, Choice, Tagged or Question of bertworks.tasks"
SAMPLE_ROWS, SAMPLE_CHARACTERS = 6, 2_000  # of `sample`: the most rows, and the most characters of a row


def texts_of(texts: Any, name: str = "texts") -> Iterator[str]:
    """Each text. Raises InputError if `texts` is not an iterable of strings; `name` opens the message."""
    for i, text in enumerate(_listed(texts, name, "a text (str) or a list of texts")):
        yield text_of(text, f"{name}[{i}]")


def text_rows_of(rows: Any, name: str = "texts") -> Iterator[tuple[str, ...]]:
    """The texts of each row, which is a text or a tuple of texts. Raises InputError for any other row."""
    for i, row in enumerate(_listed(rows, name, "texts (str), or tuples of texts")):
        is_tuple = isinstance(row, tuple | list)
        yield tuple(texts_of(row, f"{name}[{i}]")) if is_tuple else (text_of(row, f"{name}[{i}]"),)


def text_of(text: Any, where: str) -> str:
    """The text. Raises InputError if it is not a string, or contains half a character."""
    if not isinstance(text, str):
        raise InputError(f"{where} is {_shown(text)}; expected a text (str); leave the row out or convert it")
    check_characters(text, where)
    return text


def check_characters(text: str, where: str) -> None:
    """Raises InputError for half a character, which no tokenizer accepts: JSON and file names may contain one."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{where} has half a character (a lone surrogate); save the text as UTF-8 again") from None


def text_pairs_of(texts: Any, others: Any, names: tuple[str, str]) -> list[tuple[str, str | None]]:
    """Each text with the other one, or with None if there are no others.

    Raises InputError if one is not a string, or they differ in number.
    """
    first = list(texts_of(texts, names[0]))
    second = [None] * len(first) if others is None else list(texts_of(others, names[1]))
    if len(first) != len(second):
        raise InputError(f"{len(first):,} {names[0]} and {len(second):,} {names[1]}; expected as many of both")
    return list(zip(first, second, strict=True))


def pairs_of(rows: Any, expected: str, second: Callable[[Any, str], S]) -> Iterator[tuple[str, S]]:
    """The text and the second part of each row, which `second` checks.

    Raises InputError for any other row; `expected` describes a row.
    """
    for i, row in enumerate(_listed(rows, "rows", f"rows of {expected}")):
        if not isinstance(row, tuple | list) or len(row) != 2:
            raise InputError(f"rows[{i}] is {_shown(row)}; expected {expected}")
        yield text_of(row[0], f"rows[{i}][0]"), second(row[1], f"rows[{i}][1]")


def check_integer(value: Any, name: str, least: int | None = None) -> None:
    """Raises InputError for a value that is not an integer (as 2.0, True and "2"), or is below `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} is {_shown(value)}; expected an integer")
    if least is not None and value < least:  # type: ignore[operator]
        raise InputError(f"{name} = {value}; expected {least} or more")


def checked_rows(rows: Any, name: str) -> Sequence[Any]:
    """Rows to train or evaluate on; a number as the label of an Example becomes its text.

    Raises InputError for a row that is not one of the named tuples, or whose text is not a string.
    """
    return [_checked(row, f"{name}[{i}]") for i, row in enumerate(_listed(rows, name, f"a list, each {TYPES}"))]


def _checked(row: Any, where: str) -> Any:
    fields: tuple[str, ...] = getattr(row, "_fields", ())
    if not fields:
        raise InputError(f"{where} is {_shown(row)}; expected {TYPES}")
    for name in TEXT_FIELDS:
        if name == "choices" and name in fields:
            list(texts_of(row.choices, f"{where}.choices"))
        elif name in fields and not (name == "pair" and row.pair is None):
            text_of(getattr(row, name), f"{where}.{name}")
    if "pair" not in fields or row.label is None or isinstance(row.label, str):
        return row
    if not isinstance(row.label, Real) or not math.isfinite(row.label):
        raise InputError(f"{where}.label is {_shown(row.label)}; expected a name (str), a number, or None")
    return row._replace(label=str(row.label))


def hash_of_texts(rows: Iterable[Any]) -> str:
    """A hash of the texts of rows to train or evaluate on, in their order: the same for every format of their file."""
    digest = hashlib.sha256()
    for row in rows:
        texts = [getattr(row, name) for name in TEXT_FIELDS if name in row._fields]
        digest.update(json.dumps(texts).encode() + b"\n")
    return digest.hexdigest()


def _listed(values: Any, name: str, expected: str) -> Iterable[Any]:
    frame = hasattr(values, "columns") and hasattr(values, "to_dict")  # iterating would give the names of its columns
    if frame or isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        shown = f"a {type(values).__name__}" if frame else _shown(values)
        advice = "; give a column as a list: frame['text'].tolist()" if frame else ""
        raise InputError(f"{name} is {shown}; expected {expected}{advice}")
    return values


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return str(value)
    return f"a {type(value).__name__} ({shorten(value)})"


def in_chunks(rows: Iterable[T], most: int, characters: int) -> Iterator[list[T]]:
    """Lists of up to `most` rows; a list ends with the row that brings it above this number of characters."""
    chunk: list[T] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += _characters(row)
        if len(chunk) == most or size > characters:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _characters(row: Any) -> int:
    """Characters in a text, or in all texts of a row; a number has none."""
    if isinstance(row, str | int | None):
        return len(row) if isinstance(row, str) else 0
    return sum(map(_characters, row))


def sample(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The texts and labels of a few short rows: the first of each label and context, then the second, and so on."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        fields = {name: value for name in (*TEXT_FIELDS, "label") if (value := getattr(row, name, None)) is not None}
        group = groups.setdefault((fields.get("label"), fields.get("context")), [])
        if len(group) < SAMPLE_ROWS and fields not in group and len(str(fields)) <= SAMPLE_CHARACTERS:
            group.append(fields)
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*groups.values()))
    return [fields for fields in rounds if fields][:SAMPLE_ROWS]
