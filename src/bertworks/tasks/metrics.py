"""Metrics of the tasks, as fractions (correlations from -1 to 1); scikit-learn and SciPy compute them.

Both libraries are slow to import, so only the functions that need them do: a predictor starts without them. Each
takes what is true and what is predicted, (N,) class numbers in the order of `Task.labels`, (N,) values, or (N, K)
of 0 and 1 where an example has several labels. N examples, K labels.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAME = 1e-5  # values of a regression that differ by less than this fraction of their size are the same but for rounding

Classes = NDArray[np.int64]
Values = NDArray[np.float32]


def accuracy(true: Classes, predicted: Classes) -> float:
    """Fraction of right predictions."""
    return float((true == predicted).mean())


def f1(true: Classes, predicted: Classes) -> float:
    """F1 of class 1, the metric of MRPC; 0 if class 1 is neither present nor predicted."""
    return _f1(true == 1, predicted == 1, "binary")


def macro_f1(true: Classes | Values, predicted: Classes | Values) -> float:
    """Mean F1 of the classes that are present: unlike accuracy, low if rare classes are never found."""
    present = np.unique(true) if true.ndim == 1 else np.flatnonzero(true.any(0))
    return _f1(true, predicted, "macro", present) if len(present) else 0.0


def micro_f1(true: Values, predicted: Values) -> float:
    """F1 over all (example, label) pairs of a multi-label task; 0 if nothing is true or predicted."""
    return _f1(true, predicted, "micro")


def _f1(true: NDArray[Any], predicted: NDArray[Any], average: str, labels: NDArray[Any] | None = None) -> float:
    from sklearn import metrics

    return float(metrics.f1_score(true, predicted, labels=labels, average=average, zero_division=0.0))


def matthews(true: Classes, predicted: Classes) -> float:
    """Matthews' correlation coefficient, the metric of CoLA and AX; 0 if one class only is predicted."""
    from sklearn import metrics

    if (predicted == predicted[:1]).all():
        return 0.0  # scikit-learn would say so too, but warn if that class is the only true one
    return float(metrics.matthews_corrcoef(true, predicted))


def pearson(true: Values, predicted: Values) -> float:
    """Pearson's correlation; 0 where one of the two is constant and it is not defined."""
    from scipy import stats

    return _correlation(stats.pearsonr, true, predicted)


def spearman(true: Values, predicted: Values) -> float:
    """Spearman's rank correlation, STS-B's column in the paper; 0 where one of the two is constant."""
    from scipy import stats

    return _correlation(stats.spearmanr, true, predicted)


def _correlation(measure: Callable[..., Any], true: Values, predicted: Values) -> float:
    if len(true) < 2 or np.ptp(true) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(measure(true.astype(np.float64), predicted.astype(np.float64)).statistic)


def exact_match(true: Values, predicted: Values) -> float:
    """Fraction of examples with exactly the right set of labels."""
    return float((true == predicted).all(-1).mean())


METRICS: dict[str, Callable[[Any, Any], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, macro_f1, matthews, pearson, spearman, micro_f1, exact_match)
}


def all_same(predicted: NDArray[Any]) -> bool:
    """Whether all rows got the same answer; values of a regression may differ by rounding."""
    if predicted.dtype.kind != "f" or predicted.ndim == 2:
        return bool((predicted == predicted[:1]).all())
    return bool(np.ptp(predicted) <= SAME * np.abs(predicted).max())


def majority_score(name: str, true: Classes | Values) -> float:
    """The metric of the majority-class baseline: one class everywhere, or one set of labels."""
    if true.ndim == 1 and true.dtype.kind == "f":
        return 0.0  # a constant has no correlation
    if true.ndim == 1:
        answers = [np.asarray(np.bincount(true[true >= 0].astype(np.int64), minlength=2).argmax()), np.asarray(1)]
    else:
        rows, counts = np.unique(true, axis=0, return_counts=True)
        often = np.argsort(-true.sum(0), kind="stable")
        hits, predicted = np.cumsum(true.sum(0)[often]), len(true) * np.arange(1, len(often) + 1)
        chosen = often[: (hits / (predicted + true.sum())).argmax() + 1]  # so many labels have the best micro F1
        answers = [rows[counts.argmax()], np.isin(np.arange(len(often)), chosen)]
    return max(METRICS[name](true, np.broadcast_to(answer, true.shape).astype(true.dtype)) for answer in answers)
