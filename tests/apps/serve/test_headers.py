"""The Host header: names of this server."""

import pytest


@pytest.mark.parametrize("host", ["localhost.", "localhost.:80", "[::1]", "[::ffff:1.2.3.4]:80", "LOCALHOST:8080"])
def test_names_of_this_server(http, host):
    assert http.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("[::1]evil.com", "[::1].evil.com:80", "[localhost]", "[127.0.0.1]", "[::1", "::1", ".", "localhost.."),
        *("localhost:80:80", "localhost:a", "127.0.0.1:80@evil.com", "localhost/@evil.com", "a@localhost"),
        *("evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", ""),
    ],
)
def test_other_names(http, host):
    found = http.get("/health", headers={"host": host})
    assert found.status_code == 400 and "Host" in found.json()["error"]


def test_names_that_are_allowed(make_client):
    client = make_client("tiny", allow_host=("*.Example.com", "bertworks"))
    for host in ("a.example.com", "a.b.example.com:8080", "A.EXAMPLE.COM.", "bertworks:8080", "10.1.2.3:80"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    for host in ("example.com", "aexample.com", "example.com.evil.example", "a.example.com/", ""):
        assert client.get("/health", headers={"host": host}).status_code == 400, host
    client = make_client("tiny", allow_host=("*",))
    for host in ("evil.example", "a_b:80", ""):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
