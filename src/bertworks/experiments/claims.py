"""What a comparison of two rows of a study shows: difference, interval, effect size, p and a verdict.

Values are paired by seed. The interval and p are Student's t over the differences of equal seeds. The effect size is
Hedges's g of those differences: their mean over their standard deviation, times 1 - 3 / (4 (n - 1) - 1), which corrects
the bias of few seeds. A study names one comparison before it is run (its claim); all others are exploratory, and where
a table has several, Holm's correction says which of them hold together at 5 %.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy import stats

from ..files import check_fields
from ..reporting.tables import ResultTable
from .compare import paired
from .recipe import Claim

UNIT = "fine-tuning seeds of one encoder"  # what n counts, unless results name another unit
UNITS = "pre-training seeds"  # what n counts where a study names several
LEVEL = 0.05  # the two-sided level of a test; intervals hold 95 %
CLAIM = {  # of a study's results.json
    **dict.fromkeys(("row", "column", "expect", "finding", "against"), str),
    "margin": float,
    "named_before": bool,
}


@dataclass(frozen=True)
class Difference:
    """One row minus another, over the seeds that both have."""

    mean: float
    n: int
    interval: tuple[float, float] | None = None  # 95 %; none of a single seed
    p: float | None = None  # two-sided, of no difference; none of a single seed
    effect: float | None = None  # Hedges's g of the paired differences; none where they do not vary


def difference(base: dict[str, float], other: dict[str, float]) -> Difference | None:
    """Compare the values of two rows by seed; None if they have no seed in common."""
    found = paired(base, other)
    if found is None or found["interval"] is None:
        return None if found is None else Difference(found["mean"], found["n"])
    mean, n, (low, high) = found["mean"], found["n"], found["interval"]
    spread = statistics.stdev(other[seed] - base[seed] for seed in base if seed in other)
    if spread == 0:
        return Difference(mean, n, (low, high), 0.0 if mean else 1.0)
    p = float(2 * stats.t.sf(abs(mean) / spread * math.sqrt(n), n - 1))
    corrected = 1 - 3 / (4 * (n - 1) - 1)  # zero of two pairs, which say nothing of a spread
    return Difference(mean, n, (low, high), p, corrected * mean / spread if n > 2 else None)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of p-values, in their order: equal to or below the level if the claim still holds."""
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, number in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[number]))
        adjusted[number] = largest
    return adjusted


def verdict(found: Difference | None, expect: str, margin: float = 0.0, p: float | None = None) -> str:
    """Say what a difference shows of an expected one ("higher", "lower", "equal" within `margin`).

    p: corrected for other comparisons; none: the difference's own. Equality is shown by an interval within the margin.
    """
    if found is None:
        return "not run"
    if expect == "equal":
        near = found.interval is not None and max(map(abs, found.interval)) <= margin
        return "shown" if near else "not shown"
    p = found.p if p is None else p
    right, sure = (found.mean > 0) == (expect == "higher") and found.mean != 0, p is not None and p <= LEVEL
    if right:
        return "shown" if sure else "direction only"
    return "the opposite is shown" if sure else "not shown"


# ---- the claim of a study


def claim_results(claim: Claim, base: str, named_before: bool) -> dict[str, Any]:
    """The claim as results.json has it. named_before: whether no run of its two rows was finished when it was named."""
    return asdict(claim) | {"against": claim.against or base, "named_before": named_before}


def claimed(results: dict[str, Any]) -> Difference | None:
    """The difference that a study's claim is about; None if it was not run."""
    claim = results["claim"]
    row, against = (_values(results, name, claim["column"]) for name in (claim["row"], claim["against"]))
    return difference(against, row)


def _values(results: dict[str, Any], row: str, column: str) -> dict[str, float]:
    found = (e["values"] for e in results["measured"] if (e["row"], e["column"]) == (row, column))
    return next(found, {})


def claim_table(results: dict[str, Any]) -> ResultTable | None:
    """The claim of a study: what was expected, what was found, and what that shows. None if the study names none."""
    claim = results.get("claim")
    if claim is None:
        return None
    check_fields(claim, CLAIM, "the study's claim", "run the study again: it writes results.json anew")
    found, percent = claimed(results), _percent(results, claim["column"])
    left, cells = len(results["left"]), len(results["cells"])
    within = f" within {claim['margin']:g}" if claim["expect"] == "equal" else ""
    margin = claim["margin"] / (100 if percent else 1)
    rows = [
        ("comparison", f"{claim['column']}: {claim['row']} against {claim['against']}"),
        ("finding of the source", claim["finding"]),
        ("expected here", claim["expect"] + within),
        ("difference", difference_text(found, percent) + (" points" if percent and found else "")),
        ("p, paired t-test", "-" if found is None or found.p is None else p_text(found.p)),
        ("effect size, Hedges's g of paired differences", effect_text(found)),
        ("n", f"{found.n if found else 0} {results.get('unit', UNIT)}"),
        ("verdict", _with_reservation(verdict(found, claim["expect"], margin), results)),
        ("runs of the study", f"{cells}, of which {left} have not been run" if left else f"{cells}, all of them run"),
    ]
    named = "before its rows were run" if claim["named_before"] else "after its rows were run"
    return ResultTable(results["title"], ("claim", "result"), rows, (f"The claim was named {named}.",))


def _with_reservation(shown: str, results: dict[str, Any]) -> str:
    """Limit a verdict to the two encoders where the rows differ in pre-training and n counts fine-tuning seeds."""
    claim, unit = results["claim"], results.get("unit", UNIT)
    trained = {(r["start"], r["tokens"]) for r in results["rows"] if r["name"] in (claim["row"], claim["against"])}
    limited = unit == UNIT and len(trained) > 1 and shown.endswith("shown") and not shown.startswith("not")
    return f"{shown}, for these two encoders" if limited else shown


def _percent(results: dict[str, Any], column: str) -> bool:
    return next((one["percent"] for one in results["columns"] if one["name"] == column), True)


def difference_text(found: Difference | None, percent: bool = True, sign: str = "+") -> str:
    """A difference with its interval, as +3.8 (+0.4 to +7.1)."""
    if found is None:
        return "-"
    scale, digits = (100, 1) if percent else (1, 2)
    mean, *ends = (f"{scale * end:{sign}.{digits}f}" for end in (found.mean, *(found.interval or ())))
    return f"{mean} ({ends[0]} to {ends[1]})" if ends else mean


def effect_text(found: Difference | None) -> str:
    return "-" if found is None or found.effect is None else f"{found.effect:+.1f}"


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
