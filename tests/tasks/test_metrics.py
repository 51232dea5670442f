"""Metrics against figures made by hand, and what majority_score gives."""

import itertools

import numpy as np
import pytest

from bertworks.tasks.metrics import (
    METRICS,
    accuracy,
    exact_match,
    f1,
    macro_f1,
    majority_score,
    matthews,
    micro_f1,
    pearson,
    spearman,
)

TRUE = np.array([1, 1, 1, 0, 0, 0, 0, 0])
PREDICTED = np.array([1, 1, 0, 1, 0, 0, 0, -1])  # 2 hits of 3 predicted and of 3 present; one unknown label
SETS = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], np.float32)
TOLD = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 0]], np.float32)  # 3 hits of 5 told and of 4 true


def test_by_hand():
    assert accuracy(TRUE, PREDICTED) == 5 / 8
    assert f1(TRUE, PREDICTED) == pytest.approx(2 / 3)
    zero = 2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5)
    assert macro_f1(TRUE, PREDICTED) == pytest.approx((2 / 3 + zero) / 2)
    two = np.array([1, 1, 0, 1, 0, 0, 0, 0])  # 2 true and 4 false ones right, 1 wrong each way
    assert matthews(TRUE, two) == pytest.approx((2 * 4 - 1 * 1) / (3 * 3 * 5 * 5) ** 0.5)


def test_correlations():
    true, told = np.array([0, 1, 2, 5], np.float32), np.array([1, 3, 2, 2], np.float32)  # ranks 1 2 3 4; 1 4 2.5 2.5
    assert pearson(true, told) == pytest.approx(1 / (14 * 2) ** 0.5)
    assert spearman(true, told) == pytest.approx(1.5 / (5 * 4.5) ** 0.5)
    assert pearson(true, np.ones(4, np.float32)) == spearman(true, np.ones(4, np.float32)) == 0.0
    assert pearson(true[:1], told[:1]) == 0.0


def test_several_labels():
    assert micro_f1(SETS, TOLD) == pytest.approx(2 * 3 / (5 + 4)) and exact_match(SETS, TOLD) == 2 / 4
    assert macro_f1(SETS, TOLD) == pytest.approx((1 + 1 / 2) / 2)  # the third label is never true
    assert macro_f1(np.zeros((2, 3), np.float32), TOLD[:2]) == micro_f1(SETS * 0, TOLD * 0) == 0.0


def test_a_collapsed_run():
    assert f1(TRUE, np.zeros(8, int)) == matthews(TRUE, np.ones(8, int)) == 0.0
    assert f1(TRUE, np.ones(8, int)) == pytest.approx(2 * 3 / 11)
    assert macro_f1(np.array([0, 2]), np.array([2, 2])) == pytest.approx(1 / 3)  # class 1 is not present


def test_majority_score_is_the_best_constant_answer():
    rng = np.random.default_rng(0)
    for _ in range(20):
        classes = rng.integers(0, 3, 12)
        for name in ("accuracy", "macro_f1", "f1", "matthews"):
            best = max(METRICS[name](classes, np.full(12, c)) for c in range(3))
            assert majority_score(name, classes) == pytest.approx(best), name
        sets = (rng.random((12, 3)) < rng.random(3)).astype(np.float32)
        for name in ("micro_f1", "exact_match"):
            answers = (np.tile(np.float32(answer), (12, 1)) for answer in itertools.product((0, 1), repeat=3))
            assert majority_score(name, sets) == pytest.approx(
                max(METRICS[name](sets, answer) for answer in answers)
            ), name
    assert majority_score("spearman", np.array([1.5, 2.0, 2.5], np.float32)) == 0.0
