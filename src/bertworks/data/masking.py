"""Which positions are predicted, and what replaces their tokens (paper, 3.1 and A.1; create_masked_lm_predictions).

Runs of several words are ALBERT's (4.1, and its function of that name). All work is done on a rectangle of instances at
once. 256 instances share one random generator, so that a mask depends on (seed, pass, block group, generator) alone.

Shapes: n instances, L positions, P predictions at most (max_predictions_per_seq).
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED
from ..config import added


@dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are predicted, and what replaces a chosen one: [MASK], a random token, or nothing (the rest)."""

    masked_lm_prob: float = 0.15  # share of the tokens that are predicted
    mask_share: float = 0.8  # share of the chosen tokens that [MASK] replaces
    random_share: float = 0.1  # share of the chosen tokens that a random token replaces
    whole_word: bool = False  # choose whole words, never some subwords of a word
    # longest run of tokens (or whole words) chosen at once: n with a chance of 1/n (ALBERT 4.1)
    ngrams: int = added(1, since=1, before=1)

    def __post_init__(self) -> None:
        if not 0 < self.masked_lm_prob < 1:
            raise ValueError(f"masked_lm_prob = {self.masked_lm_prob}; expected a share between 0 and 1")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise ValueError(f"mask_share {self.mask_share} + random_share {self.random_share}; expected at most 1")
        if self.ngrams < 1:
            raise ValueError(f"ngrams = {self.ngrams}; expected 1 (single ones) or more")

    @property
    def kept_share(self) -> float:
        """The share of the chosen tokens that stay as they are."""
        return round(1 - self.mask_share - self.random_share, 9)  # rounded: shares that add up to 1 leave nothing


def max_predictions_per_seq(length: int, config: MaskingConfig) -> int:
    """The largest number of predictions in a sequence: 20 at length 128 and 77 at 512, as the original advises."""
    return int(np.ceil(length * config.masked_lm_prob))


@dataclass(frozen=True)
class Draws:
    """Random numbers of instances, (n, L) each. A generator draws for all its rows; then any can be masked alone."""

    order: NDArray[np.float32]  # the positions with the lowest numbers are chosen
    action: NDArray[np.float32]  # what happens to a chosen position
    tokens: NDArray[np.int64]  # the random replacements
    spans: NDArray[np.float32]  # the length of a run that begins here

    @classmethod
    def of(cls, rng: np.random.Generator, shape: tuple[int, int], vocab_size: int) -> "Draws":
        order, action = rng.random(shape, np.float32), rng.random(shape, np.float32)
        return cls(order, action, rng.integers(0, vocab_size, shape, np.int64), rng.random(shape, np.float32))

    def rows(self, rows: NDArray[np.int64]) -> "Draws":
        return Draws(self.order[rows], self.action[rows], self.tokens[rows], self.spans[rows])

    @staticmethod
    def join(parts: list["Draws"]) -> "Draws":
        """The rows of all `parts`, one after the other."""
        return Draws(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Draws)))


@dataclass(frozen=True)
class Rectangle:
    """Instances before masking."""

    ids: NDArray[np.int64]  # (n, L)
    candidates: NDArray[np.bool_]  # (n, L) tokens that may be chosen: not [CLS], [SEP] or padding
    continues: NDArray[np.bool_]  # (n, L) subwords that continue a word; used by whole-word masking
    lengths: NDArray[np.int64]  # (n,) tokens of each instance, with special ones, since the original counts them


def mask(
    rows: Rectangle, draws: Draws, config: MaskingConfig, mask_id: int, max_predictions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mask `rows.ids` in place; returns positions and labels, (n, P = max_predictions), 0 and -100 in unused slots."""
    ids, candidates = rows.ids, rows.candidates
    wanted = np.rint(rows.lengths * config.masked_lm_prob).astype(np.int64).clip(1, max_predictions)
    if config.whole_word or config.ngrams > 1:
        continues = rows.continues if config.whole_word else np.zeros_like(candidates)
        spans = _run_lengths(draws.spans, config.ngrams)
        chosen = _choose_runs(candidates, continues, wanted, draws.order, spans)
    else:
        chosen = _choose_tokens(candidates, wanted, draws.order)
    row, column = chosen.nonzero()
    slot = np.arange(len(row)) - np.searchsorted(row, row)  # 0, 1, 2 ... within each instance
    positions, labels = np.zeros((len(ids), max_predictions), np.int64), np.full((len(ids), max_predictions), IGNORED)
    positions[row, slot], labels[row, slot] = column, ids[row, column]
    action = draws.action[row, column]
    to_mask = action < config.mask_share
    to_random = ~to_mask & (action < config.mask_share + config.random_share)
    ids[row[to_mask], column[to_mask]] = mask_id
    ids[row[to_random], column[to_random]] = draws.tokens[row[to_random], column[to_random]]
    return positions, labels


def _choose_tokens(
    candidates: NDArray[np.bool_], wanted: NDArray[np.int64], order: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """The `wanted` candidates of lowest `order` in each row."""
    order = np.where(candidates, order, np.inf)
    ranked = np.argsort(order, axis=1)[:, : wanted.max(initial=1)]
    take = np.arange(ranked.shape[1]) < wanted[:, None]
    chosen = np.zeros_like(candidates)
    np.put_along_axis(chosen, ranked, take, axis=1)
    return chosen & candidates


def _run_lengths(draws: NDArray[np.float32], longest: int) -> NDArray[np.int64]:
    """Lengths 1 to `longest` from uniform numbers, n with a chance proportional to 1/n (up to 3: 6/11, 3/11, 2/11)."""
    chances = 1 / np.arange(1, longest + 1)
    edges = np.cumsum(chances[:-1] / chances.sum()).astype(np.float32)
    return np.searchsorted(edges, draws, "right") + 1


def _choose_runs(
    candidates: NDArray[np.bool_],
    continues: NDArray[np.bool_],
    wanted: NDArray[np.int64],
    order: NDArray[np.float32],
    spans: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Choose runs of whole words in each row: (n, L). The words at which runs begin come in the order of `order`.

    A run has `spans` words, or fewer where not all fit into what is left of `wanted`. None is chosen where not even one
    word fits, or where a word of the run is chosen already. As in the original, a continuing subword belongs to the
    candidate before it, and a run may cross [SEP]. Where no subword continues a word, every token is a word.
    """
    chosen = np.zeros_like(candidates)
    for row in range(len(candidates)):
        cells = candidates[row].nonzero()[0]
        starts = ~continues[row, cells]
        starts[:1] = True
        word = np.cumsum(starts) - 1
        firsts = cells[starts]
        ends = np.cumsum(np.bincount(word)).tolist()  # tokens up to the end of each word
        taken, left, runs = [False] * len(ends), int(wanted[row]), spans[row, firsts].tolist()
        for w in np.argsort(order[row, firsts]).tolist():
            before, stop = ends[w - 1] if w else 0, min(w + runs[w], len(ends))
            while ends[stop - 1] - before > left and stop > w + 1:
                stop -= 1
            if ends[stop - 1] - before <= left and not any(taken[w:stop]):
                taken[w:stop] = [True] * (stop - w)
                left -= ends[stop - 1] - before
            if not left:
                break
        chosen[row, cells] = np.array(taken, bool)[word]
    return chosen
