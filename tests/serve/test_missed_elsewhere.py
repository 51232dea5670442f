"""What users of other servers ask for and do not get, each shown here."""

import random

import numpy as np
import pytest
import torch

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


class Slow:
    """A step that takes its time for every token: the queue fills."""

    def __init__(self, forward):
        self.forward = forward

    def __call__(self, inputs):
        import time

        time.sleep(0.002 * len(inputs.ids))
        return self.forward(inputs)


def test_refusals_say_when_to_come_back_and_treat_batches_as_single_requests(served, monkeypatch):
    import asyncio

    import httpx

    from bertworks.serve.config import ServeConfig

    folder = served["labels"].predictor.folder
    models = loaded({"slow": folder}, "slow")
    steps = models["slow"].steps["classify"]
    monkeypatch.setattr(steps, "forward", Slow(steps.forward))

    async def burst(url, requests, texts):
        body = {"inputs": ["a good film a b c d e"] * texts}
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=200)) as client:
            return await asyncio.gather(*(client.post("/models/slow", json=body) for _ in range(requests)))

    with serving(models, ServeConfig(max_wait=0.4, batch_tokens=64)) as url:
        asyncio.run(burst(url, 4, 4))  # the pace is measured
        answered = {}
        for requests, texts in ((64, 1), (16, 4)):
            found = asyncio.run(burst(url, requests, texts))
            counts = {status: sum(one.status_code == status for one in found) for status in (200, 429)}
            assert sum(counts.values()) == requests and min(counts.values()) > 0, counts
            assert all(int(one.headers["retry-after"]) >= 1 for one in found if one.status_code == 429)
            answered[texts] = counts[200] * texts
        assert 0.3 < answered[1] / answered[4] < 3, answered  # texts, whichever way they came


# ---- an answer does not depend on who else asks


def test_answers_are_those_of_the_predictor_whoever_else_asks(http, served):
    texts = [" ".join(random.Random(i).choices(WORDS, k=i % 17 + 1)) for i in range(24)]
    together = http.post("/models/labels", json={"inputs": texts}).json()
    alone = served["labels"].predictor
    for text, row in zip(texts, together, strict=True):
        expected = alone.classify(text, all_scores=True)["scores"]
        assert {one["label"]: one["score"] for one in row} == pytest.approx(expected, abs=1e-5)
    assert torch.get_num_threads() >= 1
