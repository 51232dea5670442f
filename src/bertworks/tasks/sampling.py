"""Parts of a task's rows, drawn by a seed: fewer training rows, and some that are held out to choose settings by.

Rows that belong together are drawn together: the sentences of a tagged document, the questions of an article or a text.
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

DEV_ONE_IN = 5  # one row of so many is in the part #dev of a file
HELD_OUT = 0.2  # share of the training rows by which settings are chosen
MIN_HELD_OUT, MAX_HELD_OUT = 0.1, 1 / 3  # shares between which whole documents are held out


@dataclass(frozen=True)
class Split:
    """What of a labelled file a run trains on, and what it is evaluated on."""

    train_rows: int = 0  # training rows to draw; 0: all
    dev_share: float = 0.0  # share of the file's rows that become the development rows; 0: they have a file
    group: str = ""  # column whose rows with one value stay together; "": documents, or rows with one text
    seed: int = 1  # of both draws

    def __post_init__(self) -> None:
        for flag, value in (("--train-rows", self.train_rows), ("--split-seed", self.seed)):
            check_integer(value, flag)
            if value < 0:
                raise InputError(f"{flag} {value}: expected 0 or more")
        if not isinstance(self.dev_share, Real) or not 0 <= self.dev_share < 1:
            raise InputError(f"--dev-share {shorten(self.dev_share)}: expected a share of at least 0 and less than 1")
        if self.group and not self.dev_share:
            raise InputError("--group divides a file into training and development rows: add --dev-share")

    def describe(self, table: str) -> str:
        """A divided table in words, for results.json."""
        return f"{table}, {self.dev_share:g} of it to develop on, seed {self.seed}"


WHOLE = Split()


def in_part(text: str, part: str) -> bool:
    """Whether a row is in a part of its file ("": all of it); `text` is that of the row, or of its document.

    A hash decides, so that neither the order of the rows nor a text that occurs twice changes sides.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return not part or part == PARTS[int.from_bytes(digest) % DEV_ONE_IN == 0]


def rows_in_part(rows: Sequence[Any], part: str) -> list[Any]:
    """The rows in a part of their file; the sentences of a document and the questions of an article stay together."""
    if not part:
        return list(rows)
    first: dict[Hashable, str] = {}  # by document, the text that decides
    texts = []
    for i, row in enumerate(rows):
        if hasattr(row, "units"):  # the words of the document's first sentence
            text = " ".join(row.text[start:end] for start, end in row.units)
            texts.append(first.setdefault(row.document, text))
        else:
            texts.append(getattr(row, "title", "") or getattr(row, "context", "") or rows[i].text)
    return [row for row, text in zip(rows, texts, strict=True) if in_part(text, part)]


def split_rows(
    rows: Sequence[Any], share: float, seed: int, group_of: Mapping[int, str] | None = None
) -> tuple[list[Any], list[Any]]:
    """The rows without about `share` of them, and that share, both in their order; no group is in both.

    group_of: the group of each row by its `line`; None: its document, article or context, or else its first text. A
    tagged file with too few documents is divided by sentences.
    Raises InputError if there are too few groups for two parts.
    """
    keys = [_group_of(row, getattr(row, "text", "")) if group_of is None else group_of[row.line] for row in rows]
    groups = _drawn_groups(keys, (seed, 4))
    back = _about(groups, share * len(rows))
    if not 0 < len(back) < len(rows) and group_of is None and hasattr(rows[0], "document"):
        groups = _drawn_groups([row.text for row in rows], (seed, 4))
        back = _about(groups, share * len(rows))
    if not back or len(back) == len(rows):
        found = f"{len(rows):,} rows in {len(groups):,} groups cannot be divided with a development share of {share:g}"
        raise InputError(f"{found}; give another share or group column, or a development file")
    return [row for i, row in enumerate(rows) if i not in back], [rows[i] for i in sorted(back)]


def _group_of(row: Any, otherwise: Hashable) -> Hashable:
    """The document, article or context of a row."""
    values = (getattr(row, name, "") for name in ("document", "title", "context"))
    return next((value for value in values if value != ""), otherwise)


def draw_rows(rows: Sequence[Any], count: int, seed: int) -> list[Any]:
    """So many rows, in their order; all of them if `count` is 0. A smaller draw of a seed is part of a larger one.

    Documents are drawn one by one; the last one is cut where it would exceed `count`.
    """
    if not count or count >= len(rows):
        return list(rows)
    numbers = list(itertools.chain.from_iterable(_drawn_documents(rows, seed)))
    return [rows[i] for i in sorted(numbers[:count])]


def hold_out_rows(rows: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
    """The rows without about a fifth of them, and that fifth, both in their order.

    No document is in both, unless documents are so large or so unequal that whole ones make less than a tenth or more
    than a third of the rows: then rows are held out one by one. Of a single row the second part is empty.
    """
    back = _about(_drawn_documents(rows, seed), HELD_OUT * len(rows))
    if not MIN_HELD_OUT * len(rows) <= len(back) <= MAX_HELD_OUT * len(rows):
        order = [int(i) for i in np.random.default_rng((seed, 3)).permutation(len(rows))]
        least = 1 if len(rows) > 1 else 0
        back = {*order[: max(least, round(HELD_OUT * len(rows)))]}
    return [row for i, row in enumerate(rows) if i not in back], [rows[i] for i in sorted(back)]


def _about(documents: list[list[int]], wanted: float) -> set[int]:
    """The rows of the documents that each bring their number nearer to the wanted one."""
    back: set[int] = set()
    for document in documents:
        if abs(len(back) + len(document) - wanted) < abs(len(back) - wanted):
            back.update(document)
    return back


def _drawn_documents(rows: Sequence[Any], seed: int) -> list[list[int]]:
    """The numbers of the rows of each document, the documents in an order drawn by the seed."""
    return _drawn_groups([_group_of(row, i) for i, row in enumerate(rows)], (seed, 3))


def _drawn_groups(keys: Iterable[Hashable], seed: tuple[int, int]) -> list[list[int]]:
    """The numbers of the keys that are equal, for each of them, in an order drawn by the seed."""
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    found = list(groups.values())
    return [found[i] for i in np.random.default_rng(seed).permutation(len(groups))]
