"""Statistics of experiments: paired differences over seeds, and metrics of many resamples for the paired bootstrap.

Over equal seeds the interval and p are Student's t of the differences. The effect size is Hedges's g of those
differences: their mean over their standard deviation, times 1 - 3 / (4 (n - 1) - 1), which corrects the bias of few
seeds.

For the bootstrap an example is a row of numbers, and a resample is the count of each distinct row in it. So 40,000
classified pairs are a handful of distinct rows, and 10,000 resamples of them are fast. Shapes: n examples, C distinct
rows, S numbers per row, R resamples, K classes or labels.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.05  # the two-sided level of a test; intervals hold 95 %
EQUAL = 1e-12  # differences whose standard deviation is below this vary by rounding alone
Floats = NDArray[np.float64]
Measure = Callable[[Floats, Floats], Floats]  # (R, C) counts of each row, (C, S) the rows, to (R,) values
BATCH_SIZE = 1 << 22  # elements of the arrays of resamples that are in memory at a time


# ---- paired differences


@dataclass(frozen=True)
class Difference:
    """One row minus another, over the seeds that both have."""

    mean: float
    n: int
    interval: tuple[float, float] | None = None  # 95 %; none of a single seed
    p: float | None = None  # two-sided, of no difference; none of a single seed, or where the differences do not vary
    effect: float | None = None  # Hedges's g of the paired differences; none where they do not vary


def difference(base: dict[str, float], other: dict[str, float]) -> Difference | None:
    """Compare the values of two rows by seed; None if they have no seed in common."""
    values = [other[seed] - base[seed] for seed in base if seed in other]
    if not values:
        return None
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Difference(mean, n)
    sd = statistics.stdev(values)
    if sd < EQUAL:
        return Difference(mean, n, (mean, mean))
    low, high = stats.t.interval(1 - LEVEL, n - 1, mean, sd / math.sqrt(n))
    correction = 1 - 3 / (4 * (n - 1) - 1)  # zero for two pairs, too few for a standard deviation
    effect = correction * mean / sd if n > 2 else None
    return Difference(mean, n, (float(low), float(high)), float(stats.ttest_1samp(values, 0).pvalue), effect)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values, in their order."""
    order = np.argsort(values, kind="stable")
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(np.array(values)[order] * np.arange(len(values), 0, -1))
    return np.minimum(adjusted, 1.0).tolist()


def difference_text(result: Difference | None, percent: bool = True, sign: str = "+") -> str:
    """A difference with its interval, as +3.8 (+0.4 to +7.1)."""
    if result is None:
        return "-"
    scale, digits = (100, 1) if percent else (1, 2)
    mean, *ends = (f"{scale * end:{sign}z.{digits}f}" for end in (result.mean, *(result.interval or ())))
    return f"{mean} ({ends[0]} to {ends[1]})" if ends else mean


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


# ---- resamples


def resamples(rows: Floats, samples: int, seed: int) -> tuple[Floats, Iterator[Floats]]:
    """(C, S) the distinct rows, and batches of resamples with replacement: (R, C) counts of each row, R at a time."""
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    size = max(1, BATCH_SIZE // len(rows))
    rng = np.random.default_rng(seed)
    sizes = (min(size, samples - start) for start in range(0, samples, size))
    return distinct, (_resample(rng, counts, batch).astype(np.float64) for batch in sizes)


def _resample(rng: np.random.Generator, counts: NDArray[np.int64], samples: int) -> NDArray[np.int64]:
    """(samples, C) counts of each row in samples of n from n."""
    C, n = len(counts), int(counts.sum())
    if n > 10 * C:
        return rng.multinomial(n, counts / n, samples)
    row = np.repeat(np.arange(C), counts)  # faster than a binomial sample for each of many rows
    indices = row[rng.integers(n, size=(samples, n))] + C * np.arange(samples)[:, None]
    return np.bincount(indices.ravel(), minlength=samples * C).reshape(samples, C)


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, 0 where nothing is below."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


# ---- classes: a row is (true, predicted)


def accuracy(counts: Floats, rows: Floats) -> Floats:
    return ratio(counts @ (rows[:, 0] == rows[:, 1]), counts.sum(1))


def f1(counts: Floats, rows: Floats) -> Floats:
    """Of class 1."""
    return _f1_of(counts, rows[:, 0] == 1, rows[:, 1] == 1)[0]


def macro_f1(counts: Floats, rows: Floats) -> Floats:
    """Mean over the classes that a resample has."""
    pairs = [_f1_of(counts, rows[:, 0] == k, rows[:, 1] == k) for k in np.unique(rows[:, 0])]
    return _mean_of_present(pairs)


def matthews(counts: Floats, rows: Floats) -> Floats:
    """The coefficient of any number of classes (Gorodkin, 2004); 0 if all true or all predicted classes are equal."""
    n, right = counts.sum(1), counts @ (rows[:, 0] == rows[:, 1])
    classes = np.unique(rows)
    true, predicted = (counts @ (rows[:, [i]] == classes).astype(np.float64) for i in (0, 1))  # (R, K)
    variance = (n**2 - (true**2).sum(1)) * (n**2 - (predicted**2).sum(1))
    covariance = n * right - (true * predicted).sum(1)
    return np.divide(covariance, np.sqrt(variance), out=np.zeros_like(n), where=variance > 0)


def _f1_of(counts: Floats, true: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """F1, and the number of true ones."""
    count = counts @ true
    return ratio(2 * (counts @ (true & predicted)), count + counts @ predicted), count


def _mean_of_present(pairs: list[tuple[Floats, Floats]]) -> Floats:
    values, present = (np.stack([pair[i] for pair in pairs]) for i in (0, 1))
    return ratio((values * (present > 0)).sum(0), (present > 0).sum(0).astype(np.float64))


# ---- several labels: a row is K of 0 and 1 that are true, then K that are predicted


def micro_f1(counts: Floats, rows: Floats) -> Floats:
    true, predicted = np.hsplit(rows, 2)
    return ratio(2 * (counts @ (true * predicted).sum(1)), counts @ (true + predicted).sum(1))


def label_macro_f1(counts: Floats, rows: Floats) -> Floats:
    """Mean over the labels that a resample has."""
    true, predicted = np.hsplit(rows > 0, 2)
    return _mean_of_present([_f1_of(counts, true[:, k], predicted[:, k]) for k in range(true.shape[1])])


def exact_match(counts: Floats, rows: Floats) -> Floats:
    true, predicted = np.hsplit(rows, 2)
    return ratio(counts @ (true == predicted).all(1), counts.sum(1))


# ---- values: a row is (true, predicted)


def pearson(counts: Floats, rows: Floats) -> Floats:
    return _correlation(counts, *(rows - rows.mean(0)).T[:, None])  # centred: the sums of squares lose no digits


def spearman(counts: Floats, rows: Floats) -> Floats:
    """Pearson's of the ranks, which are those within the resample; equal values have the mean of their ranks."""
    middle = counts.sum(1, keepdims=True) / 2
    return _correlation(counts, *(_ranks(counts, rows[:, i]) - middle for i in (0, 1)))


def _ranks(counts: Floats, values: Floats) -> Floats:
    """(R, C) the rank of each row's value among those of the resample."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-np.inf))
    equal = np.add.reduceat(counts[:, order], starts, axis=1)  # of each distinct value
    rank = equal.cumsum(1) - (equal - 1) / 2
    _, number = np.unique(values, return_inverse=True)
    return rank[:, number]


def _correlation(counts: Floats, x: Floats, y: Floats) -> Floats:
    """x, y: (R, C), or (1, C) if they are equal in all resamples. 0 if x or y is constant."""
    n = counts.sum(1)
    mean_x, mean_y = ((counts * values).sum(1) / n for values in (x, y))
    both = (counts * x * y).sum(1) - n * mean_x * mean_y
    square = ((counts * x * x).sum(1) - n * mean_x**2) * ((counts * y * y).sum(1) - n * mean_y**2)
    sound = square > 1e-18 * np.maximum(square.max(initial=0.0), 1e-300)  # of a constant it is only rounding
    return np.divide(both, np.sqrt(square, where=sound, out=np.ones_like(square)), out=np.zeros_like(both), where=sound)


# ---- answers: a row is (exact, F1); tags: entities (correct, predicted, true), then units (correct, all)


def mean_of(column: int) -> Measure:
    """The mean of a column."""
    return lambda counts, rows: ratio(counts @ rows[:, column], counts.sum(1))


def fraction_of(column: int, *others: int) -> Measure:
    """Sum of a column over the mean of the sums of others: F1 = correct / mean of predicted and true."""
    return lambda counts, rows: ratio(counts @ rows[:, column], counts @ rows[:, list(others)].sum(1) / len(others))


CLASSES: dict[str, Measure] = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "matthews": matthews}
LABELS: dict[str, Measure] = {"micro_f1": micro_f1, "exact_match": exact_match, "macro_f1": label_macro_f1}
VALUES: dict[str, Measure] = {"pearson": pearson, "spearman": spearman}
ANSWERS: dict[str, Measure] = {"exact": mean_of(0), "f1": mean_of(1)}
TAGS: dict[str, Measure] = {
    "f1": fraction_of(0, 1, 2),
    "precision": fraction_of(0, 1),
    "recall": fraction_of(0, 2),
    "accuracy": fraction_of(3, 4),
}
