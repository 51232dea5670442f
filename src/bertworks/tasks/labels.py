"""The labels of one or two texts as files write them: names, numbers, and several names in one cell.

Several labels in one cell are names with | between them, a list (JSON, Python, NumPy), or names with commas or
semicolons between them if each is a label by itself elsewhere in the file. A list of 0 and 1 for each label
(multi-hot) is read by position: the task's names, or else 0, 1, 2 ... What could mean two things is refused.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..checkpoint.names import LABELS, listed
from ..files import InputError, shorten
from ..tokenizer import normalize
from .base import Example, Task
from .cells import NUMBER, TRUTH, as_list, plain_value

LARGEST = float(np.finfo(np.float32).max)  # number that can be learned
SEPARATOR = "|"  # between the labels of one row of a multi-label task
HOW = 'write several labels as law|art or ["law", "art"], and one with a comma as ["law, art"]'
_LISTLIKE = re.compile(
    r"\[.*\]|array\(.*|frozenset\(\{.*\}\)|[({]\s*['\"].*[)}]|\{\s*[-+\d.][^{}]*\}|\([^()]*,[^()]*\)", re.DOTALL
)
_EMPTY = re.compile(r"(?:(?:frozen)?set)?\(\s*\)|\{\s*\}")  # as Python prints tuples and sets without items
_MISSING = {"None", "nan", "NaN", "<NA>", "null"}  # as Python, pandas and JSON print no value; beside lists no label
_VECTOR = re.compile(r"[01](?:[ ,;]+[01])+")
_COMMA = re.compile("[,;\n]")


def label_in(cell: str) -> str:
    """The label that a cell has, without the blanks around it; "" if it has none."""
    return cell.strip()


def one_label(cell: str, names: Mapping[str, str], where: str) -> str:
    """The label's name; `names` maps what the file writes to it, and is empty if any label will do."""
    if not cell:
        raise InputError(f"{where}: no label; remove the row or give it one")
    if not names and (found := as_list(cell)) is not None and found != [cell[1:-1]]:
        raise InputError(f"{where}: label {shorten(cell)} is a list; expected one name; several labels for each row "
                         "need --kind multilabel")  # fmt: skip
    return known_label(cell, names, where)


def known_label(cell: str, names: Mapping[str, str], where: str) -> str:
    """The name of a label that is known, also if it is another spelling of the same number or boolean."""
    if names and cell not in names:
        return names[alike_label(cell, names) or _refuse(cell, [*names], where)]
    return names.get(cell, cell)


def alike_label(label: str, names: Iterable[str]) -> str | None:
    """The only one of the names that is this label, or the same number or boolean; None if there is none."""
    found = [name for name in names if name == label] or [n for n in names if plain_value(n) == plain_value(label)]
    return found[0] if len(found) == 1 else None


def _refuse(label: str, names: Sequence[str], where: str) -> str:
    raise InputError(f"{where}: {unknown_label(label, names)}")


def unknown_label(label: str, names: Sequence[str]) -> str:
    """What is wrong with a label that is none of `names`."""
    alike = next((name for name in names if normalize("NFC", name) == normalize("NFC", label)), None)
    if alike is not None:
        return (
            f"label {label!a} is {alike!a} in another Unicode form; expected the form of training. Compose "
            "the label column, in pandas with `.str.normalize('NFC')`"
        )
    return f"label {shorten(label)}; expected one of {listed([*map(shorten, names)], LABELS)}"


def marked_labels(rows: Sequence[Sequence[str]], names: Sequence[str], places: Sequence[str]) -> list[str]:
    """The names of the columns that have a 1 in each row; an empty cell is a 0 only in a file that writes none.

    places: how messages name each row. Raises InputError for a cell that is neither 0 nor 1.
    """
    known = {cell: value for cell, value in TRUTH.items() if cell}
    if not any(known.get(cell.lower()) is False for cells in rows for cell in cells):
        known = TRUTH
    for cells, where in zip(rows, places, strict=True):
        for cell, name in zip(cells, names, strict=True):
            if cell.lower() not in known:
                found = shorten(cell) if cell else "nothing"
                raise InputError(f"{where}: {found} in column {shorten(name)}; expected 0 or 1, one column per label")
    return [
        SEPARATOR.join(name for cell, name in zip(cells, names, strict=True) if known[cell.lower()]) for cells in rows
    ]


def number(cell: str, names: Mapping[str, str], where: str) -> str:
    """A number that can be learned, as the cell writes it."""
    try:
        if abs(float(cell)) <= LARGEST and "_" not in cell:
            return cell
    except ValueError:
        pass
    if not cell:
        raise InputError(f"{where}: no label; remove the row or give it one")
    raise InputError(f"{where}: label {shorten(cell)}; expected a number that float32 holds (up to {LARGEST:.1e}), "
                     "written as in 1234.5")  # fmt: skip


def label_parts(label: str | None, task: Task) -> list[str]:
    """The names in an example's label: one or none, or any number if the task's rows have several."""
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


# ---- several labels in one cell


def several_labels(
    cells: Sequence[str], names: Mapping[str, str], places: Sequence[str], ordered: bool = True
) -> list[str]:
    """The names of the labels in each cell of a file, with | between them; an empty cell has none.

    names: as of `one_label`. places: how messages name each row. ordered: whether the order of the names is that of
    vectors. All cells of a file decide how one is read. Raises InputError for a cell that is neither names nor a list,
    and for one that could be one name or several.
    """
    lists = [None if cell in names else _list_in(cell, where) for cell, where in zip(cells, places, strict=True)]
    if any(items is not None and cell and SEPARATOR not in cell for cell, items in zip(cells, lists, strict=True)):
        missing = _MISSING - {*names, *(name for items in lists for name in items or ())}
        lists = [[] if cell in missing else items for cell, items in zip(cells, lists, strict=True)]
    vectors = [
        re.split("[ ,;]+", cell) if items is None and _VECTOR.fullmatch(cell) else items
        for cell, items in zip(cells, lists, strict=True)
    ]
    if _are_vectors(cells, vectors, names, places):
        if not ordered and not all(name.isdecimal() for name in names.values()):
            i = next(i for i, items in enumerate(vectors) if items)
            raise InputError(f"{places[i]}: label {shorten(cells[i])} is 0 or 1 for each label, but the training rows "
                             f"have names ({listed([*names.values()], LABELS)}) without an order; {HOW}")  # fmt: skip
        rows = zip(cells, vectors, places, strict=True)
        return [_positions(items or [], cell, names, where) for cell, items, where in rows]
    alone = (cell for cell, items in zip(cells, lists, strict=True) if items is None and not _COMMA.search(cell))
    known = {*names} or {*alone, *(name for items in lists for name in items or ())}
    return [
        SEPARATOR.join(
            known_label(name, names, where) for name in (_split(cell, known, where) if items is None else items)
        )
        for cell, items, where in zip(cells, lists, places, strict=True)
    ]


def _list_in(cell: str, where: str) -> list[str] | None:
    """The labels of a cell that is a list or has | between them; None of any other cell."""
    if _EMPTY.fullmatch(cell):
        return []
    listlike = _LISTLIKE.fullmatch(cell) is not None
    text = cell[len("frozenset(") : -1] if cell.startswith("frozenset({") else cell
    found = as_list(text, "[({" if listlike else "[")
    if found is None and listlike:
        raise InputError(f"{where}: label {shorten(cell)} is not a list of names in quotes; {HOW}")
    if found is not None and any(SEPARATOR in name for name in found):
        raise InputError(f"{where}: label {cell}; expected names without {SEPARATOR}, which stands between them")
    if found is None and (not cell or SEPARATOR in cell):
        found = cell.split(SEPARATOR)
    return None if found is None else [name for name in map(label_in, found) if name]


def _split(cell: str, known: set[str], where: str) -> list[str]:
    """The labels of a cell that is no list: one, or several known ones with commas or semicolons between."""
    if cell in known or not _COMMA.search(cell):
        return [cell]
    found = [part for part in map(label_in, _COMMA.split(cell)) if part]
    if not {*found} <= known:
        raise InputError(f"{where}: label {shorten(cell)} may be one name or several; {HOW}")
    return found


def _are_vectors(
    cells: Sequence[str], lists: Sequence[list[str] | None], names: Mapping[str, str], places: Sequence[str]
) -> bool:
    """Whether the cells are 0 or 1 for each label. Raises InputError if they are and differ in length, or may be names.

    A list of names has none twice, as [1, 0, 1] has, and neither booleans nor fractions.
    """
    values = [items for items in lists if items]
    fit = all(item.lower() in TRUTH for items in values for item in items)
    numbers = [items for cell, items in zip(cells, lists, strict=True) if items and (fit or _has_numbers(cell, items))]
    if not any(len({*items}) < len(items) for items in numbers):
        unnamed = not names or not {"0", "1"}.isdisjoint(names)  # whether 0 and 1 may be names
        if not values or not fit:
            return False
        if unnamed and all(item in ("0", "1") for items in values for item in items):
            if not all(_may_be_two(cell, items) for cell, items in zip(cells, lists, strict=True)):
                return False
            if {*names} != {"0", "1"} or len({*map(tuple, values)}) < 2:  # else, as names, all have both, in two orders
                i = next(i for i, items in enumerate(lists) if items)
                found = f"label {shorten(cells[i])} may be 0 or 1 for each label, or the names 0 and 1"
                raise InputError(f"{places[i]}: {found}; use one column per label (--label law,art), or {HOW}")
    length = statistics.mode(map(len, numbers))
    for cell, items, where in zip(cells, lists, places, strict=True):
        if len(items or ()) != length or not all(item.lower() in TRUTH for item in items or ()):
            raise InputError(f"{where}: label {shorten(cell)}; expected a list of {length} values, 0 or 1 for each "
                             "label, as in the other rows")  # fmt: skip
    return True


def _may_be_two(cell: str, items: Sequence[str] | None) -> bool:
    """Whether a cell may be a vector of two labels, or has no value; an empty list and 0|1 are names."""
    return len(items) == 2 and SEPARATOR not in cell if items else items is not None and cell in {"", *_MISSING}


def _has_numbers(cell: str, items: Sequence[str]) -> bool:
    """Whether a cell is a list of numbers or booleans, not of names with | between them."""
    return SEPARATOR not in cell and all(NUMBER.fullmatch(item) or item.lower() in TRUTH for item in items)


def _positions(items: Sequence[str], cell: str, names: Mapping[str, str], where: str) -> str:
    """The labels of a vector of 0 and 1, with | between them: by position the task's, or else the numbers from 0."""
    known = [*names.values()]
    if all(name.isdecimal() for name in known):
        found = [known_label(str(i), names, where) for i, item in enumerate(items) if TRUTH[item.lower()]]
    elif len(known) != len(items):
        raise InputError(f"{where}: label {shorten(cell)} has {len(items)} values; expected {len(known)}, one for each "
                         f"of {listed(known, LABELS)}")  # fmt: skip
    else:
        found = [name for name, item in zip(known, items, strict=True) if TRUTH[item.lower()]]
    return SEPARATOR.join(found)
