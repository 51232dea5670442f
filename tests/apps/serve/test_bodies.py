"""Bodies of another form: refused at once, however long their lists are, with a message that says what was expected."""

import time

import pytest

ROUTES = {  # route, and the bodies of many wrong elements
    "/embed": lambda many: {"inputs": many},
    "/decode": lambda many: {"ids": many},
    "/predict": lambda many: {"inputs": many},
    "/tokenize": lambda many: {"inputs": many},
    "/rerank": lambda many: {"query": "a", "texts": many},
    "/similarity": lambda many: {"inputs": {"source_sentence": "a", "sentences": many}},
    "/v1/embeddings": lambda many: {"input": many},
    "/v2/rerank": lambda many: {"query": "a", "documents": many},
    "/choose": lambda many: {"text": "a", "choices": many},
    "/compare-word": lambda many: {"word": "a", "sentences": many},
    "/": lambda many: {"inputs": many},
    "/pipeline/fill-mask": lambda many: {"inputs": "a", "parameters": {"targets": many}},
    "/v2/models/tiny/infer": lambda many: {"inputs": many},
}


@pytest.fixture(scope="module")
def client(make_client):
    return make_client("tiny")


@pytest.mark.parametrize("route", ROUTES)
def test_a_list_of_wrong_elements_costs_no_more_than_reading_it(client, route, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "bertworks.apps.serve.app.fault_of", lambda errors, body: (seen.append(len(errors)), ("a", "b"))[1]
    )
    for element in (None, [None]):
        found = client.post(route, json=ROUTES[route]([element] * 10_000))
        assert found.status_code == 422 and seen.pop() <= 8, route
    begun = time.process_time()
    found = client.post(route, json=ROUTES[route]([None] * 400_000))
    assert found.status_code == 413 and "400,000 elements" in found.text
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("/embed", {"inputs": [{}]}, "inputs.0 is an object; expected a whole number, a text or a list"),
        ("/embed", {"inputs": 5}, "inputs is a number; expected a text or a list"),
        ("/embed", {"inputs": [[1, "a"]]}, "inputs.0.1 is a text; expected a whole number"),
        ("/embed", {"inputs": ["a", None]}, "inputs.1 is null; expected a text or a list"),
        ("/v1/embeddings", {"input": ["a", None]}, "input.1 is null; expected a text"),
        ("/v1/embeddings", {"input": [5, None]}, "input.1 is null; expected a whole number"),
        ("/predict", {"inputs": [["a"], [None]]}, "inputs.1.0 is null; expected a text"),
        ("/", {"inputs": ["a", None]}, "inputs.1 is null; expected a text or an object"),
        ("/embed", {}, "inputs is missing"),
        ("/embed", [], "the body is a list; expected an object"),
        ("/", {"inputs": None}, "inputs is null; expected a text, an object or a list"),
        ("/", {"inputs": ["a", 1]}, "inputs.1 is a number; expected a text or an object"),
        ("/v1/embeddings", {"input": {"secret": 1}}, "input is an object; expected a text or a list"),
        ("/v2/rerank", {"query": 1, "documents": ["a"]}, "query is a number; expected a text"),
    ],
)
def test_what_was_found_and_expected(client, route, body, message):
    found = client.post(route, json=body)
    assert found.status_code == 422 and f'"{message}; GET' in found.text, found.text
