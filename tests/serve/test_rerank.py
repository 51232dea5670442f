"""The routes of Cohere and Jina: documents ranked by a model of pairs."""

import pytest
import torch

DOCUMENTS = ["b c", {"text": "good film"}, "a"]
TEXTS = ["b c", "good film", "a"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_ranked_by_the_sigmoid_of_the_only_output(http, served, path):
    found = http.post(path, json={"model": "ranker", "query": "a film", "documents": DOCUMENTS})
    assert found.status_code == 200, found.text
    results = found.json()["results"]
    raw = served["ranker"].predictor.classify(["a film"] * 3, TEXTS, raw=True)
    expected = torch.tensor([one["score"] for one in raw]).sigmoid().tolist()
    assert {one["index"]: one["relevance_score"] for one in results} == pytest.approx(dict(enumerate(expected)))
    assert [one["index"] for one in results] == sorted(range(3), key=lambda i: -expected[i])
    assert found.json()["usage"]["total_tokens"] == sum(one["tokens"] for one in raw)
    assert found.json()["meta"]["api_version"]["version"] == path[2]


def test_top_n_and_the_documents(http):
    body = {"model": "ranker", "query": "a film", "documents": DOCUMENTS}
    every = http.post("/v2/rerank", json=body).json()["results"]
    two = http.post("/v2/rerank", json=body | {"top_n": 2, "return_documents": True}).json()["results"]
    assert [(one["index"], one["relevance_score"]) for one in two] == [
        (one["index"], one["relevance_score"]) for one in every[:2]
    ]
    assert [one["document"]["text"] for one in two] == [TEXTS[one["index"]] for one in every[:2]]
    assert "document" not in every[0]


def test_fields_of_documents(http):
    rows = [{"title": "a", "body": "b"}, {"title": "good film"}]
    body = {"model": "ranker", "query": "a", "documents": rows, "return_documents": True}
    found = http.post("/v1/rerank", json=body | {"rank_fields": ["title", "body"]}).json()["results"]
    assert {one["document"]["text"] for one in found} == {"a\nb", "good film"}
    missing = http.post("/v1/rerank", json=body)
    assert missing.status_code == 422 and "documents.0 has no text in text" in missing.json()["error"]


def test_a_label_that_means_relevant_ranks_too(http, served):
    found = http.post("/v2/rerank", json={"model": "nli", "query": "a film", "documents": TEXTS}).json()["results"]
    each = served["nli"].predictor.classify(["a film"] * 3, TEXTS, all_scores=True)
    assert {one["index"]: one["relevance_score"] for one in found} == pytest.approx(
        {i: one["scores"]["entailment"] for i, one in enumerate(each)}, abs=1e-5
    )


@pytest.mark.parametrize(
    ("labels", "multilabel", "weights"),
    [
        (["relevance"], False, [1]),
        (["0", "1"], False, [0, 1]),
        (["LABEL_0", "LABEL_1"], False, [0, 1]),
        (["no", "YES", "maybe"], False, [0, 1, 0]),
        (["2", "0", "1"], False, [1, 0, 0.5]),
        ([str(i) for i in range(11)], False, [i / 10 for i in range(11)]),
        (["0", "1", "2"], True, None),
        (["1", "2", "3"], False, None),
        (["LABEL_0", "LABEL_1", "LABEL_2"], False, None),
        (["red", "green"], False, None),
    ],
)
def test_which_labels_say_how_relevant_a_pair_is(labels, multilabel, weights):
    from bertworks.serve.rerank import weights_of

    found = weights_of(labels, multilabel)
    assert (None if found is None else found.tolist()) == weights


def test_grades_are_ranked_by_their_expectation(http, served, monkeypatch):
    from dataclasses import replace

    predictor = served["nli"].predictor
    monkeypatch.setattr(predictor, "loaded", replace(predictor.loaded, labels=("0", "1", "2")))
    found = http.post("/v2/rerank", json={"model": "nli", "query": "a film", "documents": TEXTS}).json()["results"]
    each = predictor.classify(["a film"] * 3, TEXTS, all_scores=True)
    scores = torch.tensor([list(one["scores"].values()) for one in each])
    expected = (scores @ torch.tensor([0, 0.5, 1])).tolist()
    assert {one["index"]: one["relevance_score"] for one in found} == pytest.approx(dict(enumerate(expected)), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "why"),
    [("labels", "reads single texts"), ("value", "reads single texts"), ("several", "red, green, blue"), ("mlm", "")],
)
def test_other_models_cannot_rank(http, name, why):
    found = http.post("/v2/rerank", json={"model": name, "query": "a film", "documents": TEXTS})
    assert found.status_code == 424 and why in found.json()["error"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"documents": []}, 400),
        ({"query": " "}, 400),
        ({"documents": ["a", ""]}, 400),
        ({"documents": [{"text": 1}]}, 422),
        ({"documents": "a"}, 422),
        ({"top_n": 0}, 422),
        ({"documents": ["a"] * 33}, 413),
        ({"documents": ["a " * 60]}, 413),
        ({"model": "none"}, 404),
    ],
    ids=str,
)
def test_bodies_of_another_form_are_refused(http, change, status):
    body = {"model": "ranker", "query": "a film", "documents": TEXTS} | change
    found = http.post("/v1/rerank", json=body)
    assert found.status_code == status and found.json().keys() == {"error", "error_type"}


def test_truncate_cuts_a_long_document(http):
    body = {"model": "ranker", "query": "a film", "documents": ["a " * 60], "truncate": True}
    found = http.post("/v1/rerank", json=body)
    assert found.status_code == 200 and int(found.headers["x-truncated-tokens"]) == 60 + 5 - 24
