"""A tag for every word or character of a text, such as named entities (paper, section 5.3).

Units are words or characters. The first token of a unit is labelled; the others are ignored. A document's sentences lie
end to end in windows of max_seq_length ("the maximal document context provided by the data"), whole sentences as long
as they fit. A longer sentence has overlapping windows, and each of its units counts where it has most context. Texts
are composed (NFC) before they are tokenized; units and entities count characters of the text as it was given.

Shapes: N rows, U units of all rows, P tokens of all rows, W windows, T tokens of all windows, K tags.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED
from ..checkpoint.names import LABELS, listed
from ..files import InputError, shorten
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer, compose
from ..training.task_objectives import TaggingObjective
from .base import Judged, Kind, Limits, Task
from .inputs import Inputs
from .sentences import Tagged, by_character, read
from .sequences import (
    CHUNK,
    Frames,
    Integers,
    Spans,
    TokenIds,
    Windows,
    document_windows,
    edges_of,
    frame,
    ranges,
    tokens_of_rows,
)
from .tags import OUTSIDE, check_tag, chunks, score_tags


class Entity(TypedDict):
    """A named thing in a text."""

    type: str
    start: int  # characters of the caller's text
    end: int
    text: str
    score: float  # mean probability of its units' tags, 0 to 1


class Unit(TypedDict):
    """A word with its tag; a character, if these are tagged."""

    tag: str
    start: int  # characters of the caller's text
    end: int
    text: str
    score: float  # probability of the tag, 0 to 1
    scores: dict[str, float]  # probabilities of all tags; {}: the unit has no token


def labels(task: Task, rows: Sequence[Tagged]) -> tuple[str, ...]:
    """The task's own labels, else O, then B- and I- of every type of these rows, sorted by type."""
    if task.labels:
        return task.labels
    types = sorted({tag.partition("-")[2] for row in rows for tag in row.tags or () if tag != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


# ---- featurising


def prepare(tokenizer: Tokenizer, rows: Sequence[Tagged], task: Task, limits: Limits) -> "TagRows":
    """Rows as arrays. Raises InputError if a row has a tag that is none of `task.labels`, or these are no tags."""
    for label in task.labels:
        check_tag(label, f"labels of {task.name}")
    if OUTSIDE not in task.labels:
        raise InputError(f"labels of {task.name}: {', '.join(task.labels) or 'none'}; expected {OUTSIDE} among them")
    tokens = _tokenized(tokenizer, [row.text for row in rows])
    units, edges = _all_units(rows)
    windows = document_windows(tokens.counts.tolist(), [row.document for row in rows], limits.max_seq_length - 2)
    frames = frame(tokenizer, Spans(tokens.ids, windows.start, windows.length))
    token = _first_tokens(units, tokens.offsets, "\n".join(row.text for row in rows))
    position = _positions(frames, windows, len(tokens.ids))[token]
    begins = np.zeros(len(units), bool)
    has = np.flatnonzero(token >= 0)
    begins[has] = np.diff(token[has], prepend=-1) > 0
    labels = np.full(len(frames.ids), IGNORED, np.int64)
    labels[position[begins]] = _gold(rows, task)[begins]
    nothing_cut = np.zeros(len(windows.text), np.int64)
    inputs = Inputs(*frames, labels, nothing_cut, tokenizer.pad_id, limits.max_seq_length, token_labels=True)
    row = np.searchsorted(edges_of(tokens.counts)[1:-1], windows.start, "right")
    return TagRows(inputs, task, rows, edges, position, begins, tokens_of_rows(row, frames.edges, len(rows)))


class _Tokens(NamedTuple):
    """The tokens of all texts, end to end."""

    ids: TokenIds  # (P,)
    offsets: Integers  # (P, 2) characters of all texts, joined by one character
    counts: Integers  # (N,)


def _tokenized(tokenizer: Tokenizer, texts: Sequence[str]) -> _Tokens:
    ids, offsets, counts = [np.empty(0, np.int32)], [np.empty((0, 2), np.int64)], [np.empty(0, np.int64)]
    starts = edges_of([len(text) + 1 for text in texts])
    for first in range(0, len(texts), CHUNK):
        composed = [compose(text) for text in texts[first : first + CHUNK]]
        encodings = tokenizer.encode_batch([one.text for one in composed])
        counts.append(np.array([len(encoding.ids) - 2 for encoding in encodings], np.int64))
        ids.append(np.array([i for encoding in encodings for i in encoding.ids[1:-1]], np.int32))
        for one, encoding, start in zip(composed, encodings, starts[first:], strict=False):
            offsets.append(one.spans(np.array(encoding.offsets[1:-1], np.int64).reshape(-1, 2)) + start)
    return _Tokens(np.concatenate(ids), np.concatenate(offsets), np.concatenate(counts))


def _all_units(rows: Sequence[Tagged]) -> tuple[Integers, Integers]:
    """(U, 2) begin and end of every unit in all texts, joined by one character; (N + 1,) the units of each row."""
    counts = [len(row.units) for row in rows]
    starts = edges_of([len(row.text) + 1 for row in rows])[:-1]
    units = np.array([unit for row in rows for unit in row.units], np.int64).reshape(-1, 2)
    return units + np.repeat(starts, counts)[:, None], edges_of(counts)


def _first_tokens(units: Integers, offsets: Integers, text: str) -> Integers:
    """(U,) number of the first token that reaches into each unit, -1 if none does."""
    beyond = len(text) + 1
    offsets = np.concatenate([offsets, [[beyond, beyond]]])
    token = np.searchsorted(offsets[:, 1], units[:, 0], "right")
    token[offsets[token, 0] >= units[:, 1]] = -1
    return token


def _positions(frames: Frames, windows: Windows, P: int) -> Integers:
    """(P + 1,) where in `frames` each token is in the window in which it counts; then -1, for no token."""
    position = np.full(P + 1, -1)
    shown = ranges(frames.edges[:-1] + 1, windows.length)
    token = ranges(windows.start, windows.length)
    position[token[windows.max_context]] = shown[windows.max_context]
    return position


def _gold(rows: Sequence[Tagged], task: Task) -> Integers:
    """(U,) numbers of the tags, -100 where they are not known."""
    numbers = {tag: i for i, tag in enumerate(task.labels)}
    for row in rows:
        unknown = [tag for tag in row.tags or () if tag not in numbers]
        if unknown:
            raise InputError(
                f"line {row.line}: tag {shorten(unknown[0])}; expected one of {listed(task.labels, LABELS)}"
            )
    found = (map(numbers.__getitem__, row.tags) if row.tags else [IGNORED] * len(row.units) for row in rows)
    return np.fromiter(itertools.chain.from_iterable(found), np.int64)


# ---- judging


@dataclass(frozen=True)
class TagRows:
    """Rows of a tagging task, ready for a model. Columns of all scores: `task.labels`."""

    inputs: Inputs
    task: Task  # with its labels
    rows: Sequence[Tagged]
    edges: Integers  # (N + 1,) where each row's units begin and end
    position: Integers  # (U,) the token in `inputs.ids` that answers for each unit; -1: it has none, like a space
    begins: NDArray[np.bool_]  # (U,) False: no token, or one that an earlier unit has begun
    tokens: Integers  # (N,) tokens of the windows that begin in each row

    @property
    def cut(self) -> Integers:
        """(N,) zeros: long texts have windows."""
        return np.zeros_like(self.tokens)

    def notes(self) -> list[str]:
        """What a user should hear about the rows: whether the vocabulary lets a model tag them as they are tagged.

        Of a token, one tag is learned. Where entities begin or end inside tokens, the learned tags miss them.
        """
        gold = [row.tags for row in self.rows if row.tags is not None]
        if not by_character(self.task) or len(gold) < len(self.rows):
            return []
        learned = F.one_hot(torch.from_numpy(self.inputs.labels).clamp_min(0), len(self.task.labels))
        f1 = score_tags(gold, [tags for tags, _ in self.tags(learned)]).entities.f1
        if f1 >= 0.995:
            return []
        return [f"entities begin or end inside a token of this vocabulary: F1 is at most about {f1:.3f}"]

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[list[Entity]]:
        """The entities of each row from (T, K) scores."""
        return [_entities(row, *tagged) for row, tagged in zip(self.rows, self.tags(scores), strict=True)]

    def units(self, scores: Tensor) -> list[list[Unit]]:
        """Every unit of each row with the probabilities of all its tags, from (T, K) scores."""
        each = scores.float().softmax(-1)[self.position].tolist()  # (U, K)
        results = []
        for row, (tags, chances), first in zip(self.rows, self.tags(scores), self.edges.tolist(), strict=False):
            units = []
            for i, ((start, end), tag, score) in enumerate(zip(row.units, tags, chances, strict=True), first):
                every = dict(zip(self.task.labels, each[i], strict=True)) if self.position[i] >= 0 else {}
                units.append(Unit(tag=tag, start=start, end=end, text=row.text[start:end], score=score, scores=every))
            results.append(units)
        return results

    def tags(self, scores: Tensor) -> list[tuple[list[str], list[float]]]:
        """The tags of each row's units and their probabilities, from (T, K) scores.

        Of a B- token that several characters share, all but the first are I-. A unit without a token is inside an
        entity if the units around it are inside the same one, otherwise O (with probability 1).
        """
        chances, best = (x.numpy() for x in scores.float().softmax(-1).max(-1))
        names = self.task.labels
        inside = [names.index(tag) if (tag := f"I-{name[2:]}") in names else i for i, name in enumerate(names)]
        tags = np.where(self.begins, best[self.position], np.array(inside)[best[self.position]])
        values = chances[self.position]
        self._fill(tags, values)
        words, probabilities = [names[i] for i in tags], values.tolist()
        return [(words[a:b], probabilities[a:b]) for a, b in itertools.pairwise(self.edges.tolist())]

    def _fill(self, tags: Integers, values: NDArray[np.float32]) -> None:
        """Tags and probabilities for the units without a token, in place."""
        U, names, number = len(tags), self.task.labels, np.arange(len(tags))
        has, outside = self.position >= 0, names.index(OUTSIDE)
        before = np.maximum.accumulate(np.where(has, number, -1))
        after = np.minimum.accumulate(np.where(has, number, U)[::-1])[::-1]
        row = np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges))
        for i in np.flatnonzero(~has):
            a, b = before[i], after[i]
            tags[i], values[i] = outside, 1.0
            if a >= 0 and b < U and row[a] == row[i] == row[b]:
                left, right = names[tags[a]], names[tags[b]]
                if len(chunks([left, right])) == 1 and OUTSIDE not in (left, right):
                    tags[i], values[i] = tags[b], values[b]

    def judge(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> Judged:
        """Metrics of (T, K) scores as conlleval counts them. Raises ValueError if a row has no tags."""
        gold = [row.tags for row in self.rows if row.tags is not None]
        if len(gold) < len(self.rows):
            raise ValueError("rows without tags cannot be judged")
        predicted = [tags for tags, _ in self.tags(scores)]
        found = score_tags(gold, predicted)
        whole = found.entities
        loss = F.cross_entropy(scores.float(), torch.from_numpy(self.inputs.labels), ignore_index=IGNORED)
        each = {
            kind: vars(n) | {"precision": n.precision, "recall": n.recall, "f1": n.f1}
            for kind, n in found.types.items()
        }
        rows = zip(self.rows, predicted, strict=True)
        return Judged(
            metrics={
                "loss": float(loss),
                "f1": whole.f1,
                "precision": whole.precision,
                "recall": whole.recall,
                "accuracy": found.accuracy,
            },
            predicted={OUTSIDE: sum(tags.count(OUTSIDE) for tags in predicted)}
            | {k: n.found for k, n in found.types.items()},
            collapsed=whole.found == 0 < whole.gold,
            settings={"characters": by_character(self.task)},
            files={
                PREDICTIONS: [{"line": row.line, "gold": row.tags, "predicted": tags} for row, tags in rows],
                "types.json": each,
            },
        )


def _entities(row: Tagged, tags: Sequence[str], scores: Sequence[float]) -> list[Entity]:
    """The entities of a text, from its units' tags and their probabilities (`TagRows.tags`)."""
    found = []
    for kind, first, last in chunks(tags):
        start, end = row.units[first][0], row.units[last - 1][1]
        score = sum(scores[first:last]) / (last - first)
        found.append(Entity(type=kind, start=start, end=end, text=row.text[start:end], score=score))
    return found


TAGGING = Kind(
    "tagger",
    TaggingObjective(),
    read,
    labels,
    prepare,
    ("f1", "precision", "recall", "accuracy"),
    weighted=TaggingObjective,
)
