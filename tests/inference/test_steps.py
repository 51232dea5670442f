"""Prepare, score, decode: requests that share a forward pass get the answers that each gets alone."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from bertworks.files import InputError
from bertworks.inference.predictor import Predictor
from support.tiny_task import headed_folder, tiny_folder

LONG = "good a b c bad film " * 12
TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
TEXTS = [["a b c"], ["good film", LONG, ""], ["bad , d"]]
SINGLES = [[(text, None) for text in texts] for texts in TEXTS]
PAIRS = [[("a b", "c d")], [(LONG, "good"), ("bad", "a b c d")]]
MIXED = [[("a b", "c d"), (LONG, None)], [("bad", None)]]
QUESTIONS = [[("a b", LONG)], [("good", "a film , b"), ("film", LONG + "c d")]]
CHOICES = [[("a film", ["good", "bad b c"])], [("b", ["a", LONG]), ("c d", ["e", "f"])]]
MASKS = [["a [MASK] film"], ["[MASK] b [MASK] " + "c d " * 8, "good [MASK] ."]]
KINDS = {  # name: (head, outputs, task, steps, requests)
    "single": ("classifier", ["one", "two", "three"], {"kind": "single"}, "classifier", SINGLES),
    "pair": ("classifier", ["one", "two"], {"kind": "pair"}, "classifier", PAIRS),
    "single and pair": ("classifier", ["one", "two"], {"kind": "single"}, "classifier", MIXED),
    "multilabel": ("classifier", ["one", "two", "three"], {"kind": "multilabel"}, "classifier", SINGLES),
    "regression": ("classifier", ["value"], {"kind": "regression"}, "classifier", SINGLES),
    "choice": ("choice", [], {"kind": "choice"}, "chooser", CHOICES),
    "tagging": ("tagger", TAGS, {"kind": "tagging"}, "tagger", TEXTS),
    "characters": ("tagger", TAGS, {"kind": "tagging", "characters": True}, "tagger", TEXTS),
    "span": ("span", [], {"kind": "span", "doc_stride": 4, "version_2": True}, "answerer", QUESTIONS),
    "next sentence": ("nsp", [], None, "next_sentence_steps", PAIRS),
    "masks": ("mlm", [], None, "mask_filler", MASKS),
    "embeddings": ("mlm", [], None, "embedder", TEXTS),
}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("steps") / "model")


def predictor_of(pretrained, folder, head, labels, task) -> Predictor:
    return Predictor(headed_folder(folder, pretrained, head, labels, 30, 4, task=task), device="cpu")


def decoded(predictor, prepared, scores):
    """The results, whatever the kind."""
    return list(prepared.decode(scores, *([predictor.loaded.settings] if predictor.kind else [])))


def assert_close(found, expected):
    """Equal structures, numbers within 1e-5."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)
    elif isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    else:
        assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_requests_in_one_pass_get_the_answers_of_each_alone(pretrained, tmp_path, kind):
    head, labels, task, name, requests = KINDS[kind]
    predictor = predictor_of(pretrained, tmp_path / "m", head, labels, task)
    steps = predictor.embedder() if name == "embedder" else getattr(predictor, name)
    prepared = [steps.prepare(rows) for rows in requests]
    passes = []
    forward = steps.forward
    steps.forward = lambda inputs: passes.append(len(inputs.first)) or forward(inputs)
    assert steps.score([]) == [] == passes
    together = steps.score(prepared)
    assert passes == [sum(len(one.inputs.first) for one in prepared)]
    for one, rows, scores in zip(prepared, requests, together, strict=True):
        alone = steps.score([one])[0]
        assert scores.shape == alone.shape
        np.testing.assert_allclose(scores, alone, atol=1e-4, rtol=1e-5)
        expected = decoded(predictor, one, alone)
        assert_close(decoded(predictor, one, scores), expected)
        assert len(expected) == len(rows) == len(one.tokens) == len(one.cut) and one.cut.min() >= 0
        assert one.tokens.sum() == len(one.inputs.ids)
        for row, tokens in zip(rows, one.tokens.tolist(), strict=True):
            assert not row or steps.prepare([row]).tokens.tolist() == [tokens]  # an empty text to tag is no sequence
        again = steps.prepare(rows)  # the same batch gives the same bits
        assert torch.equal(steps.score([again])[0], alone)
        assert str(decoded(predictor, again, alone)) == str(expected)


def test_words_with_the_probabilities_of_all_tags(pretrained, tmp_path):
    predictor = predictor_of(pretrained, tmp_path / "m", "tagger", TAGS, {"kind": "tagging"})
    text = "Good  film , abc"
    [words] = predictor.tag_words([text])
    assert [word["text"] for word in words] == ["Good", "film", ",", "abc"]
    for word in words:
        assert text[word["start"] : word["end"]] == word["text"] and list(word["scores"]) == TAGS
        assert sum(word["scores"].values()) == pytest.approx(1, abs=1e-5)
        assert word["score"] == word["scores"][word["tag"]] == max(word["scores"].values())


def test_targets_restrict_the_candidates(pretrained):
    predictor = Predictor(pretrained)
    [whole] = predictor.fill_mask("a [MASK] film", top_k=1000)
    [found] = predictor.fill_mask("a [MASK] film", targets=["good", "##s", "bad", "good"])
    scores = {one["token"]: one["score"] for one in whole}
    assert {one["token"]: one["score"] for one in found} == pytest.approx(
        {t: scores[t] for t in ("good", "##s", "bad")}
    )
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert len(predictor.fill_mask("a [MASK]", top_k=1, targets=["good", "bad"])[0]) == 1
    for target in ("good film", "한"):
        with pytest.raises(InputError, match="expected words of one token"):
            predictor.fill_mask("a [MASK]", targets=["bad", target])


CLASSIFY = """
import sys
from bertworks import Predictor
assert Predictor(sys.argv[1], device="cpu").classify("a b")["label"] in ("one", "two")
print(*sys.modules)
"""


def test_a_prediction_imports_no_statistics_no_plots_and_no_compiler(pretrained, tmp_path):
    predictor_of(pretrained, tmp_path / "m", "classifier", ["one", "two"], {"kind": "single"})
    command = [sys.executable, "-c", CLASSIFY, tmp_path / "m"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    heavy = {"sklearn", "scipy", "matplotlib", "pandas", "pyarrow", "transformers", "sympy", "torch._dynamo"}
    assert not heavy & {*done.stdout.split()}
