"""Examples as the encoder takes them, batches of them, and a classifier's scores for all of them.

Featurising is run_classifier.py's: [CLS] A [SEP] or [CLS] A [SEP] B [SEP], the longer text cut from its end; a second
text without a single word piece counts as none. What was cut is counted.

Shapes: N examples, B sequences of a batch, L its longest, K labels.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..files import InputError
from ..model.heads import Model
from ..objectives import IGNORED, Batch
from ..tokenizer import Encoding, Tokenizer
from ..training.parallel import World
from .base import Example

CHUNK = 4096  # examples tokenized at a time
STEP = (
    16  # L is a multiple of this: on a CPU a product of a new shape costs more to prepare than some padding to compute
)
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Inputs:
    """N examples end to end in flat arrays: no padding is stored."""

    ids: NDArray[np.int32]  # the tokens of all examples
    edges: Rows  # (N + 1,) where each example begins and ends in `ids`
    first: Rows  # (N,) tokens of segment 0
    labels: Rows  # (N,) class numbers; -100 = none
    cut: Rows  # (N,) tokens that did not fit
    pad_id: int
    limit: int  # max_seq_length

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> Rows:
        """(N,) tokens of each example."""
        return np.diff(self.edges)

    def padded_length(self, rows: Rows) -> int:
        """L of a batch of these examples: the longest, rounded up to STEP or the limit."""
        return min(-(-int(self.lengths[rows].max()) // STEP) * STEP, self.limit)

    def batch(self, rows: Rows, length: int = 0) -> Batch:
        """The examples `rows`, padded to `length` or as short as they may be (keys: data/batches.py)."""
        lengths = self.lengths[rows]
        column = np.arange(length or self.padded_length(rows))
        real = column < lengths[:, None]  # (B, L)
        ids = np.full(real.shape, self.pad_id, np.int64)
        ids[real] = self.ids[(self.edges[rows, None] + column)[real]]
        types = (real & (column >= self.first[rows, None])).astype(np.int64)
        arrays = {"input_ids": ids, "attention_mask": real, "token_type_ids": types, "labels": self.labels[rows]}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def by_length(self, size: int) -> Iterator[Rows]:
        """All examples in batches of `size` of similar lengths, longest first (memory runs out at once or never)."""
        order = np.argsort(-self.lengths, kind="stable")
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def truncation(self) -> dict[str, int]:
        """How many examples were cut, and by how many tokens in all."""
        return {"examples": int((self.cut > 0).sum()), "tokens": int(self.cut.sum())}

    def fingerprint(self) -> str:
        """A hash of everything a model can see of these examples."""
        hashed = hashlib.blake2b(digest_size=16)
        for array in (self.ids, self.edges, self.first, self.labels):
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()


def featurise(tokenizer: Tokenizer, examples: Sequence[Example], labels: Sequence[str], max_seq_length: int) -> Inputs:
    """Examples as arrays; their labels become places in `labels`. Raises InputError for a label that is not there."""
    numbers: dict[str | None, int] = {label: i for i, label in enumerate(labels)} | {None: IGNORED}
    unknown = next((example for example in examples if example.label not in numbers), None)
    if unknown:
        raise InputError(f"line {unknown.line}: label {unknown.label!r}; expected one of {', '.join(labels)}")
    ids, lengths, first, cut = [np.empty(0, np.int32)], [], [], []
    for start in range(0, len(examples), CHUNK):
        encodings = _encode(tokenizer, examples[start : start + CHUNK], max_seq_length)
        ids.append(np.array([i for encoding in encodings for i in encoding.ids], np.int32))
        lengths += [len(encoding.ids) for encoding in encodings]
        first += [encoding.type_ids.count(0) for encoding in encodings]
        cut += [encoding.n_cut for encoding in encodings]
    return Inputs(
        ids=np.concatenate(ids),
        edges=np.cumsum([0, *lengths]),
        first=np.array(first, np.int64),
        labels=np.array([numbers[example.label] for example in examples], np.int64),
        cut=np.array(cut, np.int64),
        pad_id=tokenizer.pad_id,
        limit=max_seq_length,
    )


def _encode(tokenizer: Tokenizer, examples: Sequence[Example], max_seq_length: int) -> list[Encoding]:
    """Single texts and pairs; a pair whose second text has no pieces becomes a single text."""
    texts, pairs = [example.text for example in examples], [example.pair or "" for example in examples]
    if not any(pairs):
        return tokenizer.encode_batch(texts, max_length=max_seq_length)
    encodings = tokenizer.encode_batch(texts, pairs, max_length=max_seq_length)
    single = [i for i, encoding in enumerate(encodings) if encoding.type_ids.count(1) == 1]
    for i, encoding in zip(
        single, tokenizer.encode_batch([texts[i] for i in single], None, max_seq_length), strict=True
    ):
        if not tokenizer.tokenize(pairs[i]):
            encodings[i] = encoding
    return encodings


@torch.no_grad()
def classifier_scores(model: Model, inputs: Inputs, world: World, size: int = 64) -> Tensor:
    """(N, K) float32 scores before the softmax, on the CPU. The processes of `world` divide the batches among them."""
    was_training, head = model.training, model.heads["classifier"]
    model.eval()
    scores = torch.zeros(len(inputs), head.out_features, device=world.device)  # type: ignore[call-overload]
    for i, rows in enumerate(inputs.by_length(size)):
        if i % world.size == world.rank:
            batch = {name: value.to(world.device) for name, value in inputs.batch(rows).items()}
            out = model.encoder(
                batch["input_ids"], batch["attention_mask"], batch["token_type_ids"], hidden_states=False
            )
            scores[torch.from_numpy(rows).to(world.device)] = head(out.pooled).float()
    model.train(was_training)
    return world.sum(scores).cpu()


class Order:
    """Which examples each update reads: a pure function of (seed, update).

    Every epoch has its own permutation; the batches are cut from their concatenation, so none is smaller. Inside an
    epoch `window` batches at a time are put in order of length, then drawn in random order: little padding is left.
    """

    def __init__(self, lengths: Rows, batch_size: int, updates: int, seed: int, window: int):
        self.lengths, self.batch_size, self.updates = lengths, batch_size, updates
        self.seed, self.window = seed, max(1, window)
        self._epochs: dict[int, Rows] = {}  # the two last used

    def rows(self, update: int) -> Rows:
        """(batch_size,) examples of this update."""
        N, size = len(self.lengths), self.batch_size
        epoch = update * size // N
        begin, end = -(-epoch * N // size), min((epoch + 1) * N // size, self.updates)  # updates within the epoch
        if not begin <= update < end:  # this one takes the rest of an epoch and the beginning of the next
            return self._stream(update * size, (update + 1) * size)
        begin += (update - begin) // self.window * self.window
        end = min(begin + self.window, end)
        rows = self._stream(begin * size, end * size)
        rows = rows[np.argsort(self.lengths[rows], kind="stable")].reshape(-1, size)
        drawn: Rows = rows[np.random.default_rng((self.seed, 1, begin)).permutation(len(rows))[update - begin]]
        return drawn

    def _stream(self, start: int, stop: int) -> Rows:
        """Examples `start` to `stop` of all epochs' permutations, one after the other."""
        N = len(self.lengths)
        ends = [start, *range((start // N + 1) * N, stop, N), stop]
        return np.concatenate([self._epoch(a // N)[a % N : a % N + b - a] for a, b in pairwise(ends)])

    def _epoch(self, epoch: int) -> Rows:
        if epoch not in self._epochs:
            self._epochs = {e: rows for e, rows in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = np.random.default_rng((self.seed, 0, epoch)).permutation(len(self.lengths))
        return self._epochs[epoch]
