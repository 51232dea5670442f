"""The paired difference of two systems over equal seeds: mean, 95 % interval, p and effect size.

The interval and p are Student's t over the differences of equal seeds. The effect size is Hedges's g of those
differences: their mean over their standard deviation, times 1 - 3 / (4 (n - 1) - 1), which corrects the bias of few
seeds.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

EQUAL = 1e-12  # differences whose standard deviation is below this vary by rounding alone
LEVEL = 0.05  # the two-sided level of a test; intervals hold 95 %


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
    found = [other[seed] - base[seed] for seed in base if seed in other]
    if not found:
        return None
    mean, n = statistics.fmean(found), len(found)
    if n < 2:
        return Difference(mean, n)
    spread = statistics.stdev(found)
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * spread / math.sqrt(n)
    if spread < EQUAL:
        return Difference(mean, n, (mean - half, mean + half))
    p = float(2 * stats.t.sf(abs(mean) / spread * math.sqrt(n), n - 1))
    corrected = 1 - 3 / (4 * (n - 1) - 1)  # zero of two pairs, which say nothing of a spread
    return Difference(mean, n, (mean - half, mean + half), p, corrected * mean / spread if n > 2 else None)


def paired(base: dict[str, float], other: dict[str, float]) -> dict[str, Any] | None:
    """The difference as results.json has it: `mean`, `n`, and `interval` (None of a single seed)."""
    found = difference(base, other)
    if found is None:
        return None
    return {"mean": found.mean, "n": found.n, "interval": list(found.interval) if found.interval else None}


def p_beyond(found: Difference, margin: float) -> float | None:
    """Two-sided p of a difference of at most `margin` in either direction; at most 5 % if the interval is outside."""
    if found.p is None or found.interval is None:
        return None
    half = (found.interval[1] - found.interval[0]) / 2
    error = half / float(stats.t.ppf(1 - LEVEL / 2, found.n - 1))
    return float(2 * stats.t.sf(max(0.0, abs(found.mean) - margin) / error, found.n - 1))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values, in their order."""
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, number in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[number]))
        adjusted[number] = largest
    return adjusted


def difference_text(found: Difference | None, percent: bool = True, sign: str = "+") -> str:
    """A difference with its interval, as +3.8 (+0.4 to +7.1)."""
    if found is None:
        return "-"
    scale, digits = (100, 1) if percent else (1, 2)
    mean, *ends = (f"{scale * end:{sign}z.{digits}f}" for end in (found.mean, *(found.interval or ())))
    return f"{mean} ({ends[0]} to {ends[1]})" if ends else mean


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
