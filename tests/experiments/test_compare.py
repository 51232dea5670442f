"""Comparing two runs: equal to scikit-learn and SciPy resample by resample, nothing for a run and itself, refusals."""

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
    """(line, label, predicted) rows in which about that share is right; the labels are the same for every seed."""
    true, rng = np.random.default_rng(0).integers(len(names), size=n), np.random.default_rng(seed)
    told = np.where(rng.random(n) < accuracy, true, rng.integers(len(names), size=n))
    return [
        {"line": i + 2, "label": names[a], "predicted": names[b]}
        for i, (a, b) in enumerate(zip(true, told, strict=True))
    ]


def numbers(rows, names=NAMES):
    return np.array([[names.index(row["label"]), names.index(row["predicted"])] for row in rows])


def metrics_of(rows, names=NAMES):
    true, told = numbers(rows, names).T
    return {name: METRICS[name](true, told) for name in ("accuracy", "f1", "macro_f1", "matthews")}


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


# ---- metrics of resamples


def drawn(n, samples=40):
    """Which examples each resample has, and how often it has each."""
    picked = RNG.integers(n, size=(samples, n))
    return picked, np.stack([np.bincount(one, minlength=n) for one in picked]).astype(float)


@pytest.mark.parametrize("name", resampling.CLASSES)
@pytest.mark.parametrize("k", [2, 3])
def test_classes_are_scored_as_one_resample_at_a_time(name, k):
    rows = RNG.integers(k, size=(30, 2))
    rows[:25, 1] = rows[:25, 0]
    picked, counts = drawn(30)
    found = resampling.CLASSES[name](counts, rows.astype(float))
    np.testing.assert_allclose(found, [METRICS[name](*rows[one].T) for one in picked], atol=1e-12)


@pytest.mark.parametrize("name", resampling.LABELS)
def test_several_labels_are_scored_as_one_resample_at_a_time(name):
    rows = (RNG.random((12, 8)) < 0.3).astype(np.float32)
    rows[:8, 4:] = rows[:8, :4]
    picked, counts = drawn(12)
    expected = [METRICS[name](rows[one, :4], rows[one, 4:]) for one in picked]
    np.testing.assert_allclose(resampling.LABELS[name](counts, rows.astype(float)), expected, atol=1e-12)


@pytest.mark.parametrize("name", resampling.VALUES)
@pytest.mark.parametrize("offset", [0, 1e4])
def test_values_are_scored_as_one_resample_at_a_time(name, offset):
    rows = RNG.normal(size=(40, 2)) + offset
    rows[:, 1] += rows[:, 0]
    rows[:20] = rows[:20].round()  # equal values share a rank
    picked, counts = drawn(40)
    expected = [METRICS[name](*rows[one].T) for one in picked]
    np.testing.assert_allclose(resampling.VALUES[name](counts, rows), expected, atol=1e-9)


def test_tags_are_scored_as_one_resample_at_a_time():
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    sentences = [[list(RNG.choice(tags, size=5)) for _ in range(2)] for _ in range(15)]
    told = [score_tags([gold], [found]) for gold, found in sentences]
    rows = [(t.entities.correct, t.entities.found, t.entities.gold, t.same, t.units) for t in told]
    picked, counts = drawn(15)
    for name, of in {
        "f1": lambda s: s.entities.f1,
        "precision": lambda s: s.entities.precision,
        "recall": lambda s: s.entities.recall,
        "accuracy": lambda s: s.accuracy,
    }.items():
        found = resampling.TAGS[name](counts, np.array(rows, float))
        expected = [of(score_tags(*([sentences[i][side] for i in one] for side in (0, 1)))) for one in picked]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_constant_side_has_no_correlation():
    rows, counts = np.array([[1.0, 0.1], [1.0, 0.2], [2.0, 0.3]]), np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    for measure in resampling.VALUES.values():
        assert measure(counts, rows)[0] == 0 != measure(counts, rows)[1]
    one_class = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert resampling.matthews(np.array([[2.0, 2.0]]), one_class)[0] == 0


@pytest.mark.parametrize("times", [1, 7])
def test_resamples_are_draws_of_n_from_n(times):
    """Whether there are few rows for each different one or many: these are drawn in another way."""
    rows, n = np.array([[0.0], [1.0], [1.0], [2.0], [1.0]] * times), 5 * times
    different, draws = resampling.resamples(rows, 20_000, seed=1)
    counts = np.concatenate(list(draws))
    assert different.ravel().tolist() == [0, 1, 2] and (counts.sum(1) == n).all() and len(counts) == 20_000
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
    found = compare_runs(*runs)["metrics"][name]
    one, other = (numbers(classes(accuracy, seed=9)).T for accuracy in (0.7, 0.8))

    def difference(index):
        return BY_HAND[name](*other[:, index]) - BY_HAND[name](*one[:, index])

    theirs = stats.bootstrap((np.arange(200),), difference, n_resamples=5000, method="percentile", vectorized=False)
    assert found["difference"] == pytest.approx(difference(np.arange(200)))
    assert found["interval"] == pytest.approx(list(theirs.confidence_interval), abs=0.01)
    assert found["interval"][0] < found["difference"] < found["interval"][1]


def test_mcnemar_by_hand(tmp_path):
    """12 examples; the first alone is right on 1, the second alone on 6: p = 2 (C(7,0) + C(7,1)) / 2^7 = 0.125."""
    told = {"first": "nnnnnyyyyyyn", "second": "nnnnnnnnnnny"}
    runs = []
    for name, letters in told.items():
        rows = [{"line": i, "label": "no", "predicted": {"n": "no", "y": "yes"}[a]} for i, a in enumerate(letters)]
        runs.append(save(tmp_path / name, rows, {"accuracy": letters.count("n") / 12}))
    results = compare_runs(*runs)
    assert results["mcnemar"] == [{"only_first": 1, "only_second": 6, "p": 0.125}]
    assert results["metrics"]["accuracy"]["difference"] == pytest.approx(5 / 12)
    assert results["metrics"].keys() == {"accuracy"} and results["examples"] == 12


def spans(f1s):
    return [{"id": f"q{i}", "predicted": "", "exact": float(f1 == 1), "f1": f1} for i, f1 in enumerate(f1s)]


def tagged(predicted):
    gold = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O"], ["O", "O", "O"]]
    return [
        {"line": i, "gold": a, "predicted": b.split()} for i, (a, b) in enumerate(zip(gold, predicted, strict=True))
    ]


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
    first, second = (
        save(tmp_path / name, rows, values, predicted)
        for name, rows, values in (("first", one, metrics), ("second", other, others))
    )
    itself = compare_runs(first, first, samples=200)
    assert itself["metrics"].keys() == metrics.keys()
    for found in itself["metrics"].values():
        assert found["difference"] == 0 and found["interval"] == [0, 0]
    assert all(test == {"only_first": 0, "only_second": 0, "p": 1.0} for test in itself["mcnemar"])
    there, back = compare_runs(first, second, samples=500), compare_runs(second, first, samples=500)
    for name, value in metrics.items():
        found = there["metrics"][name]
        assert (found["first"], found["second"]) == pytest.approx((value, others[name]))
        assert found["difference"] == pytest.approx(others[name] - value) == -back["metrics"][name]["difference"]
        assert found["interval"][0] <= found["difference"] + 1e-12 and found["sd"] is None
    assert compare_runs(first, second, samples=500) == there != compare_runs(first, second, samples=500, seed=2)


def test_seeds_are_paired(tmp_path):
    for seed in (1, 2, 3, 5):
        saved_classes(tmp_path / "one" / f"seed-{seed}", 0.6, seed=seed)
        saved_classes(tmp_path / "other" / f"seed-{seed + 1}", 0.8, seed=10 + seed)
    results = compare_runs(tmp_path / "one", tmp_path / "other")
    assert results["seeds"] == [2, 3] and results["left_out"] == [1, 4, 5, 6] and len(results["mcnemar"]) == 2
    found = results["metrics"]["accuracy"]
    score = {
        (side, seed): metrics_of(classes(accuracy, seed=seed + shift))["accuracy"]
        for side, accuracy, shift in (("one", 0.6, 0), ("other", 0.8, 9))
        for seed in (2, 3)
    }
    differences = [score["other", seed] - score["one", seed] for seed in (2, 3)]
    assert found["differences"] == pytest.approx(differences)
    assert found["sd"] == pytest.approx(abs(differences[0] - differences[1]) / 2**0.5)
    single = [compare_runs(tmp_path / f"one/seed-{s}", tmp_path / f"other/seed-{s}") for s in (2, 3)]
    widths = [np.ptp(one["metrics"]["accuracy"]["interval"]) for one in single]
    assert np.ptp(found["interval"]) < min(widths)  # a mean of two varies less
    told = table(results)
    assert "sd over seeds" in told.header and any("left out: 1, 4, 5, 6" in note for note in told.notes)


def test_on_the_command_line(tmp_path, capsys):
    runs = [saved_classes(tmp_path / str(accuracy), accuracy) for accuracy in (0.6, 0.9)]
    main(["compare", *map(str, runs), "--samples", "500", "--out", str(tmp_path / "c.json")])
    told = capsys.readouterr().out
    assert "t: 200 rows of dev" in told and "macro_f1" in told and "McNemar" in told and "+" in told
    assert json.loads((tmp_path / "c.json").read_text()) == compare_runs(*runs, samples=500)


def test_collapsed_runs_are_reported(tmp_path, capsys):
    one = saved_classes(tmp_path / "one", 0.9)
    rows = [{**row, "predicted": "no"} for row in classes(0.9)]
    other = save(tmp_path / "other", rows, metrics_of(rows), collapsed=True)
    assert compare_runs(one, other, samples=500)["collapsed"] == ["second"]
    main(["compare", str(one), str(other), "--samples", "500"])
    assert "warning: second: collapsed: the same answer for every development row" in capsys.readouterr().out
    for seed, run in ((1, one), (3, other)):
        for side in ("a", "b"):
            shutil.copytree(one if side == "a" else run, tmp_path / side / f"seed-{seed}")
    assert compare_runs(tmp_path / "a", tmp_path / "b", samples=500)["collapsed"] == ["second, seed 3"]
    assert "collapsed" not in compare_runs(one, one, samples=500)


def test_rows_of_another_file_format_are_the_same_rows(tmp_path):
    """By their texts and labels, where both runs have a hash of the texts; else by their lines, as in older runs."""
    for name, change in (("classes", {"line": 1}), ("spans", {"id": "x", "answers": ["a"]})):
        one, _, metrics, _ = FORMS[name]
        others = [{**row, **change} for row in one]
        one = [{**row, **{key: change[key] for key in change if key == "answers"}} for row in one]
        first = save(tmp_path / name / "csv", one, metrics, dev_texts="a1")
        same = save(tmp_path / name / "jsonl", others, metrics, dev_texts="a1")
        old = save(tmp_path / name / "old", one, metrics)
        assert compare_runs(first, same, samples=100)["examples"] == len(one)
        assert compare_runs(first, old, samples=100)["examples"] == len(one)
        unlike = save(tmp_path / name / "unlike", others, metrics, dev_texts="b2")
        wrong = [{**row, "label": "maybe", "answers": ["b"]} for row in others]
        for bad in (
            unlike,
            save(tmp_path / name / "other", others, metrics),
            save(tmp_path / name / "wrong", wrong, metrics, dev_texts="a1"),
        ):
            with pytest.raises(InputError, match="Only runs on the same development rows"):
                compare_runs(first, bad, samples=100)


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
        assert compare_runs(runs[0], run, samples=100)["metrics"]["accuracy"]["difference"] == 0


# ---- what is refused


def test_what_cannot_be_compared(tmp_path):
    good = saved_classes(tmp_path / "good", 0.8)
    metrics = metrics_of(classes(0.8))
    moved = [row | {"line": row["line"] + (i == 7)} for i, row in enumerate(classes(0.8))]
    other = [row | {"label": "maybe"} for row in classes(0.8)]
    cases = {
        save(tmp_path / "a", classes(0.8), metrics, task="other"): "is of the task t, .* of other; expected one task",
        save(tmp_path / "b", moved, metrics): r"line 8: \{'line': 10, .*Only runs on the same",
        save(tmp_path / "c", other, metrics): "Only runs on the same development rows",
        save(tmp_path / "d", moved[:-1], metrics): "has 199 rows, .* 200; only runs on .* dev_share, group",
        save(tmp_path / "e", classes(0.8), metrics | {"accuracy": 0.1}): "accuracy .* one of the two files has been",
        save(tmp_path / "f", classes(0.8), metrics, kind="study"): "f: results of the kind 'study'; expected",
        save(tmp_path / "g", classes(0.8), metrics, kind="pretrain"): "g: results of the kind 'pretrain'; expected",
        tmp_path / "none": "no such folder",
    }
    for bad, message in cases.items():
        with pytest.raises(InputError, match=message):
            compare_runs(good, bad, samples=100)
    (tmp_path / "a/results.json").unlink()
    with pytest.raises(InputError, match="a is not finished"):
        compare_runs(good, tmp_path / "a")
    with pytest.raises(InputError, match="seed = -1; expected"):
        compare_runs(tmp_path, tmp_path, seed=-1)
    with pytest.raises(InputError, match="10 samples, seed = 1; expected 100"):
        compare_runs(good, good, samples=10)


def test_seeds_that_do_not_fit(tmp_path):
    for seed in (1, 2):
        saved_classes(tmp_path / "one" / f"seed-{seed}", 0.6, seed=seed)
        saved_classes(tmp_path / "other" / f"seed-{seed + 5}", 0.6, seed=seed)
    with pytest.raises(InputError, match=r"no seed in common \(1, 2 and 6, 7\)"):
        compare_runs(tmp_path / "one", tmp_path / "other")
    with pytest.raises(InputError, match="a single run and a folder of seeds; give two of a kind"):
        compare_runs(tmp_path / "one", tmp_path / "other/seed-6")
    (tmp_path / "one/seed-2/results.json").unlink()
    with pytest.raises(InputError, match="seed-2 is not finished"):
        compare_runs(tmp_path / "one", tmp_path / "one")
