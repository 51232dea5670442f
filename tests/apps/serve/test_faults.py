"""What goes wrong: clients that leave, dawdle or lie, models that compute NaN or raise, more requests than time."""

import contextlib
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch

from bertworks.apps.serve.app import create_app
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import ServedModel
from bertworks.apps.serve.server import bind, server_of
from bertworks.inference.predictor import Predictor


class Live:
    """A server on a free port, in a thread of this process. `gate` holds back forward passes while it is closed."""

    def __init__(self, predictor, **settings):
        self.model = ServedModel("mlm", predictor)
        self.steps = self.model.steps["embed"]
        self.gate, self.entered, self.rows = threading.Event(), threading.Event(), []
        self.gate.set()
        self._forward = self.steps.forward
        self.steps.forward = self.forward
        self.config = ServeConfig(port=0, **settings)
        self.app = create_app({"mlm": self.model}, self.config)
        self.service = self.app.state.service

    def forward(self, inputs):
        self.entered.set()
        assert self.gate.wait(20)
        self.rows.append(len(inputs))
        return self._forward(inputs)

    def __enter__(self):
        self.listener = bind(self.config)
        self.address = self.listener.getsockname()[:2]
        self.server = server_of(self.app, self.config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            time.sleep(0.01)
        self.http = httpx.Client(base_url="http://{}:{}".format(*self.address), timeout=30)
        return self

    def __exit__(self, *error):
        self.gate.set()
        self.http.close()
        self.server.should_exit = True
        self.thread.join(20)
        self.service.close()
        assert not self.thread.is_alive() and self.service.queue.join(20)

    def embed(self, inputs="a b c", **more):
        return self.http.post("/embed", json={"inputs": inputs, **more})

    def wait_for(self, condition):
        for _ in range(1000):
            if condition():
                return
            time.sleep(0.01)
        raise AssertionError("waited 10 s in vain")

    def raw(self, head, body=b"", wait=10.0):
        """What the server sends for these bytes, until it closes the connection or `wait` seconds are over."""
        with socket.create_connection(self.address, timeout=wait) as connection:
            connection.sendall(head.replace("\n", "\r\n").encode() + body)
            found = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while part := connection.recv(65536):
                    found += part
            return found


@pytest.fixture
def live(predictors, monkeypatch):
    monkeypatch.setattr("bertworks.apps.serve.guard.BODY_SECONDS", 0.5)
    with Live(predictors["mlm"]) as live:
        yield live


HEAD = "POST /embed HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: {}\n\n"
BODY = b'{"inputs": "a b c"}'


def test_an_entry_is_dropped_when_its_client_leaves(live):
    live.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(live.embed)
        assert live.entered.wait(10)
        with socket.create_connection(live.address) as leaver:
            leaver.sendall(HEAD.format(len(BODY)).replace("\n", "\r\n").encode() + BODY)
            live.wait_for(lambda: live.service.queue.size == 1)
        live.wait_for(lambda: live.service.queue.size == 0)  # though the thread is busy
        live.gate.set()
        assert first.result().status_code == 200
    assert live.embed("d").status_code == 200
    assert live.rows == [1, 1]


def test_requests_that_come_together_share_a_pass_and_get_what_each_gets_alone(live, predictors):
    texts = ["a good film", "bad", "c d e f g", "film , film"]
    with ThreadPoolExecutor(8) as pool:
        live.gate.clear()
        first = pool.submit(live.embed)
        assert live.entered.wait(10)
        others = [pool.submit(live.embed, text, normalize=False) for text in texts]
        live.wait_for(lambda: live.service.queue.size == 4)
        live.gate.set()
        found = [other.result().json()[0] for other in others]
        first.result()
    assert live.rows == [1, 4]
    np.testing.assert_allclose(found, predictors["mlm"].embed(texts), atol=1e-5)


CHUNKED = HEAD.replace("Content-Length: {}", "Transfer-Encoding: chunked")
TWO_LENGTHS = "POST /embed HTTP/1.1\nContent-Length: 1\nContent-Length: 2\n\n"


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        (HEAD.format(100), BODY, b" 408 "),  # it comes too slowly, or has ended
        (HEAD.format(5), BODY, b" 400 "),  # what follows is no request
        (HEAD.format(10**12), b"", b" 413 "),
        (CHUNKED, (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 5, b" 413 "),
        (TWO_LENGTHS, b"", b" 400 "),
    ],
)
def test_a_body_that_is_not_as_long_as_it_says(live, head, body, status):
    assert status in live.raw(head, body).splitlines()[0]
    assert live.embed().status_code == 200


def test_an_exception_in_the_compute_thread_fails_its_requests_alone(live, caplog):
    def broken(inputs):
        if 13 in inputs.lengths:
            raise RuntimeError("a secret text")
        return live._forward(inputs)

    live.steps.forward = broken
    with caplog.at_level(logging.DEBUG):
        failed = live.embed("a " * 11)
    assert (failed.status_code, failed.json()["error_type"]) == (424, "Backend")
    assert "RuntimeError" in failed.json()["error"] and "secret" not in failed.text + caplog.text
    assert live.embed().status_code == 200


def test_nan_weights_are_refused(predictors):
    predictor = Predictor(predictors["mlm"].folder, device="cpu")
    with torch.no_grad():
        predictor.loaded.model.encoder.embeddings.word.weight[10:20] = torch.nan
    with Live(predictor) as live:
        answers = [live.embed(text) for text in ("good film", "f g h i j k", "good")]
    assert [answer.status_code for answer in answers] == [200, 424, 200] and "NaN" in answers[1].json()["error"]


def test_too_many_requests_at_a_time_are_refused(predictors):
    with Live(predictors["mlm"], max_requests=2) as live:
        live.gate.clear()
        with ThreadPoolExecutor(3) as pool:
            pending = [pool.submit(live.embed) for _ in range(3)]
            live.wait_for(lambda: any(one.done() for one in pending))
            for path in ("/health", "/metrics", "/"):
                assert live.http.get(path).status_code == 200, path
            live.gate.set()
            *_, refused = answers = sorted((one.result() for one in pending), key=lambda one: one.status_code)
            assert [one.status_code for one in answers] == [200, 200, 429]
        assert refused.headers["retry-after"] == "1" and refused.json()["error_type"] == "Overloaded"
        assert "2 requests wait; expected at most 2" in refused.json()["error"]


def test_only_requests_that_passed_the_checks_count(predictors):
    with Live(predictors["mlm"], max_requests=1) as live, contextlib.ExitStack() as open_ones:
        for head in ("GET /health", "HEAD /health", "POST /embed"):  # the last: no type
            line = open_ones.enter_context(socket.create_connection(live.address, timeout=5))
            line.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode())
            assert line.recv(100).startswith(b"HTTP/1.1 ")  # before the body, which never comes
        assert live.embed().status_code == 200


def test_nothing_of_a_text_is_ever_logged(live, caplog, capfd):
    secret = "xyzzyplugh"
    bodies = [
        {"inputs": secret},
        {"inputs": [[secret]]},
        {"inputs": f"{secret} " * 200},
        {"inputs": secret, "prompt_name": secret},
        {"inputs": secret, "dimensions": 1000},
    ]
    kind = {"content-type": "application/json"}
    with caplog.at_level(logging.DEBUG):
        for body in bodies:
            live.http.post("/embed", json=body)
            live.http.post("/", json=body)
            live.http.post("/v1/embeddings", content=json.dumps(body)[:-1], headers=kind)
        live.service.pool.submit(lambda: None).result()
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not [record for record in ours if secret in record.getMessage() or secret in str(record.args)]
    shown = capfd.readouterr()
    assert secret not in shown.out + shown.err
