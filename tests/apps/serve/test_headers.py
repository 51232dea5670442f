"""Headers: names of this server, size, and requests that cannot be read."""

import contextlib
import logging
import re
import socket
import threading

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


def test_several_host_headers_are_refused(make_client):
    client = make_client("tiny")
    for hosts in (("evil.example", "localhost"), ("localhost", "localhost")):
        answer = client.get("/health", headers=[("host", host) for host in hosts])
        assert answer.status_code == 400 and "several Host headers" in answer.json()["error"]


def test_names_that_are_allowed(make_client):
    client = make_client("tiny", allow_host=("*.Example.com", "bertworks"))
    for host in ("a.example.com", "a.b.example.com:8080", "A.EXAMPLE.COM.", "bertworks:8080", "10.1.2.3:80"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    for host in ("example.com", "aexample.com", "example.com.evil.example", "a.example.com/", ""):
        assert client.get("/health", headers={"host": host}).status_code == 400, host
    client = make_client("tiny", allow_host=("*",))
    for host in ("evil.example", "a_b:80", ""):
        assert client.get("/health", headers={"host": host}).status_code == 200, host


# ---- size


@pytest.fixture(scope="module")
def address(served):
    """A server as `bertworks serve` runs it."""
    pytest.importorskip("uvicorn")
    from bertworks.apps.serve.app import create_app
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.server import accept, bind, server_of

    config = ServeConfig(port=0, body_seconds=5)
    app = create_app({"mlm": served["mlm"]}, config, ["a-long-key"])
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
TOO_MANY = (START, *[b"X: " + b"a" * 1_000 + b"\r\n"] * 400)  # without an end


def test_headers_of_usual_size_pass(address):
    for more in (b"X: " + b"a" * 60_000 + b"\r\n", b"X: a\r\n" * 190):
        assert b" 200 OK" in sent(address, START + more + CLOSE)
    body = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n"
    key = b"Authorization: Bearer a-long-key\r\n"
    assert b" 400 Bad" in sent(address, body + key + CLOSE, b" " * 400_000, b" " * 500_000)


@pytest.mark.parametrize(
    "parts",
    [
        TOO_MANY,
        (START, b"X: ", *[b"a" * 10_000] * 40),
        (b"GET /", *[b"a" * 10_000] * 40),
        (START + b"\r\n", *TOO_MANY),
        (START, *[b"a" * 10_000] * 40),
        (b"POST /embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n0\r\n", b"X: ")
        + (b"a" * 10_000,) * 40,
    ],
    ids=["many", "value", "url", "second", "name", "trailer"],
)
def test_headers_without_an_end_are_refused(address, parts):
    """The connection is closed long before the time for a header, five seconds, is over."""
    with socket.create_connection(address, timeout=3) as connection, contextlib.suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
        while connection.recv(65_536):  # raises TimeoutError if the server waits for more
            pass


def test_requests_that_cannot_be_read_are_counted_and_leave_no_line_in_the_log(address, caplog, capfd):
    def failures():
        key = b"Authorization: Bearer a-long-key\r\n"
        text = sent(address, START.replace(b"health", b"metrics") + key + CLOSE).decode()
        return float(re.search(r'te_request_failure\{err="validation",model="",route=""\} (\S+)', text)[1])

    before = failures()
    with caplog.at_level(logging.WARNING):
        sent(address, *TOO_MANY)
        assert b" 400 " in sent(address, b"secret text\r\n\r\n")
        assert b" 200 " in sent(address, START + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + CLOSE)
    assert failures() == before + 2
    assert not caplog.records and capfd.readouterr().err == ""
