"""Small requests that would become much work, or hold much memory before any limit, are refused at once."""

import contextlib
import logging
import re
import socket
import threading

import pytest

LONG = "a " * 5_000


def refused(answer, status, *parts):
    assert answer.status_code == status, answer.text[:300]
    text = answer.json()["error"]
    text = text["message"] if isinstance(text, dict) else text
    assert all(part in text for part in parts) and len(text) < 400, text
    return answer


# ---- rerank


def test_a_field_of_documents_is_named_once(http):
    body = {"model": "ranker", "query": "a", "documents": [{"text": LONG}]}
    refused(http.post("/v2/rerank", json=body | {"rank_fields": ["text"] * 100}), 422, "'text' comes twice")
    refused(http.post("/v2/rerank", json=body | {"rank_fields": ["text"] * 101}), 422, "rank_fields")


def test_a_query_for_many_documents_counts_with_each(http):
    body = {"model": "ranker", "query": "a " * 100_000, "documents": ["a"] * 20}
    refused(http.post("/v1/rerank", json=body), 413, "4,000,020 characters")


def test_many_choices(http):
    body = {"model": "choice", "text": "a b", "choices": ["c"] * 100}
    assert len(http.post("/choose", json=body).json()["scores"]) == 100


# ---- zero-shot classification


def zero_shot(http, inputs, **parameters):
    return http.post("/models/nli", json={"inputs": inputs, "parameters": parameters})


@pytest.mark.parametrize("template", ["none", "{} {}", "{}" * 1_000, "a" * 999 + "{}"], ids=lambda text: str(len(text)))
def test_a_template_has_one_place_and_no_great_length(http, template):
    found = zero_shot(http, "a", candidate_labels=["b"], hypothesis_template=template)
    refused(found, 422, "expected one {}", "1,000 characters")


@pytest.mark.parametrize("task", ["", "/pipeline/zero-shot-classification"])
def test_texts_and_labels_are_counted_before_they_are_paired(http, monkeypatch, task):
    monkeypatch.setattr(
        "bertworks.apps.serve.pipelines.check_template", lambda template: pytest.fail("pairs are built")
    )
    body = {"inputs": ["a"] * 1_000, "parameters": {"candidate_labels": ["b"] * 1_000}}
    refused(http.post(f"/models/nli{task}", json=body), 413, "1,000 texts with 1,000 labels", "4,000,000 tokens")
    body["parameters"]["candidate_labels"] = ",".join("b" * 1_000)
    refused(http.post(f"/models/nli{task}", json=body), 413, "1,000 texts with 1,000 labels")


# ---- KServe


def infer(http, name, **more):
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    return http.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]} | more)


def test_an_output_and_an_input_are_named_once(http):
    assert infer(http, "labels", outputs=[{"name": "label"}, {"name": "scores"}]).status_code == 200
    refused(infer(http, "labels", outputs=[{"name": "scores"}] * 2), 422, "outputs: 'scores' comes twice")
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    refused(infer(http, "labels", inputs=[tensor] * 2), 422, "inputs: 'text' comes twice")


# ---- masks


def test_the_text_that_every_candidate_repeats_is_counted(http):
    text = "a " * 20_000 + "[MASK]"
    body = {"inputs": text, "parameters": {"top_k": 100, "truncate": True}}
    refused(http.post("/models/mlm", json=body), 413, "4,000,600 characters", "lower top_k")
    assert http.post("/models/mlm", json={"inputs": "a [MASK]", "parameters": {"top_k": 5}}).status_code == 200


# ---- numbers that are none


@pytest.mark.parametrize("value", [True, "3", 3.0], ids=str)
def test_numbers_are_whole_numbers(http, value):
    for path, body in (
        ("/v1/embeddings", {"model": "mlm", "input": "a", "dimensions": value}),
        ("/embed", {"model": "mlm", "inputs": "a", "dimensions": value}),
        ("/models/mlm/pipeline/feature-extraction", {"inputs": "a", "dimensions": value}),
        ("/models/labels", {"inputs": "a", "parameters": {"top_k": value}}),
        ("/models/span", {"inputs": {"question": "a", "context": "b"}, "parameters": {"max_answer_len": value}}),
        ("/v2/rerank", {"model": "ranker", "query": "a", "documents": ["b"], "top_n": value}),
    ):
        refused(http.post(path, json=body), 422, "whole number")


def test_an_empty_body_is_400_and_a_text_without_tokens_422(http):
    kind = {"content-type": "application/json"}
    for path in ("/embed", "/v1/embeddings", "/v2/models/labels/infer", "/explain"):
        refused(http.post(path, headers=kind), 400, "an empty body")
    assert refused(http.post("/embed", content=b"", headers=kind), 400).json()["error_type"] == "Empty"
    for body in ({"a": "\u0001"}, {"a": "a", "b": "\u0001"}):
        refused(http.post("/explain", json=body | {"model": "mlm"}), 422, "no token")
    assert http.post("/explain", json={"a": "a b", "model": "mlm"}).status_code == 200


# ---- the Host header


@pytest.mark.parametrize("host", ["localhost.", "localhost.:80", "[::1]", "[::ffff:1.2.3.4]:80", "LOCALHOST:8080"])
def test_names_of_this_server(http, host):
    assert http.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("[::1]evil.com", "[::1].evil.com:80", "[localhost]", "[127.0.0.1]", "[::1", "::1", ".", "localhost.."),
        *("localhost:80:80", "localhost:99999", "localhost:a", "localhost/@evil.com", "127.0.0.1:80@evil.com"),
        "a@localhost",
    ],
)
def test_other_names(http, host):
    refused(http.get("/health", headers={"host": host}), 400, "Host")


# ---- headers


@pytest.fixture(scope="module")
def address(served):
    """A server as `bertworks serve` runs it."""
    pytest.importorskip("uvicorn")
    from bertworks.apps.serve.app import create_app
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.server import accept, bind, server_of

    config = ServeConfig(port=0, body_seconds=5)
    app = create_app({"mlm": served["mlm"]}, config, "a-long-key")
    with bind(config) as listener:
        accept(listener, config)
        server = server_of(app, config)
        server.capture_signals = contextlib.nullcontext
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()[:2]
        server.should_exit = True
        thread.join(timeout=20)
        app.state.service.close()


def sent(address, *parts):
    """What the server answers to some bytes until it closes the connection or is silent."""
    with socket.create_connection(address, timeout=3) as connection:
        found = b""
        try:
            for part in parts:
                connection.sendall(part)
            while data := connection.recv(65_536):
                found += data
        except (ConnectionError, TimeoutError):
            pass
        return found


START = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
CLOSE = b"Connection: close\r\n\r\n"


def test_headers_of_usual_size_pass(address):
    for more in (b"X: " + b"a" * 60_000 + b"\r\n", b"X: a\r\n" * 190):
        assert b" 200 OK" in sent(address, START + more + CLOSE)
    body = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n"
    key = b"Authorization: Bearer a-long-key\r\n"
    assert b" 400 Bad" in sent(address, body + key + CLOSE, b" " * 400_000, b" " * 500_000)


@pytest.mark.parametrize(
    "parts",
    [
        (START + b"X: a\r\n" * 201 + CLOSE,),
        (START + b"X: " + b"a" * 70_000 + b"\r\n" + CLOSE,),
        (START, b"X: ", *[b"a" * 10_000] * 30),
        (START, *[b"X: " + b"a" * 1_000 + b"\r\n"] * 70),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n" + CLOSE,),
        (START + b"\r\n", START + b"X: a\r\n" * 201 + CLOSE),
        (START + b"a" * 70_000 + b": a\r\n" + CLOSE,),
    ],
    ids=["many", "long", "endless", "together", "url", "second", "name"],
)
def test_headers_that_are_too_large_are_431(address, parts):
    found = sent(address, *parts)
    assert b"HTTP/1.1 431 Request Header Fields Too Large" in found
    assert b"65,536 bytes or 200 fields" in found


def test_requests_that_cannot_be_read_are_counted_and_leave_no_line_in_the_log(address, caplog, capfd):
    def failures():
        key = b"Authorization: Bearer a-long-key\r\n"
        text = sent(address, START.replace(b"health", b"metrics") + key + CLOSE).decode()
        found = re.search(r'te_request_failure\{err="validation"\} (\S+)', text)
        return float(found[1])

    before = failures()
    with caplog.at_level(logging.WARNING):
        assert b" 431 " in sent(address, START + b"X: a\r\n" * 201 + CLOSE)
        assert b" 400 " in sent(address, b"secret text\r\n\r\n")
        assert b" 200 " in sent(address, START + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + CLOSE)
    assert failures() == before + 2
    shown = capfd.readouterr()
    assert not caplog.records and shown.err == ""


def test_trailers_are_headers_too(address):
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    found = sent(address, head, b"1\r\na\r\n0\r\n", b"X: ", *[b"a" * 10_000] * 30)
    assert b" 431 " in found and b" 401 " in found  # the key is missing, and the connection is closed
