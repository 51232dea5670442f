"""Parts of a task's rows, drawn by a seed: fewer training rows, and some that are kept back to choose settings by.

Rows that belong together are drawn together: the sentences of a tagged document, the questions of an article or a text.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

KEPT_BACK = 0.2  # share of the training rows by which settings are chosen
LEAST, MOST = 0.1, 1 / 3  # shares between which whole documents are kept back


def draw_rows(rows: Sequence[Any], count: int, seed: int) -> list[Any]:
    """So many rows, in their order; all of them if `count` is 0. A smaller draw of a seed is part of a larger one.

    Documents are drawn one by one; the last one is cut where it would exceed `count`.
    """
    if not count or count >= len(rows):
        return list(rows)
    numbers = list(itertools.chain.from_iterable(_drawn_documents(rows, seed)))
    return [rows[i] for i in sorted(numbers[:count])]


def split_rows(rows: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
    """The rows without about a fifth of them, and that fifth, both in their order.

    No document is in both, unless documents are so large or so unequal that whole ones make less than a tenth or more
    than a third of the rows: then rows are kept back one by one. Of a single row the second part is empty.
    """
    back = _about_a_fifth(_drawn_documents(rows, seed), len(rows))
    if not LEAST * len(rows) <= len(back) <= MOST * len(rows):
        order = [int(i) for i in np.random.default_rng((seed, 3)).permutation(len(rows))]
        least = 1 if len(rows) > 1 else 0
        back = {*order[: max(least, round(KEPT_BACK * len(rows)))]}
    return [row for i, row in enumerate(rows) if i not in back], [rows[i] for i in sorted(back)]


def _about_a_fifth(documents: list[list[int]], total: int) -> set[int]:
    """The rows of the documents that each bring their number nearer to a fifth of all."""
    back: set[int] = set()
    for document in documents:
        if abs(len(back) + len(document) - KEPT_BACK * total) < abs(len(back) - KEPT_BACK * total):
            back.update(document)
    return back


def _drawn_documents(rows: Sequence[Any], seed: int) -> list[list[int]]:
    """The numbers of the rows of each document, the documents in an order drawn by the seed."""
    documents: dict[Any, list[int]] = {}
    for i, row in enumerate(rows):
        key = next((getattr(row, name) for name in ("document", "title", "context") if getattr(row, name, "") != ""), i)
        documents.setdefault(key, []).append(i)
    order = np.random.default_rng((seed, 3)).permutation(len(documents))
    found = list(documents.values())
    return [found[i] for i in order]
