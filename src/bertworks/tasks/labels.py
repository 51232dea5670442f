"""Labels of one or two texts and other values as files write them: names, numbers, lists, truth values.

Values of JSON, Parquet and Python are also passed here as text (table.py), so that a value is read alike in every
format. Several labels in one cell are names with | between them, or a list of names. A form that could mean two things
is refused, such as a list of 0 and 1 for each label (multi-hot).
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..checkpoint.names import LABELS, listed
from ..files import InputError, parse_json, shorten
from ..tokenizer import normalize
from .base import Example, Task

LARGEST = float(np.finfo(np.float32).max)  # number that can be learned
SEPARATOR = "|"  # between the labels of one row of a multi-label task
TRUTH = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False, "": False}  # in small letters
ADVICE = 'write several labels as law|art or ["law", "art"], and one with a comma as ["law, art"]'
_COLLECTION = re.compile(
    r"\w*[\[{].*[\]}]|\w*\(.*[,'\"].*\)|[01](?: [01])+", re.DOTALL
)  # a list without quotes, a vector, array(...)


# ---- values


def as_list(cell: str) -> list[str] | None:
    """The strings of a cell that is a list, as JSON or Python writes it; None if it is not a list.

    Numbers and booleans are written as in JSON.
    """
    text = cell.strip()
    if text[:1] != "[" or text[-1:] != "]":
        return None
    try:
        values = parse_json(text, "a cell")
    except InputError:
        try:
            values = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
        if repr(values).replace(" ", "") != text.replace(" ", ""):  # Python joins 'a' 'b', as NumPy prints two texts
            return None
    if not all(isinstance(value, str | int | float) for value in values):
        return None
    return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


def truth(value: Any, where: str) -> bool:
    """A boolean, or the text or number that means one; nothing is False. Raises InputError for another value."""
    text = "" if value is None else str(value).strip().lower()
    if not isinstance(value, str | int | float | None) or text not in TRUTH:
        raise InputError(f"{where} is {shorten(value)}; expected true or false, or 1 or 0")
    return TRUTH[text]


def whole_number(value: Any, where: str) -> int:
    """An integer, or a number or text that is one (7.0, "7"). Raises InputError for another value."""
    number = None if isinstance(value, bool) else re.fullmatch(r"([-+]?\d{1,18})(?:\.0*)?", str(value).strip())
    if number is None:
        raise InputError(f"{where} {shorten(value)}; expected a whole number of characters, or nothing")
    return int(number[1])


def number(cell: str, names: Mapping[str, str], where: str) -> str:
    """A number that can be learned, as the cell writes it."""
    try:
        if abs(float(cell)) <= LARGEST and "_" not in cell:
            return cell
    except ValueError:
        pass
    shown = f"label {shorten(cell)}" if cell else "no label"
    raise InputError(
        f"{where}: {shown}; expected a number that float32 holds (up to {LARGEST:.1e}), written as in 1234.5"
    )


# ---- names of classes


def one_label(cell: str, names: Mapping[str, str], where: str) -> str:
    """The label's name; `names` maps what the file writes to it, and is empty if any label is allowed."""
    if not cell:
        raise InputError(f"{where}: no label; remove the row or give it one")
    if not names and (items := as_list(cell)) is not None and items != [cell[1:-1]]:
        advice = "several labels for each row need the kind multilabel"
        raise InputError(f"{where}: label {shorten(cell)} is a list; expected one name; {advice}")
    return class_name(cell, names, where)


def class_name(cell: str, names: Mapping[str, str], where: str) -> str:
    """The name of a class, also from another spelling of the same number or boolean. Raises InputError if unknown."""
    if not names or cell in names:
        return names.get(cell, cell)
    same = same_label(cell, names)
    if same is None:
        raise InputError(f"{where}: {unknown_label(cell, [*names])}")
    return names[same]


def plain_value(label: str) -> str:
    """The common form of the spellings of a label: composed (NFC), 1 of 1.0, true of True."""
    label = re.sub(r"^([-+]?\d+)\.0+$", r"\1", normalize("NFC", label))
    return label.lower() if label.lower() in ("true", "false") else label


def same_label(label: str, names: Iterable[str]) -> str | None:
    """The only one of the names that is this label, or another spelling of it; None if there is not exactly one."""
    equal = [name for name in names if name == label] or [n for n in names if plain_value(n) == plain_value(label)]
    return equal[0] if len(equal) == 1 else None


def unknown_label(label: str, names: Sequence[str]) -> str:
    """The message for a label that is not one of `names`."""
    return f"label {shorten(label)}; expected one of {listed([*map(shorten, names)], LABELS)}"


def label_parts(label: str | None, task: Task) -> list[str]:
    """The names in an example's label: at most one, or any number if the task's rows have several."""
    if task.kind == "multilabel":
        return [name for name in (label or "").split(SEPARATOR) if name]
    return [] if label is None else [label]


def label_names(task: Task, examples: Sequence[Example]) -> tuple[str, ...]:
    """The names of the classes: the task's own, else those of these rows, sorted; as numbers if all of them are.

    A regression has one output, called by the label column.
    """
    if task.kind == "regression":
        return (task.label,)
    if task.labels:
        return task.labels
    names = {name for example in examples for name in label_parts(example.label, task)}
    numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))


# ---- several labels


def marked_labels(cells: Sequence[str], names: Sequence[str], where: str) -> str:
    """The names of the columns that have a 1, with | between them. Raises InputError for a cell without 0 or 1."""
    for cell, name in zip(cells, names, strict=True):
        if not cell or cell.lower() not in TRUTH:
            shown = shorten(cell) if cell else "nothing"
            raise InputError(f"{where}: {shown} in column {shorten(name)}; expected 0 or 1, one column per label")
    return SEPARATOR.join(name for cell, name in zip(cells, names, strict=True) if TRUTH[cell.lower()])


def several_labels(cell: str, names: Mapping[str, str], where: str) -> str:
    """The names of the labels in a cell, with | between them; an empty cell has none.

    names: as of `one_label`. Raises InputError for a cell that could be one name or several, for another collection
    than a list of names, and for a list that may have 0 or 1 for each label.
    """
    values = None if cell in names else as_list(cell)
    items = None if values is None else [*map(str.strip, values)]
    if items is None:
        is_unclear = re.search("[,;\n]", cell) or _COLLECTION.fullmatch(cell)
        if cell not in names and SEPARATOR not in cell and is_unclear:
            raise InputError(f"{where}: label {shorten(cell)} may be one name or several; {ADVICE}")
        items = [cell] if cell in names else [name for name in map(str.strip, cell.split(SEPARATOR)) if name]
    elif len({*items}) < len(items) or (len(items) > 1 and {*map(str.lower, items)} <= {*TRUTH} - {*names}):
        problem = f"label {shorten(cell)} may be 0 or 1 for each label, without their names"
        raise InputError(f"{where}: {problem}; give one column per label (law,art), or {ADVICE}")
    if any(SEPARATOR in item for item in items if item not in names):
        raise InputError(f"{where}: label {cell}; expected names without {SEPARATOR}, which is the separator")
    return SEPARATOR.join(class_name(name, names, where) for name in items if name)
