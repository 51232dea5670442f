"""What users of other servers ask for and do not get, each shown here."""

import asyncio
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.served import loaded, serving

WORDS = ["good", "bad", "film", "abc", "xyz", "q"]


def entities(http, text, **parameters):
    answer = http.post("/models/tags", json={"inputs": text, "parameters": parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---- entities over HTTP: words kept whole, offsets of the caller's text


@pytest.mark.parametrize("seed", range(8))
def test_entities_are_whole_words_with_offsets_of_the_callers_text(http, seed):
    """Words of several subwords, odd spaces, accents that take two characters (NFD), and emoji before them."""
    rng = random.Random(seed)
    words = [*rng.choices(WORDS, k=rng.randint(2, 30)), "cafe\u0301", "\U0001f600"]
    rng.shuffle(words)
    text = "".join(word + rng.choice([" ", "  ", "\n", ", "]) for word in words)
    edges = {i for i in range(len(text) + 1) if not (0 < i < len(text) and text[i - 1].isalnum() and text[i].isalnum())}
    found = entities(http, text)
    assert found
    for one in found:
        assert text[one["start"] : one["end"]] == one["word"]
        assert {one["start"], one["end"]} <= edges, one


def test_entities_of_a_text_of_any_length(http, served):
    text = " ".join(random.Random(1).choices(WORDS, k=400))
    found = entities(http, text)
    assert max(one["end"] for one in found) > len(text) - 40  # up to its end
    expected = served["tags"].predictor.tag(text)
    assert [(one["start"], one["end"]) for one in found] == [(one["start"], one["end"]) for one in expected]


# ---- extractive answers


def test_answers_are_spans_of_a_context_of_any_length(http):
    context = " ".join(random.Random(2).choices(WORDS, k=400))
    answer = http.post("/models/span", json={"inputs": {"question": "a b?", "context": context}}).json()
    assert answer["answer"] and context[answer["start"] : answer["end"]] == answer["answer"]


# ---- several models in one process


def test_one_process_answers_for_every_folder(http, served):
    listed = {one["id"] for one in http.get("/v1/models").json()["data"]}
    assert listed == {*served} and len(listed) == 9
    same = [http.post(f"/models/{name}", json={"inputs": "a film"}).json() for name in ("labels", "several", "value")]
    assert [len(one[0]) for one in same] == [3, 3, 1]


# ---- long texts: windowed, or refused, or cut and told


def test_nothing_is_cut_in_silence(http):
    text = "d " * 60
    windowed = http.post("/models/labels", json={"inputs": text})
    assert windowed.status_code == 200 and windowed.headers["x-truncated-tokens"] == "0"
    assert int(windowed.headers["x-compute-tokens"]) > 60
    before = truncated(http)
    refused = http.post("/embed", json={"model": "mlm", "inputs": text})
    assert refused.status_code == 413 and "30 tokens more than the 32" in refused.json()["error"]
    cut = http.post("/embed", json={"model": "mlm", "inputs": text, "truncate": True})
    assert cut.status_code == 200 and cut.headers["x-truncated-tokens"] == "30"
    assert truncated(http) - before == 30


def truncated(http) -> float:
    """The counter of /metrics."""
    (line,) = (x for x in http.get("/metrics").text.splitlines() if x.startswith("bertworks_truncated_tokens_total "))
    return float(line.split()[1])


# ---- dimensions, and token ids as input


def test_dimensions_and_token_ids(http, served):
    tokens = http.post("/tokenize", json={"model": "mlm", "inputs": "a good film"}).json()[0]
    ids = [token["id"] for token in tokens]
    body = {"model": "mlm", "dimensions": 6}
    by_text = http.post("/v1/embeddings", json=body | {"input": "a good film"}).json()["data"][0]["embedding"]
    by_ids = http.post("/v1/embeddings", json=body | {"input": ids}).json()["data"][0]["embedding"]
    whole = served["mlm"].predictor.embed("a good film")[:6]
    np.testing.assert_allclose(by_ids, by_text, atol=1e-6)
    np.testing.assert_allclose(by_text, whole / np.linalg.norm(whole), atol=1e-5)


# ---- fair 429s: by predicted seconds, whether texts come alone or in batches


class Gate:
    """A forward pass that waits until it is opened."""

    def __init__(self, forward):
        self.forward, self.entered, self.opened = forward, threading.Event(), threading.Event()

    def __call__(self, inputs):
        self.entered.set()
        assert self.opened.wait(30)
        return self.forward(inputs)


class Waiting:
    """A request whose client stays."""

    async def receive(self):
        await asyncio.sleep(60)


async def texts_accepted(model, texts):
    """How many texts are accepted in requests of so many, one after the other, while nothing is computed; refusals."""
    from bertworks.apps.serve.config import ServeConfig
    from bertworks.apps.serve.errors import Refusal
    from bertworks.apps.serve.service import Service

    service, steps = Service({"slow": model}, ServeConfig(max_wait=1.0)), model.steps["classify"]
    steps.forward = gate = Gate(steps.forward)
    service.queue.lane(steps).pace.add(1000, 5.0)
    ask = lambda count: service.run(Waiting(), "classify", [("a good film a b c d e", None)] * count)  # noqa: E731
    tasks = [asyncio.create_task(ask(1))]
    while not gate.entered.is_set():
        assert not tasks[0].done()
        await asyncio.sleep(0.01)
    for _ in range(64 // texts):
        before = service.queue.size
        tasks.append(asyncio.create_task(ask(texts)))
        while service.queue.size == before and not tasks[-1].done():
            await asyncio.sleep(0)
    gate.opened.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    service.close()
    refused = [one for one in found if isinstance(one, Refusal)]
    assert len(refused) + sum(hasattr(one, "results") for one in found) == len(tasks)
    return sum(len(one.results) for one in found if one not in refused) - 1, refused


@pytest.mark.parametrize("texts", [1, 4])
def test_refusals_say_when_to_come_back_and_count_tokens_not_requests(served, texts):
    model = loaded({"slow": served["labels"].predictor.folder}, "slow")["slow"]
    each = len(model.predictor.tokenizer.encode("a good film a b c d e").ids) * 0.005  # seconds
    accepted, refused = asyncio.run(texts_accepted(model, texts))
    assert 1.0 / each - 1 <= accepted <= 1.0 / each + texts + 1  # what fits, however it is split into requests
    for one in refused:
        assert one.status == 429
        seconds = float(re.match(r"([\d.]+) seconds of requests have queued", one.message)[1])
        assert 1.0 <= seconds <= 1.0 + (texts + 1) * each + 0.05
        assert one.headers["Retry-After"] == "1"


# ---- an answer does not depend on who else asks


def test_answers_are_those_of_the_predictor_whoever_else_asks(served):
    """Requests that wait for the same pass, some of several texts: each gets what it gets alone."""
    import httpx

    model = loaded({"labels": served["labels"].predictor.folder}, "labels")["labels"]
    rng, steps = random.Random(3), model.steps["classify"]
    batches = [[" ".join(rng.choices(WORDS, k=rng.randint(1, 17))) for _ in range(1 + i % 3)] for i in range(24)]
    expected = [[model.predictor.classify(text, all_scores=True)["scores"] for text in texts] for texts in batches]
    steps.forward = gate = Gate(steps.forward)
    with serving({"labels": model}) as url, ThreadPoolExecutor(24) as pool, httpx.Client(base_url=url) as client:

        def ask(texts):
            return client.post("/models/labels", json={"inputs": texts}, timeout=60).json()

        answers = [pool.submit(ask, batches[0])]
        assert gate.entered.wait(30)  # it is in the first pass, alone
        answers += [pool.submit(ask, texts) for texts in batches[1:]]
        while client.get("/load").json()["waiting_requests"] < len(batches) - 1:
            assert not any(answer.done() for answer in answers)
            time.sleep(0.01)
        gate.opened.set()
        for answer, scores in zip(answers, expected, strict=True):
            found = [{one["label"]: one["score"] for one in row} for row in answer.result()]
            assert found == [pytest.approx(row, abs=1e-5) for row in scores]
        metrics = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
        shares = float(metrics["te_batch_next_size_sum"])  # a request may be divided between two passes
        assert float(metrics["te_batch_next_size_count"]) < len(batches) <= shares
