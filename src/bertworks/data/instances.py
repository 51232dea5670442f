"""Which spans of the corpus make a training instance (paper, 3.1, task 2, and A.2), and in which order they come.

Spans are those of create_pretraining_data.py of the original code. Nothing is stored: an instance is six integers,
computed from sentence offsets when it is needed. The first half of the file (`plan_document`) has the spans, the second
(`InstanceStream`) the order.

Order. A plan lists the instances of a block, about a million tokens of one shard. It is a pure function of (seed, pass,
length, block). 16 blocks in random order make a block group, whose instances are shuffled together. So a position in
the endless stream is two integers: the number of the block group, and an offset in it. Memory stays bounded whatever
the size of the corpus.

Passes. With `dupe_factor` d > 0 there are d different passes over the corpus (spans and masks), repeated after d epochs
as in the original; with 0 every epoch is a new pass (RoBERTa's dynamic masking).

Input formats (RoBERTa 4.2, table 2). A segment-pair is the paper's; a sentence-pair has two single sentences.
full-sentences and doc-sentences are one segment of as many whole sentences as fit, across documents or not. One segment
is cut the same way in every pass, and only its masks change. The offsets tell where a document begins inside it.

Negative pairs (label 1; `is_random_next` of the original code). At random half of the pairs are negative. For
next-sentence prediction B is then random; for sentence-order prediction (ALBERT 3.1) A and B are swapped. A pair from a
chunk of one sentence is always negative: nothing is left to follow A or to be swapped with it, so B is random for both,
as in the original code and ALBERT's.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED
from .store import Shard

BLOCK_TOKENS = 1_000_000  # about this many tokens in a block
GROUP_BLOCKS = 16  # blocks whose instances are shuffled together
CHUNK_ROWS = 256  # instances whose masks come from one random generator

InputFormat = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]

# (n, 6): shard, a_start, a_stop, b_start, b_stop, pair_label. For one segment, B is empty and pair_label is IGNORED.
Plan = NDArray[np.int64]


@dataclass(frozen=True)
class InstanceConfig:
    """How training instances are cut from documents."""

    short_seq_prob: float = 0.1  # fraction of documents, per epoch, that are cut into shorter segment pairs
    # number of epochs with different instances and masks, which then repeat; 0: they never repeat
    dupe_factor: int = 10
    # the paper's pairs of segments, pairs of sentences, or one segment of whole sentences
    input_format: InputFormat = "segment-pair"
    # swap the segments for negative pairs, instead of a random second segment; objective "mlm+sop" sets it
    sentence_order: bool = False

    def __post_init__(self) -> None:
        if self.input_format not in (formats := get_args(InputFormat)):
            raise ValueError(f"input_format = {self.input_format!r}; expected one of {', '.join(formats)}")

    @property
    def has_pairs(self) -> bool:
        """Whether instances are pairs, which next-sentence prediction needs."""
        return self.input_format.endswith("pair")


GROUP_ORDER, BLOCK_ORDER, SPANS, ROWS_AND_MASKS, CHUNK_ORDER = range(1, 6)  # the purposes of random generators


@dataclass(frozen=True)
class StreamPosition:
    """The position in a stream."""

    group: int = 0  # number of the block group, counted over all epochs
    offset: int = 0  # instances of the group that have been read


class BlockGroup(NamedTuple):
    """Blocks whose instances are shuffled together."""

    plan: Plan  # (n, 6)
    order: NDArray[np.int64]  # (n,) rows of the plan as they are read
    mask_key: tuple[int, ...]  # the random generators of its masks have this key and a number


def generator(*key: int) -> np.random.Generator:
    """The random generator of a key: the same key gives the same numbers everywhere."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def plan_document(
    document: int, offsets: Sequence[int], sentences: "SentenceOffsets", target: int, longest: int, rng: random.Random
) -> Iterator[tuple[int, int, int, int, bool]]:
    """The instances of one document, as spans of token offsets (a_start, a_stop, b_start, b_stop, is_negative).

    offsets: token offset of each sentence and of the document's end. target: tokens to aim at; longest: tokens at most;
    both without [CLS] and [SEP]. Calls `rng` in the order of create_instances_from_document, so that the original's
    generator, if it draws no masks, gives the original's instances (with swapped pairs, those of ALBERT's function).
    """
    n, first, i = len(offsets) - 1, 0, 0  # n sentences, of which first to i make the current chunk
    while i < n:
        is_full = offsets[i + 1] - offsets[first] >= target
        if not is_full and i + 1 < n:
            i += 1
            continue
        count = i + 1 - first  # sentences of the chunk
        in_a = rng.randint(1, count - 1) if count >= 2 else 1
        start, middle, stop = offsets[first], offsets[first + in_a], offsets[i + 1]
        a, b = [start, middle], [middle, stop]
        is_negative = count == 1 or rng.random() < 0.5
        if is_negative and sentences.swaps and count > 1:
            a, b = b, a
        elif is_negative:
            b = sentences.random_span(document, target - (a[1] - a[0]), rng)
            i -= count - in_a  # put back the sentences that B would have had
        truncate_pair(a, b, longest, rng)
        yield a[0], a[1], b[0], b[1], is_negative
        i += 1
        first = i


def plan_sentence_pairs(
    document: int, offsets: Sequence[int], sentences: "SentenceOffsets", longest: int, rng: random.Random
) -> Iterator[tuple[int, int, int, int, bool]]:
    """The instances of one document when A and B are a sentence each; arguments as in `plan_document`.

    When B is random, the sentence after A is put back. The last sentence of a document has a random B.
    """
    i = 0
    while i < len(offsets) - 1:
        a, b, used = [offsets[i], offsets[i + 1]], list(offsets[i + 1 : i + 3]), 2
        is_negative = len(b) < 2 or rng.random() < 0.5
        if is_negative and sentences.swaps and len(b) == 2:
            a, b = b, a
        elif is_negative:
            b, used = sentences.random_span(document, 1, rng), 1
        truncate_pair(a, b, longest, rng)
        yield a[0], a[1], b[0], b[1], is_negative
        i += used


def truncate_pair(a: list[int], b: list[int], longest: int, rng: random.Random) -> None:
    """Shorten the longer span, one token at a time at a random end, until both fit (truncate_seq_pair)."""
    while (a[1] - a[0]) + (b[1] - b[0]) > longest:
        span = a if a[1] - a[0] > b[1] - b[0] else b
        if rng.random() < 0.5:
            span[0] += 1
        else:
            span[1] -= 1


class SentenceOffsets:
    """Sentence and document offsets of one shard, and random second segments.

    swaps: negative pairs have their segments swapped, not a random second segment.
    """

    def __init__(self, shard: Shard, swaps: bool = False):
        self.offsets, self.documents, self.swaps = shard.sentences, shard.documents, swaps

    def of(self, document: int) -> list[int]:
        """Token offset of each sentence of `document`, and of its end."""
        offsets: list[int] = self.offsets[self.documents[document] : self.documents[document + 1] + 1].tolist()
        return offsets

    def random_span(self, document: int, target: int, rng: random.Random) -> list[int]:
        """Start and stop of consecutive sentences of another document: `target` tokens or more, if so many follow.

        As in the original it is the same document if ten draws give no other.
        """
        for _ in range(10):
            other = rng.randint(0, len(self.documents) - 2)
            if other != document:
                break
        stop = int(self.documents[other + 1])
        i = rng.randint(0, stop - int(self.documents[other]) - 1) + int(self.documents[other])
        start, i = int(self.offsets[i]), i + 1
        while i < stop and self.offsets[i] - start < target:
            i += 1
        return [start, int(self.offsets[i])]


def plan_block(
    shard: Shard, documents: range, length: int, config: InstanceConfig, key: tuple[int, ...], separators: int = 1
) -> NDArray[np.int64]:
    """(n, 5): a `Plan` without the shard, of some of its documents in their order; a pure function of the arguments.

    separators: special tokens between the two segments of a pair (RoBERTa has two).
    """
    if not config.has_pairs:
        limit = length - 2
        gap = 1 if config.input_format == "full-sentences" else limit + 1  # one [SEP]; or too much for any span
        start, stop = pack_sentences(shard, documents, limit, gap)
        return np.column_stack([start, stop, stop, stop, np.full(len(start), IGNORED)])
    rng = random.Random(int.from_bytes(np.random.SeedSequence(key).generate_state(4).tobytes(), "little"))
    sentences, longest = SentenceOffsets(shard, config.sentence_order), length - 2 - separators
    rows: list[tuple[int, int, int, int, bool]] = []
    for document in documents:
        offsets = sentences.of(document)
        if config.input_format == "sentence-pair":
            rows.extend(plan_sentence_pairs(document, offsets, sentences, longest, rng))
            continue
        # Some documents aim at short pairs, to lessen the mismatch with short inputs at fine-tuning.
        target = rng.randint(2, longest) if rng.random() < config.short_seq_prob else longest
        rows.extend(plan_document(document, offsets, sentences, target, longest, rng))
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


# ---- the order of instances


class InstanceStream:
    """The endless, shuffled stream of instances of some shards at one sequence length.

    A block group has a number, counted over all epochs (`StreamPosition.group`), and a place in its pass. Example: 40
    blocks are 3 groups per epoch; with `dupe_factor` 10, group 31 is the second one of epoch 10, which is pass 0 again.
    `group(number)` is a BlockGroup; the last two are kept in memory.
    """

    def __init__(self, shards: Sequence[Shard], length: int, config: InstanceConfig, seed: int, separators: int = 1):
        self.separators = separators
        self.shards, self.length, self.config, self.seed = list(shards), length, config, seed
        self.blocks = [(s, block) for s, shard in enumerate(shards) for block in _blocks(shard)]
        self.groups = -(-len(self.blocks) // GROUP_BLOCKS)  # block groups in an epoch
        self.group = lru_cache(maxsize=2)(self._make_group)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process makes its own: plans are not sent, and the cache of a method cannot be.
        return InstanceStream, (self.shards, self.length, self.config, self.seed, self.separators)

    def pass_of(self, number: int) -> int:
        """The number of the pass, which decides spans and masks, that block group `number` belongs to."""
        epoch = number // self.groups
        return epoch % self.config.dupe_factor if self.config.dupe_factor else epoch

    def blocks_of(self, number: int) -> list[tuple[int, int]]:
        """The pass and the index of each block of block group `number`: what `plan` takes."""
        pass_number = self.pass_of(number)
        order = generator(self.seed, BLOCK_ORDER, pass_number).permutation(len(self.blocks))
        first = self._place(number) * GROUP_BLOCKS
        return [(pass_number, int(index)) for index in order[first : first + GROUP_BLOCKS]]

    def plan(self, pass_number: int, index: int) -> Plan:
        """The instances (n, 6) of one block in pass `pass_number`."""
        shard, documents = self.blocks[index]
        key = (self.seed, SPANS, pass_number, self.length, index)
        plan = plan_block(self.shards[shard], documents, self.length, self.config, key, self.separators)
        return np.column_stack([np.full(len(plan), shard), plan])

    def plans(self, number: int) -> list[Plan]:
        """The plans of the blocks of block group `number`."""
        return [self.plan(*block) for block in self.blocks_of(number)]

    def _place(self, number: int) -> int:
        """The place in its pass of block group `number`: another order in each epoch."""
        epoch, nth = divmod(number, self.groups)
        return int(generator(self.seed, GROUP_ORDER, epoch).permutation(self.groups)[nth])

    def _make_group(self, number: int) -> BlockGroup:
        """Block group `number`: instances in a random order that is the same in every epoch of a pass.

        Chunks of CHUNK_ROWS rows share a random generator of masks, so they stay together; each epoch shuffles them.
        """
        epoch, place = number // self.groups, self._place(number)
        plan = np.concatenate([np.empty((0, 6), np.int64), *self.plans(number)])
        key = (self.seed, ROWS_AND_MASKS, self.pass_of(number), self.length, place)
        plan = plan[generator(*key).permutation(len(plan))]
        chunks = np.array_split(np.arange(len(plan)), range(CHUNK_ROWS, len(plan), CHUNK_ROWS))
        shuffled = generator(self.seed, CHUNK_ORDER, epoch, place).permutation(len(chunks))
        return BlockGroup(plan, np.concatenate([chunks[chunk] for chunk in shuffled]), key)

    def take(self, position: StreamPosition, count: int) -> tuple[list[tuple[int, NDArray[np.int64]]], StreamPosition]:
        """The next `count` instances as [(number of a block group, rows of its plan)], and the position after them."""
        selected: list[tuple[int, NDArray[np.int64]]] = []
        empty = 0
        while count:
            order = self.group(position.group).order
            rows = order[position.offset : position.offset + count]
            if len(rows):
                selected.append((position.group, rows))
                count -= len(rows)
            empty = 0 if len(rows) else empty + 1
            if empty > self.groups:
                raise ValueError("no training instance can be made from this corpus")
            group, offset = position.group, position.offset + len(rows)
            position = StreamPosition(group + 1) if offset >= len(order) else StreamPosition(group, offset)
        return selected, position


def _blocks(shard: Shard) -> list[range]:
    """The blocks of a shard: consecutive documents of about BLOCK_TOKENS; a longer document ends its block."""
    starts = shard.sentences[shard.documents[:-1]] // BLOCK_TOKENS
    return [range(run.start, run.stop) for _, run in runs(starts)]


def runs(values: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Runs of equal neighbours: the value, and the slice that holds it. Values are not negative."""
    edges = np.flatnonzero(np.diff(values, prepend=-1))
    for start, stop in zip(edges, [*edges, len(values)][1:], strict=True):
        yield int(values[start]), slice(start, stop)


# ---- one segment of whole sentences (RoBERTa)


def pack_sentences(shard: Shard, documents: range, limit: int, gap: int) -> tuple[NDArray[np.int64], ...]:
    """Starts and stops of spans that hold as many whole sentences as fit in `limit` tokens; every token is in one span.

    gap: tokens that the border of two documents takes; if it is more than `limit`, no span crosses one. A sentence
    longer than `limit` counts as several. Example: sentences of 4, 3 and 5 tokens, the last one of the next document,
    are two spans of 7 and 5 tokens with limit 10, and one of 12 (and a gap of 1) with limit 13.
    """
    edges = shard.documents[[documents.start, documents.stop]]
    offsets = shard.sentences[edges[0] : edges[1] + 1]
    sentence, nth = expand_counts(-(-np.diff(offsets) // limit))
    starts = offsets[sentence] + limit * nth
    stops = np.minimum(starts + limit, offsets[sentence + 1])
    # With `gap` added for every border before it, the size of a span is the difference of two numbers.
    borders = gap * np.searchsorted(shard.documents[documents.start + 1 : documents.stop], edges[0] + sentence, "right")
    following = np.searchsorted(stops + borders, starts + borders + limit, "right").tolist()
    firsts, i = [], 0
    while i < len(following):
        firsts.append(i)
        i = following[i]
    first = np.array(firsts, np.int64)
    return starts[first], stops[np.append(first, len(starts))[1:] - 1]


def inner_borders(shard: Shard, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Where documents begin inside spans of tokens (borders at a span's ends do not count).

    Returns for each border: the row of its span, the span's tokens before it, and the span's borders before it.
    """
    first = np.searchsorted(shard.documents, np.searchsorted(shard.sentences, starts, "right"))
    end = np.searchsorted(shard.documents, np.searchsorted(shard.sentences, stops))
    row, nth = expand_counts(end - first)
    return row, shard.sentences[shard.documents[first[row] + nth]] - starts[row], nth


def expand_counts(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each index repeated `counts` times, and the number of the repetition: [2, 0, 1] gives [0, 0, 2] and [0, 1, 0]."""
    index = np.repeat(np.arange(len(counts)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
