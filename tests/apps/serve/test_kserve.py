"""The Open Inference Protocol: texts as BYTES tensors in JSON, outputs as its description of a model says."""

import json

import numpy as np
import pytest

TEXTS = ["a good film", "b"]


def tensor(name, data, **other):
    return {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data} | other


def infer(http, model, *inputs, **other):
    return http.post(f"/v2/models/{model}/infer", json={"inputs": inputs} | other)


def outputs(response):
    assert response.status_code == 200, response.text
    found = {one["name"]: one for one in response.json()["outputs"]}
    for one in found.values():
        assert int(np.prod(one["shape"])) == len(one["data"])
    return found


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("labels", {"text": TEXTS}),
        ("nli", {"text": TEXTS, "text_pair": TEXTS}),
        ("tags", {"text": TEXTS}),
        ("span", {"question": TEXTS, "context": TEXTS}),
        ("mlm", {"text": ["a [MASK]", "[MASK] b [MASK]"]}),
        ("choice", {"text": TEXTS}),
    ],
)
def test_the_outputs_are_those_that_the_description_names(http, model, inputs):
    described = http.get(f"/v2/models/{model}").json()
    assert {one["name"] for one in described["inputs"]} >= {*inputs}
    found = outputs(infer(http, model, *(tensor(name, data) for name, data in inputs.items())))
    assert [(one["name"], one["datatype"]) for one in described["outputs"]] == [
        (name, one["datatype"]) for name, one in found.items()
    ]
    for one in described["outputs"]:
        assert len(one["shape"]) == len(found[one["name"]]["shape"]) and found[one["name"]]["shape"][0] == 2


def test_outputs_equal_the_predictors(http, served):
    def predictor(name):
        return served[name].predictor

    found = outputs(infer(http, "labels", tensor("text", TEXTS)))
    expected = predictor("labels").classify(TEXTS, all_scores=True)
    assert found["label"]["data"] == [one["label"] for one in expected]
    values = [list(one["scores"].values()) for one in expected]
    np.testing.assert_allclose(np.reshape(found["scores"]["data"], (2, 3)), values, atol=1e-5)
    found = outputs(infer(http, "tags", tensor("text", TEXTS)))["entities"]["data"]
    for one, entities in zip(found, predictor("tags").tag(TEXTS), strict=True):
        assert [each["text"] for each in json.loads(one)] == [each["text"] for each in entities]
    found = outputs(infer(http, "span", tensor("question", ["a"]), tensor("context", ["b c good"])))
    answer = predictor("span").answer("a", "b c good")
    assert [found[name]["data"] for name in ("answer", "start", "end")] == [
        [answer["text"]],
        [answer["start"]],
        [answer["end"]],
    ]
    found = outputs(infer(http, "mlm", tensor("text", ["a [MASK]"])))["tokens"]["data"]
    assert [one["id"] for one in json.loads(found[0])[0]] == [
        one["id"] for one in predictor("mlm").fill_mask("a [MASK]")[0]
    ]
    found = outputs(infer(http, "choice", tensor("text", TEXTS)))["embedding"]
    vectors = predictor("choice").embed(TEXTS, normalize=True)
    np.testing.assert_allclose(np.reshape(found["data"], found["shape"]), vectors, atol=1e-5)


def test_nested_data_an_id_and_chosen_outputs(http):
    nested = {"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": [["a"], ["b"]]}
    found = infer(http, "labels", nested, id="7", outputs=[{"name": "scores", "parameters": {"binary_data": True}}])
    assert found.json()["id"] == "7" and [*outputs(found)] == ["scores"]


def test_health_and_descriptions(http):
    assert http.get("/v2").json()["name"] == "bertworks"
    assert http.get("/v2/health/live").json() == {"live": True}
    assert http.get("/v2/health/ready").json() == {"ready": True}
    assert http.get("/v2/models/labels/ready").json() == {"name": "labels", "ready": True}
    missing = http.get("/v2/models/none/ready")
    assert missing.status_code == 404 and missing.json().keys() == {"error"}


@pytest.mark.parametrize(
    ("inputs", "other", "status"),
    [
        ([], {}, 422),
        ([tensor("text", [1])], {}, 422),
        ([tensor("text", ["a"], datatype="FP32")], {}, 422),
        ([tensor("text", ["a"], shape=[2])], {}, 422),
        ([tensor("text", ["a"], shape=[-1])], {}, 422),
        ([tensor("text", ["a"]), tensor("other", ["a"])], {}, 422),
        ([tensor("text", ["a"]), tensor("text_pair", ["a", "b"])], {}, 422),
        ([tensor("text", ["a"])], {"outputs": [{"name": "none"}]}, 422),
        ([tensor("text", [[[[[["a"]]]]]], shape=[1])], {}, 422),
        ([tensor("text", [])], {}, 400),
        ([tensor("text", [""])], {}, 400),
        ([tensor("text", ["a " * 60]), tensor("text_pair", ["a"])], {}, 413),
    ],
)
def test_tensors_of_another_form_are_refused(http, inputs, other, status):
    found = infer(http, "nli", *inputs, **other)
    assert found.status_code == status, found.text
    assert found.json().keys() == {"error"}


def test_truncate_and_too_many_masks(http):
    pair = tensor("text", ["a " * 60]), tensor("text_pair", ["a"])
    assert outputs(infer(http, "nli", *pair, parameters={"truncate": True}))
    assert infer(http, "mlm", tensor("text", ["[MASK] " * 129])).status_code == 413


def test_truncate_overrules_the_server_and_is_true_or_false(make_client):
    client, pair = make_client("pair", auto_truncate=True), [tensor("text", ["a " * 60]), tensor("text_pair", ["a"])]
    for given, status in ((None, 200), (True, 200), (False, 413), ("false", 413), ("perhaps", 422)):
        assert infer(client, "pair", *pair, parameters={"truncate": given}).status_code == status, given
