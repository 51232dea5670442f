"""How texts become the sequences that a model reads: flat arrays, framing, overlapping windows.

Many sequences lie end to end in one flat array, without padding; `edges` says where each begins and ends. A frame is
[CLS] A [SEP], of a pair [CLS] A [SEP] B [SEP]; RoBERTa's layout has two [SEP] between A and B. A text that is too long
for one sequence is read through windows, which overlap. Of a token that several windows show, the window counts in
which it has most context.

Shapes: N texts, P tokens of all texts, S sequences, T tokens of all sequences with their special tokens, W windows, A
tokens that all windows show, K values of a window.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tokenizer import Tokenizer, compose, cut_lengths, normalize

CHUNK = 4096  # texts that are tokenized at a time; Python's lists of ids take ten times the memory of the array
Integers = NDArray[np.int64]
TokenIds = NDArray[np.int32]


# ---- flat arrays


def edges_of(lengths: Sequence[int] | Integers) -> Integers:
    """(N + 1,) where items of these lengths begin and end if they lie end to end."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranges(starts: Integers, lengths: Integers) -> Integers:
    """start, start + 1, ... of each range, one range after the other."""
    edges = edges_of(lengths)
    return np.arange(edges[-1]) + np.repeat(starts - edges[:-1], lengths)


class Spans(NamedTuple):
    """A span of a flat array of tokens for each of S sequences."""

    tokens: TokenIds  # (P,) of all texts, end to end
    start: Integers  # (S,)
    length: Integers  # (S,)

    def of(self, rows: Integers) -> "Spans":
        """The spans of some sequences, which may be repeated."""
        return Spans(self.tokens, self.start[rows], self.length[rows])

    def ids(self) -> TokenIds:
        """The tokens of all spans, one span after the other."""
        return self.tokens[ranges(self.start, self.length)]


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> Spans:
    """The tokens of each text, which is composed (NFC) first; no special tokens. A span is a whole text."""
    ids, lengths = [np.empty(0, np.int32)], list[int]()
    for first in range(0, len(texts), CHUNK):
        rows = tokenizer.ids_of([normalize("NFC", text) for text in texts[first : first + CHUNK]])
        ids.append(np.fromiter(itertools.chain.from_iterable(rows), np.int32))
        lengths += map(len, rows)
    edges = edges_of(lengths)
    return Spans(np.concatenate(ids), edges[:-1], np.diff(edges))


class Tokens(NamedTuple):
    """The tokens of texts, end to end, and where they are in the texts."""

    ids: TokenIds  # (P,)
    offsets: Integers  # (P, 2) characters of all texts, joined by one character
    counts: Integers  # (N,)


def tokenize_with_offsets(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokens:
    """The tokens of each text, as `tokenize` has them; their offsets are those of the text before it is composed."""
    ids, offsets, counts = [np.empty(0, np.int32)], [np.empty((0, 2), np.int64)], list[int]()
    starts = edges_of([len(text) + 1 for text in texts])
    for first in range(0, len(texts), CHUNK):
        composed = [compose(text) for text in texts[first : first + CHUNK]]
        encodings = tokenizer.encode_batch([one.text for one in composed])
        lengths = [len(encoding.ids) - 2 for encoding in encodings]
        places = np.array([pair for one in encodings for pair in one.offsets[1:-1]], np.int64).reshape(-1, 2)
        for one, begin, length in zip(composed, edges_of(lengths), lengths, strict=False):
            if one.begin is not None:
                places[begin : begin + length] = one.spans(places[begin : begin + length])
        ids.append(np.array([i for one in encodings for i in one.ids[1:-1]], np.int32))
        offsets.append(places + np.repeat(starts[first : first + len(lengths)], lengths)[:, None])
        counts += lengths
    return Tokens(np.concatenate(ids), np.concatenate(offsets), np.array(counts, np.int64))


def distinct(texts: Sequence[str]) -> tuple[list[str], Integers]:
    """Every text once, in the order in which they come first; (N,) the number of each given text among them."""
    numbers: dict[str, int] = {}
    which = np.fromiter((numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts))
    return list(numbers), which


# ---- framing


class Frames(NamedTuple):
    """S sequences with their special tokens, end to end."""

    ids: TokenIds  # (T,)
    edges: Integers  # (S + 1,) where each sequence begins and ends in `ids`
    first: Integers  # (S,) tokens of segment 0; all of them where the tokenizer's layout has no segments


def frame(
    tokenizer: Tokenizer, first: Spans, second: Spans | None = None, *, paired: NDArray[np.bool_] | None = None
) -> Frames:
    """[CLS] A [SEP], or [CLS] A [SEP] B [SEP], for each of S sequences.

    first, second: the tokens of A and of B. paired (S,): which sequences are pairs, whose B may be empty; left out, all
    are if there is a `second`. The B of all others must be empty.
    """
    S, layout = len(first.start), tokenizer.layout
    if second is None:
        second, paired = Spans(first.tokens[:0], np.zeros(S, np.int64), np.zeros(S, np.int64)), np.zeros(S, np.bool_)
    elif paired is None:
        paired = np.ones(S, np.bool_)
    offset = 1 + first.length + layout.pair_separators * paired  # of B in its sequence
    lengths = offset + second.length + 1
    edges = edges_of(lengths)
    ids = np.full(edges[-1], tokenizer.sep_id, np.int32)  # [SEP] is what nothing else covers
    ids[edges[:-1]] = tokenizer.cls_id
    ids[ranges(edges[:-1] + 1, first.length)] = first.ids()
    ids[ranges(edges[:-1] + offset, second.length)] = second.ids()
    return Frames(ids, edges, np.where(paired & layout.segments, offset, lengths))


class CutPairs(NamedTuple):
    """N texts, each with a second one or none, cut to fit."""

    first: Spans
    second: Spans
    paired: NDArray[np.bool_]  # (N,) whether there is a second text
    total: Integers  # (N,) tokens before the cut


def cut_pairs(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    seconds: Sequence[str],
    max_seq_length: int,
    left: NDArray[np.bool_] | bool = False,
) -> CutPairs:
    """Each text with its second one (or ""), so that their frames have at most max_seq_length tokens.

    The longer text is cut from its end (run_classifier.py). A second text without tokens counts as none. left (N,), or
    one for all: whether it is cut from its beginning instead.
    """
    first, none = tokenize(tokenizer, texts), np.zeros(len(texts), np.int64)
    second = tokenize(tokenizer, seconds) if any(seconds) else Spans(first.tokens[:0], none, none)
    paired, total = second.length > 0, first.length + second.length
    capacity = max_seq_length - 2 - tokenizer.layout.pair_separators * paired
    lengths = zip(first.length.tolist(), second.length.tolist(), capacity.tolist(), strict=True)
    shortened = np.array([cut_lengths([a, b], most) for a, b, most in lengths], np.int64).reshape(-1, 2)
    first, second = (_shortened(text, length, left) for text, length in zip((first, second), shortened.T, strict=True))
    return CutPairs(first, second, paired, total)


def _shortened(texts: Spans, length: Integers, left: NDArray[np.bool_] | bool) -> Spans:
    """The first `length` tokens of each text; where `left` is true the last."""
    return texts._replace(start=texts.start + np.where(left, texts.length - length, 0), length=length)


# ---- windows


@dataclass(frozen=True)
class Windows:
    """Which tokens of its text each window shows. The windows of a text follow each other, from left to right."""

    text: Integers  # (W,) the number of the text
    start: Integers  # (W,) the first token shown, counted from the first of the text
    length: Integers  # (W,) tokens shown

    @functools.cached_property
    def edges(self) -> Integers:
        """(W + 1,) where the windows begin and end if the tokens they show lie end to end."""
        return edges_of(self.length)

    @functools.cached_property
    def max_context(self) -> NDArray[np.bool_]:
        """(A,) for each token of each window, whether it counts there: no window shows more of what is around it.

        The score of a token is that of run_squad.py, min(tokens before, tokens after) + 0.01 * tokens shown; of equal
        ones the first window counts. Over the windows of a text it rises, then falls: comparing neighbours is enough.
        """
        best = np.ones(self.edges[-1], np.bool_)
        neighbours = self.text[1:] == self.text[:-1]
        shared = np.flatnonzero(np.append(neighbours, False) | np.append(False, neighbours))
        owner = np.repeat(shared, self.length[shared])
        token = ranges(self.start[shared], self.length[shared])  # counted from the first of the text
        own = self._score(owner, token, owner)
        before, after = (self._score(owner + step, token, owner) for step in (-1, 1))
        best[ranges(self.edges[shared], self.length[shared])] = (own > before) & (own >= after)
        return best

    def _score(self, window: Integers, token: Integers, owner: Integers) -> NDArray[np.float64]:
        """Scores of tokens in windows; -inf where a window does not show them, or is of another text."""
        exists = (window >= 0) & (window < len(self.text))
        window = np.where(exists, window, 0)
        before = token - self.start[window]
        after = self.length[window] - 1 - before
        exists &= (before >= 0) & (after >= 0) & (self.text[window] == self.text[owner])
        return np.where(exists, np.minimum(before, after) + 0.01 * self.length[window], -np.inf)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, K) the mean over each text's windows of (W, K) values."""
        starts = np.flatnonzero(np.diff(self.text, prepend=-1))
        counts = np.diff([*starts, len(self.text)])
        means: NDArray[np.float64] = np.add.reduceat(values, starts, axis=0) / counts[:, None]
        return means


def strided_windows(lengths: Integers, capacity: Integers, stride: int) -> Windows:
    """Each window begins `stride` tokens after the one before, until one reaches the end of the text (run_squad.py).

    lengths (N,): tokens of each text. capacity (N,): tokens that a window of it can show. A text without tokens has one
    window, which is empty.
    """
    step = np.minimum(capacity, stride)
    number = 1 + np.maximum(0, -(-(lengths - capacity) // step))
    text = np.repeat(np.arange(len(lengths)), number)
    start = ranges(np.zeros_like(number), number) * step[text]
    return Windows(text, start, np.minimum(capacity[text], lengths[text] - start))


def even_windows(lengths: Integers, capacity: Integers) -> Windows:
    """Windows at even distances, which overlap by a quarter or more of their length; the last one ends with the text.

    lengths, capacity: as for `strided_windows`. A text that fits has one window.
    """
    beyond = np.maximum(0, lengths - capacity)
    number = 1 + -(-beyond // np.maximum(1, capacity * 3 // 4))
    text = np.repeat(np.arange(len(lengths)), number)
    start = beyond[text] * ranges(np.zeros_like(number), number) // np.maximum(1, number - 1)[text]
    return Windows(text, start, np.minimum(capacity, lengths)[text])


def document_windows(lengths: Sequence[int], documents: Sequence[int], capacity: int) -> Windows:
    """Windows of whole sentences, as many of one document as fit; a longer sentence has windows that overlap by half.

    lengths, documents: tokens of each sentence, and the document it belongs to. All sentences end to end are the one
    text. Without any token there is one window, which is empty: a model must read something.
    """
    windows: list[tuple[int, int]] = []  # first token, and the one after the last
    start = end = 0
    previous = None
    for length, document in zip(lengths, documents, strict=True):
        if end > start and (document != previous or end - start + length > capacity):
            windows.append((start, end))
            start = end
        end += length
        if length > capacity:
            firsts = range(start, end - capacity, max(1, capacity // 2))
            windows += [(first, first + capacity) for first in (*firsts, end - capacity)]  # the last ends with it
            start = end
        previous = document
    if end > start or not windows:
        windows.append((start, end))
    starts, ends = np.array(windows, np.int64).T
    return Windows(np.zeros(len(windows), np.int64), starts, ends - starts)
