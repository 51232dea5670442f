"""A tag for every word or character of a text, such as named entities (paper, section 5.3).

Units are words or characters. The first token of a unit is labelled; the others are ignored. A document's sentences lie
end to end in windows of max_seq_length ("the maximal document context provided by the data"), whole sentences as long
as they fit. A longer sentence has overlapping windows, and each of its units counts where it has most context. Texts
are composed (NFC) before they are tokenized; units and entities count characters of the text as it was given.

Shapes: N rows, U units of all rows, P tokens of all rows, W windows, T tokens of all windows, K tags.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED
from ..checkpoint.names import LABELS, listed
from ..files import InputError, shorten
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer
from ..training.task_objectives import TaggingObjective
from .base import Judged, Kind, Limits, Task
from .inputs import Inputs, labelled_loss
from .sentences import Tagged, by_character, read
from .sequences import Integers, Spans, document_windows, edges_of, frame, tokens_of_rows
from .tags import (
    OUTSIDE,
    PARTS_OF_SPEECH,
    Scheme,
    check_tag,
    chunks,
    is_typed,
    read_scheme,
    score_tags,
    to_iob2,
)
from .units import all_units, first_tokens, in_words, token_positions, tokenize_rows


class Entity(TypedDict):
    """A named thing in a text; of a tagger of parts of speech, a word."""

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
    """The task's own labels, else O, then B- and I- of every type of these rows, sorted by type.

    Part-of-speech tags are sorted. Raises InputError if only some tags have a prefix, a hyphen and a type.
    """
    if task.labels:
        return task.labels
    tags = {tag for row in rows for tag in row.tags or ()}
    typed = {tag for tag in tags if is_typed(tag)}
    if tags and (not typed or any(row.scheme == PARTS_OF_SPEECH for row in rows)):
        return tuple(sorted(tags))
    if typed != tags:
        check_tag(min(tags - typed), task.name)
    types = sorted({tag.partition("-")[2] for tag in tags if tag != OUTSIDE})
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


def scheme_of(labels: Sequence[str], name: str) -> Scheme:
    """How the labels of a task or a model mark entities. Raises InputError if they do not."""
    where = f"labels of {name}"
    if not labels:
        raise InputError(f"{where}: none; expected tags")
    return read_scheme(dict.fromkeys(labels, where), of_model=True)


def match_types(labels: Sequence[str], names: Sequence[str], name: str) -> bool:
    """Whether a model of the labels `names` knows the types of all `labels`, however it writes them."""
    ours, theirs = scheme_of(labels, name), scheme_of(names, name)
    types, known = ({tag[2:] for tag in scheme.standard.values()} for scheme in (ours, theirs))
    return ours.entities and theirs.entities and types <= known


# ---- featurising


def prepare(tokenizer: Tokenizer, rows: Sequence[Tagged], task: Task, limits: Limits) -> "TagRows":
    """Rows as arrays. Raises InputError if a row has a tag that `task.labels` lack, or these are no tags."""
    scheme = scheme_of(task.labels, task.name)
    rows, cut_spans = (rows, []) if by_character(task) else in_words(tokenizer, rows)
    tokens = tokenize_rows(tokenizer, [row.text for row in rows])
    units, edges = all_units(rows)
    windows = document_windows(tokens.counts.tolist(), [row.document for row in rows], limits.max_seq_length - 2)
    frames = frame(tokenizer, Spans(tokens.ids, windows.start, windows.length))
    token = first_tokens(units, tokens.offsets, "\n".join(row.text for row in rows))
    position = token_positions(frames, windows, len(tokens.ids))[token]
    begins = np.zeros(len(units), bool)
    has = np.flatnonzero(token >= 0)
    begins[has] = np.diff(token[has], prepend=-1) > 0
    labels = np.full(len(frames.ids), IGNORED, np.int64)
    labels[position[begins]] = _gold(rows, task, scheme)[begins]
    nothing_cut = np.zeros(len(windows.text), np.int64)
    inputs = Inputs(*frames, labels, nothing_cut, tokenizer.pad_id, limits.max_seq_length, token_labels=True)
    row = np.searchsorted(edges_of(tokens.counts)[1:-1], windows.start, "right")
    counts = tokens_of_rows(row, frames.edges, len(rows))
    return TagRows(inputs, task, rows, edges, position, begins, counts, scheme, cut_spans)


def _gold(rows: Sequence[Tagged], task: Task, scheme: Scheme) -> Integers:
    """(U,) numbers of the tags, -100 where they are not known. Labels without B- have I- instead."""
    numbers: dict[str, int] = {}
    for i, label in enumerate(task.labels):
        numbers.setdefault(scheme.standard[label], i)
    if scheme.entities:
        numbers = {f"B-{tag[2:]}": i for tag, i in numbers.items() if tag[0] == "I"} | numbers
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
    scheme: Scheme  # how the labels mark entities
    cut_spans: Sequence[str] = ()  # spans of characters that begin or end inside a word

    @property
    def cut(self) -> Integers:
        """(N,) zeros: long texts have windows."""
        return np.zeros_like(self.tokens)

    def notes(self) -> list[str]:
        """What a user should hear about the rows: how tags were read, and whether the vocabulary lets a model tag so.

        Of a token, one tag is learned. Where entities begin or end inside tokens, the learned tags miss them.
        """
        how = "judged by accuracy" if not self.scheme.entities else "turned into IOB2, judged by the F1 of entities"
        found = [f"tags are read as {name}: {how}" for name in [self._tag_scheme()] if name]
        if self.cut_spans:
            how = f"begin or end inside a word, such as {shorten(self.cut_spans[0])}; whole words are tagged"
            found.append(f"{len(self.cut_spans):,} spans {how}; --text character tags characters instead")
        gold = [row.tags for row in self.rows if row.tags is not None]
        if not by_character(self.task) or len(gold) < len(self.rows) or not self.scheme.entities:
            return found
        learned = F.one_hot(torch.from_numpy(self.inputs.labels).clamp_min(0), len(self.task.labels))
        f1 = score_tags(gold, self._predicted(learned)).entities.f1
        if f1 < 0.995:
            found.append(f"entities begin or end inside a token of this vocabulary: F1 is at most about {f1:.3f}")
        return found

    @property
    def majority(self) -> float:
        """Accuracy of the most frequent part of speech; 0 of entities, whose F1 would be 0."""
        gold = Counter(tag for row in self.rows for tag in row.tags or ())
        return 0.0 if self.scheme.entities or not gold else max(gold.values()) / gold.total()

    def type_of(self, label: str) -> str:
        """The type of the entities that a label marks; O and parts of speech as they are."""
        tag = self.scheme.standard[label]
        return tag.partition("-")[2] or tag if self.scheme.entities else tag

    def _tag_scheme(self) -> str:
        """How data or labels write tags, "" if with a prefix, a hyphen and a type."""
        return next(filter(None, (*(row.scheme for row in self.rows), self.scheme.name)), "")

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[list[Entity]]:
        """The entities of each row from (T, K) scores."""
        tagged = zip(self.rows, self.tags(scores), strict=True)
        if self.scheme.entities:
            return [
                _entities(row, [self.scheme.standard[tag] for tag in tags], chances) for row, (tags, chances) in tagged
            ]
        return [_words(row, tags, chances) for row, (tags, chances) in tagged]

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
        entity if the units around it are inside the same one, otherwise O (with probability 1). Where there is no O, it
        has the tag of the unit before it, with probability 0.
        """
        best = scores.argmax(-1).numpy()
        chances = scores.float().softmax(-1).amax(-1).numpy()
        names, marks = self.task.labels, [self.scheme.standard[name] for name in self.task.labels]
        inside = [marks.index(tag) if (tag := f"I-{mark[2:]}") in marks else i for i, mark in enumerate(marks)]
        inside = inside if self.scheme.entities else [*range(len(names))]
        tags = np.where(self.begins, best[self.position], np.array(inside)[best[self.position]])
        values = chances[self.position]
        self._fill(tags, values)
        words, probabilities = [names[i] for i in tags], values.tolist()
        return [(words[a:b], probabilities[a:b]) for a, b in itertools.pairwise(self.edges.tolist())]

    def _fill(self, tags: Integers, values: NDArray[np.float32]) -> None:
        """Tags and probabilities for the units without a token, in place."""
        U, number, marks = len(tags), np.arange(len(tags)), [self.scheme.standard[name] for name in self.task.labels]
        has, outside = self.position >= 0, marks.index(OUTSIDE) if OUTSIDE in marks else -1
        before = np.maximum.accumulate(np.where(has, number, -1))
        after = np.minimum.accumulate(np.where(has, number, U)[::-1])[::-1]
        row = np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges))
        for i in np.flatnonzero(~has):
            a, b = before[i], after[i]
            tags[i], values[i] = (outside, 1.0) if outside >= 0 else (tags[a] if a >= 0 else 0, 0.0)
            if self.scheme.entities and a >= 0 and b < U and row[a] == row[i] == row[b]:
                left, right = marks[tags[a]], marks[tags[b]]
                if len(chunks([left, right])) == 1 and OUTSIDE not in (left, right):
                    tags[i], values[i] = tags[b], values[b]

    def _predicted(self, scores: Tensor) -> list[list[str]]:
        """The tags of each row's units as the rows write theirs: in IOB2 if the labels are of another scheme."""
        standard = self.scheme.standard
        found = [[standard[tag] for tag in tags] for tags, _ in self.tags(scores)]
        same = any(tag[0] == "B" for tag in standard.values()) and all(tag[0] in "BIO" for tag in standard.values())
        return found if same or not self.scheme.entities else [to_iob2(tags) for tags in found]

    def judge(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> Judged:
        """Metrics of (T, K) scores as conlleval counts them; of parts of speech the accuracy alone.

        Raises ValueError if a row has no tags.
        """
        gold = [row.tags for row in self.rows if row.tags is not None]
        if len(gold) < len(self.rows):
            raise ValueError("rows without tags cannot be judged")
        predicted = self._predicted(scores)
        found = score_tags(gold, predicted)
        whole = found.entities
        loss = labelled_loss(scores.float(), self.inputs.labels)
        each = {
            kind: vars(n) | {"precision": n.precision, "recall": n.recall, "f1": n.f1}
            for kind, n in found.types.items()
        }
        entities = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall}
        counts = Counter(tag for tags in predicted for tag in tags)
        rows = [
            {"line": row.line, "gold": row.tags, "predicted": tags}
            for row, tags in zip(self.rows, predicted, strict=True)
        ]
        judged = Judged(
            metrics={"loss": loss, **entities, "accuracy": found.accuracy},
            predicted={OUTSIDE: counts[OUTSIDE]} | {k: n.found for k, n in found.types.items()},
            collapsed=whole.found == 0 < whole.gold,
            settings={"characters": by_character(self.task)},
            files={PREDICTIONS: rows, "types.json": each},
            details={"tag_scheme": name} if (name := self._tag_scheme()) else {},
        )
        if self.scheme.entities:
            return judged
        return replace(
            judged,
            metrics={"loss": loss, "accuracy": found.accuracy},
            predicted={name: counts[name] for name in self.task.labels},
            majority=self.majority,
            collapsed=len(counts) == 1 < len({tag for tags in gold for tag in tags}),
            files={PREDICTIONS: rows},
        )


def _words(row: Tagged, tags: Sequence[str], scores: Sequence[float]) -> list[Entity]:
    """Every unit of a text that is no white space, with its part of speech."""
    return [
        Entity(type=tag, start=start, end=end, text=row.text[start:end], score=score)
        for (start, end), tag, score in zip(row.units, tags, scores, strict=True)
        if row.text[start:end].strip()
    ]


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
