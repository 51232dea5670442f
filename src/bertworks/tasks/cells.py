"""Values in cells: lists, truth values and whole numbers. The readers of all formats share these rules.

Values of JSON, Parquet and Python are also passed here as text (table.py), so that a value is read alike in every
format.
"""

import ast
import re
from typing import Any

from ..files import InputError, parse_json, shorten

TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False, "": False}  # in small letters
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)
_WHOLE = re.compile(r"([-+]?\d{1,18})(?:\.0*)?")
# the items of a list as Python or NumPy prints it; NumPy writes no commas
_ITEM = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"]+)(?=[\s,]|$)\s*,?""")


def as_list(cell: str) -> list[str] | None:
    """The strings of a cell that is a list; None if it is none. Its numbers and booleans are written as in JSON.

    A list may be written as in JSON, in Python (['a', 'b']) or by NumPy (['a' 'b']).
    """
    text = cell.strip()
    if text[:1] != "[" or text[-1:] != "]":
        return None
    try:
        values = parse_json(text, "a cell")
    except InputError:
        return _printed_items(text[1:-1].rstrip())
    if not all(isinstance(value, str | int | float) for value in values):
        return None
    return [_text(value) for value in values]


def _printed_items(body: str) -> list[str] | None:
    """The items between the brackets of a list that Python or NumPy printed; None if one is no text or number."""
    items, end = [], 0
    while end < len(body):
        item = _ITEM.match(body, end)
        if item is None or (value := _printed_item(item[1])) is None:
            return None
        items.append(value)
        end = item.end()
    return items


def _printed_item(item: str) -> str | None:
    if item[0] in "'\"":
        try:
            return str(ast.literal_eval(item))
        except (ValueError, SyntaxError):
            return None
    if item in ("True", "False"):
        return item.lower()
    return item + "0" * item.endswith(".") if NUMBER.fullmatch(item) else None


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)


def truth(value: Any, where: str) -> bool:
    """A boolean, or the text or number that stands for one; nothing is False. Raises InputError for another value."""
    text = "" if value is None else str(value).strip().lower()
    if not isinstance(value, str | int | float | None) or text not in TRUTH:
        raise InputError(f"{where} is {shorten(value)}; expected true or false, or 1 or 0")
    return TRUTH[text]


def whole_number(value: Any, where: str) -> int:
    """An integer, or a number or text that is one (7.0, "7"). Raises InputError for another value."""
    is_number = isinstance(value, str | int | float) and not isinstance(value, bool)
    number = _WHOLE.fullmatch(str(value).strip()) if is_number else None
    if number is None:
        raise InputError(f"{where} {shorten(value)}; expected a whole number of characters, or nothing")
    return int(number[1])


def plain_value(label: str) -> str:
    """The label in the form that its spellings as a number or boolean have in common: 1 of 1.0, true of True."""
    number = re.fullmatch(r"([-+]?\d+)\.0+", label)
    if number:
        return number[1]
    return label.lower() if label.lower() in ("true", "false") else label
