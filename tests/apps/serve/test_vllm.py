"""vLLM's routes `/classify` and `/score`: values of Predictor in vLLM's form."""

import numpy as np
import pytest


def post(http, path, **body):
    found = http.post(path, json=body)
    assert found.status_code == 200, found.text
    answer = found.json()
    assert answer["object"] == "list" and answer["usage"]["total_tokens"] == int(found.headers["x-compute-tokens"])
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return answer


@pytest.mark.parametrize("name", ["labels", "several", "value"])
def test_classify_gives_the_probability_of_every_label_in_the_models_order(http, served, name):
    texts = ["a good film", "b", "d " * 60]
    predictor = served[name].predictor
    found = post(http, "/classify", model=name, input=texts)
    assert found["model"] == name
    for one, expected in zip(found["data"], predictor.classify(texts, all_scores=True), strict=True):
        scores = list(expected["scores"].values())
        assert one["probs"] == pytest.approx(scores, abs=1e-5) and one["num_classes"] == len(scores)
        assert one["label"] == expected["label"]
    (alone,) = post(http, "/classify", model=name, input=texts[0])["data"]
    assert alone["probs"] == pytest.approx(found["data"][0]["probs"], abs=1e-5)


def test_score_of_one_with_one_with_several_and_of_pairs(http, served):
    predictor, texts = served["ranker"].predictor, ["b c", "good film", "a"]
    raw = [one["score"] for one in predictor.classify(["a film"] * 3, texts, raw=True)]
    expected = 1 / (1 + np.exp(-np.array(raw)))
    found = post(http, "/score", model="ranker", text_1="a film", text_2=texts)
    assert [one["score"] for one in found["data"]] == pytest.approx(expected, abs=1e-5)
    pairs = post(http, "/v1/score", model="ranker", text_1=["a film"] * 3, text_2=texts)
    assert pairs["data"] == found["data"]
    one = post(http, "/score", model="ranker", text_1="a film", text_2=texts[0])
    assert one["data"][0]["score"] == pytest.approx(expected[0], abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 422),
        ("/score", {"text_1": "a", "text_2": []}, 400),
        ("/score", {"text_1": "a", "text_2": "b", "model": "tags"}, 424),
        ("/classify", {"input": "a", "model": "mlm"}, 424),
        ("/classify", {"input": ["a", 1]}, 422),
    ],
    ids=str,
)
def test_refusals_have_openais_form(http, path, body, status):
    found = http.post(path, json={"model": "ranker", **body})
    assert found.status_code == status, found.text
    assert found.json()["error"].keys() == {"message", "type", "param", "code"}
