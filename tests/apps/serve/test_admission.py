"""What is refused before it costs anything, what is counted, and where the work is done."""

import asyncio
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from bertworks.apps.serve.config import ServeConfig
from bertworks.apps.serve.errors import Refusal
from bertworks.apps.serve.limits import least_tokens, size_of
from bertworks.apps.serve.models import ServedModel
from bertworks.apps.serve.server import accept, bind
from bertworks.apps.serve.service import LATEST, SHORT_SCORES, Service, batch_tokens_of, cores_for
from bertworks.files import InputError
from support.served import loaded


@pytest.fixture
def service(predictors):
    service = Service({"tiny": ServedModel("tiny", predictors["tiny"])}, ServeConfig(max_tokens=100, batch_tokens=64))
    yield service
    service.close()


class Request:
    """A request whose client stays."""

    async def receive(self):
        await asyncio.sleep(60)


@pytest.mark.parametrize(("device", "tokens"), [("cpu", 512), ("cuda", 32_768), ("mps", 512)])
def test_a_gpu_takes_larger_batches(device, tokens):
    loaded = SimpleNamespace(device=torch.device(device))
    assert batch_tokens_of(SimpleNamespace(predictor=SimpleNamespace(loaded=loaded))) == tokens


def run(service, step, rows):
    return asyncio.run(service.run(Request(), step, rows))


def refusal(service, step, rows):
    with pytest.raises(Refusal) as refused:
        run(service, step, rows)
    return refused.value


# ---- sizes


def test_a_text_that_is_surely_too_long_is_refused_untokenized(service, monkeypatch):
    monkeypatch.setattr(service.models["tiny"].steps["embed"], "prepare", lambda rows: pytest.fail("tokenized"))
    refused = refusal(service, "embed", ["good " * 101])
    assert refused.status == 413 and "at least 101 tokens in a request; expected at most 100" in refused.message
    assert refusal(service, "embed", [[5] * 101]).status == 413


@pytest.mark.parametrize(
    "text", ["a" * 500, "! ? " * 300, "\u200b " * 300, "\u0301 " * 300, "good film, " * 40, "\u3042" * 9]
)
def test_the_least_tokens_of_a_text_are_no_more_than_it_has(predictors, text):
    assert least_tokens([text]) <= len(predictors["tiny"].tokenizer.tokenize(text))


def test_token_ids_count_as_tokens():
    assert size_of(["abc", [1, 2, 3, 4], ("de", "f"), ("g", ["h", "ij"])]) == (10, 4)


def test_what_is_expected_of_a_long_text_is_no_more_than_a_request_may_have(service, monkeypatch):
    lane, seen = service.queue.lane(service.models["tiny"].steps["embed"]), []
    monkeypatch.setattr(lane.steps, "prepare", lambda rows: seen.append([*lane.expected]) or pytest.fail("seen"))
    with pytest.raises(BaseException, match="seen"):
        run(service, "embed", ["a" * 100_000])
    assert seen == [[100]] and lane.expected == [] and service.preparing == 0


# ---- where the work is done


@pytest.mark.parametrize(
    ("rows", "inline"), [(["a b"], True), ([[2, 5, 3]] * 2, True), (["a " * 510], False), ([[2, *[5] * 250, 3]], False)]
)
def test_long_texts_and_many_ids_are_prepared_beside_the_event_loop(predictors, monkeypatch, rows, inline):
    from bertworks.apps.serve.embedding import EmbeddingInput
    from bertworks.apps.serve.service import Options

    model, threads = ServedModel("tiny", predictors["tiny"]), []
    service = Service({"tiny": model}, ServeConfig(auto_truncate=True))

    def prepare(rows):
        threads.append(threading.current_thread())
        return EmbeddingInput().prepare(model.steps["embed"], {}, rows)

    asyncio.run(service.run(Request(), "embed", rows, Options(prepare=prepare)))
    service.close()
    assert (threads[0] is threading.main_thread()) == inline


@pytest.mark.parametrize("inline", [True, False])
def test_many_scores_are_decoded_beside_the_event_loop(predictors, monkeypatch, inline):
    from bertworks.apps.serve.service import Options

    model, threads = ServedModel("tiny", predictors["tiny"]), []
    service, steps = Service({"tiny": model}, ServeConfig()), model.steps["embed"]
    width = 4 if inline else SHORT_SCORES + 1
    monkeypatch.setattr(steps, "forward", lambda inputs: torch.zeros(len(inputs.first), width))

    def decode(rows, scores):
        threads.append(threading.current_thread())
        return [0]

    asyncio.run(service.run(Request(), "embed", ["a b"], Options(decode=decode)))
    service.close()
    assert (threads[0] is threading.main_thread()) == inline


# ---- pace and refusals


def test_the_pace_is_measured_with_a_small_and_a_large_batch(predictors, monkeypatch):
    monkeypatch.setattr("bertworks.apps.serve.service.MEASURED", 100.0)  # seconds, so that no machine is too slow
    model = ServedModel("tiny", predictors["tiny"])
    batches = {}
    service = Service({"tiny": model}, ServeConfig())
    assert service.batch_tokens == 512
    for step, steps in model.steps.items():
        lane = service.queue.lane(steps)
        submit = service.queue.submit
        lane_costs = batches.setdefault(step, [])

        def record(which, inputs, costs, submit=submit):
            found = next(name for name, one in model.steps.items() if one is which.steps)
            batches[found].append(int(costs.sum()))
            return submit(which, inputs, costs)

        assert lane_costs == [] and lane.pace.rate == 0
    service.queue.submit = record
    service.measure()
    service.close()
    assert all(len(costs) == 3 and costs[0] == costs[1] for costs in batches.values()), batches
    measured = {step: costs[-2:] for step, costs in batches.items()}
    assert {"embed", "explain", "states"} <= {step for step, (small, large) in measured.items() if large > 2 * small}
    assert all(large <= max(512, small) or step == "explain" for step, (small, large) in measured.items()), batches
    assert measured["explain"][1] >= 300, batches


def test_an_idle_server_refuses_nobody_whatever_was_measured(service):
    lane = service.queue.lane(service.models["tiny"].steps["embed"])
    lane.pace.add(1, 1000.0)
    with service.queue.expecting(lane, 50):  # of a request that is being tokenized
        assert service.queue.wait_seconds() > service.config.max_wait
        assert len(run(service, "embed", ["a b"]).results) == 1


def test_nobody_is_told_to_wait_for_longer_than_a_minute(service, monkeypatch):
    gate, entered = threading.Event(), threading.Event()
    steps = service.models["tiny"].steps["embed"]
    lane, forward = service.queue.lane(steps), steps.forward
    monkeypatch.setattr(steps, "forward", lambda inputs: (entered.set(), gate.wait(20), forward(inputs))[2])
    inputs = steps.prepare(["a"]).inputs
    for _ in range(2):
        service.queue.submit(lane, inputs, steps.costs(inputs))
    assert entered.wait(20)
    for seconds, expected in ((12.0, 2), (1e4, LATEST)):
        monkeypatch.setattr(service.queue, "wait_seconds", lambda tokens, seconds=seconds: seconds)
        refused = refusal(service, "embed", ["a"])
        assert (refused.status, refused.headers) == (429, {"Retry-After": str(expected)})
    gate.set()


# ---- which model


def test_without_a_name_the_first_model_that_can_is_taken(served, make_client):
    from fastapi.testclient import TestClient

    from bertworks.apps.serve.app import create_app

    names = ("labels", "ranker", "nli")
    models = loaded({name: served[name].predictor.folder for name in names}, *names)
    client = TestClient(create_app(models), base_url="http://127.0.0.1")
    own = client.post("/rerank", json={"query": "a", "texts": ["b", "good film"]})
    assert own.status_code == 200, own.text
    ranked = client.post("/v2/rerank", json={"query": "a", "documents": ["b", "good film"]})
    assert ranked.json()["model"] == "ranker"
    asked = {"inputs": "a film", "parameters": {"candidate_labels": ["good", "bad"]}}
    assert client.post("/", json=asked).status_code == 200
    assert len(client.post("/", json={"inputs": "a film"}).json()[0]) == 3  # by the first of all
    without = TestClient(create_app({"labels": models["labels"]}), base_url="http://127.0.0.1")
    assert (
        "has the labels one, two, three" in without.post("/rerank", json={"query": "a", "texts": ["b"]}).json()["error"]
    )


def test_every_step_decodes_as_the_service_calls_it(service, predictors):
    answer = run(service, "next_sentence", [("a film", "good")]).results[0]
    assert answer == predictors["tiny"].next_sentence("a film", "good")


# ---- explanations


def metric(client, name):
    (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith(name + " "))
    return float(line.split()[1])


def test_an_explanation_is_cut_only_when_asked_and_says_so(make_client, predictors, monkeypatch):
    client, body = make_client("tiny"), {"a": "good film " * 40}
    refused = client.post("/explain", json=body)
    assert refused.status_code == 413 and "50 tokens more than the 32" in refused.json()["error"]
    cut = client.post("/explain", json=body | {"truncate": True})
    assert cut.status_code == 200 and cut.headers["x-truncated-tokens"] == "50" and cut.json()["cut"] == 50
    assert cut.json()["text"] == " ".join(["good film"] * 15) and len(cut.json()["tokens"]) == 32
    assert metric(client, "bertworks_truncated_tokens_total") == 50
    assert metric(client, "bertworks_truncated_inputs_total") == 1


# ---- the port


def test_connections_are_refused_until_the_server_is_ready():
    config = ServeConfig(port=0)
    with bind(config) as listener:
        address = listener.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 5)
        accept(listener, config)
        socket.create_connection(address, 5).close()


def test_the_models_are_measured_before_clients_can_connect(head_folders, monkeypatch):
    """run_server's order of events: bound, loaded, measured, open, served."""
    from bertworks.apps.serve import server

    events, address = [], []

    def connects():
        try:
            socket.create_connection(address[0], 5).close()
            return "open"
        except ConnectionRefusedError:
            return "refused"

    real_bind, measure = server.bind, Service.measure
    monkeypatch.setattr(server, "bind", lambda config: (one := real_bind(config), address.append(one.getsockname()))[0])
    monkeypatch.setattr(Service, "measure", lambda self, say: (measure(self), events.append(connects())))
    monkeypatch.setattr(server, "serve", lambda app, listener, config: events.append(connects()))
    server.run_server([str(head_folders["tiny"])], ServeConfig(port=0))
    assert events == ["refused", "open"]


def test_several_workers_are_for_models_that_do_not_use_all_cores_by_themselves(predictors, monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    models = {"tiny": ServedModel("tiny", predictors["tiny"])}
    assert (cores_for(models, 1), cores_for(models, 2)) == (0, 4)
    monkeypatch.setattr(predictors["tiny"].loaded.engine, "name", "compiled", raising=False)
    with pytest.raises(InputError, match="workers = 2, but 'tiny' computes with engine compiled on cpu"):
        cores_for(models, 2)


def test_only_the_queue_uses_all_cores():
    code = """
import threading, torch
from bertworks.apps.serve.queue import ComputeQueue
from bertworks.apps.serve.server import in_a_thread, leave_cores_to_compute
torch.set_num_threads(3)
counts = []
class Steps:
    def score_inputs(self, parts):
        counts.append(torch.get_num_threads())
        return [torch.zeros(1)]
    def count(self, inputs): return 1
queue, steps = ComputeQueue(), Steps()
def ask():
    from bertworks.tasks.inputs import Inputs
    import numpy as np
    one, none = np.array([1]), np.array([0])
    queue.submit(queue.lane(steps), Inputs(one, np.array([0, 1]), one, none, none, 0, 8), one).result(10)
ask(); leave_cores_to_compute(); ask()
counts.append(torch.get_num_threads())
counts.append(in_a_thread(torch.get_num_threads))
print(counts)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["[3,", "3,", "1,", "1]"], done.stderr
