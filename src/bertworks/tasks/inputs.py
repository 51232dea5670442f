"""Examples as a model takes them: flat arrays, padded batches, the order in which a run reads them, and their scores.

Shapes: N examples, C sequences an example (more than one for a multiple choice only), S = N * C sequences, T tokens of
all sequences, B sequences of a batch, L tokens of its longest sequence, K labels.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED, Batch
from ..model.acceleration import for_inference
from ..model.heads import TOKEN_HEADS, Model
from ..tokenizer import Tokenizer
from ..training.distributed import World
from .sequences import Frames, Integers, TokenIds, edges_of, ranges

# L is a multiple of this: on a CPU a product of a new shape costs more to prepare than some padding to compute
STEP = 16
ALONE, SHORT = 8, 64  # one sequence of up to 64 tokens is padded to a multiple of 8, because its products are small


@dataclass(frozen=True)
class Inputs:
    """N examples, whose S sequences lie end to end in flat arrays: no padding is stored."""

    ids: TokenIds  # (T,) the tokens of all sequences
    edges: Integers  # (S + 1,) where each sequence begins and ends in `ids`
    first: Integers  # (S,) tokens of segment 0
    labels: NDArray[Any]  # (N,) classes, -100 = none, or float32 values; (N, K) float32; (N, 2) offsets; (T,) tags
    cut: Integers  # (N,) tokens that did not fit
    pad_id: int
    limit: int  # max_seq_length
    choices: int = 1  # C
    token_labels: bool = False  # whether labels are (T,), one per token

    @classmethod
    def unlabelled(
        cls, frames: Frames, tokenizer: "Tokenizer | int", limit: int, cut: Integers | None = None
    ) -> "Inputs":
        """Sequences to compute scores or vectors of. tokenizer: or the id of [PAD]. cut (S,): none if left out."""
        pad_id = tokenizer if isinstance(tokenizer, int) else tokenizer.pad_id
        nothing = np.full(len(frames.first), IGNORED)
        return cls(*frames, nothing, np.zeros_like(nothing) if cut is None else cut, pad_id, limit)

    @classmethod
    def from_ids(
        cls, rows: Sequence[Sequence[int]], tokenizer: Tokenizer, limit: int, cut: Integers | None = None
    ) -> "Inputs":
        """Sequences of token ids as they are, with their special tokens; all are of segment 0."""
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = np.fromiter(chain.from_iterable(rows), np.int32)
        return cls.unlabelled(Frames(ids, edges_of(lengths), lengths), tokenizer, limit, cut)

    @classmethod
    def concat(cls, parts: Sequence["Inputs"]) -> "Inputs":
        """The sequences of several inputs of one model, so that one pass over it scores them all.

        Labels are left out, and every sequence is an example.
        """
        edges = edges_of(np.concatenate([np.diff(part.edges) for part in parts]))
        ids, first = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "first"))
        return cls.unlabelled(Frames(ids, edges, first), parts[0].pad_id, max(part.limit for part in parts))

    def part(self, start: int, stop: int) -> "Inputs":
        """The sequences from `start` to before `stop`, each an example, without labels."""
        edges = self.edges[start : stop + 1]
        frames = Frames(self.ids[edges[0] : edges[-1]], edges - edges[0], self.first[start:stop])
        return Inputs.unlabelled(frames, self.pad_id, self.limit)

    def __len__(self) -> int:
        """N."""
        return (len(self.edges) - 1) // self.choices

    @property
    def lengths(self) -> Integers:
        """(N,) tokens of each example's longest sequence."""
        longest: Integers = np.diff(self.edges).reshape(-1, self.choices).max(1)
        return longest

    def padded_length(self, rows: Integers) -> int:
        """L of a batch of these examples: the longest, rounded up to STEP (one short sequence: ALONE) or the limit."""
        longest = int(self.lengths[rows].max())
        step = ALONE if len(rows) * self.choices == 1 and longest <= SHORT else STEP
        return min(-(-longest // step) * step, self.limit)

    def batch(self, rows: Integers, length: int = 0) -> Batch:
        """The examples `rows`, padded to `length` or as short as they may be (keys: batch.py).

        B = len(rows) * C. labels: as in `labels`, but (B, L) with -100 on padding if there is one a token.
        """
        column = np.arange(length or self.padded_length(rows))
        sequences = self.sequences(rows)
        lengths = np.diff(self.edges)[sequences]
        real = column < lengths[:, None]  # (B, L)
        tokens = (self.edges[sequences, None] + column)[real]
        ids = np.full(real.shape, self.pad_id, np.int64)
        ids[real] = self.ids[tokens]
        types = (real & (column >= self.first[sequences, None])).astype(np.int64)
        if self.token_labels:
            labels = np.full(real.shape, IGNORED, np.int64)
            labels[real] = self.labels[tokens]
        else:
            labels = self.labels[rows]
        arrays = {"input_ids": ids, "attention_mask": real, "token_type_ids": types, "labels": labels}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    @property
    def whole(self) -> bool:
        """Whether every example has a label; a span's may be unknown, and is then not learned."""
        if self.token_labels or (self.labels.ndim == 2 and self.labels.dtype == np.int64):
            return bool((self.labels != IGNORED).any())
        return bool(np.isfinite(self.labels).all() and not (self.labels == IGNORED).any())

    def sequences(self, rows: Integers) -> Integers:
        """The sequences of these examples."""
        numbers: Integers = (rows[:, None] * self.choices + np.arange(self.choices)).ravel()
        return numbers

    def tokens(self, rows: Integers) -> Integers:
        """The indices in `ids` of all tokens of these examples, one after the other."""
        sequences = self.sequences(rows)
        return ranges(self.edges[sequences], np.diff(self.edges)[sequences])

    def by_length(self, size: int = 0, tokens: int = 0) -> Iterator[Integers]:
        """All examples in batches of similar lengths, longest first: memory runs out at once or never.

        A batch has `size` examples, or with size = 0 about `tokens` tokens, padding included.
        """
        order = np.argsort(-self.lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = self.padded_length(order[start : start + 2])  # two, because one alone would be padded less
            count = size or max(1, tokens // (longest * self.choices))
            yield order[start : start + count]
            start += count

    def truncation(self) -> dict[str, int]:
        """How many examples were cut, and by how many tokens in all."""
        return {"examples": int((self.cut > 0).sum()), "tokens": int(self.cut.sum())}

    def fingerprint(self) -> str:
        """A hash of everything a model can see of these examples."""
        hashed = hashlib.blake2b(digest_size=16)
        for array in (self.ids, self.edges, self.first, self.labels):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()


class Order:
    """Which examples each update reads: a pure function of (seed, update).

    Every epoch has its own permutation; the batches are cut from their concatenation, so none is smaller. Inside an
    epoch `group` batches at a time are sorted by length, then drawn in random order: little padding is left.
    """

    def __init__(self, lengths: Integers, batch_size: int, updates: int, seed: int, group: int):
        self.lengths, self.batch_size, self.updates = lengths, batch_size, updates
        self.seed, self.group = seed, max(1, group)
        self._epochs: dict[int, Integers] = {}  # the two last used

    def rows(self, update: int) -> Integers:
        """(batch_size,) examples of this update."""
        N, size = len(self.lengths), self.batch_size
        epoch = update * size // N
        begin, end = -(-epoch * N // size), min((epoch + 1) * N // size, self.updates)  # updates within the epoch
        if not begin <= update < end:  # this one takes the rest of an epoch and the beginning of the next
            return self._stream(update * size, (update + 1) * size)
        begin += (update - begin) // self.group * self.group
        end = min(begin + self.group, end)
        rows = self._stream(begin * size, end * size)
        rows = rows[np.argsort(self.lengths[rows], kind="stable")].reshape(-1, size)
        drawn: Integers = rows[np.random.default_rng((self.seed, 1, begin)).permutation(len(rows))[update - begin]]
        return drawn

    def _stream(self, start: int, stop: int) -> Integers:
        """Examples `start` to `stop` of all epochs' permutations, one after the other."""
        N = len(self.lengths)
        ends = [start, *range((start // N + 1) * N, stop, N), stop]
        return np.concatenate([self._epoch(a // N)[a % N : a % N + b - a] for a, b in pairwise(ends)])

    def _epoch(self, epoch: int) -> Integers:
        if epoch not in self._epochs:
            self._epochs = {e: rows for e, rows in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.lengths))
        return self._epochs[epoch]


def labelled_loss(scores: Tensor, labels: NDArray[Any]) -> float:
    """Mean training loss of (N, K) scores by the form of the labels, as ClassificationObjective has them."""
    true = torch.from_numpy(labels)
    if true.ndim == 2:
        return float(F.binary_cross_entropy_with_logits(scores, true))
    if true.is_floating_point():
        return float(F.mse_loss(scores.squeeze(-1), true))
    return float(F.cross_entropy(scores, true, ignore_index=IGNORED))


def batch_scores(network: Model, batch: Batch, head: str) -> Tensor:
    """Scores of a head for a batch, before any softmax: (B, K), of a token head (B, L, K)."""
    module = network.heads[head]
    if head not in TOKEN_HEADS:
        return module(network.pool(batch))  # type: ignore[no-any-return]
    out = network.encode(batch)
    return out.layout.restore(module(out))


def batch_vectors(network: Model, batch: Batch, head: str = "") -> Tensor:
    """(B, D), the mean over each sequence's tokens in the last layer."""
    out = network.encode(batch)
    return out.layout.mean(out.packed.float())


@torch.no_grad()
def compute_scores(
    model: Model,
    inputs: Inputs,
    world: World,
    size: int = 64,
    head_name: str = "",
    score: Callable[[Batch, str], Tensor] | None = None,
) -> Tensor:
    """Scores before any softmax, float32, on the CPU: (S, K), of a token head (T, K) in the order of `inputs.ids`.

    Of a model without a supervised head these are vectors, (S, D): the means over the last layer's tokens.

    The processes of `world` divide the batches among them. size: examples a batch. head_name: whose scores; the
    supervised head's if left out. score: computes a head's (B, K) or (B, L, K) scores in place of the model.
    """
    was_training = model.training
    name = head_name or model.supervised_head or ""
    compute = batch_scores if name else batch_vectors
    by_token, score = name in TOKEN_HEADS, score or functools.partial(compute, for_inference(model))
    outputs: int = model.heads[name].out_features if name else model.config.hidden_size  # type: ignore[assignment]
    scores = torch.zeros(len(inputs.ids) if by_token else len(inputs.edges) - 1, outputs, device=world.device)
    for i, rows in enumerate(inputs.by_length(size)):
        if i % world.size == world.rank:
            batch = {name: value.to(world.device) for name, value in inputs.batch(rows).items()}
            values = score(batch, name)
            if by_token:
                values, indices = values[batch["attention_mask"]], inputs.tokens(rows)
            else:
                indices = inputs.sequences(rows)
            scores[torch.from_numpy(indices).to(world.device)] = values.float()
    model.train(was_training)
    return world.sum(scores).cpu()
