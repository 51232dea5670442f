"""How far the probabilities of a classifier can be trusted, and where its labels begin.

A reliability table divides predictions by their confidence into BINS of equal width and compares the mean confidence of
each with the share that is right; the expected calibration error (ECE) is the mean gap, weighted by the number of
predictions (Guo et al. 2017, section 2). Of one label a row the confidence is the largest probability; where a row may
have several labels, every probability of a label counts, and the label is there or not.

Shapes: N examples, K labels, P predictions (N, or N * K of several labels).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

BINS = 15  # as Guo et al. have them
HALF = 0.5  # a label is there above this probability, unless a threshold was chosen for it

Floats = NDArray[np.floating[Any]]

if TYPE_CHECKING:
    from torch import Tensor


def function_of(kind: str, outputs: int) -> Literal["none", "sigmoid", "softmax"]:
    """What turns a classifier's scores into its answers, as in the text-classification pipeline of transformers."""
    if kind == "regression":
        return "none"
    return "sigmoid" if kind == "multilabel" or outputs == 1 else "softmax"


def probabilities(scores: "Tensor", kind: str) -> "Tensor":
    """(N, K) float64 probabilities from (N, K) scores; the values of a regression as they are."""
    function, scores = function_of(kind, scores.shape[-1]), scores.double()
    return scores if function == "none" else scores.sigmoid() if function == "sigmoid" else scores.softmax(-1)


def reliability(probabilities: Floats, true: NDArray[Any]) -> list[dict[str, float]]:
    """The bins with predictions in them: `count`, mean `confidence`, `accuracy` (the share that is right).

    probabilities (N, K); true (N,) class numbers, or (N, K) of 0 and 1.
    """
    confidence = probabilities.ravel() if true.ndim == 2 else probabilities.max(1)  # (P,)
    right = true.ravel() > 0 if true.ndim == 2 else probabilities.argmax(1) == true
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    chosen = (bins == number for number in np.unique(bins))
    return [
        {"count": int(some.sum()), "confidence": float(confidence[some].mean()), "accuracy": float(right[some].mean())}
        for some in chosen
    ]


def expected_calibration_error(table: Sequence[Mapping[str, float]]) -> float:
    """The ECE of a reliability table, a fraction; 0 of no predictions."""
    total = sum(row["count"] for row in table)
    return sum(row["count"] * abs(row["accuracy"] - row["confidence"]) for row in table) / max(total, 1)


def thresholds_of(labels: Sequence[str], settings: Mapping[str, Any]) -> NDArray[np.float64]:
    """(K,) probabilities above which each of several labels is there, by the settings stored with a model."""
    chosen = settings.get("thresholds", {})
    return np.array([chosen.get(name, HALF) for name in labels], np.float64)
