"""What is refused before it costs anything: bodies of another form, small bodies that mean much work, full queues."""

import pytest

from bertworks.apps.serve.pipelines import TASKS

ROUTES = {  # route, and the body of many wrong elements
    "/embed": lambda many: {"inputs": many},
    "/v1/embeddings": lambda many: {"input": many},
    "/v2/rerank": lambda many: {"query": "a", "documents": many},
    "/choose": lambda many: {"text": "a", "choices": many},
    "/pipeline/fill-mask": lambda many: {"inputs": "a", "parameters": {"targets": many}},
}


def refused(answer, status, *parts):
    assert answer.status_code == status, answer.text[:300]
    text = answer.json()["error"]
    text = text["message"] if isinstance(text, dict) else text
    assert all(part in text for part in parts) and len(text) < 400, text
    return answer


@pytest.fixture(scope="module")
def client(make_client):
    return make_client("mlm")


@pytest.mark.parametrize("route", ROUTES)
def test_the_first_wrong_element_ends_the_reading_of_a_list(client, route, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "bertworks.apps.serve.app.fault_of", lambda errors, body: (seen.append(len(errors)), ("a", "b"))[1]
    )
    for element in (None, [None]):
        found = client.post(route, json=ROUTES[route]([element] * 10_000))
        assert found.status_code == 422 and seen.pop() <= 10, route


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("/v1/embeddings", {"input": ["a", None]}, "input.1: Input should be a valid string"),
        ("/v1/embeddings", {"input": [[2, 5, 3]]}, "Input should be a valid string"),  # ids of another tokenizer
        ("/predict", {"inputs": [["a"], [None]]}, "inputs.1.0: Input should be a valid string"),
        ("/embed", {}, "inputs is missing"),
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, "truncation_direction: Input should be 'Left' or"),
        ("/embed", {"inputs": "a", "dimensions": 99}, "dimensions = 99; expected 1 to 32"),
        ("/", {"inputs": {"question": "a"}}, "inputs[0]: expected an object with the texts question and context"),
        ("/", {"inputs": ["a", 1]}, "inputs.1: Input should be a valid string or a valid dictionary"),
        ("/embed", {"inputs": "a", "mdoel": "other"}, "the body: unknown field mdoel; did you mean model?"),
        ("/", {"inputs": "a", "parameters": {"topk": 1}}, "parameters: unknown field topk; did you mean top_k?"),
    ],
)
def test_what_was_found_and_expected(client, route, body, message):
    refused(client.post(route, json=body), 422, message)


def test_unknown_fields_of_other_servers_are_ignored(client):
    unknown = {"inputs": "a", "options": {"wait_for_model": True}, "model_name": "x", "secret": 1, "truncate_dim": 4}
    assert client.post("/embed", json=unknown).status_code == 200
    asked = {"inputs": "a [MASK]", "parameters": {"max_seq_len": 384, "top_p": 0.9}}
    assert client.post("/", json=asked).status_code == 200


@pytest.mark.parametrize("value", [True, "3", 3.0, 0], ids=str)
def test_numbers_are_whole_numbers(http, value):
    for path, body in (
        ("/v1/embeddings", {"model": "mlm", "input": "a", "dimensions": value}),
        ("/embed", {"model": "mlm", "inputs": "a", "dimensions": value}),
        ("/models/labels", {"inputs": "a", "parameters": {"top_k": value}}),
        ("/models/span", {"inputs": {"question": "a", "context": "b"}, "parameters": {"max_answer_len": value}}),
        ("/v2/rerank", {"model": "ranker", "query": "a", "documents": ["b"], "top_n": value}),
    ):
        refused(http.post(path, json=body), 422)


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        ("/explain", {"model": "mlm", "a": "a", "b": "\u0001"}, 422, "no token"),
        ("/explain", {"model": "mlm", "a": "good film " * 40}, 413, "50 tokens more than the 32"),
        ("/rerank", {"model": "ranker", "query": "a " * 100_000, "documents": ["a"] * 20}, 413, "4,000,020 characters"),
        ("/models/mlm", {"inputs": "a " * 20_000 + "[MASK]", "parameters": {"top_k": 60}}, 413, "lower top_k"),
        *(
            ("/models/nli", {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": template}},
             422, "expected one {}")
            for template in ("none", "{} {}", "a" * 999 + "{}")
        ),
    ],
    ids=["no token", "explanation", "query", "candidates", "no place", "two places", "template"],
)  # fmt: skip
def test_small_bodies_that_would_become_much_work(http, route, body, status, message):
    refused(http.post(route, json=body), status, message)
    if route == "/models/mlm":
        every = http.post(route, json={"inputs": "a [MASK]", "parameters": {"top_k": 10**9}}).json()
        assert len(every) == 62  # the whole vocabulary
    if status == 413 and route == "/explain":
        cut = http.post(route, json=body | {"truncate": True})
        assert cut.headers["x-truncated-tokens"] == "50" and len(cut.json()["tokens"]) == 32
        assert cut.json()["cut"] == 50 and cut.json()["text"] == " ".join(["good film"] * 15)


def test_texts_and_labels_are_counted_before_they_are_paired(http, monkeypatch):
    monkeypatch.setitem(TASKS, "zero-shot-classification", ("classify", lambda *_: pytest.fail("pairs are built")))
    for labels in (["b"] * 1_000, ",".join("b" * 1_000)):
        body = {"inputs": ["a"] * 1_000, "parameters": {"candidate_labels": labels}}
        refused(http.post("/models/nli", json=body), 413, "1,000 texts with 1,000 labels", "4,000,000 tokens")


def test_a_result_of_too_many_numbers_is_refused(make_client, monkeypatch):
    monkeypatch.setattr("bertworks.apps.serve.service.VALUES", 62 * 3)
    client = make_client("mlm")
    client.app.state.service.warm_up()
    assert client.post("/pipeline/fill-mask", json={"inputs": "[MASK] " * 3}).status_code == 200  # of 62 tokens each
    refused(client.post("/pipeline/fill-mask", json={"inputs": "[MASK] " * 4}), 413, "248 numbers")
    assert client.post("/embed", json={"inputs": "a " * 11}).status_code == 200


@pytest.mark.parametrize("most", [20, 10**9])
def test_half_of_the_positions_are_the_contexts(make_client, most):
    """A question that takes the place of its context would mean many windows."""
    client, question = make_client("span"), "b c d e f " * 6  # a model of 24 positions
    body = {"inputs": {"question": question, "context": "a good film , b c d e f " * 5}}
    body["parameters"] = {"max_question_len": most}
    refused(client.post("/", json=body), 413, "tokens more than the 12 that are read of a question")
    body["parameters"]["truncate"] = True
    found = client.post("/", json=body)
    assert found.status_code == 200 and int(found.headers["x-compute-tokens"]) / 24 <= 12


def test_a_request_of_too_many_tokens_is_refused(make_client, monkeypatch):
    client = make_client("mlm", max_tokens=100)
    found = refused(client.post("/v1/embeddings", json={"input": ["good " * 20] * 5}), 413, "110 tokens in a request")
    assert found.json()["error"]["code"] == "max_tokens_per_request"
    steps = client.app.state.service.models["mlm"].steps["embed"]
    monkeypatch.setattr(steps, "prepare", lambda rows: pytest.fail("tokenized"))
    refused(client.post("/v1/embeddings", json={"input": ["a"] * 101}), 413, "at least 101 tokens in a request")
