"""The application: answers equal to Predictor's, refusals in the form of each dialect, the guard before every route."""

import pytest

from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.errors import without_folders
from bertworks.files import InputError


@pytest.fixture(scope="module")
def client(make_client):
    return make_client("mlm")


def refused(answer, status, error_type):
    assert (answer.status_code, answer.json()["error_type"]) == (status, error_type), answer.text
    return answer.json()["error"]


JSON = {"content-type": "application/json"}
BODY = b'{"inputs": "a"}'
POLICY = "content-security-policy"


@pytest.mark.parametrize(
    ("content", "headers", "status", "error_type"),
    [
        (b'{"inputs": ', JSON, 400, "Validation"),
        (b'{"inputs": "\xff"}', JSON, 400, "Validation"),
        (b'{"inputs": "\\ud800"}', JSON, 400, "Validation"),
        (b"[" * 100_000, JSON, 400, "Validation"),
        (b'{"inputs": NaN}', JSON, 400, "Validation"),
        (b'{"inputs": ' + b"9" * 10_000 + b"}", JSON, 400, "Validation"),
        (b"null", JSON, 422, "Validation"),
        (b'{"inputs": [["secret"]]}', JSON, 422, "Validation"),
        (b'{"secret": 1}', JSON, 422, "Validation"),
        (b"inputs=a", {}, 415, "Validation"),
        (BODY, JSON | {"content-encoding": "gzip"}, 415, "Validation"),
        (b"", {}, 400, "Empty"),
        (b"", {"content-type": "application/x-www-form-urlencoded"}, 400, "Empty"),
    ],
)
def test_a_body_that_is_no_json_or_has_another_form_is_refused(client, content, headers, status, error_type):
    message = refused(client.post("/embed", content=content, headers=headers), status, error_type)
    assert "secret" not in message
    assert client.post("/embed", content=b"\xef\xbb\xbf" + BODY, headers=JSON).status_code == 200  # a byte order mark


def test_an_unknown_route_or_method_is_named(client):
    assert "no route GET /predict; use POST; " in refused(client.get("/predict"), 405, "NotFound")
    refused(client.get("/nothing"), 404, "NotFound")
    refused(client.post("/embed/", json={"inputs": "a"}), 404, "NotFound")  # no redirection, whose address a proxy has
    assert client.get("/embed").headers["allow"] == "POST"


def test_limits(client):
    refused(client.post("/embed", json={"inputs": []}), 400, "Empty")
    refused(client.post("/embed", json={"inputs": ["a", " \n"]}), 400, "Empty")
    assert len(client.post("/embed", json={"inputs": ["a"] * 2_048}).json()) == 2_048
    refused(client.post("/embed", json={"inputs": ["a"] * 100_001}), 413, "Validation")
    cut = client.post("/embed", json={"inputs": "a " * 40, "truncate": True})
    assert (cut.status_code, cut.headers["x-truncated-tokens"], cut.headers["x-compute-tokens"]) == (200, "10", "32")


def test_a_missing_head_and_an_unknown_model_are_named(make_client, client):
    assert "cannot choose continuations; it can: fill masks" in refused(
        client.post("/choose", json={"text": "a", "choices": ["b"]}), 424, "Backend"
    )
    two = make_client("mlm", "labels")
    for path in ("/embed", "/", "/pipeline/feature-extraction"):
        assert "mlm, labels" in refused(two.post(path, json={"inputs": "a", "model": "x"}), 404, "NotFound")
    for name in ("mlm", "labels"):
        assert two.post("/embed", json={"inputs": "a", "model": name}).status_code == 200
    assert client.post("/embed", json={"inputs": "a", "model": "gpt"}).status_code == 200  # one folder, any name


def test_head_is_answered_like_get(http):
    for path in ("/", "/health", "/info", "/models", "/metrics", "/v1/models", "/openapi.json", "/nothing"):
        head, get = http.head(path), http.get(path)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        assert head.headers["content-type"] == get.headers["content-type"] and int(head.headers["content-length"]) > 0


def test_with_a_key_only_health_is_public(make_client):
    client = make_client("mlm", key="correct horse")
    for path in ("/health", "/ping", "/v2/health/live", "/v2/health/ready"):
        assert (client.get(path).status_code, client.head(path).status_code) == (200, 200), path
        assert client.post(path, content=b"x").status_code == 401
    for given in ("", "Bearer", "Bearer correct hors", "Bearer correct horsee", "Basic !", "Bearer kürzer"):
        answer = client.post("/embed", json={"inputs": "a"}, headers={"authorization": given.encode()})
        refused(answer, 401, "Unauthorized")
    answer = client.post("/embed", json={"inputs": "a"}, headers={"authorization": "Bearer correct horse"})
    assert answer.status_code == 200
    assert client.get("/info", auth=("anyone", "correct horse")).status_code == 200
    assert client.get("/metrics").status_code == 401


def test_metrics_have_teis_names_and_labels_of_model_and_route(make_client):
    client = make_client("mlm", "reviews")
    client.post("/embed", json={"inputs": ["a " * 40, "b"], "truncate": True, "model": "mlm"})
    client.post("/models/reviews", json={"inputs": "a film"})
    client.post("/models/reviews", json={"inputs": {"text": "a", "text_pair": "b"}})
    client.post("/embed", json={"inputs": []})
    client.get("/a%20secret%20text")
    text = client.get("/metrics").text
    for line in (
        'te_request_count{method="batch",model="mlm",route="/embed"} 1.0',
        'te_request_success{method="single",model="reviews",route="/models/{name:path}"} 1.0',
        'te_request_failure{err="validation",model="reviews",route="/models/{name:path}"} 1.0',
        'te_request_failure{err="empty",model="",route="/embed"} 1.0',
        'te_request_failure{err="notfound",model="",route=""} 1.0',
        'te_request_duration_count{model="mlm",route="/embed"} 1.0',
        "te_queue_size 0.0",
        "te_batch_next_tokens_sum 39.0",
        "bertworks_truncated_inputs_total 1.0",
        "bertworks_truncated_tokens_total 10.0",
    ):
        assert line in text.splitlines(), (line, text)
    assert "secret" not in text


def test_pages_of_allowed_origins_may_read_answers(make_client):
    client = make_client("mlm", allow_origin=("https://example.com",), key="correct horse")
    asked = {"origin": "https://example.com", "access-control-request-method": "POST"}
    before = client.options("/embed", headers=asked | {"access-control-request-headers": "authorization,content-type"})
    assert before.status_code == 200 and before.headers["access-control-allow-origin"] == "https://example.com"
    assert "authorization" in before.headers["access-control-allow-headers"].lower()
    for origin, key, status, allowed in (
        ("https://example.com", "correct horse", 200, "https://example.com"),
        ("https://example.com", "wrong", 401, "https://example.com"),
        ("https://evil.example", "correct horse", 200, None),
    ):
        headers = {"origin": origin, "authorization": f"Bearer {key}"}
        answer = client.post("/embed", json={"inputs": "a"}, headers=headers)
        assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (status, allowed)
        assert "default-src 'none'" in answer.headers[POLICY] and answer.headers["x-content-type-options"] == "nosniff"
    every = make_client("mlm", allow_origin=("*",)).get("/info", headers={"origin": "https://evil.example"})
    assert every.headers["access-control-allow-origin"] == "*"


def test_a_root_path_is_removed_wherever_a_proxy_leaves_it(make_client):
    client = make_client("mlm", root_path="/bert", key="correct horse")
    auth = {"auth": ("any", "correct horse")}
    for path in ("/bert/health", "/health"):
        assert client.get(path).status_code == 200
    for path in ("/bert", "/bert/"):
        assert "<script>" in client.get(path, **auth).text
    found = [client.post(path, json={"inputs": "a"}, **auth).json() for path in ("/bert/embed", "/embed")]
    assert found[0] == found[1]
    assert client.post("/bert/v1/embeddings", json={}, **auth).json()["error"].keys() >= {"code"}
    assert client.post("/bertembed", json={"inputs": "a"}, **auth).status_code == 404
    assert client.get("/openapi.json", **auth).json()["servers"] == [{"url": "/bert"}]
    for wrong in ("bert", "/bert/", "/"):
        with pytest.raises(InputError, match="root_path"):
            ServeConfig(root_path=wrong)


def test_no_answer_names_a_folder(make_client, monkeypatch):
    client = make_client("mlm")
    model = client.app.state.service.models["mlm"]

    def broken(inputs):
        raise InputError(f"{model.predictor.folder}: NaN")

    monkeypatch.setattr(model.steps["embed"], "forward", broken)
    assert refused(client.post("/embed", json={"inputs": "a"}), 424, "Backend") == "mlm: NaN"


def test_a_folder_inside_a_name_or_a_word_is_no_folder():
    names = {"tiny": "served_tiny_model", "/models/a": "first", "/models/a-b": "second"}
    for message, expected in (
        (
            "tiny has no head, tiny/config.json; tinyness",
            "served_tiny_model has no head, served_tiny_model/config.json; tinyness",
        ),
        ("/models/a: NaN, /models/a-b, /x/models/a, /models/a.bak", "first: NaN, second, /x/models/a, /models/a.bak"),
    ):
        assert without_folders(message, names) == expected


@pytest.mark.parametrize(
    ("allowed", "status", "hosts"),
    [
        ((), 200, ("localhost.", "localhost.:80", "[::1]", "[::ffff:1.2.3.4]:80", "LOCALHOST:8080")),
        ((), 400, ("[::1]evil.com", "[::1].evil.com:80", "[localhost]", "[127.0.0.1]", "[::1", "::1", ".")),
        ((), 400, ("localhost..", "localhost:80:80", "localhost:a", "127.0.0.1:80@evil.com", "localhost/@evil.com")),
        ((), 400, ("a@localhost", "evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "")),
        (("*.Example.com",), 200, ("a.example.com", "a.b.example.com:8080", "A.EXAMPLE.COM.", "10.1.2.3:80")),
        (("*.Example.com",), 400, ("example.com", "aexample.com", "example.com.evil.example", "a.example.com/", "")),
        (("bertworks",), 200, ("bertworks:8080",)),
        (("*",), 200, ("evil.example", "a_b:80", "")),
    ],
)
def test_a_host_header_names_this_server(make_client, allowed, status, hosts):
    client = make_client("mlm", allow_host=allowed)
    for host in hosts:
        assert client.get("/health", headers={"host": host}).status_code == status, host
