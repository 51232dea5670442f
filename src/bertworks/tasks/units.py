"""Where the units of tagged rows, words or characters, are among the tokens of their texts.

Shapes: N rows, U units of all rows, P tokens of all rows.
"""

from collections.abc import Sequence

import numpy as np

from ..tokenizer import Tokenizer
from .sentences import Tagged, divided
from .sequences import CHUNK, Frames, Integers, Windows, edges_of, ranges
from .span_files import SPANS, tags_of
from .tags import chunks


def all_units(rows: Sequence[Tagged]) -> tuple[Integers, Integers]:
    """(U, 2) begin and end of every unit in all texts, joined by one character; (N + 1,) the units of each row."""
    counts = [len(row.units) for row in rows]
    starts = edges_of([len(row.text) + 1 for row in rows])[:-1]
    units = np.array([unit for row in rows for unit in row.units], np.int64).reshape(-1, 2)
    return units + np.repeat(starts, counts)[:, None], edges_of(counts)


def first_tokens(units: Integers, offsets: Integers, text: str) -> Integers:
    """(U,) number of the first token that reaches into each unit, -1 if none does."""
    beyond = len(text) + 1
    offsets = np.concatenate([offsets, [[beyond, beyond]]])
    token = np.searchsorted(offsets[:, 1], units[:, 0], "right")
    token[offsets[token, 0] >= units[:, 1]] = -1
    return token


def token_positions(frames: Frames, windows: Windows, P: int) -> Integers:
    """(P + 1,) where in `frames` each token is in the window in which it counts; then -1, for no token."""
    position = np.full(P + 1, -1)
    shown = ranges(frames.edges[:-1] + 1, windows.length)
    token = ranges(windows.start, windows.length)
    position[token[windows.max_context]] = shown[windows.max_context]
    return position


def in_words(tokenizer: Tokenizer, rows: Sequence[Tagged]) -> tuple[list[Tagged], list[str]]:
    """The rows with words, as prediction divides them, in place of spans of characters; spans that cut a word.

    Of another row, the units stay as they are.
    """
    found, cut = list(rows), []
    places = [i for i, row in enumerate(rows) if row.scheme == SPANS]
    for first in range(0, len(places), CHUNK):
        some = places[first : first + CHUNK]
        for i, new in zip(some, divided(tokenizer, [rows[i].text for i in some]), strict=True):
            row = rows[i]
            entities = [(row.units[c.start][0], row.units[c.end - 1][1], c.type) for c in chunks(row.tags or ())]
            inside = {at for a, b in new.units for at in range(a + 1, b)}
            cut += [row.text[a:b] for a, b, _ in entities if a in inside or b in inside]
            tags = None if row.tags is None else tuple(tags_of(new.units, entities))
            found[i] = row._replace(units=new.units, tags=tags)
    return found, cut
