"""Masking: what may be chosen, how much, what replaces it, and that it depends on nothing but its key."""

import re
import zlib
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertworks.data.instances import generator
from bertworks.data.masking import (
    IGNORED,
    MaskingConfig,
    RandomNumbers,
    UnmaskedBatch,
    _choose_ngrams,
    _choose_tokens,
    mask,
    max_predictions_per_seq,
)

V, MASK = 500, 4
SPECIAL = 5  # ids below are special


def rectangle(n, length, seed):
    """[CLS] A [SEP] B [SEP] of random lengths, and which pieces continue a word."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(SPECIAL, V, (n, length))
    lengths = rng.integers(5, length + 1, n)
    first = rng.integers(2, lengths - 2)
    column, row = np.arange(length), np.arange(n)
    candidates = (column > 0) & (column < lengths[:, None] - 1)
    candidates[row, first] = False
    ids[:, 0], ids[row, first], ids[row, lengths - 1] = 2, 3, 3
    ids[column >= lengths[:, None]] = 0
    return ids, candidates, (ids % 3 == 0) & candidates, lengths


def masked(n, length, seed, config, most=None, draws=None):
    ids, candidates, continues, lengths = rectangle(n, length, seed)
    continues &= config.whole_word
    out = ids.copy()
    most = max_predictions_per_seq(length, config) if most is None else most
    draws = draws or RandomNumbers.of(generator(seed), (n, length), V)
    positions, labels = mask(UnmaskedBatch(out, candidates, continues, lengths), draws, config, MASK, most)
    return ids, out, positions, labels, candidates, continues, lengths


@given(st.integers(1, 20), st.integers(6, 80), st.integers(0, 10**6), st.sampled_from([0.15, 0.4, 0.02]), st.booleans())
def test_what_is_predicted(n, length, seed, rate, whole_word):
    config = MaskingConfig(masked_lm_prob=rate, whole_word=whole_word)
    most = 6
    ids, out, positions, labels, candidates, _, lengths = masked(n, length, seed, config, most)
    assert positions.shape == labels.shape == (n, most)
    for row in range(n):
        used = labels[row] != IGNORED
        wanted = min(most, max(1, round(int(lengths[row]) * rate)))
        wanted = min(wanted, int(candidates[row].sum()))
        assert used.sum() == wanted if not whole_word else used.sum() <= wanted
        cells = positions[row][used]
        assert candidates[row][cells].all() and len(set(cells)) == len(cells)
        assert (labels[row][used] == ids[row][cells]).all()
        assert (positions[row][~used] == 0).all()
        rest = np.ones(length, bool)
        rest[cells] = False
        assert (out[row][rest] == ids[row][rest]).all()


@given(st.integers(1, 12), st.integers(12, 60), st.integers(0, 10**6))
def test_whole_words_are_predicted_whole_or_not_at_all(n, length, seed):
    *_, positions, labels, candidates, continues, lengths = masked(n, length, seed, MaskingConfig(whole_word=True))
    for row in range(n):
        cells = set(positions[row][labels[row] != IGNORED].tolist())
        words: list[list[int]] = []
        for cell in candidates[row].nonzero()[0].tolist():
            if continues[row, cell] and words:
                words[-1].append(cell)  # across [SEP] as well
            else:
                words.append([cell])
        assert all(cells.issuperset(word) or cells.isdisjoint(word) for word in words)
        left = max(1, round(int(lengths[row]) * 0.15)) - len(cells)
        assert all(len(word) > left for word in words if cells.isdisjoint(word))  # it stops only when nothing fits


# Table 8 of the paper, and everything kept: shares of [MASK], the same and a random token
TABLE_8 = ((0.8, 0.1, 0.1), (1, 0, 0), (0.8, 0, 0.2), (0.8, 0.2, 0), (0, 0.2, 0.8), (0, 0, 1), (0, 1, 0))


@pytest.mark.parametrize("to_mask, same, to_random", TABLE_8)
def test_a_chosen_token_is_masked_kept_or_replaced_in_the_given_shares(to_mask, same, to_random):
    config = MaskingConfig(mask_share=to_mask, random_share=to_random)
    ids, out, positions, labels, *_ = masked(2000, 100, 1, config)
    used = labels != IGNORED
    there = out[np.arange(len(out))[:, None], positions][used]
    n = used.sum()
    found = (there == MASK, there == labels[used], (there != MASK) & (there != labels[used]))
    # a random replacement may be [MASK] or the token itself
    expected = (to_mask + to_random / V, same + to_random / V, to_random * (1 - 2 / V))
    for share, hits in zip(expected, found, strict=True):
        assert abs(hits.mean() - share) <= 4 * (share * (1 - share) / n) ** 0.5  # 0 and 1 are exact
    if same == 1:
        assert (out == ids).all()
    if to_random == 1:  # uniform over the whole vocabulary, special entries too
        assert set(range(SPECIAL)) <= set(there.tolist())
        assert np.bincount(there, minlength=V).std() < 1.3 * (n / V) ** 0.5


def test_every_candidate_is_as_likely_as_any_other():
    config = MaskingConfig()
    ids = np.tile(np.arange(5, 45), (20000, 1))
    candidates = np.ones_like(ids, bool)
    draws = RandomNumbers.of(generator(3), ids.shape, V)
    positions, _ = mask(UnmaskedBatch(ids, candidates, ~candidates, np.full(len(ids), 40)), draws, config, MASK, 6)
    counts = np.bincount(positions.ravel(), minlength=40)
    assert abs(counts / 20000 - 0.15).max() < 5 * (0.15 * 0.85 / 20000) ** 0.5


def test_of_equal_priorities_the_left_one_is_chosen_on_every_processor():
    """NumPy's argsort would order equal numbers as the instructions of the processor do."""
    candidates = np.ones((3, 200), bool)
    candidates[:, :2] = False
    chosen = _choose_tokens(candidates, np.array([9, 30, 200]), np.full((3, 200), 0.5, np.float32))
    assert [row.nonzero()[0].tolist() for row in chosen] == [[*range(2, 11)], [*range(2, 32)], [*range(2, 200)]]


@pytest.mark.parametrize("whole_word, ngrams", [(False, 1), (True, 1), (False, 3), (True, 3)])
def test_a_mask_is_a_function_of_its_key_and_rows_of_a_group_stand_alone(whole_word, ngrams):
    config = MaskingConfig(whole_word=whole_word, ngrams=ngrams)
    one, again = (masked(30, 50, 9, config) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    other = masked(30, 50, 9, config, draws=RandomNumbers.of(generator(10), (30, 50), V))
    assert (one[2] != other[2]).any()
    ids, out, positions, labels, candidates, continues, lengths = one
    draws = RandomNumbers.of(generator(9), (30, 50), V)
    for rows in (np.array([7]), np.array([3, 4, 20]), np.array([29, 0])):
        alone = ids[rows]
        rectangle_of_rows = UnmaskedBatch(alone, candidates[rows], continues[rows], lengths[rows])
        found = mask(rectangle_of_rows, draws.rows(rows), config, MASK, labels.shape[1])
        assert (found[0] == positions[rows]).all() and (found[1] == labels[rows]).all() and (alone == out[rows]).all()


def albert_choice(words, wanted, order, spans):
    """The units that ALBERT's create_masked_lm_predictions covers, loop by loop, its two random draws being given.

    words: lists of cells. order: the shuffle. spans: the n drawn for each start. Returns the chosen cells.
    """
    ngrams = [[[*chain(*words[i : i + n])] for n in range(1, max(spans) + 1)] for i in range(len(words))]
    # ALBERT renormalises the chances to the runs that a start has. Each start has all, those at a row's end cut short.
    assert {len(runs) for runs in ngrams} == {max(spans)}
    covered: set[int] = set()
    for i in sorted(range(len(words)), key=lambda i: order[words[i][0]]):
        if len(covered) >= wanted:
            break
        n = spans[i]
        cells = ngrams[i][n - 1]
        n -= 1
        while len(covered) + len(cells) > wanted:
            if n == 0:
                break
            cells = ngrams[i][n - 1]
            n -= 1
        if len(covered) + len(cells) > wanted or any(cell in covered for cell in cells):
            continue
        covered.update(cells)
    return covered


@given(st.integers(1, 8), st.integers(6, 60), st.integers(0, 10**6), st.integers(2, 4), st.booleans())
def test_ngrams_are_chosen_as_albert_does(n, length, seed, ngrams, whole_word):
    config = MaskingConfig(ngrams=ngrams, whole_word=whole_word, masked_lm_prob=0.3)
    draws = RandomNumbers.of(generator(seed), (n, length), V)
    *_, positions, labels, candidates, continues, lengths = masked(n, length, seed, config, draws=draws)
    chances = np.cumsum(1 / np.arange(1, ngrams + 1))
    for row in range(n):
        words: list[list[int]] = []
        for cell in candidates[row].nonzero()[0].tolist():
            if whole_word and continues[row, cell] and words:
                words[-1].append(cell)
            else:
                words.append([cell])
        wanted = min(labels.shape[1], max(1, round(int(lengths[row]) * 0.3)))
        spans = [1 + int((draws.ngrams[row, word[0]] >= chances[:-1] / chances[-1]).sum()) for word in words]
        expected = albert_choice(words, wanted, draws.priority[row], spans)
        assert set(positions[row][labels[row] != IGNORED].tolist()) == expected


def test_a_run_at_a_rows_end_is_cut_short_as_in_albert():
    """A start whose run would leave the row draws n as any other does: its longer runs become one."""
    candidates, spans = np.ones((1, 4), bool), np.array([[1, 1, 1, 3]])
    for order, expected in (([3, 2, 1, 0], [False, True, True, True]), ([0, 1, 2, 3], [True, True, True, False])):
        found = _choose_ngrams(candidates, ~candidates, np.array([3]), np.array([order], np.float32), spans)
        assert found[0].tolist() == expected
    last_only = _choose_ngrams(candidates, ~candidates, np.array([1]), np.array([[3, 2, 1, 0]], np.float32), spans)
    assert last_only[0].tolist() == [False, False, False, True]


def test_single_masks_are_what_they_were_before_there_were_ngrams():
    """The draws that were there first come first; checksums of the masks of then."""
    found = {}
    for whole_word in (False, True):
        _, out, positions, labels, *_ = masked(50, 64, 6, MaskingConfig(whole_word=whole_word))
        found[whole_word] = zlib.crc32(np.concatenate([out, positions, labels], axis=1).astype("<i8").tobytes())
    assert found == {False: 1151916640, True: 237171339}


def test_limits_of_the_settings():
    assert [max_predictions_per_seq(n, MaskingConfig()) for n in (128, 512)] == [20, 77]  # A5: 20 and 77
    shares = {"mask_share": 0.9, "random_share": 0.2}, "mask_share 0.9 + random_share 0.2"
    wrong = ({"masked_lm_prob": 1.5}, "masked_lm_prob = 1.5"), ({"mask_share": -0.1}, "mask_share -0.1")
    for settings, message in (*wrong, shares, ({"ngrams": 0}, "ngrams = 0")):
        with pytest.raises(ValueError, match=re.escape(message)):
            MaskingConfig(**settings)
