"""Which positions are predicted, and what replaces their tokens (paper, 3.1 and A.1; create_masked_lm_predictions).

80 % of the chosen tokens become [MASK]. If all did, pre-training would differ from fine-tuning, whose inputs have no
[MASK]. So 10 % become a random token: as the encoder cannot know which tokens are to be predicted, it has to compute a
vector of every token from its context. And 10 % stay, which biases this vector towards the observed token (A.1). The
end of `mask` has the three cases.

All instances that a batch has of one block group are masked at once. Their random numbers depend on (seed, pass,
length, block group, generator) alone; 256 instances share one generator. Whole words (the original code's later option)
and n-grams (ALBERT 4.1, and its function of that name) are chosen by the second half of the file.

Shapes: n instances, L positions, P predictions at most (max_predictions_per_seq).
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED


@dataclass(frozen=True)
class MaskingConfig:
    """Which tokens are chosen for prediction, and what replaces them: [MASK], a random token, or nothing (the rest)."""

    masked_lm_prob: float = 0.15  # fraction of the tokens that are chosen and predicted
    mask_share: float = 0.8  # fraction of the chosen tokens that are replaced by [MASK]
    random_share: float = 0.1  # fraction of the chosen tokens that are replaced by a random token
    whole_word: bool = False  # whole-word masking: choose all subwords of a word or none
    # n-gram masking: longest span of tokens (or whole words) chosen at once; length n has a probability proportional to
    # 1/n (ALBERT 4.1)
    ngrams: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.masked_lm_prob < 1:
            raise ValueError(f"masked_lm_prob = {self.masked_lm_prob}; expected a fraction between 0 and 1")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise ValueError(f"mask_share {self.mask_share} + random_share {self.random_share}; expected at most 1")
        if self.ngrams < 1:
            raise ValueError(f"ngrams = {self.ngrams}; expected 1 (single ones) or more")

    @property
    def unchanged_fraction(self) -> float:
        """The fraction of the chosen tokens that stay as they are."""
        return round(1 - self.mask_share - self.random_share, 9)  # rounded: fractions that add up to 1 leave nothing


def max_predictions_per_seq(length: int, config: MaskingConfig) -> int:
    """The largest number of predictions in a sequence: 20 at length 128 and 77 at 512, as the original advises."""
    return int(np.ceil(length * config.masked_lm_prob))


@dataclass(frozen=True)
class RandomNumbers:
    """Random numbers of instances, (n, L) each. A generator gives them for all its rows; any can be masked alone."""

    priority: NDArray[np.float32]  # the positions with the lowest numbers are chosen
    replacement: NDArray[np.float32]  # which of the three cases a chosen position is
    tokens: NDArray[np.int64]  # the random tokens
    ngrams: NDArray[np.float32]  # the length of an n-gram that begins here; (n, 0) without n-grams

    @classmethod
    def of(cls, rng: np.random.Generator, shape: tuple[int, int], vocab_size: int, ngrams: bool = True) -> Self:
        """Numbers for `shape`; the lengths of n-grams come last, so that the rest is the same without them."""
        priority, replacement = rng.random(shape, np.float32), rng.random(shape, np.float32)
        tokens = rng.integers(0, vocab_size, shape, np.int64)
        return cls(priority, replacement, tokens, rng.random(shape if ngrams else (shape[0], 0), np.float32))

    def rows(self, rows: NDArray[np.int64]) -> "RandomNumbers":
        return RandomNumbers(*(getattr(self, f.name)[rows] for f in fields(self)))

    @staticmethod
    def join(parts: list["RandomNumbers"]) -> "RandomNumbers":
        """The rows of all `parts`, one after the other."""
        return RandomNumbers(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(parts[0])))


@dataclass(frozen=True)
class UnmaskedBatch:
    """Instances before masking."""

    ids: NDArray[np.int64]  # (n, L)
    candidates: NDArray[np.bool_]  # (n, L) tokens that may be chosen: not [CLS], [SEP] or padding
    continues: NDArray[np.bool_]  # (n, L) subwords that continue a word; none if every token is to count as a word
    lengths: NDArray[np.int64]  # (n,) tokens of each instance, with special ones, since the original counts them


def mask(
    batch: UnmaskedBatch, random: RandomNumbers, config: MaskingConfig, mask_id: int, max_predictions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mask `batch.ids` in place; returns positions and labels, (n, P = max_predictions), 0 and -100 in unused slots."""
    ids, candidates = batch.ids, batch.candidates
    targets = np.rint(batch.lengths * config.masked_lm_prob).astype(np.int64).clip(1, max_predictions)  # (n,) to choose
    if config.whole_word or config.ngrams > 1:
        lengths = _ngram_lengths(random.ngrams, config.ngrams) if config.ngrams > 1 else np.ones(ids.shape, np.int64)
        chosen = _choose_ngrams(candidates, batch.continues, targets, random.priority, lengths)
    else:
        chosen = _choose_tokens(candidates, targets, random.priority)
    row, column = chosen.nonzero()
    slot = np.arange(len(row)) - np.searchsorted(row, row)  # 0, 1, 2 ... within each instance
    positions, labels = np.zeros((len(ids), max_predictions), np.int64), np.full((len(ids), max_predictions), IGNORED)
    positions[row, slot], labels[row, slot] = column, ids[row, column]
    replacement = random.replacement[row, column]
    to_mask = replacement < config.mask_share
    to_random = ~to_mask & (replacement < config.mask_share + config.random_share)
    ids[row[to_mask], column[to_mask]] = mask_id
    ids[row[to_random], column[to_random]] = random.tokens[row[to_random], column[to_random]]
    return positions, labels  # the rest keeps its token, and is predicted all the same (10 %)


def _choose_tokens(
    candidates: NDArray[np.bool_], targets: NDArray[np.int64], priority: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """The candidates of lowest `priority` in each row, as many as its target says."""
    ranked = _ranked(np.where(candidates, priority, np.float32(1)))[:, : targets.max(initial=1)]  # the others come last
    within = np.arange(ranked.shape[1]) < targets[:, None]
    chosen = np.zeros_like(candidates)
    np.put_along_axis(chosen, ranked, within, axis=1)
    return chosen & candidates


def _ranked(priority: NDArray[np.float32]) -> NDArray[np.int64]:
    """The positions of each row by `priority`, equal ones from left to right, on every processor.

    Sorting whole numbers is several times as fast as a stable sort of floats. Random numbers have 24 bits.
    """
    width = priority.shape[1]
    keys = (priority * np.float32(1 << 24)).astype(np.int64) * width + np.arange(width)
    keys.sort(1)
    return keys % width


# ---- whole words and n-grams (of ALBERT)


def _ngram_lengths(random: NDArray[np.float32], longest: int) -> NDArray[np.int64]:
    """Lengths 1 to `longest` from uniform numbers, n with probability proportional to 1/n (to 3: 6/11, 3/11, 2/11)."""
    weights = 1 / np.arange(1, longest + 1)
    edges = np.cumsum(weights[:-1] / weights.sum()).astype(np.float32)
    return np.searchsorted(edges, random, "right") + 1


def _choose_ngrams(
    candidates: NDArray[np.bool_],
    continues: NDArray[np.bool_],
    targets: NDArray[np.int64],
    priority: NDArray[np.float32],
    lengths: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Choose n-grams of whole words in each row: (n, L). The words at which they begin come by their `priority`.

    An n-gram has `lengths` words, or fewer where not all fit into the budget that is left of `targets`. None is chosen
    where not even one word fits, or where a word of the n-gram is masked already. As in the original, a continuing
    subword belongs to the candidate before it, and an n-gram may cross [SEP]. Where no subword continues a word, every
    token is a word.

    All rows make a step at once: each step looks at the next word of every row that is not full yet.
    """
    starts = candidates & ~continues
    every, first = np.arange(len(candidates)), candidates.argmax(1)
    starts[every, first] = candidates[every, first]  # the first candidate begins a word in any case
    word, counts = np.cumsum(starts, 1) - 1, starts.sum(1)  # (n, L) number of each candidate's word; (n,) words
    most, longest = int(counts.max(initial=1)), int(lengths.max(initial=1))
    # (n, words) of each word: its priority, the words of an n-gram that begins with it, and its tokens
    priorities, ngram_words = np.ones((len(counts), most), np.float32), np.ones((len(counts), most), np.int64)
    row, column = starts.nonzero()
    priorities[row, word[starts]], ngram_words[row, word[starts]] = priority[row, column], lengths[row, column]
    sizes = np.bincount((every[:, None] * most + word)[candidates], minlength=ngram_words.size).reshape(-1, most)
    ends = np.pad(np.cumsum(sizes, 1), ((0, 0), (1, 0)))  # (n, words + 1) tokens before each word, and of all
    masked_words, budget, rows = np.zeros(ngram_words.shape, bool), targets.copy(), every
    for step, ranked in enumerate(_ranked(priorities).T):
        rows = rows[(budget[rows] > 0) & (step < counts[rows])]
        if not len(rows):
            break
        start = ranked[rows]
        stop = np.minimum(start + ngram_words[rows, start], counts[rows])
        for _ in range(longest - 1):
            stop -= (ends[rows, stop] - ends[rows, start] > budget[rows]) & (stop > start + 1)
        size = ends[rows, stop] - ends[rows, start]
        fits = size <= budget[rows]
        for i in range(longest):
            fits &= ~masked_words[rows, np.minimum(start + i, stop - 1)]
        for i in range(longest):
            inside = fits & (start + i < stop)
            masked_words[rows[inside], start[inside] + i] = True
        budget[rows] -= np.where(fits, size, 0)
    return candidates & np.take_along_axis(masked_words, np.maximum(word, 0), 1)
