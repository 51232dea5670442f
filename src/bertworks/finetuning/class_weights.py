"""Weights of the classes in the loss of a fine-tuning run, for labels that are unbalanced.

`balanced` gives every class the same share of the loss, n / (K * n_k) as scikit-learn's `class_weight` does; where a
row may have several labels, a label's weight is (n - n_k) / n_k. Else the recipe names labels and their weights.

Shapes: n labels of the training rows, n_k of them of class k, K classes that occur.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..batch import IGNORED
from ..checkpoint.names import LABELS, listed
from ..files import InputError, shorten
from ..tasks.base import Kind, Task
from ..tasks.inputs import Inputs
from .recipe import BALANCED, parse_weight


def class_weights(given: Sequence[str], task: Task, kind: Kind, train: Inputs) -> tuple[float, ...]:
    """A weight for each of the task's labels; () if none are given.

    Raises InputError for a kind of task that has no classes, and for a label that the training rows do not have.
    """
    if not given:
        return ()
    if kind.weighted is None:
        raise InputError(
            f"class_weights = {', '.join(given)} for the kind {task.kind}, which has no classes; expected single, "
            "pair, multilabel or tagging; leave it out"
        )
    if [*given] == [BALANCED]:
        return tuple(_balanced(train.labels, len(task.labels)).tolist())
    named = dict(map(parse_weight, given))
    known = listed([*map(shorten, task.labels)], LABELS)
    if unknown := [name for name in named if name not in task.labels]:
        raise InputError(f"class_weights: {shorten(unknown[0])} is no label of the data; expected some of {known}")
    return tuple(named.get(label, 1.0) for label in task.labels)


def _balanced(labels: NDArray[np.generic], K: int) -> NDArray[np.float64]:
    """(K,) from class numbers, -100 = none, or from (N, K) marks; 1 for a class that does not occur."""
    if labels.ndim == 2:
        found = labels.astype(np.float64).sum(0)
        weights = (len(labels) - found) / np.maximum(found, 1)
        return np.where((found > 0) & (weights > 0), weights, 1.0)  # a label that every row has would weigh 0
    found = np.bincount(labels[labels != IGNORED].astype(np.int64), minlength=K).astype(np.float64)
    return np.where(found > 0, found.sum() / ((found > 0).sum() * np.maximum(found, 1)), 1.0)
