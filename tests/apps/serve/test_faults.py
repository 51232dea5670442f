"""What goes wrong: clients that leave, dawdle or lie, models that compute NaN or raise, more requests than time."""

import contextlib
import json
import logging
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import torch

from bertworks.apps.serve.app import create_app
from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.models import ServedModel
from bertworks.inference.predictor import Predictor
from support.served import serving, wait_for


class Live(contextlib.ExitStack):
    """A server in a thread of this process. `gate` holds back forward passes while it is closed."""

    def __init__(self, predictor, **settings):
        super().__init__()
        model, self.rows = ServedModel("mlm", predictor), []
        self.steps, self.gate, self.entered = model.steps["embed"], threading.Event(), threading.Event()
        self.gate.set()
        self.compute, self.steps.forward = self.steps.forward, self.forward
        self.config = ServeConfig(**settings)
        self.app = create_app({"mlm": model}, self.config)
        self.service = self.app.state.service

    def forward(self, inputs):
        self.entered.set()
        assert self.gate.wait(20)
        self.rows.append(len(inputs))
        return self.compute(inputs)

    def __enter__(self):
        url = self.enter_context(serving({}, self.config, app=self.app))
        self.address = ("127.0.0.1", int(url.rpartition(":")[2]))
        self.http = self.enter_context(httpx.Client(base_url=url, timeout=30))
        self.callback(self.gate.set)
        return self

    def embed(self, inputs="a b c", **more):
        return self.http.post("/embed", json={"inputs": inputs, **more})

    def raw(self, head, body=b"", wait=10.0):
        """What the server sends for these bytes, until it closes the connection or `wait` seconds are over."""
        with socket.create_connection(self.address, timeout=wait) as connection:
            connection.sendall(head.replace("\n", "\r\n").encode() + body)
            answer = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while part := connection.recv(65536):
                    answer += part
            return answer


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
            wait_for(lambda: live.service.queue.size == 1)
        wait_for(lambda: live.service.queue.size == 0)  # though the thread is busy
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
        wait_for(lambda: live.service.queue.size == 4)
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
        return live.compute(inputs)

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
            wait_for(lambda: any(one.done() for one in pending))
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
    more = ({}, {"inputs": [[secret]]}, {"inputs": f"{secret} " * 200}, {"prompt_name": secret}, {"dimensions": 1000})
    kind = {"content-type": "application/json"}
    with caplog.at_level(logging.DEBUG):
        for body in ({"inputs": secret, **fields} for fields in more):
            live.http.post("/embed", json=body)
            live.http.post("/", json=body)
            live.http.post("/v1/embeddings", content=json.dumps(body)[:-1], headers=kind)
        live.service.pool.submit(lambda: None).result()
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    shown = capfd.readouterr()
    assert secret not in shown.out + shown.err + "".join(f"{one.getMessage()} {one.args}" for one in ours)


# ---- the end; real signals end the processes of test_server.py and test_rolling_restart.py


@pytest.mark.parametrize(("grace", "status"), [(30.0, 200), (0.5, 503)])
def test_sigterm_answers_what_has_come_in_and_refuses_what_is_not_finished_in_time(predictors, grace, status):
    with Live(predictors["mlm"], grace=grace, notice=0.5) as live, ThreadPoolExecutor(4) as pool:
        live.gate.clear()
        pending = [pool.submit(live.embed)]
        assert live.entered.wait(10)
        pending += [pool.submit(live.embed) for _ in range(3)]
        wait_for(lambda: live.service.queue.size == 3)
        live.app.state.server.handle_exit(signal.SIGTERM, None)
        health = live.http.get("/health")  # connections are accepted until the notice is over
        assert (health.status_code, health.headers["connection"]) == (503, "close")
        if status == 200:
            wait_for(lambda: not is_open(live.address))
            live.gate.set()
        assert [one.result().status_code for one in pending] == [status] * 4
        wait_for(lambda: not is_open(live.address))


def is_open(address) -> bool:
    """Whether a server accepts connections."""
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(address, 5):
        return True
    return False


def test_a_second_signal_ends_the_process_at_once(live, monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    for _ in range(2):
        live.app.state.server.handle_exit(signal.SIGTERM, None)
    assert ended == [128 + signal.SIGTERM]
