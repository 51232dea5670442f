"""Claims: p, effect size and Holm's correction are right, and a verdict is not stronger than its evidence."""

import math
import statistics

import pytest
from scipy import stats

from bertworks.experiments.claims import claimed, verdict
from bertworks.experiments.statistics import Difference, difference, holm
from bertworks.experiments.tables import differences, tables

BASE = {"1": 0.50, "2": 0.60, "3": 0.40, "9": 0.0}
OTHER = {"1": 0.60, "2": 0.65, "3": 0.55}


def test_p_is_scipys_and_the_effect_size_by_hand():
    result = difference(BASE, OTHER)
    expected = stats.ttest_rel([0.6, 0.65, 0.55], [0.5, 0.6, 0.4])
    assert (result.n, result.mean, result.p) == (3, pytest.approx(0.1), pytest.approx(expected.pvalue))
    low, high = expected.confidence_interval(0.95)
    assert result.interval == pytest.approx((low, high))
    # differences 0.10, 0.05, 0.15: mean 0.1, standard deviation 0.05, and 1 - 3 / 7 of three pairs
    assert result.effect == pytest.approx(4 / 7 * 2)
    reverse = difference(OTHER, BASE)
    assert (reverse.mean, reverse.p, reverse.effect) == (pytest.approx(-0.1), pytest.approx(result.p), -result.effect)


def test_few_seeds_have_no_interval_or_no_effect_size():
    assert difference({"1": 0.5}, {"2": 0.5}) is None
    assert difference({"1": 0.5}, {"1": 0.75}) == Difference(0.25, 1)
    two = difference({"1": 0.5, "2": 0.5}, {"1": 0.6, "2": 0.7})
    assert two.effect is None and 0 < two.p < 1


def test_differences_that_do_not_vary_have_no_p():
    """Those of 0.80, 0.83, 0.86 and 0.83, 0.86, 0.89 vary by rounding alone."""
    for base, other, mean in (((0.5, 0.5), (0.5, 0.5), 0), ((0.80, 0.83, 0.86), (0.83, 0.86, 0.89), 0.03)):
        result = difference(*({str(seed): value for seed, value in enumerate(values)} for values in (base, other)))
        assert result.mean == pytest.approx(mean) and result.p is None and result.effect is None
        assert verdict(result, "higher") == "not shown"
    results = made_results()
    results["measured"][3]["values"] = {"0": 0.53, "1": 0.53, "2": 0.53}
    assert claim_of(results)["p, paired t-test"] == "none, the differences do not vary"


def test_holms_correction():
    assert holm([]) == [] and holm([0.04]) == [0.04]
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("result", "expect", "said"),
    [
        (None, "higher", "not run"),
        (Difference(0.02, 3, (0.01, 0.03), 0.01), "higher", "shown"),
        (Difference(0.02, 3, (-0.01, 0.05), 0.1), "higher", "not shown"),
        (Difference(0.02, 3, (-0.01, 0.05), 0.1), "lower", "not shown"),
        (Difference(0.02, 3, (0.01, 0.03), 0.01), "lower", "the opposite is shown"),
        (Difference(0.002, 3, (-0.005, 0.009), 0.6), "equal", "shown"),
        (Difference(0.002, 3, (-0.015, 0.019), 0.6), "equal", "not shown"),
        (Difference(-0.064, 3, (-0.073, -0.056), 0.001), "equal", "the opposite is shown"),
        (Difference(0.03, 3, (0.009, 0.051), 0.03), "equal", "not shown"),
    ],
)
def test_verdicts(result, expect, said):
    assert verdict(result, expect, margin=0.01) == said
    if said == "shown" and expect != "equal":  # with a corrected p, where other comparisons were made too
        assert verdict(result, expect, p=0.2) == "not shown"
    if said == "the opposite is shown" and expect == "equal":
        assert (verdict(result, expect, 0.01, 0.04), verdict(result, expect, 0.01, 0.2)) == (said, "not shown")


def made_results():
    """A study of two variants and two columns: one difference holds after Holm's correction, one only alone."""
    values = {
        ("base", "A"): [0.50, 0.51, 0.52],
        ("row", "A"): [0.60, 0.611, 0.619],
        ("base", "B"): [0.50, 0.50, 0.50],
        ("row", "B"): [0.53, 0.54, 0.55],
        ("late", "A"): [],
        ("late", "B"): [],
    }
    nothing = {"collapsed": 0, "failed": [], "paper": None, "paper_difference": None, "against": "base"}
    measured = [
        {"row": row, "column": column, "values": {str(i): value for i, value in enumerate(each)}, "n": len(each),
         "mean": statistics.fmean(each) if each else None, "sd": statistics.stdev(each) if each else None, **nothing}
        for (row, column), each in values.items()
    ]  # fmt: skip
    costs = dict.fromkeys(("parameters", "tokens", "pretrain_seconds", "finetune_seconds"))
    claim = {"row": "row", "column": "B", "expect": "higher", "finding": "it helps", "against": "base", "margin": 1.0}
    return {
        "title": "Made",
        "base": "base",
        "minute": False,
        "seeds": [0, 1, 2],
        "columns": [{"name": name, "percent": True} for name in "AB"],
        "rows": [{"name": name, "start": "one", **costs} for name in ("base", "row", "late")],
        "measured": measured,
        "paper_curves": {},
        "notes": [],
        "cells": dict.fromkeys(map(str, range(20))),
        "left": [{}] * 6,
        "claim": claim | {"named_before": True},
    }


def claim_of(results):
    """The claim's table as a dictionary."""
    return dict(tables(results)[0].rows)


def test_the_claim_comes_first_and_the_differences_are_corrected(monkeypatch):
    results = made_results()
    claim, figures, compared, _ = tables(results)
    shown = dict(claim.rows)
    assert (claim.title, figures.title) == ("Made", "Figures")
    assert shown["comparison"] == "B: row against base" and shown["difference"] == "+4.0 (+1.5 to +6.5) points"
    assert shown["p, paired t-test"] == "0.020" and shown["effect size, Hedges's g of paired differences"] == "+2.3"
    assert shown["verdict"] == "shown, for this encoder"
    assert shown["runs of the study"] == "20, of which 6 have not been run"
    result = differences(results)
    assert set(result) == {("row", "A"), ("row", "B")} and math.isclose(result["row", "B"].mean, 0.04)
    assert [row[0] for row in compared.rows] == ["row"]
    assert compared.rows[0][1].endswith("‡") and compared.rows[0][2].endswith("‡")  # 0.020 is the larger of two
    assert "over the table's 2 comparisons: 2 of them hold." in compared.notes[1]
    results["measured"][3]["values"] = {"0": 0.51, "1": 0.54, "2": 0.55}  # p 0.1
    compared = tables(results)[2]
    assert not compared.rows[0][2].endswith("‡") and "one of them holds" in compared.notes[1]


def test_a_claim_about_an_interaction_subtracts_a_second_difference():
    results = made_results()
    results["claim"] |= {"row": "row", "against": "base", "column": "A", "beyond": ["late", "base"]}
    assert claim_of(results)["verdict"] == "not run"
    late = next(entry for entry in results["measured"] if (entry["row"], entry["column"]) == ("late", "A"))
    late["values"] = {"0": 0.54, "1": 0.56, "2": 0.57}
    shown = claim_of(results)
    assert shown["comparison"] == "A: row against base, minus late against base"
    result = claimed(results)
    assert math.isclose(result.mean, (0.060 + 0.051 + 0.049) / 3) and result.n == 3
    assert shown["verdict"] == "shown, for this encoder"
    late["collapsed"] = 1
    assert "collapsed" in claim_of(results)["verdict"]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (("a", "a"), "shown, for this encoder"),
        (("a", "b"), "shown, for these two encoders"),
        (("a", "random"), "shown, for this encoder"),
        (("a", "none"), "shown, for this encoder"),
        (("random", "none"), "shown"),
        ((None, None), "shown, for these two encoders"),  # older results of two model folders, which have no names
    ],
)
def test_a_verdict_is_limited_to_the_weights_that_the_rows_start_from(weights, said):
    results = made_results()
    for row, one in zip(results["rows"], weights, strict=False):
        row.update({"start": ""} | ({"weights": one} if one else {}))
    assert claim_of(results)["verdict"] == said
    results["unit"] = "pre-training seeds"
    assert (claim_of(results)["verdict"], claim_of(results)["n"]) == ("shown", "3 pre-training seeds")


def test_a_claim_named_after_the_runs_has_no_verdict():
    results = made_results()
    results["claim"]["named_before"] = False
    sheet = tables(results)[0]
    shown = dict(sheet.rows)
    assert (shown["verdict"], shown["p, paired t-test"]) == ("none (exploratory)", "0.020 without correction")
    assert sheet.notes == ("The claim was named after its rows were run.",)
    results["measured"][3]["values"] = {}
    assert claim_of(results)["verdict"] == "not run"
    results = made_results()
    results["claim"]["expect"] = "equal"
    shown = claim_of(results)
    assert (shown["p, paired t-test"], shown["verdict"]) == ("-", "the opposite is shown, for this encoder")


def test_a_claim_about_collapsed_runs_has_no_verdict():
    results = made_results()
    results["measured"][1]["collapsed"] = 3  # in the other column
    assert claim_of(results)["verdict"] == "shown, for this encoder"
    results["measured"][2]["collapsed"], results["measured"][3]["collapsed"] = 1, 2
    assert claim_of(results)["verdict"] == "none (3 of the runs collapsed to one answer)"


def test_drawn_rows_and_test_data_are_named():
    results = made_results()
    results["columns"][1] |= {"draw": True, "metric": "f1_test"}
    claim, figures, *_ = tables(results)
    assert dict(claim.rows)["n"].startswith("3 draws of training rows")
    assert "on development data (B: on test data)." in figures.notes[0]
    assert figures.notes[1] == "In B each seed also draws its training rows."
