"""Metrics against figures made by hand."""

import numpy as np
import pytest

from bertworks.tasks.metrics import accuracy, f1, macro_f1

TRUE = np.array([1, 1, 1, 0, 0, 0, 0, 0])
PREDICTED = np.array([1, 1, 0, 1, 0, 0, 0, -1])  # 2 hits of 3 predicted and of 3 present; one unknown label


def test_by_hand():
    assert accuracy(TRUE, PREDICTED) == 5 / 8
    assert f1(TRUE, PREDICTED) == pytest.approx(2 / 3)
    zero = 2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5)
    assert macro_f1(TRUE, PREDICTED) == pytest.approx((2 / 3 + zero) / 2)


def test_a_collapsed_run():
    assert f1(TRUE, np.zeros(8, int)) == 0.0
    assert f1(TRUE, np.ones(8, int)) == pytest.approx(2 * 3 / 11)
    assert macro_f1(np.array([0, 2]), np.array([2, 2])) == pytest.approx(1 / 3)  # class 1 is not present
