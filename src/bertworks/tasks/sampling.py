"""Parts of a task's examples, drawn by a seed: fewer training examples, and some that are held out.

Examples that belong together are drawn together: the sentences of a tagged document, the questions of an article or a
text.
"""

import hashlib
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..files import InputError, shorten
from .rows import check_integer
from .table import PARTS

DEV_DIVISOR = 5  # one example of this number is in the part #dev of a file
HELD_OUT = 0.2  # fraction of the training examples by which settings are chosen
LEAST, MOST = 0.1, 1 / 3  # fractions between which whole documents are held out


@dataclass(frozen=True)
class Split:
    """How a labelled file is divided into training and development examples."""

    train_rows: int = 0  # number of training examples to draw; 0: all
    dev_share: float = 0.0  # fraction of the file that becomes the development examples; 0: they have a file
    group: str = ""  # column whose examples with one value stay together; "": documents, or examples with one text
    seed: int = 1  # of both draws

    def __post_init__(self) -> None:
        check_integer(self.train_rows, "train_rows", 0)
        check_integer(self.seed, "split_seed", 0)
        if not isinstance(self.dev_share, Real) or not 0 <= self.dev_share < 1:
            raise InputError(f"dev_share = {shorten(self.dev_share)}; expected at least 0 and less than 1")
        if self.group and not self.dev_share:
            raise InputError("group divides a file into training and development rows; give dev_share too")


WHOLE = Split()


def in_part(text: str, part: str) -> bool:
    """Whether an example is in a part of its file ("": all of it); `text` is that of the example, or of its document.

    A hash decides, so that neither the order of the examples nor a text that occurs twice changes the part.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return not part or part == PARTS[int.from_bytes(digest) % DEV_DIVISOR == 0]


def rows_in_part(rows: Sequence[Any], part: str) -> list[Any]:
    """The examples in a part of their file; sentences of a document and questions of an article stay together."""
    if not part:
        return list(rows)
    first: dict[Hashable, str] = {}  # by document, the words of its first sentence
    selected = []
    for row in rows:
        text = getattr(row, "title", "") or getattr(row, "context", "") or getattr(row, "text", "")
        if hasattr(row, "units"):
            text = first.setdefault(row.document, " ".join(text[start:end] for start, end in row.units))
        if in_part(text, part):
            selected.append(row)
    return selected


def split_rows(
    rows: Sequence[Any], fraction: float, seed: int, group_of: Mapping[int, str] | None = None
) -> tuple[list[Any], list[Any]]:
    """The examples without about this fraction, and the fraction, both in their order; no group is in both.

    group_of: the group of each example by its `line`; None: its document, article or context, or else its first text. A
    tagged file with too few documents is divided by sentences.
    Raises InputError if there are too few groups for two parts.
    """
    keys = [_group_of(row, getattr(row, "text", "")) if group_of is None else group_of[row.line] for row in rows]
    held_out = _select(_drawn_groups(keys, (seed, 4)), fraction * len(rows))
    if not 0 < len(held_out) < len(rows) and group_of is None and hasattr(rows[0], "document"):
        keys = [row.text for row in rows]
        held_out = _select(_drawn_groups(keys, (seed, 4)), fraction * len(rows))
    if not 0 < len(held_out) < len(rows):
        problem = f"{len(rows):,} rows in {len({*keys}):,} groups cannot be divided with dev_share = {fraction:g}"
        raise InputError(f"{problem}; give another fraction or group column, or a development file")
    return _divided(rows, held_out)


def hold_out_rows(rows: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
    """The examples without about a fifth, and this fifth, both in their order.

    No document is in both, unless documents are so large or so unequal that whole ones make less than a tenth or more
    than a third of the examples: then these are held out one by one. Of a single example the second part is empty.
    """
    held_out = _select(_drawn_documents(rows, seed), HELD_OUT * len(rows))
    if not LEAST * len(rows) <= len(held_out) <= MOST * len(rows):
        order = [int(i) for i in np.random.default_rng((seed, 3)).permutation(len(rows))]
        held_out = {*order[: max(int(len(rows) > 1), round(HELD_OUT * len(rows)))]}
    return _divided(rows, held_out)


def draw_rows(rows: Sequence[Any], count: int, seed: int) -> list[Any]:
    """This number of examples in their order, all if `count` is 0. A smaller draw of a seed is part of a larger one.

    Documents are drawn one by one; the last one is cut where it would exceed `count`.
    """
    if not count or count >= len(rows):
        return list(rows)
    numbers = list(itertools.chain.from_iterable(_drawn_documents(rows, seed)))
    return [rows[i] for i in sorted(numbers[:count])]


def _divided(rows: Sequence[Any], held_out: set[int]) -> tuple[list[Any], list[Any]]:
    return [row for i, row in enumerate(rows) if i not in held_out], [rows[i] for i in sorted(held_out)]


def _select(groups: list[list[int]], target: float) -> set[int]:
    """The examples of the groups that each bring their number nearer to the target."""
    selected: set[int] = set()
    for group in groups:
        if abs(len(selected) + len(group) - target) < abs(len(selected) - target):
            selected.update(group)
    return selected


def _group_of(row: Any, otherwise: Hashable) -> Hashable:
    """The document, article or context of an example."""
    values = (getattr(row, name, "") for name in ("document", "title", "context"))
    return next((value for value in values if value != ""), otherwise)


def _drawn_documents(rows: Sequence[Any], seed: int) -> list[list[int]]:
    return _drawn_groups([_group_of(row, i) for i, row in enumerate(rows)], (seed, 3))


def _drawn_groups(keys: Iterable[Hashable], seed: tuple[int, int]) -> list[list[int]]:
    """The numbers of the keys that are equal, for each of them, in an order drawn by the seed."""
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    values = list(groups.values())
    return [values[i] for i in np.random.default_rng(seed).permutation(len(groups))]
