"""TEI's routes give what Predictor gives, in TEI's forms."""

import numpy as np
import pytest

TEXTS = ["a good film", "bad , c d e", "f"]
LONG = "good a b c bad film " * 12


@pytest.fixture
def post(http):
    def ask(path, status=200, **body):
        answer = http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return ask


def test_embed_takes_dimensions_and_both_directions(post, predictors):
    predictor = predictors["mlm"]
    expected = predictor.embed(TEXTS, normalize=True)
    np.testing.assert_allclose(post("/embed", inputs=TEXTS, model="mlm"), expected, atol=1e-6)
    first = predictor.embed(TEXTS)[:, :5]
    short = post("/embed", inputs=TEXTS, model="mlm", dimensions=5)
    np.testing.assert_allclose(short, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-6)
    for text, direction in (("a b c " + "d " * 30, "left"), ("d " * 30 + "a b c", "Right")):
        found = post("/embed", inputs=text, truncate=True, truncation_direction=direction, model="mlm")
        np.testing.assert_allclose(found[0], predictor.embed("d " * 30, normalize=True), atol=1e-6)


def test_prompts_by_name(make_client, predictors):
    client = make_client("mlm", prompts={"query": "good : "})
    found = client.post("/embed", json={"inputs": "film", "prompt_name": "query"}).json()
    np.testing.assert_allclose(found[0], predictors["mlm"].embed("good : film", normalize=True), atol=1e-6)
    refused = client.post("/embed", json={"inputs": "film", "prompt_name": "passage"})
    assert refused.status_code == 422 and "query" in refused.json()["error"]


def check(found, prediction):
    """The labels and scores of an answer are those of a prediction, best first."""
    expected = sorted(prediction["scores"].items(), key=lambda pair: -pair[1])
    assert [one["label"] for one in found] == [label for label, _ in expected]
    np.testing.assert_allclose([one["score"] for one in found], [score for _, score in expected], atol=1e-5)


@pytest.mark.parametrize("name", ["labels", "several", "value"])
def test_predict_gives_all_labels_best_first(post, predictors, name):
    for raw in (False, True):
        expected = predictors[name].classify([*TEXTS, LONG], all_scores=True, raw=raw)
        found = post("/predict", inputs=[[text] for text in (*TEXTS, LONG)], model=name, raw_scores=raw)
        for one, row in zip(found, expected, strict=True):
            check(one, row)
    for alone in (TEXTS[0], [TEXTS[0]]):
        check(post("/predict", inputs=alone, model=name), predictors[name].classify(TEXTS[0], all_scores=True))


def test_predict_takes_pairs_alone_and_in_batches(post, predictors):
    predictor = predictors["nli"]
    pair = predictor.classify("a b", "good film", all_scores=True)
    check(post("/predict", inputs=["a b", "good film"], model="nli"), pair)
    found = post("/predict", inputs=[["a b", "good film"], ["bad"]], model="nli")
    check(found[0], pair)
    check(found[1], predictor.classify("bad", all_scores=True))
    assert '[["a"],["b"]]' in post("/predict", 422, inputs=["a", "b", "c"], model="nli")["error"]
    for wrong in ([["a", "b", "c"]], [[]], ["a", ["b"]]):
        post("/predict", 422, inputs=wrong, model="nli")
    post("/predict", 413, inputs=[LONG, "a"], model="nli")


def test_a_pair_is_cut_at_the_end_or_at_the_beginning_of_its_longer_text(post, predictors):
    words, predictor = LONG.split(), predictors["nli"]
    ends = {"Right": " ".join(words[:20]), "left": " ".join(words[-20:])}  # of 24 tokens [CLS], 2 [SEP] and "a" are 4
    for direction, kept in ends.items():
        how = {"model": "nli", "truncate": True, "truncation_direction": direction}
        for given, short in (([LONG, "a"], [kept, "a"]), (["a", LONG], ["a", kept])):
            check(post("/predict", inputs=given, **how), predictor.classify(*short, all_scores=True))
        expected = predictor.classify("a", kept, all_scores=True)["scores"]["entailment"]
        assert post("/rerank", query="a", texts=[LONG], **how)[0]["score"] == pytest.approx(expected, abs=1e-5)
        both = post("/predict", inputs=[[LONG], [LONG, "a"]], **how)  # the first has windows, whatever is asked
        check(both[0], predictor.classify(LONG, all_scores=True))


def test_texts_of_another_number_than_those_of_fine_tuning_are_refused(make_client, monkeypatch):
    """`reviews` was fine-tuned on single texts; of `labels`, from other software, the number is not known."""
    client = make_client("reviews", "labels")
    settings = client.app.state.service.models["reviews"].predictor.loaded.settings
    one, two = (
        {"inputs": ["a b", {"text": "a b", "text_pair": ""}]},
        {"inputs": ["a b", {"text": "a", "text_pair": "b"}]},
    )
    assert client.post("/models/reviews", json=one).status_code == 200
    assert client.post("/models/labels", json=two).status_code == 200
    answer = client.post("/models/reviews", json=two)
    assert answer.status_code == 422
    assert "input 1 is a pair, but the model 'reviews' was fine-tuned on single texts" in answer.json()["error"]
    listed = client.get("/models").json()["models"]
    assert {one["name"]: one["reads_single"] for one in listed} == {"reviews": True, "labels": False}
    monkeypatch.setitem(settings, "text", ["premise", "hypothesis"])
    for inputs in ("a b", [["a b", "good film"], ["a b"]]):
        answer = client.post("/predict", json={"inputs": inputs, "model": "reviews"})
        assert answer.status_code == 422 and "is a single text, but the model 'reviews'" in answer.json()["error"]
    assert client.post("/predict", json={"inputs": [["a b", "film"]], "model": "reviews"}).status_code == 200


def test_info_has_teis_fields_and_no_path(make_client, head_folders):
    answer = make_client("labels", "mlm").get("/info")
    info = answer.json()
    assert str(head_folders["labels"].parent) not in answer.text
    assert (info["model_id"], info["max_input_length"]) == ("labels", 24)
    assert info["model_type"]["classifier"]["id2label"] == {"0": "one", "1": "two", "2": "three"}
    assert ["fill_mask" in model["can"] for model in info["models"]] == [False, True]
    assert "reranker" in make_client("value").get("/info").json()["model_type"]
