"""Calibration, thresholds of several labels: as defined, in results, in the folder, in predictions."""

import json

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_tokenizer, save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.evaluation import evaluate
from bertworks.inference.predictor import Predictor
from bertworks.model.build import build_model
from bertworks.tasks.base import Example, Task
from bertworks.tasks.calibration import BINS, expected_calibration_error, reliability
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


@pytest.fixture
def several(tmp_path):
    """A model of three labels with probabilities that differ by row, its rows with labels unlike its own, and the
    thresholds that give them."""
    tokenizer = load_tokenizer(tiny_folder(tmp_path / "base"))
    model = build_model(TINY, ("classifier",), labels=3, seed=3)
    with torch.no_grad():
        model.heads["classifier"].weight.mul_(20)
    save_folder(tmp_path / "m", model, tokenizer, labels=[*LABELS], task={"kind": "multilabel", "name": "t"})
    texts = [" ".join(letters) for letters in ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")]
    scores = [row["scores"] for row in Predictor(tmp_path / "m").classify(texts, all_scores=True)]
    middles = {name: float(np.median([row[name] for row in scores])) for name in LABELS}
    rows = [
        Example(text, label="|".join(name for name in LABELS if row[name] > middles[name]), line=i)
        for i, (text, row) in enumerate(zip(texts, scores, strict=True))
    ]
    return tmp_path / "m", rows, middles


def store_thresholds(folder, thresholds):
    settings = json.loads((folder / "config.json").read_text())
    settings["bertworks_task"]["thresholds"] = thresholds
    (folder / "config.json").write_text(json.dumps(settings))


def test_stored_thresholds_decide(several):
    folder, rows, middles = several
    before = evaluate(folder, TASK, rows)
    store_thresholds(folder, middles)
    assert before["metrics"]["micro_f1"] < 1 == evaluate(folder, TASK, rows)["metrics"]["micro_f1"]
    predictor = Predictor(folder)
    texts = [row.text for row in rows]
    assert [one["label"] for one in predictor.classify(texts)] == [row.label for row in rows]
    assert [one["label"] for one in predictor.classify(texts, raw=True)] == [row.label for row in rows]
    other = Task("t", ("text",), kind="multilabel", labels=LABELS[::-1], metrics=("exact_match",))
    assert evaluate(folder, other, rows)["metrics"]["exact_match"] == 1.0  # by name, not by number


def test_the_command(several, tmp_path, capsys):
    folder, rows, _ = several
    table = tmp_path / "valid.jsonl"
    table.write_text("".join(json.dumps({"text": row.text, "label": row.label}) + "\n" for row in rows))
    line = ["evaluate", str(folder), "--dev", str(table), "--kind", "multilabel"]
    main([*line, "--out", str(tmp_path / "r.json")])
    printed, written = json.loads(capsys.readouterr().out), json.loads((tmp_path / "r.json").read_text())
    assert "micro_f1" in printed["metrics"] and "reliability" not in printed
    assert written["reliability"] and written["ece"] == printed["ece"] > 0


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ({"law": "high"}, r"thresholds\.law = 'high'; expected a number"),
        ({"sport": 0.5}, "has 0.5 for the label 'sport'; expected probabilities of 'law'"),
        ({"law": 1.5}, "has 1.5 for the label 'law'; expected probabilities of 'law'"),
    ],
)
def test_stored_thresholds_are_checked(several, thresholds, message):
    folder, *_ = several
    store_thresholds(folder, thresholds)
    with pytest.raises(InputError, match=message):
        Predictor(folder)
