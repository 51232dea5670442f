"""The official evaluations: recorded runs of the programs, cases computed by hand."""

from typing import Any

import numpy as np
import pytest

from bertworks.tasks.squad_scores import (
    Scores,
    Values,
    grade_korquad,
    grade_v1,
    grade_v2,
    normalize_answer,
    reachable_threshold,
    score,
)
from support.shared_data import shared
from support.span_data import recorded

ORACLE = "oracle/squad_evaluation"
NAMES = {"": "", "has_answer_": "HasAns_", "no_answer_": "NoAns_"}


def golds_of(name: str) -> dict[str, list[str]]:
    paragraphs = (paragraph for article in recorded(f"{ORACLE}/{name}")["data"] for paragraph in article["paragraphs"])
    return {item["id"]: [a["text"] for a in item["answers"]] for one in paragraphs for item in one["qas"]}


@pytest.fixture(scope="module")
def version_2() -> Scores:
    golds, predictions = golds_of("gold_v2.0.json.gz"), recorded(f"{ORACLE}/v2.0_predictions.json.gz")
    return score([predictions[name] for name in golds], golds.values(), grade_v2)


def test_version_1_equals_the_official_program() -> None:
    golds, predictions = golds_of("gold_v1.1.json.gz"), recorded(f"{ORACLE}/v1.1_predictions.json.gz")
    scores = score([predictions[name] for name in golds], golds.values(), grade_v1)
    single = np.load(shared(f"{ORACLE}/per_question_scores.npz"))
    assert np.array_equal(scores.exact, single["v1_exact"]) and np.array_equal(scores.f1, single["v1_f1"])
    expected, summary = recorded(f"{ORACLE}/v1.1_scores.json")["complete"], scores.summary()
    percents = [100 * summary[key] for key in ("exact", "f1")]
    assert percents == pytest.approx([expected["exact_match"], expected["f1"]], rel=1e-12)


def test_version_2_equals_the_official_program(version_2: Scores) -> None:
    single = np.load(shared(f"{ORACLE}/per_question_scores.npz"))
    assert np.array_equal(version_2.exact, single["v2_exact"]) and np.array_equal(version_2.f1, single["v2_f1"])
    assert_summary(version_2, recorded(f"{ORACLE}/v2.0_scores.json")["predictions_only"])


def assert_summary(scores: Scores, expected: dict[str, Any]) -> None:
    for key, value in scores.summary().items():
        group, _, metric = key.rpartition("_")
        official = NAMES[f"{group}_" if group else ""] + metric
        assert 100 * value == pytest.approx(expected[official], rel=1e-12)


def with_threshold(scores: Scores, no_answer: Values, threshold: float) -> Values:
    """The F1 of each question if those whose no-answer score exceeds the threshold are given no answer."""
    return np.where(no_answer > threshold, ~scores.has_answer, scores.f1)


@pytest.mark.parametrize("name", ["na_prob", "na_prob_rounded", "null_odds"])
def test_a_reachable_threshold_gives_the_mean_it_promises(version_2: Scores, name: str) -> None:
    stored = recorded(f"{ORACLE}/v2.0_{name}.json.gz")
    no_answer = np.array([stored[key] for key in golds_of("gold_v2.0.json.gz")])
    empty = (~version_2.has_answer).astype(float)
    value, threshold = reachable_threshold(version_2.f1, empty, no_answer)
    assert threshold not in no_answer
    means = [with_threshold(version_2, no_answer, t).mean() for t in (threshold, *np.unique(no_answer)[::97])]
    assert means[0] == pytest.approx(value) and max(means) == means[0]


# ---- by hand


def test_normalization() -> None:
    assert normalize_answer("The  Cat's (a) U.S.\tan-them, theme") == "cats us anthem theme"
    assert normalize_answer("A, an; the!") == "" and normalize_answer("— “x”") == "— “x”"


def test_grades() -> None:
    assert grade_v1("the cat sat", ["Cat!", "a cat sat down"]) == (0.0, pytest.approx(0.8))
    assert grade_v1("cat cat", ["cat"]) == (0.0, pytest.approx(2 / 3))
    assert grade_v1("the", ["a"]) == (1.0, 0.0) and grade_v1("", []) == (0.0, 0.0)
    assert grade_v2("the", ["a"]) == (1.0, 1.0) and grade_v2("", []) == (1.0, 1.0)
    assert grade_v2("cat", []) == (0.0, 0.0) and grade_v2("", ["cat"]) == (0.0, 0.0)
    assert grade_v2("", ["the", "cat"]) == (0.0, 0.0)  # right answers that normalize to nothing do not count


def test_korquad_counts_characters() -> None:
    assert grade_korquad("서울은", ["서울"]) == (0.0, pytest.approx(0.8))
    assert grade_korquad("《대한 민국》(약칭", ["대한 민국 약칭"]) == (1.0, 1.0)
    assert grade_korquad("대한민국", ["대한 민국"]) == (0.0, 1.0)
    assert grade_korquad("a 1,000", ["A 1000"]) == (1.0, 1.0) and grade_korquad("가", ["나"]) == (0.0, 0.0)


def test_a_threshold_that_can_be_reached() -> None:
    f1, empty = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    later = np.array([1.0, 2.0])
    close = np.array([1.0, np.nextafter(1.0, 2.0)])
    for values, odds, expected in (
        (empty, np.array([1.0, 1.0]), (0.5, 0.0)),  # equal scores, nothing answered: 1 less than the lowest
        (empty, later, (1.0, 1.5)),
        (empty, -later, (0.5, -3.0)),  # nothing or all: the lowest
        (0 * empty, later, (0.5, 1.5)),
        (0 * empty, -later, (0.5, 0.0)),  # all: 1 more than the highest
        (empty, close, (1.0, 1.0)),
    ):
        assert reachable_threshold(f1, values, odds) == expected
