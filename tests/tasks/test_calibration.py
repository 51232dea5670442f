"""Calibration, thresholds of several labels: as defined, in results, in the folder, in predictions."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from bertworks.checkpoint.folder import load_tokenizer, read_config, save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.evaluation import evaluate, save_thresholds
from bertworks.inference.predictor import Predictor
from bertworks.model.heads import build_model
from bertworks.tasks.base import Example, Task
from bertworks.tasks.calibration import BINS, best_thresholds, expected_calibration_error, reliability
from support.tiny_task import TINY, tiny_folder

LABELS = ("law", "art", "war")
TASK = Task("t", ("text",), kind="multilabel", labels=LABELS, metrics=("micro_f1", "macro_f1"))


def test_the_calibration_error_is_the_weighted_gap():
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet([0.5] * 4, 200)
    true = rng.integers(0, 4, 200)
    gaps = []
    for i in range(BINS):
        chosen = [p for p in range(200) if i / BINS <= probabilities[p].max() < (i + 1) / BINS + (i == BINS - 1)]
        if chosen:
            right = np.mean([probabilities[p].argmax() == true[p] for p in chosen])
            gaps.append(len(chosen) / 200 * abs(right - np.mean([probabilities[p].max() for p in chosen])))
    table = reliability(probabilities, true)
    assert expected_calibration_error(table) == pytest.approx(sum(gaps)) and sum(gaps) > 0.1
    assert sum(row["count"] for row in table) == 200
    certain = np.eye(4)[true]
    assert expected_calibration_error(reliability(certain, true)) == 0
    marks = (rng.random((50, 3)) < 0.25).astype(np.float32)
    [row] = reliability(np.full((50, 3), 0.25), marks)  # several labels: every probability counts
    assert row["count"] == 150 and row["accuracy"] == pytest.approx(marks.mean())


def test_no_threshold_is_better():
    rng = np.random.default_rng(2)
    probabilities = rng.random((60, 3)).round(2)
    true = (probabilities + rng.normal(0, 0.3, (60, 3)) > [0.3, 0.8, 9]).astype(np.float32)
    found = best_thresholds(probabilities, true, LABELS)
    assert [*found] == ["law", "art"]  # no row has the third
    for k, name in enumerate(found):
        scores = [f1_score(true[:, k], probabilities[:, k] > t / 200) for t in range(200)]
        assert f1_score(true[:, k], probabilities[:, k] > found[name]) == pytest.approx(max(scores))
    assert found["law"] < 0.5 < found["art"]


@pytest.fixture
def several(tmp_path):
    """A model of three labels with probabilities that differ by row, its rows, and true labels unlike its own."""
    tokenizer = load_tokenizer(tiny_folder(tmp_path / "base"))
    model = build_model(TINY, ("classifier",), labels=3, seed=3)
    with torch.no_grad():
        model.heads["classifier"].weight.mul_(20)
    save_folder(tmp_path / "m", model, tokenizer, labels=[*LABELS], task={"kind": "multilabel", "name": "t"})
    texts = [" ".join(letters) for letters in ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")]
    scores = [row["scores"] for row in Predictor(tmp_path / "m").classify(texts, all_scores=True)]
    middles = {name: sorted(row[name] for row in scores)[3] for name in LABELS}
    rows = [
        Example(text, label="|".join(name for name in LABELS if row[name] > middles[name]), line=i)
        for i, (text, row) in enumerate(zip(texts, scores, strict=True))
    ]
    return tmp_path / "m", rows


def test_chosen_thresholds_are_saved_and_used(several):
    folder, rows = several
    before = evaluate(folder, TASK, rows)
    found = save_thresholds(folder, TASK, rows)
    assert found["before"] == before["metrics"] and before["metrics"]["micro_f1"] < 1
    assert found["after"]["micro_f1"] == 1.0 == evaluate(folder, TASK, rows)["metrics"]["micro_f1"]
    source = {"rows": 8, "chosen_on": "rows in memory"}
    stored = read_config(folder)[1]["bertworks_task"]
    assert stored == {"kind": "multilabel", "name": "t", "thresholds": found["thresholds"], "thresholds_from": source}
    predictor = Predictor(folder)
    texts = [row.text for row in rows]
    assert [one["label"] for one in predictor.classify(texts)] == [row.label for row in rows]
    assert [one["label"] for one in predictor.classify(texts, raw=True)] == [row.label for row in rows]
    other = Task("t", ("text",), kind="multilabel", labels=LABELS[::-1], metrics=("exact_match",))
    assert evaluate(folder, other, rows)["metrics"]["exact_match"] == 1.0  # by name, not by number


def test_the_command(several, tmp_path, capsys):
    folder, rows = several
    table = tmp_path / "valid.jsonl"
    table.write_text("".join(json.dumps({"text": row.text, "label": row.label}) + "\n" for row in rows))
    line = ["evaluate", str(folder), "--dev", str(table), "--kind", "multilabel"]
    main([*line, "--save-thresholds", "--out", str(tmp_path / "t.json")])
    shown, chosen = capsys.readouterr(), json.loads((tmp_path / "t.json").read_text())
    assert chosen["thresholds_from"] == {"rows": 8, "chosen_on": "valid.jsonl"} and "too good" in chosen["note"]
    assert read_config(folder)[1]["bertworks_task"]["thresholds_from"] == chosen["thresholds_from"]
    assert {*json.loads(shown.out)["thresholds"]} == {*LABELS} and "evaluate on others" in shown.err
    main([*line, "--out", str(tmp_path / "r.json")])
    printed, written = json.loads(capsys.readouterr().out), json.loads((tmp_path / "r.json").read_text())
    assert printed["metrics"]["micro_f1"] == 1.0 and "reliability" not in printed
    assert written["reliability"] and written["ece"] == printed["ece"] > 0


def test_other_kinds_have_no_thresholds(several):
    folder, rows = several
    with pytest.raises(InputError, match="thresholds for the kind single; expected multilabel"):
        save_thresholds(folder, Task("t", ("text",)), rows)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"law": "high"}, r"thresholds\.law = 'high'; expected a number"),
        ({"sport": 0.5}, "has 0.5 for the label 'sport'; expected probabilities of 'law'"),
        ({"law": 1.5}, "has 1.5 for the label 'law'; expected probabilities of 'law'"),
    ],
)
def test_stored_thresholds_are_checked(several, thresholds, message):
    folder, _ = several
    settings = json.loads((folder / "config.json").read_text())
    settings["bertworks_task"]["thresholds"] = thresholds
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=message):
        Predictor(folder)
