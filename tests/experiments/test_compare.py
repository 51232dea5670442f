"""Comparing two runs: equal to scikit-learn and SciPy for each resample, zero for a run and itself, refusals."""

import csv
import json
import shutil

import numpy as np
import pytest
from scipy import stats

import bertworks
from bertworks.cli import main
from bertworks.experiments import statistics as resampling
from bertworks.experiments.compare import compare
from bertworks.files import InputError, write_json
from bertworks.tasks.metrics import METRICS
from bertworks.tasks.tags import score_tags
from support.tiny_task import tiny_place

RNG = np.random.default_rng(3)
NAMES = ["no", "yes", "maybe"]


def classes(accuracy, n=200, seed=1, names=NAMES):
    """(line, label, predicted) rows with about this accuracy; the labels are the same for every seed."""
    true, rng = np.random.default_rng(0).integers(len(names), size=n), np.random.default_rng(seed)
    predicted = np.where(rng.random(n) < accuracy, true, rng.integers(len(names), size=n))
    pairs = enumerate(zip(true, predicted, strict=True), 2)
    return [{"line": line, "label": names[a], "predicted": names[b]} for line, (a, b) in pairs]


def numbers(rows, names=NAMES):
    return np.array([[names.index(row["label"]), names.index(row["predicted"])] for row in rows])


def metrics_of(rows, names=NAMES):
    true, predicted = numbers(rows, names).T
    return {name: METRICS[name](true, predicted) for name in ("accuracy", "f1", "macro_f1", "matthews")}


def save(folder, rows, metrics, predicted=NAMES, task="t", **more):
    """A run folder as far as a comparison reads it."""
    folder.mkdir(parents=True)
    (folder / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = {"kind": "finetune", "task": task, "metrics": {"loss": 1.0, **metrics}}
    write_json(folder / "results.json", results | {"predicted": dict.fromkeys(predicted, 1), **more})
    return folder


def saved_classes(folder, accuracy, seed=1, **more):
    rows = classes(accuracy, seed=seed)
    return save(folder, rows, metrics_of(rows), **more)


def compared(first, second, samples=500, **more):
    return compare(first, second, samples, **more).details


# ---- metrics of resamples


def resampled(n, samples=40):
    """The examples of each resample, and the counts of each example."""
    indices = RNG.integers(n, size=(samples, n))
    return indices, np.stack([np.bincount(one, minlength=n) for one in indices]).astype(float)


def made_rows(kind):
    """Rows of numbers, and the columns that are true and predicted."""
    if kind == "labels":
        rows = (RNG.random((12, 8)) < 0.3).astype(np.float32)
        rows[:8, 4:] = rows[:8, :4]
        return rows, (slice(0, 4), slice(4, 8))
    if kind.startswith("classes"):
        rows = RNG.integers(int(kind[-1]), size=(30, 2))
        rows[:25, 1] = rows[:25, 0]
    else:
        rows = RNG.normal(size=(40, 2)) + float(kind.removeprefix("values"))
        rows[:, 1] += rows[:, 0]
        rows[:20] = rows[:20].round()  # equal values share a rank
    return rows, (0, 1)


MEASURES = [
    *((kind, name, resampling.CLASSES) for kind in ("classes2", "classes3") for name in resampling.CLASSES),
    *(("labels", name, resampling.LABELS) for name in resampling.LABELS),
    *((kind, name, resampling.VALUES) for kind in ("values0", "values1e4") for name in resampling.VALUES),
]


@pytest.mark.parametrize(("kind", "name", "measures"), MEASURES)
def test_a_measure_equals_the_metric_of_each_resample(kind, name, measures):
    rows, (true, predicted) = made_rows(kind)
    indices, counts = resampled(len(rows))
    expected = [METRICS[name](rows[one][:, true], rows[one][:, predicted]) for one in indices]
    np.testing.assert_allclose(measures[name](counts, rows.astype(float)), expected, atol=1e-9)


def test_tags_are_scored_as_one_resample_at_a_time():
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    sentences = [[list(RNG.choice(tags, size=5)) for _ in range(2)] for _ in range(15)]
    scores = [score_tags([gold], [predicted]) for gold, predicted in sentences]
    rows = [(*(s.entities[key] for key in ("correct", "found", "gold")), round(5 * s.accuracy), 5) for s in scores]
    indices, counts = resampled(15)
    expected = [score_tags(*zip(*(sentences[i] for i in one), strict=True)) for one in indices]
    for name, measure in resampling.TAGS.items():
        values = [s.accuracy if name == "accuracy" else s.entities[name] for s in expected]
        np.testing.assert_allclose(measure(counts, np.array(rows, float)), values, atol=1e-12)


def test_a_constant_has_no_correlation():
    rows, counts = np.array([[1.0, 0.1], [1.0, 0.2], [2.0, 0.3]]), np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    for measure in resampling.VALUES.values():
        assert measure(counts, rows)[0] == 0 != measure(counts, rows)[1]
    one_class = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert resampling.matthews(np.array([[2.0, 2.0]]), one_class)[0] == 0


@pytest.mark.parametrize("times", [1, 7])
def test_resamples_are_samples_of_n_from_n(times):
    """With few and with many rows for each distinct one, which are sampled in two ways."""
    rows, n = np.array([[0.0], [1.0], [1.0], [2.0], [1.0]] * times), 5 * times
    distinct, batches = resampling.resamples(rows, 20_000, seed=1)
    counts = np.concatenate(list(batches))
    assert distinct.ravel().tolist() == [0, 1, 2] and (counts.sum(1) == n).all() and len(counts) == 20_000
    np.testing.assert_allclose(counts.mean(0) / n, [0.2, 0.6, 0.2], atol=0.006)
    np.testing.assert_allclose(counts.var(0), [n * p * (1 - p) for p in (0.2, 0.6, 0.2)], rtol=0.04)


# ---- comparisons


BY_HAND = {
    "accuracy": lambda true, told: (true == told).mean(),
    "f1": lambda true, told: 2 * ((true == 1) & (told == 1)).sum() / ((true == 1).sum() + (told == 1).sum()),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_interval_is_scipys(tmp_path, name):
    runs = [saved_classes(tmp_path / str(accuracy), accuracy, seed=9) for accuracy in (0.7, 0.8)]
    result = compared(*runs, samples=10_000)["metrics"][name]
    one, other = (numbers(classes(accuracy, seed=9)).T for accuracy in (0.7, 0.8))

    def difference(index):
        return BY_HAND[name](*other[:, index]) - BY_HAND[name](*one[:, index])

    expected = stats.bootstrap((np.arange(200),), difference, n_resamples=5000, method="percentile", vectorized=False)
    assert result["difference"] == pytest.approx(difference(np.arange(200)))
    assert result["interval"] == pytest.approx(list(expected.confidence_interval), abs=0.01)
    assert result["interval"][0] < result["difference"] < result["interval"][1]


def test_mcnemar_by_hand(tmp_path):
    """12 examples; the first alone is right on 1, the second alone on 6: p = 2 (C(7,0) + C(7,1)) / 2^7 = 0.125."""
    runs = []
    for name, letters in {"first": "nnnnnyyyyyyn", "second": "nnnnnnnnnnny"}.items():
        rows = [{"line": i, "label": "no", "predicted": {"n": "no", "y": "yes"}[a]} for i, a in enumerate(letters)]
        runs.append(save(tmp_path / name, rows, {"accuracy": letters.count("n") / 12}))
    results = compared(*runs)
    assert results["mcnemar"] == [{"only_first": 1, "only_second": 6, "p": 0.125}]
    assert results["metrics"]["accuracy"]["difference"] == pytest.approx(5 / 12)
    assert results["metrics"].keys() == {"accuracy"} and results["examples"] == 12


def spans(f1s):
    return [{"id": f"q{i}", "predicted": "", "exact": float(f1 == 1), "f1": f1} for i, f1 in enumerate(f1s)]


def tagged(predicted):
    gold = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O"], ["O", "O", "O"]]
    rows = zip(gold, predicted, strict=True)
    return [{"line": i, "gold": a, "predicted": b.split()} for i, (a, b) in enumerate(rows)]


FORMS = {
    "classes": (classes(0.8), classes(0.5, seed=2), metrics_of(classes(0.8)), metrics_of(classes(0.5, seed=2))),
    "spans": (spans([1, 0.5, 0]), spans([1, 1, 0.5]), {"exact": 1 / 3, "f1": 0.5}, {"exact": 2 / 3, "f1": 2.5 / 3}),
    "tags": (
        tagged(["B-PER I-PER O", "O O O", "O O O"]),
        tagged(["B-PER O O", "O B-LOC O", "O B-LOC O"]),
        {"f1": 2 / 3, "accuracy": 8 / 9, "recall": 0.5, "precision": 1.0},
        {"f1": 2 / 5, "accuracy": 7 / 9, "recall": 0.5, "precision": 1 / 3},
    ),
    "values": (
        [{"line": i, "label": float(i), "predicted": i**2 / 2} for i in range(9)],
        [{"line": i, "label": float(i), "predicted": float(-i)} for i in range(9)],
        {"spearman": 1.0, "pearson": float(np.corrcoef(range(9), [i**2 for i in range(9)])[0, 1])},
        {"spearman": -1.0, "pearson": -1.0},
    ),
    "labels": (
        [{"line": 1, "label": "no|yes", "predicted": "no"}, {"line": 2, "label": "", "predicted": ""}],
        [{"line": 1, "label": "no|yes", "predicted": "no|yes"}, {"line": 2, "label": "", "predicted": "no"}],
        {"micro_f1": 2 / 3, "exact_match": 0.5, "macro_f1": 0.5},
        {"micro_f1": 4 / 5, "exact_match": 0.5, "macro_f1": (2 / 3 + 1) / 2},
    ),
    "choices": (
        [{"line": 1, "label": 3, "predicted": 3}, {"line": 2, "label": 0, "predicted": 1}],
        [{"line": 1, "label": 3, "predicted": 0}, {"line": 2, "label": 0, "predicted": 1}],
        {"accuracy": 0.5},
        {"accuracy": 0.0},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_predictions(tmp_path, form):
    one, other, metrics, others = FORMS[form]
    predicted = ["0", "1", "2", "3"] if form == "choices" else NAMES
    first, second = save(tmp_path / "1", one, metrics, predicted), save(tmp_path / "2", other, others, predicted)
    itself = compared(first, first)
    assert itself["metrics"].keys() == metrics.keys()
    assert all(m["difference"] == 0 and m["interval"] == [0, 0] for m in itself["metrics"].values())
    assert all(test == {"only_first": 0, "only_second": 0, "p": 1.0} for test in itself["mcnemar"])
    there, back = compared(first, second), compared(second, first)
    for name, value in metrics.items():
        result = there["metrics"][name]
        assert (result["first"], result["second"]) == pytest.approx((value, others[name]))
        assert result["difference"] == pytest.approx(others[name] - value) == -back["metrics"][name]["difference"]
        assert result["interval"][0] <= result["difference"] + 1e-12 and result["sd"] is None
    assert compared(first, second) == there != compared(first, second, seed=2)


def test_seeds_are_paired(tmp_path):
    for seed in (1, 2, 3, 5):
        saved_classes(tmp_path / "one" / f"seed-{seed}", 0.6, seed=seed)
        saved_classes(tmp_path / "other" / f"seed-{seed + 1}", 0.8, seed=10 + seed)
    comparison = compare(tmp_path / "one", tmp_path / "other")
    results = comparison.details
    assert results["seeds"] == [2, 3] and results["left_out"] == [1, 4, 5, 6] and len(results["mcnemar"]) == 2
    result = comparison.metrics["accuracy"]
    one, other = (
        [metrics_of(classes(a, seed=s))["accuracy"] for s in seeds] for a, seeds in ((0.6, (2, 3)), (0.8, (11, 12)))
    )
    differences = [b - a for a, b in zip(one, other, strict=True)]
    assert result["differences"] == pytest.approx(differences)
    assert result["sd"] == pytest.approx(abs(differences[0] - differences[1]) / 2**0.5)
    single = [compared(tmp_path / f"one/seed-{s}", tmp_path / f"other/seed-{s}", 10_000) for s in (2, 3)]
    widths = [np.ptp(one["metrics"]["accuracy"]["interval"]) for one in single]
    assert np.ptp(result["interval"]) < min(widths)  # a mean of two varies less
    assert "sd over seeds" in comparison.table().header and "left out: 1, 4, 5, 6" in str(comparison)


def test_collapsed_runs_are_reported(tmp_path, capsys):
    one = saved_classes(tmp_path / "one", 0.9)
    rows = [{**row, "predicted": "no"} for row in classes(0.9)]
    other = save(tmp_path / "other", rows, metrics_of(rows), collapsed=True)
    main(["compare", str(one), str(other), "--samples", "500", "--out", str(tmp_path / "c.json")])
    printed = capsys.readouterr().out
    assert "t: 200 rows of dev" in printed and "McNemar" in printed
    assert "warning: second: collapsed: the same answer for every development row" in printed
    results = json.loads((tmp_path / "c.json").read_text())
    assert results == compared(one, other) and results["collapsed"] == ["second"]
    for folder, seed, run in (("a", 1, one), ("b", 1, one), ("a", 3, one), ("b", 3, other)):
        shutil.copytree(run, tmp_path / folder / f"seed-{seed}")
    assert compared(tmp_path / "a", tmp_path / "b")["collapsed"] == ["second, seed 3"]
    assert "collapsed" not in compared(one, one)


@pytest.mark.parametrize(("name", "change"), [("classes", {"line": 1}), ("spans", {"id": "x", "answers": ["a"]})])
def test_rows_of_another_file_format_are_the_same_rows(tmp_path, name, change):
    """By their texts and labels, if both runs have a hash of the texts; else by their lines, as in older runs."""
    one, _, metrics, _ = FORMS[name]
    others = [{**row, **change} for row in one]
    one = [{**row, **{key: change[key] for key in change if key == "answers"}} for row in one]
    wrong = [{**row, "label": "maybe", "answers": ["b"]} for row in others]
    first = save(tmp_path / "first", one, metrics, dev_texts="a1")
    for folder, rows, texts, same in (
        ("jsonl", others, {"dev_texts": "a1"}, True),
        ("old", one, {}, True),
        ("unlike", others, {"dev_texts": "b2"}, False),
        ("no texts", others, {}, False),
        ("wrong", wrong, {"dev_texts": "a1"}, False),
    ):
        second = save(tmp_path / folder, rows, metrics, **texts)
        if same:
            assert compared(first, second)["examples"] == len(one)
        else:
            with pytest.raises(InputError, match="Only runs on the same development rows"):
                compare(first, second)


def test_runs_that_read_the_same_rows_as_csv_jsonl_and_in_memory_are_compared(tmp_path):
    place = tiny_place(tmp_path / "place", 24, 20)
    with open(place / "dev.csv", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = []
    for name, dev in (("csv", place / "dev.csv"), ("jsonl", tmp_path / "dev.jsonl"), ("list", rows)):
        given = {"train": place / "train.csv", "dev": dev, "max_seq_length": 16, "loop": {"steps": 2}, "quiet": True}
        bertworks.finetune(place / "model", tmp_path / name, **given)
        runs.append(tmp_path / name)
    lines = [json.loads((run / "predictions.jsonl").read_text().splitlines()[0])["line"] for run in runs]
    assert lines == [2, 1, 1]
    for run in runs[1:]:
        assert compared(runs[0], run)["metrics"]["accuracy"]["difference"] == 0


# ---- what is refused


def test_what_cannot_be_compared(tmp_path):
    good, rows = saved_classes(tmp_path / "good", 0.8), classes(0.8)
    metrics = metrics_of(rows)
    moved = [row | {"line": row["line"] + (i == 7)} for i, row in enumerate(rows)]
    other = [row | {"label": "maybe"} for row in rows]
    cases = {
        save(tmp_path / "a", rows, metrics, task="other"): "is of the task t, .* of other; expected one task",
        save(tmp_path / "b", moved, metrics): r"line 8: \{'line': 10, .*Only runs on the same",
        save(tmp_path / "c", other, metrics): "Only runs on the same development rows",
        save(tmp_path / "d", rows[:-1], metrics): "line 200: missing; .*Only runs on .* dev_share, group",
        save(tmp_path / "f", rows, metrics, kind="pretrain"): "kind = 'pretrain'; expected .* give a finished run",
        tmp_path / "none": "none is not finished",
    }
    for bad, message in cases.items():
        with pytest.raises(InputError, match=message):
            compare(good, bad)
    with pytest.raises(InputError, match="10 samples, seed = -1; expected 100"):
        compare(good, good, samples=10, seed=-1)
