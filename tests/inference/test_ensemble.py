"""Several classifiers as one: means of probabilities by label name, in predictions, evaluation and by the command."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from bertworks.checkpoint.folder import load_tokenizer, save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.inference.ensemble import Ensemble, evaluate_ensemble
from bertworks.inference.evaluation import Evaluation, evaluate
from bertworks.inference.predictor import Predictor
from bertworks.model.heads import build_model
from bertworks.tasks.base import Example, Task
from support.tiny_task import TINY, tiny_folder

TEXTS = [f"{a} film, {b} {c}" for a in ("good", "bad") for b in "abc" for c in "def"]


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Returns a function that gives the folder of a random classifier with these labels."""
    place = tmp_path_factory.mktemp("ensemble")
    tokenizer = load_tokenizer(tiny_folder(place / "base"))

    def folder(name, labels, kind="single", seed=1, **task):
        model = build_model(TINY, ("classifier",), labels=len(labels), seed=seed)
        head = model.heads["classifier"]
        with torch.no_grad():
            head.weight.mul_(30)
            save_folder(place / name, model, tokenizer, labels=labels, task={"kind": kind, **task})
            scores = [row["scores"] for row in Predictor(place / name).classify(TEXTS, all_scores=True, raw=True)]
            head.bias.sub_(torch.tensor([[row[label] for label in labels] for row in scores]).mean(0))
        save_folder(place / name, model, tokenizer, labels=labels, task={"kind": kind, **task})
        return place / name  # its labels differ by text

    return folder


def means(folders, names):
    """(N, K) mean probabilities in the order of the names."""
    each = [Predictor(folder).classify(TEXTS, all_scores=True) for folder in folders]
    return np.mean([[[row["scores"][name] for name in names] for row in rows] for rows in each], 0)


def test_the_mean_of_probabilities_by_name(make):
    folders = [make("a", ["x", "y", "z"]), make("b", ["z", "x", "y"], seed=2)]
    found = Ensemble([Predictor(folder) for folder in folders]).classify(TEXTS, all_scores=True)
    expected = means(folders, "xyz")
    np.testing.assert_allclose([[row["scores"][name] for name in "xyz"] for row in found], expected, atol=1e-6)
    assert [row["label"] for row in found] == ["xyz"[i] for i in expected.argmax(1)]
    single = [[row["label"] for row in Predictor(folder).classify(TEXTS)] for folder in folders]
    assert [row["label"] for row in found] not in single


def test_one_text_is_one_result_as_of_a_predictor(make):
    both = Ensemble([Predictor(make("a1", ["x", "y"])), Predictor(make("b1", ["x", "y"], seed=2))])
    one = both.classify(TEXTS[3], all_scores=True)
    assert one["scores"] == pytest.approx(both.classify([TEXTS[3]], all_scores=True)[0]["scores"])
    with pytest.raises(InputError, match="2 texts and 1 pairs; expected as many of both"):
        both.classify(["a", "b"], ["c"])


@pytest.mark.parametrize("columns", [{}, {"text": ["first"]}])
def test_a_number_of_texts_that_the_model_does_not_read(make, columns):
    """Its answer would mean nothing; a folder of other software, which names no task, takes both."""
    alone, paired = Predictor(make("alone", ["x", "y"])), Predictor(make("paired", ["x", "y"], "pair"))
    assert {alone.classify("a", "b")["label"], paired.classify("a")["label"]} <= {"x", "y"}
    alone.loaded.settings.update(name="known", **columns)
    paired.loaded.settings.update(name="known", **{key: ["first", "second"] for key in columns})
    with pytest.raises(InputError, match=r"rows\[0\]\[1\] is a second text; the model was fine-tuned on single texts"):
        alone.classify("a", "b")
    with pytest.raises(InputError, match=r"rows\[1\]\[1\] is None; the model was fine-tuned on pairs: give `pairs`"):
        list(paired.classify_stream([("a", "b"), ("a", None)]))
    with pytest.raises(InputError, match="fine-tuned on pairs"):
        Ensemble([paired, Predictor(make("third", ["x", "y"], "pair", seed=2))]).classify(["a"])
    both = Ensemble([alone, Predictor(make("fourth", ["x", "y"], seed=2))])
    with pytest.raises(InputError, match=r"rows\[0\]\[1\]: 3|rows\[0\]\[1\] is"):
        both.classify("a", 3)
    many = [("a", None)] * 1030 + [("a", "b")]  # more than a chunk
    with pytest.raises(InputError, match=r"rows\[1030\]\[1\] is a second text"):
        list(both.classify_stream(many))


def test_evaluation_judges_the_same_labels(make):
    folders = [make("a", ["x", "y", "z"]), make("b", ["z", "x", "y"], seed=2)]
    labels = [row["label"] for row in Ensemble([Predictor(f) for f in folders]).classify(TEXTS)]
    rows = [Example(text, label=label, line=i) for i, (text, label) in enumerate(zip(TEXTS, labels, strict=True))]
    task = Task("t", ("text",), metrics=("accuracy",))
    found = evaluate_ensemble(folders, task, rows)
    assert found["metrics"]["accuracy"] == 1.0 and {*found["members"]} == {*map(str, folders)}
    assert all(one["accuracy"] < 1 for one in found["members"].values())
    truth = np.array([["x", "y", "z"].index(label) for label in labels])
    expected = -np.log(means(folders, "xyz")[np.arange(len(truth)), truth]).mean()
    assert found["metrics"]["loss"] == pytest.approx(expected, rel=1e-5)


def test_each_model_scores_once_and_the_longest_cut_is_reported(make, monkeypatch):
    folders = [make("a", ["x", "y", "z"]), make("b", ["z", "x", "y"], seed=2)]
    shortened = Path(shutil.copytree(folders[1], folders[1].with_name("short")))
    settings = json.loads((shortened / "tokenizer_config.json").read_text()) | {"model_max_length": 4}
    (shortened / "tokenizer_config.json").write_text(json.dumps(settings))
    scored = []
    plain = Evaluation.scores
    monkeypatch.setattr(
        Evaluation, "scores", lambda self, *size: scored.append(self.loaded.folder) or plain(self, *size)
    )
    rows = [Example(text, label="xyz"[i % 3]) for i, text in enumerate(TEXTS)]
    found = evaluate_ensemble([folders[0], shortened], Task("t", ("text",)), rows)
    assert scored == [folders[0], shortened]
    assert found["truncation"]["examples"] == len(TEXTS) and len(found["members"]) == 2
    assert found["members"][str(shortened)] == evaluate(shortened, Task("t", ("text",)), rows)["metrics"]


def test_several_labels_and_values(make):
    folders = [make("m1", ["x", "y"], "multilabel", thresholds={"x": 0.2}), make("m2", ["y", "x"], "multilabel", 3)]
    found = Ensemble([Predictor(folder) for folder in folders]).classify(TEXTS)
    expected = [
        "|".join(n for n, p, t in zip("xy", row, (0.35, 0.5), strict=True) if p > t) for row in means(folders, "xy")
    ]
    assert [row["label"] for row in found] == expected
    rows = [Example(text, label=label) for text, label in zip(TEXTS, expected, strict=True)]
    task = Task("t", ("text",), kind="multilabel", labels=("y", "x"), metrics=("exact_match",))
    assert evaluate_ensemble(folders, task, rows)["metrics"]["exact_match"] == 1.0
    folders = [make("r1", ["stars"], "regression"), make("r2", ["points"], "regression", 3)]
    found = [row["score"] for row in Ensemble([Predictor(folder) for folder in folders]).classify(TEXTS)]
    values = [[row["score"] for row in Predictor(folder).classify(TEXTS)] for folder in folders]
    np.testing.assert_allclose(found, np.mean(values, 0), atol=1e-5)
    rows = [Example(text, label=str(value)) for text, value in zip(TEXTS, found, strict=True)]
    task = Task("t", ("text",), "stars", "regression", metrics=("pearson",))
    assert evaluate_ensemble(folders, task, rows)["metrics"]["pearson"] == pytest.approx(1.0, abs=1e-5)


def test_what_does_not_fit_is_named(make):
    one = Predictor(make("a", ["x", "y", "z"]))
    with pytest.raises(InputError, match=r"have different labels \(w, z\); expected models of the same labels"):
        Ensemble([one, Predictor(make("c", ["x", "y", "w"]))])
    with pytest.raises(InputError, match=r"is of the kind pair, .* of single; give one kind"):
        Ensemble([one, Predictor(make("d", ["x", "y", "z"], "pair"))])
    with pytest.raises(InputError, match="a is given twice; expected different models"):
        Ensemble([one, Predictor(one.loaded.folder)])
    with pytest.raises(InputError, match="is given twice"):
        evaluate_ensemble(
            [one.loaded.folder, f"{one.loaded.folder}/../a"], Task("t", ("text",)), [Example("a", None, "x")]
        )
    with pytest.raises(InputError, match="1 model for an ensemble; expected two or more"):
        Ensemble([one])


def test_the_commands(make, tmp_path, capsys):
    folders = [str(make("a", ["x", "y", "z"])), str(make("b", ["z", "x", "y"], seed=2))]
    (tmp_path / "t.csv").write_text("text,label\ngood film,x\n,y\nbad film,z\n")
    data = str(tmp_path / "t.csv")
    expected = None
    for line in ([data, "--model", *folders], ["--model", *folders, data], ["--model", *folders, "--data", data]):
        main(["predict", *line])
        found = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
        assert expected in (None, found) and [row["line"] for row in found] == [2, 3, 4] and found[1]["empty"]
        expected = found
    main(["predict", "--string", "good film", "--model", *folders])
    assert json.loads(capsys.readouterr().out)["label"] == expected[0]["label"]
    main(["evaluate", "--model", *folders, "--dev", data])
    assert {*json.loads(capsys.readouterr().out)["members"]} == {*folders}
