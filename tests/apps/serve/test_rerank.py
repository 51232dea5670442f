"""`/rerank`, `/v1/rerank`, `/v2/rerank`: texts or documents ranked by a model of pairs, or by an embedder."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertworks.apps.serve.rerank import weights_of
from support.served import client_of, loaded

DOCUMENTS = ["b c", {"text": "good film"}, "a"]
TEXTS = ["b c", "good film", "a"]


def test_a_single_output_of_other_software_has_one_score_on_every_route(served, tmp_path):
    folder = shutil.copytree(served["ranker"].predictor.folder, tmp_path / "cross")
    settings = json.loads((folder / "config.json").read_text())
    del settings["problem_type"]
    (folder / "config.json").write_text(json.dumps(settings))
    client = client_of(loaded({"cross": folder}, "cross"))
    raw = served["ranker"].predictor.classify("a film", "good film", raw=True)["score"]
    expected = 1 / (1 + np.exp(-raw))
    (pair,) = client.post("/predict", json={"inputs": ["a film", "good film"]}).json()
    ((bare,),) = client.post("/", json={"inputs": [{"text": "a film", "text_pair": "good film"}]}).json()
    (first,) = client.post("/rerank", json={"query": "a film", "texts": ["good film"]}).json()
    for found in (pair, bare, first):
        assert found["score"] == pytest.approx(expected, abs=1e-6)
    (raw_pair,) = client.post("/predict", json={"inputs": ["a film", "good film"], "raw_scores": True}).json()
    assert raw_pair["score"] == pytest.approx(raw, abs=1e-5)


PATHS = ["/rerank", "/v1/rerank", "/v2/rerank"]


@pytest.mark.parametrize("path", PATHS)
def test_the_field_decides_the_answer_whatever_the_path(http, served, path):
    raw = served["ranker"].predictor.classify(["a film"] * 3, TEXTS, raw=True)
    expected = torch.tensor([one["score"] for one in raw]).sigmoid().tolist()
    order = sorted(range(3), key=lambda i: -expected[i])
    body = {"model": "ranker", "query": "a film"}
    found = http.post(path, json=body | {"documents": DOCUMENTS})
    assert found.status_code == 200, found.text
    results = found.json()["results"]
    assert found.json().keys() == {"id", "model", "results", "usage"} and found.json()["model"] == "ranker"
    assert [one["index"] for one in results] == order and results[0].keys() == {"index", "relevance_score"}
    assert {one["index"]: one["relevance_score"] for one in results} == pytest.approx(dict(enumerate(expected)))
    assert found.json()["usage"]["total_tokens"] == sum(one["tokens"] for one in raw)
    two = http.post(path, json=body | {"documents": DOCUMENTS, "top_n": 2, "return_documents": True}).json()["results"]
    assert [(one["index"], one["document"]["text"]) for one in two] == [(i, TEXTS[i]) for i in order[:2]]
    rows = http.post(path, json=body | {"texts": TEXTS, "return_text": True}).json()
    assert [(one["index"], one["score"], one["text"]) for one in rows] == [
        (one["index"], one["relevance_score"], TEXTS[one["index"]]) for one in results
    ]
    outputs = http.post(path, json=body | {"texts": TEXTS, "raw_scores": True}).json()
    assert [one["score"] for one in outputs] == pytest.approx([raw[i]["score"] for i in order], abs=1e-5)


@pytest.fixture(scope="module")
def foreign(served, tmp_path_factory):
    """Returns a function that gives a classifier of other software with these labels, as it is served."""

    def make(labels, settings):
        folder = shutil.copytree(served["labels"].predictor.folder, tmp_path_factory.mktemp("foreign") / "model")
        config = json.loads((folder / "config.json").read_text())
        config |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
        weights = load_file(folder / "model.safetensors")
        weights |= {name: weights[name][: len(labels)].clone() for name in weights if name.startswith("classifier.")}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config | settings))
        return loaded({"foreign": folder}, "foreign")["foreign"]

    return make


CROSS = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}}


@pytest.mark.parametrize(
    ("labels", "settings", "relevant"),
    [
        (["LABEL_0", "LABEL_1"], {}, "LABEL_1"),
        (["LABEL_0", "LABEL_1"], CROSS, "LABEL_1"),
        (["contradiction", "neutral", "entailment"], {}, "entailment"),
        (["NEGATIVE", "POSITIVE"], {}, None),
    ],
)
def test_a_classifier_of_other_software_ranks_if_its_labels_allow_it(foreign, labels, settings, relevant):
    model = foreign(labels, settings)
    client = client_of({"foreign": model})
    assert [one["reranks"] for one in client.get("/models").json()["models"]] == [relevant is not None]
    found = client.post("/rerank", json={"query": "a film", "texts": TEXTS})
    if relevant is None:
        assert found.status_code == 424 and "has the labels NEGATIVE, POSITIVE" in found.json()["error"]
        return
    each = model.predictor.classify(["a film"] * 3, TEXTS, all_scores=True)
    expected = {i: one["scores"][relevant] for i, one in enumerate(each)}
    assert {one["index"]: one["score"] for one in found.json()} == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "multilabel", "weights"),
    [
        (["relevance"], False, [1]),
        (["0", "1"], False, [0, 1]),
        (["no", "YES", "maybe"], False, [0, 1, 0]),
        (["2", "0", "1"], False, [1, 0, 0.5]),
        ([str(i) for i in range(11)], False, [i / 10 for i in range(11)]),
        (["0", "1", "2"], True, None),
        (["1", "2", "3"], False, None),
        (["LABEL_0", "LABEL_1", "LABEL_2"], False, None),
    ],
)
def test_which_labels_say_how_relevant_a_pair_is(labels, multilabel, weights):
    result = weights_of(labels, multilabel)
    assert (None if result is None else result.tolist()) == weights


def rising(self, inputs, *_, **__):
    """Scores (S, K) of which no two are equal, though their probabilities are: in column 1, or the only one."""
    scores = torch.zeros(len(inputs.first), len(self.labels))
    scores[:, min(1, len(self.labels) - 1)] = 900 + torch.arange(len(scores))
    return scores


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(("name", "labels"), [("ranker", None), ("nli", None), ("nli", ("0", "2", "1"))])
def test_texts_are_ranked_by_logits_and_grades_by_their_expectation(http, served, monkeypatch, name, labels, raw):
    predictor = served[name].predictor
    if labels:
        monkeypatch.setattr(predictor, "loaded", replace(predictor.loaded, labels=labels))
    body = {"model": name, "query": "a film", "raw_scores": raw, "texts": TEXTS}
    if labels and not raw:
        each = predictor.classify(["a film"] * 3, TEXTS, all_scores=True)
        expected = [sum(s * int(g) / 2 for s, g in zip(one["scores"].values(), labels, strict=True)) for one in each]
        rows = {one["index"]: one["score"] for one in http.post("/rerank", json=body).json()}
        assert rows == pytest.approx(dict(enumerate(expected)), abs=1e-5)
    monkeypatch.setattr(type(predictor.loaded), "scores", rising)
    assert [one["index"] for one in http.post("/rerank", json=body).json()] == [2, 1, 0]


REFUSED = [
    ({"model": "labels"}, 424, "has the labels one, two, three"),
    ({"model": "value"}, 424, "reads single texts"),
    ({"model": "several"}, 424, "red, green, blue"),
    ({"model": "mlm"}, 424, "it has no classifier"),
    ({"query": " "}, 400, ""),
    ({"documents": [{"title": "a"}]}, 422, ""),
    ({"texts": ["a"]}, 422, "either texts"),
    ({"documents": ["a " * 60]}, 413, ""),
]


@pytest.mark.parametrize(("change", "status", "why"), REFUSED, ids=str)
def test_other_models_and_bodies_are_refused(http, change, status, why):
    found = http.post("/v1/rerank", json={"model": "ranker", "query": "a film", "documents": TEXTS} | change)
    assert found.status_code == status and why in found.json()["error"]
    assert found.json().keys() == {"error", "error_type"}


# ---- embedders


@pytest.fixture(scope="module")
def embedding(served, tmp_path_factory):
    """Served models: an embedder `emb` first, a pre-trained one, and models of single texts and of pairs."""
    from bertworks.checkpoint.pooling import Pooling, write_pooling

    folders = {name: served[name].predictor.folder for name in ("mlm", "labels", "ranker")}
    folders["emb"] = tmp_path_factory.mktemp("embedder") / "emb"
    shutil.copytree(folders["mlm"], folders["emb"])
    write_pooling(
        folders["emb"], Pooling(max_length=24, prompt="a film "), served["mlm"].predictor.model.config.hidden_size
    )
    return loaded(folders, "emb", "mlm", "labels", "ranker")


@pytest.fixture(scope="module")
def client(embedding):
    return client_of(embedding)


def cosines(model, query, texts):
    vectors = model.predictor.embed([query, *texts], normalize=True)
    return dict(enumerate((vectors[1:] @ vectors[0]).tolist()))


def test_an_embedder_ranks_by_the_cosine_of_its_vectors(client, embedding):
    texts = [*TEXTS, "한국어 문장", "good film"]
    found = client.post("/rerank", json={"model": "emb", "query": "good film", "texts": texts})
    rows, expected = found.json(), cosines(embedding["emb"], "good film", texts)
    assert {one["index"]: one["score"] for one in rows} == pytest.approx(expected, abs=1e-5)
    values = [one["score"] for one in rows]
    assert values == sorted(values, reverse=True) and values[0] == pytest.approx(1) and values[-1] < 0.999
    assert {rows[0]["index"], rows[1]["index"]} == {1, 4}  # equal texts
    embedded = client.post("/embed", json={"model": "emb", "inputs": ["good film", *texts]})
    assert found.headers["x-compute-tokens"] == embedded.headers["x-compute-tokens"]
    similar = {"inputs": {"source_sentence": "good film", "sentences": texts}}
    same = dict(enumerate(client.post("/models/emb", json=similar).json()))
    assert {one["index"]: one["score"] for one in rows} == pytest.approx(same, abs=1e-6)


@pytest.mark.parametrize("direction", ["Right", "Left"])
def test_an_embedder_truncates_the_end_or_the_beginning(client, direction):
    text = "good film " * 12 + "b c " * 12
    how = {"model": "emb", "truncate": True, "truncation_direction": direction}
    answer = client.post("/rerank", json={"query": "good film", "texts": [text], **how})
    assert answer.headers["x-truncated-tokens"] == str(48 + 2 - 22)  # of 24 tokens [CLS] and [SEP] are 2, the prompt 2
    vectors = client.post("/embed", json={"inputs": ["good film", text], **how}).json()
    assert answer.json()[0]["score"] == pytest.approx(float(np.dot(*vectors)), abs=1e-5)


def test_what_ranks_and_what_embeds_if_no_model_is_named(embedding, foreign):
    models = {"foreign": foreign(["LABEL_0", "LABEL_1"], {})} | embedding  # foreign may read single texts: it is last

    def client(*names):
        return client_of({name: models[name] for name in names})

    body = {"query": "a film", "documents": TEXTS}
    for names, first in (
        (("emb", "ranker"), "ranker"), (("labels", "mlm", "emb"), "emb"), (("emb",), "emb"),
        (("foreign", "emb"), "emb"), (("foreign", "ranker"), "ranker"), (("foreign", "mlm"), "foreign"),
    ):  # fmt: skip
        assert client(*names).post("/v2/rerank", json=body).json()["model"] == first
    assert client("foreign", "emb").post("/v2/rerank", json=body | {"model": "foreign"}).json()["model"] == "foreign"
    two = client("labels", "emb")
    answers = [two.post("/embed", json={"inputs": "a", "model": name}).json() for name in (None, "emb", "labels")]
    assert answers[0] == answers[1] != answers[2]
