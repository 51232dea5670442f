"""Batches as tensors: gather the spans, pair them, mask them, pad them.

The keys of a batch, their shapes and their meaning: batch.py. Shapes: B sequences, L positions, M masked slots.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Batch
from .instances import GENERATOR_ROWS, InstanceConfig, InstanceStream, Plan, Position, generator, inner_borders
from .masking import MaskingConfig, RandomNumbers, Rectangle, mask, max_predictions_per_seq
from .store import Store

if TYPE_CHECKING:  # the reading core needs the ids alone
    from ..tokenizer import Tokenizer

Arrays = dict[str, NDArray[Any]]  # a batch before it becomes tensors


@dataclass(frozen=True)
class Vocabulary:
    """The ids and rules of the tokenizer that are needed to make batches."""

    size: int
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int
    continuation: NDArray[np.bool_]  # (V,) subwords that continue a word
    pair_separators: int = 1  # [SEP] between two segments: one for BERT, two for RoBERTa
    segments: bool = True  # whether the second one has type id 1
    leading_space: bool = False  # the first word of a document has no mark that a word begins there

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Vocabulary":
        t, layout = tokenizer, tokenizer.layout
        ids = (t.cls_id, t.sep_id, t.mask_id, t.pad_id)
        return cls(t.vocab_size, *ids, t.continuation, layout.pair_separators, layout.segments, t.leading_space)


@dataclass(frozen=True)
class Selection:
    """Some instances of one block group: all that is needed to make them, without the plan of the group."""

    key: tuple[int, ...]  # of the group's masks
    numbers: NDArray[np.int64]  # (n,) rows of the group's plan, on which the masks depend
    plan: Plan  # (n, 6) these rows


class PretrainingData:
    """Masked pairs or segments from one split of a store, at one sequence length."""

    def __init__(
        self,
        store: Store,
        split: str,
        vocabulary: Vocabulary,
        length: int,
        instances: InstanceConfig,
        masking: MaskingConfig | None,  # None: nothing is masked, for language models that predict every token
        seed: int,
    ):
        self.vocabulary, self.length, self.masking = vocabulary, length, masking
        self.pairs, self.shards = instances.has_pairs, store.shards(split)
        self.stream = InstanceStream(self.shards, length, instances, seed, vocabulary.pair_separators)
        self.max_predictions = max_predictions_per_seq(length, masking) if masking else 0

    def take(self, position: Position, count: int, rows: range | None = None) -> tuple[Batch, Position]:
        """The next `count` instances as one batch, and the position after them.

        With `rows`, only those rows of the batch are made: those of one process, or of one micro-batch.
        """
        (selections,), after = select(self.stream, position, count, [range(count) if rows is None else rows])
        return as_tensors(self.make(selections)), after

    def make(self, selections: list[Selection]) -> Arrays:
        """The batch of these instances; a pure function of the store, `selections` and the settings."""
        parts = [self._assemble(selection) for selection in selections]
        ids, lengths, a_stops, pairs, *masks = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        column = np.arange(self.length)
        batch = {
            "input_ids": ids,
            "attention_mask": column < lengths[:, None],
            "token_type_ids": ((column >= a_stops[:, None]) & (column < lengths[:, None])).astype(np.int64),
            "pair_labels": pairs,
        }
        if masks:
            positions, labels = masks
            indices = positions + self.length * np.arange(len(ids))[:, None]
            batch["masked_positions"] = np.where(labels >= 0, indices, 0).reshape(-1)
            batch["masked_labels"] = labels.reshape(-1)
        return batch

    def _assemble(self, selection: Selection) -> list[NDArray[Any]]:
        """Ids, lengths, first position of segment 1, pair labels of instances; then masked positions and labels."""
        ids, candidates, lengths, a_stops = self._gather(selection.plan)
        arrays = [ids, lengths, a_stops, selection.plan[:, 5]]
        if self.masking:
            random = self._random_numbers(selection.key, selection.numbers)
            continues = self._continues(ids, candidates) if self.masking.whole_word else candidates
            rectangle = Rectangle(ids, candidates, continues, lengths)
            arrays += mask(rectangle, random, self.masking, self.vocabulary.mask_id, self.max_predictions)
        return arrays

    def _continues(self, ids: NDArray[np.int64], candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which positions continue the word in the position before."""
        continues = self.vocabulary.continuation[ids]
        if self.vocabulary.leading_space:
            continues[:, 1:] &= candidates[:, :-1]
        return continues

    def _random_numbers(self, key: tuple[int, ...], rows: NDArray[np.int64]) -> RandomNumbers:
        """The random numbers of these rows. Each generator gives those of all its rows, of which some are used."""
        parts, spans = [], self.masking is not None and self.masking.ngrams > 1
        for number, members in _runs(rows // GENERATOR_ROWS):
            rng, shape = generator(*key, number), (GENERATOR_ROWS, self.length)
            numbers = RandomNumbers.of(rng, shape, self.vocabulary.size, spans)
            parts.append(numbers.rows(rows[members] % GENERATOR_ROWS))
        return RandomNumbers.join(parts)

    def _gather(self, plan: Plan) -> tuple[NDArray[Any], ...]:
        """Ids of each row, the positions with tokens of the text, lengths, and first positions of segment 1."""
        source, candidates, lengths, a_stops = self._pairs(plan) if self.pairs else self._segments(plan)
        v = self.vocabulary
        ids = np.where(np.arange(self.length) < lengths[:, None], v.sep_id, v.pad_id)  # [SEP] wherever no text token is
        ids[:, 0] = v.cls_id
        for s in np.unique(plan[:, 0]):
            positions = candidates & (plan[:, :1] == s)
            ids[positions] = self.shards[s].tokens[source[positions]]
        return ids, candidates, lengths, a_stops

    def _pairs(self, plan: Plan) -> tuple[NDArray[Any], ...]:
        """[CLS] A [SEP] B [SEP]: which token of the shard each position holds; the rest as in `_gather`.

        RoBERTa's layout has two separators before B, and no segment 1.
        """
        a_start, a_stop, b_start, b_stop = (plan[:, i, None] for i in range(1, 5))
        column = np.arange(self.length)
        a_length = a_stop - a_start
        first = a_length + 1 + self.vocabulary.pair_separators  # position of B's first token
        last = first + b_stop - b_start  # position of the last [SEP]
        in_a = (column > 0) & (column <= a_length)
        in_b = (column >= first) & (column < last)
        source = np.where(in_a, a_start + column - 1, b_start + column - first)
        segments = first if self.vocabulary.segments else last + 1
        return source, in_a | in_b, last[:, 0] + 1, segments[:, 0]

    def _segments(self, plan: Plan) -> tuple[NDArray[Any], ...]:
        """[CLS] sentences [SEP], with one more [SEP] where a document begins inside; returns what `_pairs` does."""
        separators = np.zeros((len(plan), self.length), bool)
        for s in np.unique(plan[:, 0]):
            rows = np.flatnonzero(plan[:, 0] == s)
            row, before, nth = inner_borders(self.shards[s], plan[rows, 1], plan[rows, 2])
            separators[rows[row], 1 + before + nth] = True
        column = np.arange(self.length)
        lengths = plan[:, 2] - plan[:, 1] + separators.sum(1) + 2
        inside = (column > 0) & (column < lengths[:, None] - 1)
        source = plan[:, 1, None] + column - 1 - np.cumsum(separators, axis=1)
        return source, inside & ~separators, lengths, lengths

    def batches(self, size: int, most: int) -> Iterator[Batch]:
        """The first `most` batches of one pass (for evaluation); the last may be smaller."""
        position, count = Position(), 0
        while position.group < self.stream.groups and count < most:
            total = len(self.stream.group(position.group)[1])
            if total:
                batch, position = self.take(position, min(size, total - position.offset))
                yield batch
                count += 1
            else:
                position = Position(position.group + 1)


def select(
    stream: InstanceStream, position: Position, count: int, parts: Sequence[range]
) -> tuple[list[list[Selection]], Position]:
    """The next `count` instances of the stream, divided into `parts` by their rows; and the position after them.

    Rows that are in no part are left out: those of other processes.
    """
    instances, after = stream.take(position, count)
    selections: list[list[Selection]] = [[] for _ in parts]
    start = 0
    for group, numbers in instances:
        plan, _, key = stream.group(group)
        for part, rows in zip(selections, parts, strict=True):
            inside = numbers[max(rows.start - start, 0) : max(rows.stop - start, 0)]
            if len(inside):
                part.append(Selection(key, inside, plan[inside]))
        start += len(numbers)
    return selections, after


@dataclass(frozen=True)
class BatchRequest:
    """The batches of one update: their stream, where they begin in it, and their rows."""

    stream: int
    position: Position
    count: int  # instances of the update, over all processes
    parts: tuple[range, ...]  # rows of each micro-batch of this process


class BatchSource:
    """The batches of some streams, made when they are requested. prefetch.Prefetcher makes them ahead."""

    def __init__(self, data: Sequence[PretrainingData]):
        self.data = tuple(data)

    def take(self, request: BatchRequest) -> tuple[list[Arrays], Position]:
        """The micro-batches of an update, and the position after it."""
        data = self.data[request.stream]
        selections, after = select(data.stream, request.position, request.count, request.parts)
        return [data.make(part) for part in selections], after

    def close(self) -> None:
        """End the processes that make batches."""


def as_tensors(batch: Arrays) -> Batch:
    """The same batch as tensors, which share the arrays' memory."""
    from torch import from_numpy

    return {name: from_numpy(array) for name, array in batch.items()}


def _runs(values: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Runs of equal neighbours: the value, and the slice that holds it."""
    edges = np.flatnonzero(np.diff(values, prepend=-1))
    for start, stop in zip(edges, [*edges[1:], len(values)], strict=True):
        yield int(values[start]), slice(start, stop)
