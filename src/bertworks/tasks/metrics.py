"""Metrics of the tasks, as fractions from 0 to 1; scikit-learn computes them.

Each takes the true and the predicted class numbers, (N,) each, in the order of `Task.labels`; -1 is a prediction that
the task has no name for. N examples.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics

Classes = NDArray[np.int64]


def accuracy(true: Classes, predicted: Classes) -> float:
    """Share of right predictions."""
    return float(sklearn_metrics.accuracy_score(true, predicted))


def f1(true: Classes, predicted: Classes) -> float:
    """F1 of class 1, the metric of MRPC; 0 if class 1 is neither present nor predicted."""
    return float(sklearn_metrics.f1_score(true == 1, predicted == 1, zero_division=0.0))


def macro_f1(true: Classes, predicted: Classes) -> float:
    """Mean F1 of the classes that are present: unlike accuracy, low if rare classes are never found."""
    present = np.unique(true)
    return float(sklearn_metrics.f1_score(true, predicted, labels=present, average="macro", zero_division=0.0))


METRICS: dict[str, Callable[[Classes, Classes], float]] = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1}
