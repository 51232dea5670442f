"""What the text of a cell says: a list, a truth value, a whole number. The readers of all formats share these rules.

Values of JSON, Parquet and Python come here as text too (table.py), so that one rule holds for a value in every format.
"""

import ast
import re
from typing import Any

from ..files import InputError, parse_json, shorten

TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False, "": False}  # in small letters
_BRACKETS = ("[]", "()", "{}")
_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"]+""")  # of a list as Python or NumPy prints it
_ITEMS = re.compile(r"\s*(?:x(?:(?:\s*,\s*|\s+)x)*\s*,?\s*)?")  # x: an item; NumPy writes no commas
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)
LONGEST = 18  # characters of a whole number
_WHOLE = re.compile(r"[-+]?\d+(?:\.0*)?")
_INTEGRAL = re.compile(r"([-+]?\d+)\.0+")


def as_list(cell: str, brackets: str = "[") -> list[str] | None:
    """The strings of a cell that is a list; None if it is none. Its numbers and booleans come as JSON writes them.

    A list may be written as in JSON, in Python (['a', 'b']) or by NumPy (['a' 'b']). brackets: what it may begin with.
    """
    text = cell.strip()
    if text[:1] not in {*brackets} or text[:1] + text[-1:] not in _BRACKETS:
        return None
    try:
        values = parse_json(text, "a cell")
    except InputError:
        return _printed(text[1:-1])
    if not isinstance(values, list) or not all(isinstance(value, str | int | float) for value in values):
        return None
    return [_text(value) for value in values]


def _printed(body: str) -> list[str] | None:
    """The items between the brackets of a list that Python or NumPy printed; None if they are none."""
    if not _ITEMS.fullmatch(" ".join(_ITEM.sub("x", body).split())):  # runs of blanks take quadratic time
        return None
    items = [_item(item) for item in _ITEM.findall(body)]
    return None if None in items else items  # type: ignore[return-value]


def _item(item: str) -> str | None:
    if item[0] in "'\"":
        try:
            return str(ast.literal_eval(item))
        except (ValueError, SyntaxError):
            return None
    if item.lower() in ("true", "false"):
        return item.lower()
    return item + "0" * item.endswith(".") if NUMBER.fullmatch(item) else None


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)


def as_objects(cell: str) -> Any:
    """The dictionary, or the list of dictionaries, that a cell is in JSON or in Python; None of any other cell."""
    text = cell.strip()
    if not re.match(r"\{|\[\s*\{", text):
        return None
    try:
        found = parse_json(text, "a cell")
    except InputError:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    each = found if isinstance(found, list) else [found]
    return found if all(isinstance(one, dict) for one in each) else None


def truth(value: Any, where: str) -> bool:
    """A boolean, or the text or number that stands for one; nothing is False. Raises InputError for another value."""
    text = "" if value is None else str(value).strip().lower()
    if not isinstance(value, str | int | float | None) or text not in TRUTH:
        raise InputError(f"{where} is {shorten(value)}; expected true or false, or 1 or 0")
    return TRUTH[text]


def whole_number(value: Any, where: str) -> int:
    """An integer, or a number or text that is one (7.0, "7"). Raises InputError for another value."""
    text = str(value).strip()
    number = _WHOLE.fullmatch(text) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if number is None or len(text) > LONGEST:
        raise InputError(f"{where} {shorten(value)}; expected a whole number of characters, or nothing")
    return int(text.partition(".")[0])


def plain_value(label: str) -> str:
    """The label in the form that its spellings as a number or boolean have in common: 1 of 1.0, true of True."""
    if found := _INTEGRAL.fullmatch(label):
        return found[1]
    return label.lower() if label.lower() in ("true", "false") else label
