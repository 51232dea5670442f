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
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..batch import IGNORED
from ..checkpoint.names import LABELS, listed
from ..files import InputError, shorten
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer
from ..training.task_objectives import TaggingObjective
from .base import EvaluationResult, LengthLimits, Prepared, Task, TaskType
from .inputs import Inputs, labelled_loss
from .sentences import Tagged, by_character, in_words, read
from .sequences import (
    Frames,
    Integers,
    Spans,
    Windows,
    document_windows,
    edges_of,
    frame,
    ranges,
    tokenize_with_offsets,
)
from .tags import OUTSIDE, PARTS_OF_SPEECH, Chunk, Scheme, chunks, is_typed, read_scheme, score_tags, to_iob2


class Entity(TypedDict):
    """A named entity in a text; of a tagger of parts of speech, a word."""

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

    Part-of-speech tags are sorted.
    """
    if task.labels:
        return task.labels
    tags = {tag for row in rows for tag in row.tags or ()}
    types = sorted({tag.partition("-")[2] for tag in tags if is_typed(tag) and tag != OUTSIDE})
    if any(row.scheme == PARTS_OF_SPEECH for row in rows) or not (types or OUTSIDE in tags):
        return tuple(sorted(tags))
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI"))


def scheme_of(labels: Sequence[str], name: str) -> Scheme:
    """How the labels of a task or a model mark entities. Raises InputError if they do not."""
    return read_scheme(dict.fromkeys(labels, f"labels of {name}"), of_model=True)


def match_types(labels: Sequence[str], names: Sequence[str], name: str) -> bool:
    """Whether a model of the labels `names` has the types of all `labels`, in whatever scheme."""
    of_data, of_model = scheme_of(labels, name), scheme_of(names, name)
    types, model_types = ({tag[2:] for tag in scheme.standard.values()} for scheme in (of_data, of_model))
    return of_data.entities and of_model.entities and types <= model_types


# ---- featurising


def prepare(tokenizer: Tokenizer, rows: Sequence[Tagged], task: Task, limits: LengthLimits) -> "TagRows":
    """Rows as arrays. Raises InputError if a row has a tag that `task.labels` lack, or these are no tags."""
    scheme = scheme_of(task.labels, task.name)
    rows, cut_spans = (rows, []) if by_character(task) else in_words(tokenizer, rows)
    tokens = tokenize_with_offsets(tokenizer, [row.text for row in rows])
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
    uncut = np.zeros(len(windows.text), np.int64)  # long texts have windows
    inputs = Inputs(*frames, labels, uncut, tokenizer.pad_id, limits.max_seq_length, token_labels=True)
    owner = np.searchsorted(edges_of(tokens.counts)[1:-1], windows.start, "right")
    return TagRows(inputs, task, rows, owner, np.zeros(len(rows), np.int64), edges, position, begins, scheme, cut_spans)


def _gold(rows: Sequence[Tagged], task: Task, scheme: Scheme) -> Integers:
    """(U,) numbers of the tags, -100 where they are not known. Labels without B- have I- instead."""
    numbers: dict[str, int] = {}
    for i, label in enumerate(task.labels):
        numbers.setdefault(scheme.standard[label], i)
    if scheme.entities:
        numbers = {f"B-{tag[2:]}": i for tag, i in numbers.items() if tag[0] == "I"} | numbers
    for row in rows:
        if unknown := [tag for tag in row.tags or () if tag not in numbers]:
            expected = listed(task.labels, LABELS)
            raise InputError(f"line {row.line}: tag {shorten(unknown[0])}; expected one of {expected}")
    gold = (map(numbers.__getitem__, row.tags) if row.tags else [IGNORED] * len(row.units) for row in rows)
    return np.fromiter(itertools.chain.from_iterable(gold), np.int64)


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


# ---- evaluation


@dataclass(frozen=True)
class TagRows(Prepared):
    """Rows of a tagging task, ready for a model. Columns of all scores: `task.labels`.

    `owner` is the row in which each window begins.
    """

    rows: Sequence[Tagged]
    edges: Integers  # (N + 1,) where each row's units begin and end
    position: Integers  # (U,) the token in `inputs.ids` that answers for each unit; -1: it has none, like a space
    begins: NDArray[np.bool_]  # (U,) False: no token, or one that an earlier unit begins with
    scheme: Scheme  # how the labels mark entities
    cut_spans: Sequence[str] = ()  # spans of characters that begin or end inside a word

    def notes(self) -> list[str]:
        """How tags were read, and which spans words cannot have."""
        notes = []
        if name := self._tag_scheme():
            by_f1 = "turned into IOB2, evaluated by the F1 of entities"
            notes.append(f"tags are read as {name}: {by_f1 if self.scheme.entities else 'evaluated by accuracy'}")
        if self.cut_spans:
            how = f"begin or end inside a word, such as {shorten(self.cut_spans[0])}; whole words are tagged"
            notes.append(f"{len(self.cut_spans):,} spans {how}; text = character tags characters instead")
        return notes

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
        """The entities of each row from (T, K) scores; of parts of speech every unit that is no white space."""
        return [self._entities(row, *pair) for row, pair in zip(self.rows, self.tags(scores), strict=True)]

    def _entities(self, row: Tagged, tags: list[str], probabilities: list[float]) -> list[Entity]:
        spans = [Chunk(tag, i, i + 1) for i, tag in enumerate(tags)]
        if self.scheme.entities:
            spans = chunks([self.scheme.standard[tag] for tag in tags])
        entities = []
        for kind, first, last in spans:
            start, end = row.units[first][0], row.units[last - 1][1]
            text, score = row.text[start:end], sum(probabilities[first:last]) / (last - first)
            entities += [Entity(type=kind, start=start, end=end, text=text, score=score)] if text.strip() else []
        return entities

    def units(self, scores: Tensor) -> list[list[Unit]]:
        """Every unit of each row with the probabilities of all its tags, from (T, K) scores."""
        each = scores.float().softmax(-1)[self.position].tolist()  # (U, K)
        results = []
        for row, (tags, probabilities), first in zip(self.rows, self.tags(scores), self.edges.tolist(), strict=False):
            units = []
            for i, ((start, end), tag, score) in enumerate(zip(row.units, tags, probabilities, strict=True), first):
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
        probabilities = scores.float().softmax(-1).amax(-1).numpy()
        names, marks = self.task.labels, [self.scheme.standard[name] for name in self.task.labels]
        inside = [*range(len(names))]
        if self.scheme.entities:
            inside = [marks.index(tag) if (tag := f"I-{mark[2:]}") in marks else i for i, mark in enumerate(marks)]
        tags = np.where(self.begins, best[self.position], np.array(inside)[best[self.position]])
        values = probabilities[self.position]
        self._fill(tags, values, marks)
        named, scored = [names[i] for i in tags], values.tolist()
        return [(named[a:b], scored[a:b]) for a, b in itertools.pairwise(self.edges.tolist())]

    def _fill(self, tags: Integers, values: NDArray[np.float32], marks: list[str]) -> None:
        """Tags and probabilities for the units without a token, in place."""
        with_token = np.flatnonzero(self.position >= 0)
        row = np.repeat(np.arange(len(self.rows)), np.diff(self.edges))
        for i in np.flatnonzero(self.position < 0):
            after = int(np.searchsorted(with_token, i))
            near = [j for j in with_token[max(0, after - 1) : after + 1] if row[j] == row[i]]  # before and after it
            around = [marks[tags[j]] for j in near]
            if self.scheme.entities and len(near) == 2 and OUTSIDE not in around and len(chunks(around)) == 1:
                tags[i], values[i] = tags[near[1]], values[near[1]]
            elif OUTSIDE in marks:
                tags[i], values[i] = marks.index(OUTSIDE), 1.0
            else:
                tags[i], values[i] = tags[near[0]] if near and near[0] < i else 0, 0.0

    def _predicted(self, scores: Tensor) -> list[list[str]]:
        """The tags of each row's units as the rows write theirs: in IOB2 if the labels are of another scheme."""
        standard = self.scheme.standard
        predicted = [[standard[tag] for tag in tags] for tags, _ in self.tags(scores)]
        same = any(tag[0] == "B" for tag in standard.values()) and all(tag[0] in "BIO" for tag in standard.values())
        return predicted if same or not self.scheme.entities else [to_iob2(tags) for tags in predicted]

    def evaluate(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> EvaluationResult:
        """Metrics of (T, K) scores as conlleval counts them; of parts of speech the accuracy alone.

        Raises ValueError if a row has no tags.
        """
        gold, predicted = [row.tags or () for row in self.rows], self._predicted(scores)
        scored, counts = score_tags(gold, predicted), Counter(itertools.chain.from_iterable(predicted))
        rows = zip(self.rows, predicted, strict=True)
        files: dict[str, Any] = {
            PREDICTIONS: [{"line": row.line, "gold": row.tags, "predicted": tags} for row, tags in rows]
        }
        metrics = {"loss": labelled_loss(scores.float(), self.inputs.labels), "accuracy": scored.accuracy}
        if self.scheme.entities:
            metrics |= {name: scored.entities[name] for name in ("f1", "precision", "recall")}
            files["types.json"] = scored.types
            numbers = {OUTSIDE: counts[OUTSIDE]} | {kind: int(one["found"]) for kind, one in scored.types.items()}
            is_constant = scored.entities["found"] == 0 < scored.entities["gold"]
        else:
            numbers = {name: counts[name] for name in self.task.labels}
            is_constant = len(counts) == 1 < len({tag for tags in gold for tag in tags})
        return EvaluationResult(
            metrics=metrics,
            predicted=numbers,
            majority=self.majority,
            constant_predictions=is_constant,
            settings={"characters": by_character(self.task)},
            files=files,
            details={"tag_scheme": name} if (name := self._tag_scheme()) else {},
        )


TAGGING = TaskType("tagger", TaggingObjective(), read, prepare, ("f1", "precision", "recall", "accuracy"), labels)
