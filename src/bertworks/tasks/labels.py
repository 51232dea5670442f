"""The labels of one or two texts as files write them: names, numbers, and several names in one cell.

Several labels in one cell are names with | between them, or a list of names (JSON, Python, NumPy). What could mean two
things is refused, such as a list of 0 and 1 for each label (multi-hot).
"""

import re
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
_MISSING = {"None", "nan", "NaN", "<NA>", "null"}  # as Python, pandas and JSON print no value; beside lists no label
_VECTOR = re.compile(r"[01](?: [01])+")
# other collections, and lists whose names have no quotes, as Python and NumPy print them
_COLLECTION = re.compile(
    r"""\[.*\]|(?:frozen)?set\(\)|\w+\(\s*[\[({'"].*\)|[({]\s*['"].*[)}]|\{.*\}|\([^()]*,[^()]*\)|\(\)""", re.DOTALL
)


def one_label(cell: str, names: Mapping[str, str], where: str) -> str:
    """The label's name; `names` maps what the file writes to it, and is empty if any label will do."""
    if not cell:
        raise InputError(f"{where}: no label; remove the row or give it one")
    if not names and (found := as_list(cell)) is not None and found != [cell[1:-1]]:
        raise InputError(f"{where}: label {shorten(cell)} is a list; expected one name; several labels for each row "
                         "need the kind multilabel")  # fmt: skip
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


def several_labels(cells: Sequence[str], names: Mapping[str, str], places: Sequence[str]) -> list[str]:
    """The names of the labels in each cell of a file, with | between them; an empty cell has none.

    names: as of `one_label`. places: how messages name each row. Raises InputError for a cell that is neither names nor
    a list of names, and for one that could be one name or several.
    """
    lists = [None if cell in names else _items_of(cell, where) for cell, where in zip(cells, places, strict=True)]
    known = {*names} or {name for items in lists for name in items or ()}
    if any(items is not None and cell and SEPARATOR not in cell for cell, items in zip(cells, lists, strict=True)):
        lists = [[] if cell in _MISSING - known else items for cell, items in zip(cells, lists, strict=True)]
    _refuse_vectors(cells, lists, names, places)
    found = []
    for cell, items, where in zip(cells, lists, places, strict=True):
        if items is None and cell not in known and re.search("[,;\n]", cell):
            raise InputError(f"{where}: label {shorten(cell)} may be one name or several; {HOW}")
        labels = [cell] if items is None else items
        found.append(SEPARATOR.join(known_label(name, names, where) for name in labels))
    return found


def _items_of(cell: str, where: str) -> list[str] | None:
    """The items of a cell that is a list, a vector, or has | between names; None of any other cell."""
    items = as_list(cell)
    if items is None and _VECTOR.fullmatch(cell):
        items = cell.split()
    elif items is None and _COLLECTION.fullmatch(cell):
        raise InputError(f"{where}: label {shorten(cell)} is not a list of names in quotes; {HOW}")
    elif items is None and (not cell or SEPARATOR in cell):
        items = cell.split(SEPARATOR)
    elif items is not None and any(SEPARATOR in name for name in items):
        raise InputError(f"{where}: label {cell}; expected names without {SEPARATOR}, which stands between them")
    return None if items is None else [name for name in map(str.strip, items) if name]


def _refuse_vectors(
    cells: Sequence[str], lists: Sequence[list[str] | None], names: Mapping[str, str], places: Sequence[str]
) -> None:
    """Raises InputError for a list of 0 or 1 for each label (multi-hot), which does not contain the labels' names.

    Such a list has a number or boolean twice, or the lists of the whole file have nothing but 0 and 1 in them.
    """
    rows = [(i, items) for i, items in enumerate(lists) if items and SEPARATOR not in cells[i]]
    marks = all(item.lower() in TRUTH for _, items in rows for item in items)
    for i, items in rows:
        twice = len({*items}) < len(items) and all(item.lower() in TRUTH or NUMBER.fullmatch(item) for item in items)
        if twice or (marks and len(items) > 1 and not {*items} <= {*names}):
            found = f"label {shorten(cells[i])} may be 0 or 1 for each label, without their names"
            raise InputError(f"{places[i]}: {found}; give one column per label (label: law,art), or {HOW}")
