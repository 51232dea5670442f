"""Rows that a caller hands over in Python, checked: everything else is an error that names the row.

Texts are strings. A list of them may be any iterable: a list, an array, a column of a table. Rows to train or evaluate
on are the named tuples of the kinds of tasks: Example, Choice, Tagged, Question.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from ..files import InputError, shorten

S = TypeVar("S")
T = TypeVar("T")
TEXT_FIELDS = ("text", "pair", "choices", "question", "context")  # of Example, Choice, Tagged and Question
SAMPLE_ROWS, SAMPLE_CHARACTERS = 6, 2_000  # of `sample`: the most rows, and the most characters of a row


def texts_of(texts: Any, name: str = "texts") -> Iterator[str]:
    """Each of some texts. Raises InputError if they are no iterable of strings; `name` opens the message."""
    for i, text in enumerate(_listed(texts, name, "a text (str) or a list of texts")):
        yield text_of(text, f"{name}[{i}]")


def texts_or_pairs_of(rows: Any, name: str = "texts") -> Iterator[str | tuple[str, str]]:
    """Each of some rows that are texts or pairs of texts. Raises InputError for any other row."""
    for i, row in enumerate(_listed(rows, name, "texts (str) or pairs of texts")):
        if isinstance(row, tuple | list) and len(row) == 2:
            yield text_of(row[0], f"{name}[{i}][0]"), text_of(row[1], f"{name}[{i}][1]")
        else:
            yield text_of(row, f"{name}[{i}]")


def text_rows_of(rows: Any, name: str) -> Iterator[tuple[str, ...]]:
    """The texts of each of some rows that are texts or tuples of texts. Raises InputError for any other row."""
    for i, row in enumerate(_listed(rows, name, "texts (str), or tuples of texts")):
        many = row if isinstance(row, tuple | list) else None
        yield tuple(texts_of(many, f"{name}[{i}]")) if many is not None else (text_of(row, f"{name}[{i}]"),)


def text_of(text: Any, where: str) -> str:
    """A text. Raises InputError if it is none, or has half a character."""
    if not isinstance(text, str):
        raise InputError(f"{where} is {_what(text)}; expected a text (str); leave the row out or convert it")
    check_characters(text, where)
    return text


def check_characters(text: str, where: str) -> None:
    """Raises InputError for half a character, which no tokenizer takes: JSON and file names may hold one."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where} has half a character (a lone surrogate); save the text as UTF-8 again") from None


def text_pairs_of(texts: Any, others: Any, names: tuple[str, str]) -> list[tuple[str, str]]:
    """Each text with its other one. Raises InputError if one is no text, or there are more of one than of the other."""
    first, second = list(texts_of(texts, names[0])), list(texts_of(others, names[1]))
    if len(first) != len(second):
        raise InputError(f"{len(first):,} {names[0]} and {len(second):,} {names[1]}; expected as many of both")
    return list(zip(first, second, strict=True))


def check_count(count: Any, name: str) -> None:
    """Raises InputError for a number of results that is no integer, or below 1."""
    check_integer(count, name)
    if count < 1:
        raise InputError(f"{name} = {count}; expected 1 or more")


def check_integer(value: Any, name: str) -> None:
    """Raises InputError for what is no integer: 2.0, True and "2" are none."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} is {_what(value)}; expected an integer")


def pairs_of(rows: Any, expected: str, second: Callable[[Any, str], S]) -> Iterator[tuple[str, S]]:
    """Each of some rows of a text and a second part, which `second` checks.

    Raises InputError for any other row; `expected` describes a row.
    """
    for i, row in enumerate(_listed(rows, "rows", f"rows of {expected}")):
        if not isinstance(row, tuple | list) or len(row) != 2:
            raise InputError(f"rows[{i}] is {_what(row)}; expected {expected}")
        yield text_of(row[0], f"rows[{i}][0]"), second(row[1], f"rows[{i}][1]")


def rows_of(texts: Any, pairs: Any) -> Iterable[tuple[str, str | None]]:
    """(text, pair or None) of each text. Raises InputError if there are pairs, but not one for each text."""
    return (
        ((text, None) for text in texts_of(texts)) if pairs is None else text_pairs_of(texts, pairs, ("texts", "pairs"))
    )


def checked_rows(rows: Any, name: str) -> Sequence[Any]:
    """Rows to train or evaluate on; a number as the label of an Example becomes its text.

    Raises InputError if a row is none of the named tuples, or its text is none.
    """
    known = "an Example, Choice, Tagged or Question of bertworks.tasks"
    return [_checked(row, f"{name}[{i}]", known) for i, row in enumerate(_listed(rows, name, f"a list, each {known}"))]


def _checked(row: Any, where: str, known: str) -> Any:
    fields: tuple[str, ...] = getattr(row, "_fields", ())
    if not fields:
        raise InputError(f"{where} is {_what(row)}; expected {known}")
    for name in ("text", "question", "context"):
        if name in fields:
            text_of(getattr(row, name), f"{where}.{name}")
    if "choices" in fields:
        list(texts_of(row.choices, f"{where}.choices"))
    if "pair" not in fields:
        return row
    if row.pair is not None:
        text_of(row.pair, f"{where}.pair")
    if row.label is None or isinstance(row.label, str):
        return row
    if not isinstance(row.label, Real) or not math.isfinite(row.label):
        raise InputError(f"{where}.label is {_what(row.label)}; expected a name (str), a number, or None")
    return row._replace(label=str(row.label))


def hash_of_texts(rows: Iterable[Any]) -> str:
    """A hash of the texts of rows to train or evaluate on, in their order: the same for every format of their file."""
    found = hashlib.sha256()
    for row in rows:
        texts = [getattr(row, name) for name in TEXT_FIELDS if name in row._fields]
        found.update(json.dumps(texts).encode() + b"\n")
    return found.hexdigest()


def _listed(values: Any, name: str, expected: str) -> Iterable[Any]:
    if hasattr(values, "columns") and hasattr(values, "to_dict"):  # iterating would give the names of its columns
        raise InputError(f"{name} is a {type(values).__name__}; expected {expected}; give a column as a list: "
                         "frame['text'].tolist()")  # fmt: skip
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise InputError(f"{name} is {_what(values)}; expected {expected}")
    return values


def _what(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return str(value)
    return f"a {type(value).__name__} ({shorten(value)})"


def in_chunks(rows: Iterable[T], most: int, characters: int) -> Iterator[list[T]]:
    """Lists of up to `most` rows; a list ends with the row that brings it above so many characters."""
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
    """The texts and labels of a few short rows: the first of each label and context, then the next ones."""
    used: Counter[Any] = Counter()
    seen: set[str] = set()
    ranked: list[tuple[int, dict[str, Any]]] = []
    for row in rows:
        fields = {name: value for name in (*TEXT_FIELDS, "label") if (value := getattr(row, name, None)) is not None}
        whole, group = str(fields), (fields.get("label"), fields.get("context"))
        if len(whole) <= SAMPLE_CHARACTERS and whole not in seen:
            seen.add(whole)
            ranked.append((used[group], fields))
            used[group] += 1
    return [fields for _, fields in sorted(ranked, key=lambda pair: pair[0])[:SAMPLE_ROWS]]
