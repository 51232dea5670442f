"""Hugging Face's routes: huggingface_hub's client, unmodified, and the payloads that it cannot send."""

import itertools
import random
import re

import numpy as np
import pytest
import torch

from bertworks.inference.predictor import Predictor

hub = pytest.importorskip("huggingface_hub")

LONG = "d " * 60
WHO = {"question": "a b?", "context": "the good film, a b c"}


@pytest.fixture
def inference(server_url, monkeypatch):
    """A client of huggingface_hub for one folder. Offline, as the tests run, it would not talk to this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return lambda name, path="": hub.InferenceClient(model=f"{server_url}/models/{name}{path}")


def predictor(served, name) -> Predictor:
    return served[name].predictor


# ---- the seven tasks by the stock client


@pytest.mark.parametrize("multi_label", [False, True])
def test_labels_are_ordered_by_logits(inference, served, monkeypatch, multi_label):
    scores = torch.tensor([[0, 900.0, 0], [0, 902.0, 0], [0, 901.0, 0]])  # of three pairs: all probabilities are 1
    monkeypatch.setattr(type(predictor(served, "nli").loaded), "scores", lambda *_, **__: scores)
    answer = inference("nli").zero_shot_classification("a", ["x", "y", "z"], multi_label=multi_label)
    assert [one.label for one in answer] == ["y", "z", "x"]


def test_token_classification(inference, served):
    text = "a film,  good b"
    found = inference("tags").token_classification(text)
    expected = predictor(served, "tags").tag(text)
    assert found and [(one.entity_group, one.start, one.end, one.word) for one in found] == [
        (one["type"], one["start"], one["end"], one["text"]) for one in expected
    ]
    assert all(text[one.start : one.end] == one.word for one in found)
    words = inference("tags").token_classification(text, aggregation_strategy="none", ignore_labels=[])
    assert [one.word for one in words] == ["a", "film", ",", "good", "b"]
    assert all(one.entity == "O" or one.entity[2:] == one.entity_group for one in words)


def test_question_answering(inference, served):
    found = inference("span").question_answering(**WHO)
    expected = predictor(served, "span").answer(WHO["question"], WHO["context"])
    assert (found.answer, found.start, found.end) == (expected["text"], expected["start"], expected["end"])
    assert found.score == pytest.approx(expected["score"], abs=1e-5)
    three = inference("span").question_answering(**WHO, top_k=3)
    assert len(three) == 3 and three[0].answer == found.answer
    assert three[0].score >= three[1].score >= three[2].score
    usual, short = (inference("span").question_answering(**WHO, top_k=20, max_answer_len=n) for n in (30, 1))
    assert any(" " in one.answer for one in usual) and not any(" " in one.answer for one in short)


def test_fill_mask(inference, served):
    text = "a [MASK] film"
    found = inference("mlm").fill_mask(text)
    (expected,) = predictor(served, "mlm").fill_mask(text)
    assert [(one.token, one.sequence) for one in found] == [(one["id"], one["text"]) for one in expected]
    assert all(isinstance(one.token, int) for one in found)
    some = inference("mlm").fill_mask(text, targets=["good", "bad"], top_k=2)
    assert {one.token_str for one in some} == {"good", "bad"}
    assert {one.sequence for one in some} == {"a good film", "a bad film"}


def test_feature_extraction(inference, served):
    found = inference("mlm").feature_extraction("a film")  # no mask: the folder that could fill one gives a vector
    raw = predictor(served, "mlm").embed(["a film"])
    np.testing.assert_allclose(found, raw / np.linalg.norm(raw), atol=1e-5)
    assert found.shape == (1, 32) and found.dtype == np.float32
    few = inference("mlm").feature_extraction("a film", normalize=False, dimensions=4)
    np.testing.assert_allclose(few, raw[:, :4], atol=1e-5)
    left = inference("mlm").feature_extraction(f"a {LONG}", truncate=True, truncation_direction="left")
    np.testing.assert_allclose(left, inference("mlm").feature_extraction("d " * 30), atol=1e-5)
    with pytest.raises(hub.errors.HfHubHTTPError, match="no prompt 'query'"):
        inference("mlm").feature_extraction("a film", prompt_name="query")
    other = inference("labels", "/pipeline/feature-extraction").feature_extraction("a film")
    assert other.shape == (1, 32)


def test_zero_shot_classification(inference, served):
    names = ["good", "bad", "film"]
    found = inference("nli").zero_shot_classification("a b", names, hypothesis_template="a {} c")
    raw = predictor(served, "nli").classify(["a b"] * 3, [f"a {n} c" for n in names], all_scores=True, raw=True)
    logits = torch.tensor([[one["scores"][name] for name in ("contradiction", "entailment")] for one in raw])
    expected = dict(zip(names, logits[:, 1].softmax(0).tolist(), strict=True))
    assert {one.label: one.score for one in found} == pytest.approx(expected, abs=1e-4)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    each = inference("nli").zero_shot_classification("a b", names, hypothesis_template="a {} c", multi_label=True)
    expected = dict(zip(names, logits.softmax(-1)[:, 1].tolist(), strict=True))
    assert {one.label: one.score for one in each} == pytest.approx(expected, abs=1e-4)
    (alone,) = inference("nli").zero_shot_classification("a b", ["good"], hypothesis_template="a {} c")
    assert alone.score == pytest.approx(expected["good"], abs=1e-4)  # of one label, entailed or not


def test_the_bare_url_answers_by_payload_and_head(http):
    """Of several folders the first that has a head for the payload; texts alone go to the first folder, here masks."""
    post = lambda **body: http.post("/", json=body)  # noqa: E731
    assert post(inputs="a [MASK]").json()[0].keys() == {"score", "token", "token_str", "sequence"}
    assert post(inputs=WHO).json().keys() == {"answer", "score", "start", "end"}
    assert len(post(inputs={"source_sentence": "a", "sentences": ["b", "c"]}).json()) == 2
    assert post(inputs="a", parameters={"candidate_labels": "x, y"}).status_code == 200  # by the first with entailment
    assert np.shape(post(inputs=["a", "b"]).json()) == (2, 32)
    assert post(inputs="a", parameters={}).status_code == 422  # a task with parameters, so masks were meant
    assert "no [MASK] in" in post(inputs="a", parameters={}).json()["error"]


@pytest.mark.parametrize("function", [None, "softmax", "sigmoid", "none"])
@pytest.mark.parametrize("name", ["labels", "several", "value"])
def test_text_classification(inference, served, name, function):
    more = {"function_to_apply": function} if function else {}
    answer = inference(name).text_classification("a good film", **more)
    scores = predictor(served, name).classify("a good film", all_scores=True, raw=function is not None)["scores"]
    values = torch.tensor(list(scores.values()))
    applied = {"softmax": values.softmax(0), "sigmoid": values.sigmoid()}.get(function, values)
    expected = dict(zip(scores, applied.tolist(), strict=True))
    assert {one.label: one.score for one in answer} == pytest.approx(expected, abs=1e-5)
    assert [one.label for one in answer] == sorted(expected, key=lambda label: -expected[label])
    assert inference(name).text_classification("a good film", top_k=1, **more) == answer[:1]


def test_a_pair_is_read_as_one(http, served):
    rows = http.post("/models/nli", json={"inputs": [{"text": "a b", "text_pair": "c"}, {"text": "a b"}]}).json()
    for row, second in zip(rows, ("c", None), strict=True):
        scores = predictor(served, "nli").classify("a b", second, all_scores=True)["scores"]
        assert {one["label"]: one["score"] for one in row} == pytest.approx(scores, abs=1e-5)


def test_a_long_text_is_windowed_and_a_long_pair_refused(http, served):
    (found,) = http.post("/models/labels", json={"inputs": LONG}).json()
    expected = predictor(served, "labels").classify(LONG, all_scores=True)
    assert expected["windows"] > 1 and found[0]["score"] == pytest.approx(expected["score"], abs=1e-5)
    pair = {"inputs": {"text": LONG, "text_pair": "a"}}
    assert http.post("/models/nli", json=pair).status_code == 413
    cut = http.post("/models/nli", json=pair | {"truncate": True})
    assert cut.status_code == 200 and int(cut.headers["x-truncated-tokens"]) == 60 - 24 + 4


def test_groups_between_entities_and_ignored_labels(http, served):
    tagger = predictor(served, "tags")
    texts = (" ".join(random.Random(i).choices("abcdefghij,.", k=20)) for i in range(50))
    tagged = ((text, next(tagger.tag_words([text]))) for text in texts)
    text, units = next(one for one in tagged if "O" in [unit["tag"] for unit in one[1]])
    body = {"inputs": text, "parameters": {"ignore_labels": ["PER"]}}
    groups = http.post("/models/tags", json=body).json()
    assert "PER" not in {one["entity_group"] for one in groups}
    runs = [key for key, _ in itertools.groupby(unit["tag"] == "O" for unit in units)]
    assert sum(one["entity_group"] == "O" for one in groups) == runs.count(True) > 0
    assert all(one["word"] == text[one["start"] : one["end"]] for one in groups)
    assert [one["start"] for one in groups] == sorted(one["start"] for one in groups)


def test_entities_are_whole_words_with_offsets_of_the_callers_text(http, served):
    """Words of several subwords, odd spaces, accents that take two characters (NFD), and emoji; to the text's end."""
    rng = random.Random(1)
    words = [*rng.choices(["good", "bad", "film", "abc", "xyz", "q"], k=400), "cafe\u0301", "\U0001f600"]
    rng.shuffle(words)
    text = "".join(word + rng.choice([" ", "  ", "\n", ", "]) for word in words)
    entities = http.post("/models/tags", json={"inputs": text}).json()
    assert all(text[one["start"] : one["end"]] == one["word"] for one in entities)
    assert not any(
        re.search(r"\w\w", text[max(edge - 1, 0) : edge + 1]) for one in entities for edge in (one["start"], one["end"])
    )
    assert max(one["end"] for one in entities) > len(text) - 40
    expected = predictor(served, "tags").tag(text)
    assert [(one["start"], one["end"]) for one in entities] == [(one["start"], one["end"]) for one in expected]


def test_no_answer_is_one_only_where_it_may_be(http):
    answers = {}
    for impossible in (True, False, None):
        body = {"inputs": WHO, "parameters": {"handle_impossible_answer": impossible, "top_k": 20}}
        answers[impossible] = {one["answer"] for one in http.post("/models/span", json=body).json()}
    assert "" in answers[True] and "" not in answers[False] and answers[None] == answers[False]


def test_several_masks_and_several_texts(http):
    body = {"inputs": ["a [MASK]", "[MASK] b [MASK]"], "parameters": {"top_k": 2}}
    one, two = http.post("/models/mlm", json=body).json()
    assert [candidate["sequence"][:1] for candidate in one] == ["a", "a"] and [len(mask) for mask in two] == [2, 2]
