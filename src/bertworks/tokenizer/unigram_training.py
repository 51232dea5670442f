"""Training of Unigram vocabularies (Kudo 2018, as in SentencePiece's unigram_model_trainer.cc).

At first many substrings of the words are subwords. Expectation-maximisation finds their probabilities. Then the trainer
drops those whose loss lowers the probability of the text least, a quarter at a time, until few enough are left.

The trainer is our own because the same text must give the same bytes. The `tokenizers` library's trainer gives other
scores and another order in every process, sentencepiece's depend on the number of threads, and neither gives held-out
text a higher likelihood (docs/log.md). Here all words of one length are a rectangle, and the sums over all their
segmentations run in NumPy, always in the same order.

Shapes: W words of one length n, V subwords. In an edge of a lattice, number V means "no such subword".
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

MAX_WORDS = 500_000  # learn from so many different words, the most frequent ones; they need about a gigabyte
MAX_WORD, MAX_SUBWORD = 24, 16  # characters; longer words are cut, or products of probabilities could underflow
SEEDS = 400_000  # subwords to begin with
KEEP, ROUNDS = 0.75, 2  # fraction of the subwords that a pruning leaves; EM steps before it
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of the hash of a substring

Ids = NDArray[np.int32]
Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]


Find = Callable[[Hashes], Ids]


def _finder(subwords: list[str], letters: dict[str, int]) -> Find:
    """A function that returns the number of the subword of each hash, V for unknown ones."""
    unsorted = np.empty(len(subwords), np.uint64)
    for indices, codes in _by_length(subwords, letters):
        unsorted[indices] = _extend(np.zeros(len(codes), np.uint64), *codes.T)
    order = np.argsort(unsorted, kind="stable").astype(np.int32)
    sorted_hashes, none = unsorted[order], np.int32(len(subwords))

    def find(hashes: Hashes) -> Ids:
        slot = np.searchsorted(sorted_hashes, hashes)
        slot[slot == len(sorted_hashes)] = 0
        return np.where(sorted_hashes[slot] == hashes, order[slot], none)

    return find


def _extend(hashes: Hashes, *columns: NDArray[np.uint64]) -> Hashes:
    for column in columns:
        hashes = hashes * FACTOR + column
    return hashes


def _by_length(words: list[str], letters: dict[str, int]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """(W,) indices of the words of each length, and (W, n) their characters as numbers from 1."""
    order = sorted(range(len(words)), key=lambda i: len(words[i]))
    for length, group in groupby(order, key=lambda i: len(words[i])):
        indices = list(group)
        codes = np.array([[letters[char] for char in words[i]] for i in indices], np.uint64)
        yield np.array(indices), codes.reshape(len(indices), length)


def _edges(codes: NDArray[np.uint64], find: Find, none: int, whole: bool) -> dict[tuple[int, int], Ids]:
    """The subwords between each two positions of words (W, n), if any of the words has one there."""
    edges = {}
    length = codes.shape[1]
    for start in range(length):
        hashes = np.zeros(len(codes), np.uint64)
        for end in range(start + 1, min(start + MAX_SUBWORD, length) + 1):
            hashes = _extend(hashes, codes[:, end - 1])
            ids = find(hashes)
            if (whole or end - start < length) and (ids < none).any():
                edges[start, end] = ids
    return edges


@dataclass
class _Lattice:
    """All ways to cut the words of one length: the subword between each two positions."""

    length: int  # n
    indices: NDArray[np.int64]  # (W,) of the words in the list that they come from
    edges: dict[tuple[int, int], Ids]  # (start, end): (W,) subwords

    @classmethod
    def all(
        cls, words: list[str], subwords: list[str], letters: dict[str, int], whole: bool = True
    ) -> "list[_Lattice]":
        """The lattices of some words; `whole`: a word may be a subword itself."""
        find, groups, V = _finder(subwords, letters), _by_length(words, letters), len(subwords)
        return [cls(codes.shape[1], indices, _edges(codes, find, V, whole)) for indices, codes in groups]

    def renumber(self, numbers: Ids) -> None:
        """numbers (V + 1,): the new number of each subword, V's own last."""
        renumbered = {key: numbers[ids] for key, ids in self.edges.items()}
        self.edges = {key: ids for key, ids in renumbered.items() if (ids < numbers[-1]).any()}

    def expected(self, probability: Floats, counts: Floats) -> Floats:
        """(V + 1,) how often each subword is used in all segmentations. probability (V + 1,), 0 last; counts (W,)."""
        W, n = len(self.indices), self.length
        before, after = np.zeros((n + 1, W)), np.zeros((n + 1, W))
        before[0] = after[n] = 1
        for (start, end), ids in sorted(self.edges.items(), key=lambda item: item[0][1]):
            before[end] += before[start] * probability[ids]
        for (start, end), ids in sorted(self.edges.items(), key=lambda item: -item[0][0]):
            after[start] += after[end] * probability[ids]
        weight = counts / before[n]
        sums = np.zeros(len(probability))
        for (start, end), ids in self.edges.items():
            sums += np.bincount(ids, before[start] * after[end] * probability[ids] * weight, len(probability))
        return sums

    def best(self, scores: Floats) -> Iterator[Ids]:
        """(W,) last, last but one, ... subword of each word's best segmentation; V where no more is left."""
        W, n = len(self.indices), self.length
        best = np.full((n + 1, W), -np.inf)
        origin, subword = np.zeros((n + 1, W), np.int64), np.full((n + 1, W), len(scores) - 1, np.int32)
        best[0] = 0
        for (start, end), ids in sorted(self.edges.items(), key=lambda item: item[0][1]):
            value = best[start] + scores[ids]
            better = value > best[end]
            best[end][better], origin[end][better], subword[end][better] = value[better], start, ids[better]
        at, row = np.full(W, n), np.arange(W)
        while at.any():
            yield subword[at, row]
            at = origin[at, row]


class Trainer:
    """Learns subwords from words with their counts; characters outside the alphabet stay unknown."""

    def __init__(self, counts: dict[str, int], alphabet: set[str]):
        self.letters = {char: i for i, char in enumerate(sorted(alphabet), 1)}
        in_alphabet = re.compile(f"[{re.escape(''.join(self.letters))}]{{1,{MAX_WORD}}}")
        parts: dict[str, int] = {}
        for word, count in counts.items():
            for part in in_alphabet.findall(word):
                parts[part] = parts.get(part, 0) + count
        self.words = sorted(sorted(parts, key=lambda word: (-parts[word], word))[:MAX_WORDS])
        self.counts = np.array([parts[word] for word in self.words], np.float64)

    def train(self, size: int) -> list[tuple[str, float]]:
        """At most `size` subwords with their log probabilities, the likeliest first; every character is one of them."""
        from scipy.special import digamma  # slow to import, and needed for training alone

        subwords, sums = self._seeds()
        lattices = _Lattice.all(self.words, subwords, self.letters)
        target = max(int(1.1 * size), len(self.letters))
        scores = _log_fractions(np.log(sums))
        while True:
            for _ in range(ROUNDS):
                sums = self._expected(lattices, scores)
                # As in the original: a subword used less than half a time goes, and digamma favours few subwords.
                keep = np.array([len(subword) == 1 for subword in subwords]) | (sums >= 0.5)
                subwords, sums = self._keep(lattices, subwords, sums, keep)
                scores = _log_fractions(digamma(np.maximum(sums, 0.5)))
            if len(subwords) <= target:
                return self._final(subwords, scores, size)
            losses = self._losses(lattices, subwords, scores)
            best = np.argsort(-losses, kind="stable")[: max(target, int(KEEP * len(subwords)))]
            keep = np.zeros(len(subwords), bool)
            keep[best] = True
            subwords, scores = self._keep(lattices, subwords, scores, keep & (losses > -np.inf))

    def _seeds(self) -> tuple[list[str], Floats]:
        """All characters, and the repeated substrings that cover most characters of the text."""
        totals: dict[str, float] = dict.fromkeys(self.letters, 1.0)
        substrings: list[tuple[Hashes, Floats, NDArray[np.int64], NDArray[np.int64]]] = []
        for indices, codes in _by_length(self.words, self.letters):
            counts = self.counts[indices]
            for start in range(codes.shape[1]):
                hashes = np.zeros(len(codes), np.uint64)
                for end in range(start + 1, min(start + MAX_SUBWORD, codes.shape[1]) + 1):
                    hashes = _extend(hashes, codes[:, end - 1])
                    substrings.append(_summed(hashes, counts, indices, np.full(len(codes), start << 8 | end)))
            substrings = [_summed(*(np.concatenate(part) for part in zip(*substrings, strict=True)))]
        _, sums, indices, spans = substrings[0]
        lengths = (spans & 255) - (spans >> 8)
        for i in np.flatnonzero(lengths == 1).tolist():
            totals[self.words[indices[i]][spans[i] >> 8]] = sums[i]
        more = np.flatnonzero((lengths > 1) & (sums > 1))
        ranked = more[np.argsort(-(sums * lengths)[more], kind="stable")][:SEEDS]
        for i in ranked.tolist():
            totals[self.words[indices[i]][spans[i] >> 8 : spans[i] & 255]] = sums[i]
        return list(totals), np.array(list(totals.values()))

    def _expected(self, lattices: Iterable[_Lattice], scores: Floats) -> Floats:
        probability = np.append(np.exp(scores), 0.0)
        return np.sum([one.expected(probability, self.counts[one.indices]) for one in lattices], 0)[:-1]

    def _keep(
        self, lattices: Iterable[_Lattice], subwords: list[str], values: Floats, keep: NDArray[np.bool_]
    ) -> tuple[list[str], Floats]:
        """The subwords to keep and their values; the lattices are renumbered."""
        numbers = np.full(len(subwords) + 1, keep.sum(), np.int32)
        numbers[:-1][keep] = np.arange(keep.sum())
        for lattice in lattices:
            lattice.renumber(numbers)
        return [subword for subword, keeps in zip(subwords, keep.tolist(), strict=True) if keeps], values[keep]

    def _losses(self, lattices: list[_Lattice], subwords: list[str], scores: Floats) -> Floats:
        """(V,) log probability that the text loses without each subword; inf for characters, -inf for what is not used.

        A subword's second best segmentation replaces it. Here the text has its best segmentation only.
        """
        V = len(subwords)
        wide = np.append(scores, -np.inf)
        used = np.zeros(V + 1)
        for lattice in lattices:
            for ids in lattice.best(wide):
                used += np.bincount(ids, self.counts[lattice.indices], V + 1)
        used, total = used[:V], used[:V].sum()
        logs, number = np.zeros(V), np.zeros(V)
        for lattice in _Lattice.all(subwords, subwords, self.letters, whole=False):
            for ids in lattice.best(wide):
                there = np.flatnonzero(ids < V)
                where = lattice.indices[there]
                logs[where] += np.log(np.maximum(used[ids[there]] + used[where], 1e-300))
                number[where] += 1
        with np.errstate(divide="ignore", invalid="ignore"):
            without = logs - number * np.log(total + used * (number - 1))
            losses: Floats = used / total * (np.log(used) - np.log(total) - without)
        losses[used == 0] = -np.inf
        losses[[len(subword) == 1 for subword in subwords]] = np.inf
        return losses

    def _final(self, subwords: list[str], scores: Floats, size: int) -> list[tuple[str, float]]:
        """All characters, and the likeliest other subwords. Scores are rounded: their last digits mean nothing."""
        rounded = scores.round(6).tolist()
        ranked = sorted(zip(subwords, rounded, strict=True), key=lambda item: (-item[1], item[0]))
        single = sum(len(subword) == 1 for subword in subwords)
        others = [subword for subword, _ in ranked if len(subword) > 1][: size - single]
        chosen = {*others, *self.letters}
        return [item for item in ranked if item[0] in chosen]


def _summed(
    hashes: Hashes, sums: Floats, indices: NDArray[np.int64], spans: NDArray[np.int64]
) -> tuple[Hashes, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Equal hashes once, their sums added, with the word and span of the first."""
    unique, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return unique, np.bincount(inverse, sums).astype(np.float64), indices[first], spans[first]


def _log_fractions(logs: Floats) -> Floats:
    """Logarithms of the fractions that values have of their sum, from the values' logarithms."""
    top = logs.max()
    fractions: Floats = logs - top - np.log(np.exp(logs - top).sum())
    return fractions
