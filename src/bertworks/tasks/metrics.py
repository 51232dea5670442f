"""Metrics of the tasks, as fractions (correlations from -1 to 1); scikit-learn and SciPy compute them.

Each takes what is true and what is predicted, (N,) class numbers in the order of `Task.labels`, (N,) values, or (N, K)
of 0 and 1 where an example has several labels. N examples, K labels.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as sklearn_metrics

Classes = NDArray[np.int64]
Values = NDArray[np.float32]


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


def matthews(true: Classes, predicted: Classes) -> float:
    """Matthews' correlation coefficient, the metric of CoLA and AX; 0 if one class only is predicted."""
    return float(sklearn_metrics.matthews_corrcoef(true, predicted))


def pearson(true: Values, predicted: Values) -> float:
    """Pearson's correlation; 0 where one side is constant and it is not defined."""
    return _correlation(stats.pearsonr, true, predicted)


def spearman(true: Values, predicted: Values) -> float:
    """Spearman's rank correlation, STS-B's column in the paper; 0 where one side is constant."""
    return _correlation(stats.spearmanr, true, predicted)


def _correlation(measure: Callable[..., Any], true: Values, predicted: Values) -> float:
    if len(true) < 2 or np.ptp(true) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(measure(true.astype(np.float64), predicted.astype(np.float64)).statistic)


def micro_f1(true: Values, predicted: Values) -> float:
    """F1 over all (example, label) pairs of a multi-label task; 0 if nothing is true or predicted."""
    return float(sklearn_metrics.f1_score(true, predicted, average="micro", zero_division=0.0))


def exact_match(true: Values, predicted: Values) -> float:
    """Share of examples with exactly the right set of labels."""
    return float((true == predicted).all(-1).mean())


METRICS: dict[str, Callable[[Any, Any], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, macro_f1, matthews, pearson, spearman, micro_f1, exact_match)
}
