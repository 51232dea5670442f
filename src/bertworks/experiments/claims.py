"""The claim of a study: the one comparison that is named before its runs, and its verdict.

All other comparisons are exploratory. If a table has several, Holm's correction determines which of them hold together
at 5 %. A claim gets no verdict if it was named after its runs, or if a run of its rows collapsed to one answer.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..reporting.tables import ResultTable
from .recipe import Claim
from .statistics import LEVEL, Difference, difference, difference_text, p_text

UNIT = "fine-tuning seeds of one encoder"  # what n counts, unless results name another unit
UNITS = "pre-training seeds"  # what n counts where a study names several
DRAWS = "draws of training rows, each with its fine-tuning seed, for one encoder"  # what n counts in a column with draw
NO_ENCODER = ("random", "none")  # weights of rows whose fine-tuning starts from random weights, or without a model


def verdict(observed: Difference | None, expect: str, margin: float = 0.0, p: float | None = None) -> str:
    """Whether a difference is the expected one ("higher", "lower", "equal" within `margin`).

    p: corrected for other comparisons; none: the difference's own. Equality is shown by an interval within the margin,
    and its opposite by an interval wholly outside; corrected, `p` is then that of a difference beyond the margin.
    """
    if observed is None:
        return "not run"
    if expect == "equal":
        low, high = observed.interval or (-math.inf, math.inf)
        if low > margin or high < -margin:
            return "the opposite is shown" if p is None or p <= LEVEL else "not shown"
        return "shown" if -margin <= low and high <= margin else "not shown"
    p = observed.p if p is None else p
    if p is None or p > LEVEL:
        return "not shown"
    return "shown" if (observed.mean > 0) == (expect == "higher") else "the opposite is shown"


def claim_results(claim: Claim, base: str, named_before: bool) -> dict[str, Any]:
    """The claim as results.json has it. named_before: whether no run of its two rows was finished when it was named."""
    results = asdict(claim) | {"against": claim.against or base, "named_before": named_before}
    beyond = results.pop("beyond")
    return results | ({"beyond": list(beyond)} if beyond else {})


def claimed_rows(claim: dict[str, Any]) -> tuple[str, ...]:
    """The names of all rows that a claim is about."""
    return (claim["row"], claim["against"], *claim.get("beyond", ()))


def claimed(results: dict[str, Any]) -> Difference | None:
    """The difference that a study's claim is about, or of two differences; None if it was not run."""
    claim = results["claim"]
    measured = {entry["row"]: entry["values"] for entry in results["measured"] if entry["column"] == claim["column"]}
    row, against, *beyond = (measured.get(name, {}) for name in claimed_rows(claim))
    if beyond:
        row, against = (
            {seed: one[seed] - less[seed] for seed in one if seed in less}
            for one, less in zip((row, against), beyond, strict=True)
        )
    return difference(against, row)


def claim_table(results: dict[str, Any]) -> ResultTable | None:
    """The claim of a study: the expected difference, the observed one and the verdict. None if the study has none."""
    claim = results.get("claim")
    if claim is None:
        return None
    column: dict[str, Any] = next((c for c in results["columns"] if c["name"] == claim["column"]), {"percent": True})
    observed, percent = claimed(results), column["percent"]
    unit = results.get("unit", UNIT)
    unit = DRAWS if column.get("draw") and unit == UNIT else unit
    left, runs = len(results["left"]), len(results["cells"])
    within = f" within {claim['margin']:g}" if claim["expect"] == "equal" else ""
    effect = "-" if observed is None or observed.effect is None else f"{observed.effect:+.1f}"
    rows = [
        ("comparison", comparison_text(claim)),
        ("finding of the source", claim["finding"]),
        ("expected here", claim["expect"] + within),
        ("difference", difference_text(observed, percent) + (" points" if percent and observed else "")),
        ("p, paired t-test", _p(observed, claim)),
        ("effect size, Hedges's g of paired differences", effect),
        ("n", f"{observed.n if observed else 0} {unit}"),
        ("verdict", _claim_verdict(observed, results, percent)),
        ("runs of the study", f"{runs}, of which {left} have not been run" if left else f"{runs}, all of them run"),
    ]
    named = "before its rows were run" if claim["named_before"] else "after its rows were run"
    return ResultTable(results["title"], ("claim", "result"), rows, (f"The claim was named {named}.",))


def comparison_text(claim: dict[str, Any]) -> str:
    """The rows that a claim compares, in words."""
    text = f"{claim['column']}: {claim['row']} against {claim['against']}"
    beyond = claim.get("beyond")
    return f"{text}, minus {beyond[0]} against {beyond[1]}" if beyond else text


def _claim_verdict(observed: Difference | None, results: dict[str, Any], percent: bool) -> str:
    """The verdict of a study's claim, or why it has none."""
    claim = results["claim"]
    names = claimed_rows(claim)
    if observed is None:
        return "not run"
    if not claim["named_before"]:
        return "none (exploratory)"
    entries = [e for e in results["measured"] if e["row"] in names and e["column"] == claim["column"]]
    if collapsed := sum(entry["collapsed"] for entry in entries):
        return f"none ({collapsed} of the runs collapsed to one answer)"
    margin = claim["margin"] / (100 if percent else 1)
    return limited_verdict(verdict(observed, claim["expect"], margin), results, names)


def limited_verdict(shown: str, results: dict[str, Any], names: Sequence[str]) -> str:
    """Limit a verdict on these rows to the encoders that they start from, unless n counts encoders."""
    if results.get("unit", UNIT) == UNITS:
        return shown
    weights = {weights_of(row) for row in results["rows"] if row["name"] in names}
    return limited(shown, len(weights.difference(NO_ENCODER)))


def limited(shown: str, encoders: int) -> str:
    """A verdict that holds for this number of encoders; "not shown" needs no limit."""
    significant = shown in ("shown", "the opposite is shown") and encoders
    return f"{shown}, for {'these two encoders' if encoders > 1 else 'this encoder'}" if significant else shown


def weights_of(row: dict[str, Any]) -> str:
    """An identifier of the weights that a row starts from; of older results its start and the tokens of its training.

    Older results have no name of the user's model folders, so that each counts as another one.
    """
    if row.get("weights"):
        return str(row["weights"])
    return "random" if row["tokens"] == 0 else str((row["start"] or row["name"], row["tokens"]))


def _p(observed: Difference | None, claim: dict[str, Any]) -> str:
    """p of no difference, which does not test a claim of equality."""
    if observed is None or observed.n < 2 or claim["expect"] == "equal":
        return "-"
    if observed.p is None:
        return "none, the differences do not vary"
    return p_text(observed.p) + ("" if claim["named_before"] else " without correction")
