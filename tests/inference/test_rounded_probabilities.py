"""Answers are ordered by scores: probabilities near 0 and 1 are equal by rounding, also in float64."""

import pytest
import torch

from bertworks.inference.predictor import Predictor
from support.served import heads_of

BASE = 900.0  # a sigmoid, and a softmax beside 0, are 0 or 1 from here on


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return heads_of(tmp_path_factory.mktemp("heads"))


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("name", "scores", "expected"),
    [
        ("several", [BASE, BASE + 2, BASE + 1], ["green", "blue", "red"]),
        ("several", [-BASE - 2, -BASE - 1, -BASE], ["blue", "green", "red"]),
        ("labels", [-BASE - 1, -BASE, 0], ["three", "two", "one"]),
    ],
)
def test_labels(folders, name, scores, expected, raw):
    predictor = Predictor(folders[name])
    rows = predictor.classifier.prepare([("a", None)])
    (found,) = rows.best_first(torch.tensor([scores]), raw)
    assert [label for label, _ in found] == expected
    (result,) = rows.decode(torch.tensor([scores]), {}, raw)
    assert name == "several" or result["label"] == expected[0]
    assert dict(found) == result["scores"]


def test_a_threshold_near_one_decides(folders):
    rows = Predictor(folders["several"]).classifier.prepare([("a", None)])
    settings = {"thresholds": dict.fromkeys(["red", "green", "blue"], 1 - 1e-9)}  # a score of 20.7; float32 has 1
    (found,) = rows.decode(torch.tensor([[19.0, 20.0, 22.0]]), settings)
    assert found["label"] == "blue"


def test_words_for_masks(folders):
    predictor = Predictor(folders["mlm"])
    rows = predictor.mask_filler.prepare(["a [MASK] film"])
    scores = torch.zeros(1, predictor.model.config.vocab_size)
    targets = ["bad", "good", "film"]
    ids = [predictor.tokenizer.vocab.index(word) for word in targets]
    scores[0, ids] = torch.tensor([-BASE - 1, -BASE, -BASE - 2])
    ((found,),) = rows.decode(scores, 3, targets)
    assert [one["token"] for one in found] == ["good", "bad", "film"]


def test_choices_and_tags(folders):
    rows = Predictor(folders["choice"]).chooser.prepare([("a", ["b", "c", "d"])])
    assert rows.decode(torch.tensor([[1.0], [1.0 + 1e-7], [0.0]]), {})[0]["choice"] == 1
    tagger = Predictor(folders["tags"])
    rows = tagger.tagger.prepare(["a"])
    scores = torch.zeros(len(rows.inputs.ids), 5)
    scores[:, 3], scores[:, 2] = 1.0 + 1e-7, 1.0
    assert rows.tags(scores)[0][0] == ["B-LOC"]
