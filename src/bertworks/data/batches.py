"""Batches as tensors: place the spans of an instance between special tokens, mask some tokens, pad (figure 2 of the
paper). batch.py has the keys of a batch.

Shapes: B sequences of a batch, n of them from one block group, L positions, P predictions of a sequence at most, M is
B P.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Batch
from .instances import CHUNK_ROWS, InstanceConfig, InstanceStream, Plan, StreamPosition, generator, inner_borders, runs
from .masking import MaskingConfig, RandomNumbers, UnmaskedBatch, mask, max_predictions_per_seq
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

    mask_key: tuple[int, ...]  # of the group
    plan_rows: NDArray[np.int64]  # (n,) numbers of the rows of the group's plan, on which the masks depend
    plan: Plan  # (n, 6) these rows


@dataclass(frozen=True)
class Placement:
    """Which tokens of the text n instances have, and where; the other positions hold special tokens or padding."""

    source: NDArray[np.int64]  # (n, L) offset in the shard of the token that a position holds, if it is of the text
    is_text: NDArray[np.bool_]  # (n, L) whether it is: not [CLS], [SEP] or padding
    lengths: NDArray[np.int64]  # (n,) tokens, with special ones
    segment_1: NDArray[np.int64]  # (n,) first position of segment 1; `lengths` without one


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

    def take(self, position: StreamPosition, count: int, rows: range | None = None) -> tuple[Batch, StreamPosition]:
        """The next `count` instances as one batch, and the position after them.

        With `rows`, only those rows of the batch are made: those of one process, or of one micro-batch.
        """
        (selections,), after = select(self.stream, position, count, [range(count) if rows is None else rows])
        return as_tensors(self.make(selections)), after

    def make(self, selections: list[Selection]) -> Arrays:
        """The batch of these instances; a pure function of the store, `selections` and the settings."""
        parts = [self._assemble(selection) for selection in selections]
        batch = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        if self.masking:
            labels = batch["masked_labels"]  # (B, P)
            # flat positions: those of sequence b begin at b L
            positions = batch["masked_positions"] + self.length * np.arange(len(labels))[:, None]
            batch["masked_positions"] = np.where(labels >= 0, positions, 0).reshape(-1)  # (M,)
            batch["masked_labels"] = labels.reshape(-1)
        return batch

    def _assemble(self, selection: Selection) -> Arrays:
        """The batch of these instances alone, with masked positions inside the instance, and their labels, (n, P)."""
        plan, column = selection.plan, np.arange(self.length)
        placement = self._place_pairs(plan) if self.pairs else self._place_segments(plan)
        ids, is_real = self._gather(plan, placement), column < placement.lengths[:, None]
        batch: Arrays = {
            "input_ids": ids,
            "attention_mask": is_real,
            "token_type_ids": (is_real & (column >= placement.segment_1[:, None])).astype(np.int64),
            "pair_labels": plan[:, -1],  # the last column; the first five have the spans
        }
        if self.masking:
            is_text, whole_word = placement.is_text, self.masking.whole_word
            continues = self._continues(ids, is_text) if whole_word else np.zeros_like(is_text)
            unmasked = UnmaskedBatch(ids, is_text, continues, placement.lengths)
            random = self._random_numbers(selection.mask_key, selection.plan_rows)
            masked = mask(unmasked, random, self.masking, self.vocabulary.mask_id, self.max_predictions)  # in place
            batch["masked_positions"], batch["masked_labels"] = masked
        return batch

    def _place_pairs(self, plan: Plan) -> Placement:
        """[CLS] A [SEP] B [SEP]. RoBERTa's layout has two separators before B, and no segment 1."""
        _, a_start, a_stop, b_start, b_stop, _ = plan.T[:, :, None]  # (n, 1) each
        column = np.arange(self.length)
        a_length = a_stop - a_start
        first = a_length + 1 + self.vocabulary.pair_separators  # (n, 1) position of B's first token
        last = first + b_stop - b_start  # (n, 1) position of the last [SEP]
        in_a = (column > 0) & (column <= a_length)  # (n, L)
        in_b = (column >= first) & (column < last)
        source = np.where(in_a, a_start + column - 1, b_start + column - first)
        segment_1 = first if self.vocabulary.segments else last + 1
        return Placement(source, in_a | in_b, last[:, 0] + 1, segment_1[:, 0])

    def _gather(self, plan: Plan, placement: Placement) -> NDArray[np.int64]:
        """(n, L) token ids: [CLS], the text, [SEP] at the other positions of each instance, padding."""
        v = self.vocabulary
        ids = np.where(np.arange(self.length) < placement.lengths[:, None], v.sep_id, v.pad_id)
        ids[:, 0] = v.cls_id
        for s in np.unique(shards := plan.T[0]):
            in_shard = placement.is_text & (shards[:, None] == s)
            ids[in_shard] = self.shards[s].tokens[placement.source[in_shard]]
        return ids

    def _place_segments(self, plan: Plan) -> Placement:
        """[CLS] sentences [SEP], with one more [SEP] where a document begins inside."""
        separators, column = np.zeros((len(plan), self.length), bool), np.arange(self.length)
        shards, starts, stops = plan.T[:3]  # (n,) each; there is no B
        for s in np.unique(shards):
            rows = np.flatnonzero(shards == s)
            row, before, nth = inner_borders(self.shards[s], starts[rows], stops[rows])
            separators[rows[row], 1 + before + nth] = True
        lengths = stops - starts + separators.sum(1) + 2
        inside = (column > 0) & (column < lengths[:, None] - 1)
        source = starts[:, None] + column - 1 - np.cumsum(separators, axis=1)
        return Placement(source, inside & ~separators, lengths, lengths)

    def _continues(self, ids: NDArray[np.int64], is_text: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(n, L) positions that continue the word in the position before."""
        continues = self.vocabulary.continuation[ids]
        if self.vocabulary.leading_space:
            continues[:, 1:] &= is_text[:, :-1]
        return continues

    def _random_numbers(self, mask_key: tuple[int, ...], plan_rows: NDArray[np.int64]) -> RandomNumbers:
        """The random numbers of these rows. Each generator gives those of all its rows, of which some are used."""
        parts, ngrams = [], self.masking is not None and self.masking.ngrams > 1
        for number, members in runs(plan_rows // CHUNK_ROWS):
            rng, shape = generator(*mask_key, number), (CHUNK_ROWS, self.length)
            numbers = RandomNumbers.of(rng, shape, self.vocabulary.size, ngrams)
            parts.append(numbers.rows(plan_rows[members] % CHUNK_ROWS))
        return RandomNumbers.join(parts)

    def batches(self, size: int, most: int) -> Iterator[Batch]:
        """The first `most` batches of one pass (for evaluation); the last one of each block group may be smaller."""
        counts = ((group, len(self.stream.group(group).order)) for group in range(self.stream.groups))
        ranges = ((group, start, min(size, n - start)) for group, n in counts for start in range(0, n, size))
        for group, start, count in itertools.islice(ranges, most):
            yield self.take(StreamPosition(group, start), count)[0]


# ---- the batches of one update, for several processes and micro-batches


def select(
    stream: InstanceStream, position: StreamPosition, count: int, parts: Sequence[range]
) -> tuple[list[list[Selection]], StreamPosition]:
    """The next `count` instances of the stream, divided into `parts` by their rows; and the position after them.

    Rows that are in no part are left out: those of other processes.
    """
    selected, after = stream.take(position, count)
    selections: list[list[Selection]] = [[] for _ in parts]
    start = 0  # row of the batch
    for number, plan_rows in selected:
        group = stream.group(number)
        for part, rows in zip(selections, parts, strict=True):
            inside = plan_rows[max(rows.start - start, 0) : max(rows.stop - start, 0)]
            if len(inside):
                part.append(Selection(group.mask_key, inside, group.plan[inside]))
        start += len(plan_rows)
    return selections, after


@dataclass(frozen=True)
class BatchRequest:
    """The batches of one update: of which phase, where they begin in its stream, and their rows."""

    phase: int  # index of its PretrainingData
    position: StreamPosition
    count: int  # instances of the update, over all processes
    parts: tuple[range, ...]  # rows of each micro-batch of this process


class BatchSource:
    """The batches of all phases, made when they are requested. prefetch.Prefetcher makes them ahead."""

    def __init__(self, data: Sequence[PretrainingData]):
        """data: of each phase."""
        self.data = tuple(data)

    def take(self, request: BatchRequest) -> tuple[list[Arrays], StreamPosition]:
        """The micro-batches of an update, and the position after it."""
        data = self.data[request.phase]
        selections, after = select(data.stream, request.position, request.count, request.parts)
        return [data.make(part) for part in selections], after

    def close(self) -> None:
        """Nothing to end here; a Prefetcher ends its processes."""


def as_tensors(batch: Arrays) -> Batch:
    """The same batch as tensors, which share the arrays' memory."""
    from torch import from_numpy

    return {name: from_numpy(array) for name, array in batch.items()}
