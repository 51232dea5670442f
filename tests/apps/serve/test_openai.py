"""OpenAI's routes: the openai client, unmodified, and the bodies that it cannot send."""

import numpy as np
import pytest

openai = pytest.importorskip("openai")

TEXTS = ["a good film", "b"]


@pytest.fixture(scope="module")
def api(server_url):
    with openai.OpenAI(base_url=f"{server_url}/v1", api_key="none", max_retries=0) as api:
        yield api


@pytest.fixture(scope="module")
def expected(served):
    return served["mlm"].predictor.embed(TEXTS, normalize=True)


def vectors(response):
    return np.array([one.embedding for one in response.data], np.float32)


def test_the_client_gets_vectors_in_base64_and_as_numbers(api, expected, served):
    found = api.embeddings.create(model="mlm", input=TEXTS)  # it asks for base64 and decodes that
    np.testing.assert_allclose(vectors(found), expected, atol=1e-6)
    assert [one.index for one in found.data] == [0, 1] and found.model == "mlm"
    tokens = sum(len(served["mlm"].predictor.tokenizer.encode(text).ids) for text in TEXTS)
    assert found.usage.prompt_tokens == found.usage.total_tokens == tokens
    cut = api.embeddings.create(model="mlm", input="d " * 60, extra_body={"truncate": True})
    np.testing.assert_allclose(vectors(cut), vectors(api.embeddings.create(model="mlm", input="d " * 30)), atol=1e-6)
    numbers = api.embeddings.create(model="mlm", input=TEXTS, encoding_format="float")
    np.testing.assert_array_equal(vectors(numbers), vectors(found))


def test_dimensions_are_cut_and_the_vectors_scaled_again(api, expected):
    found = vectors(api.embeddings.create(model="mlm", input=TEXTS, dimensions=5))
    short = expected[:, :5]
    np.testing.assert_allclose(found, short / np.linalg.norm(short, axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(openai.UnprocessableEntityError) as error:
        api.embeddings.create(model="mlm", input="a", dimensions=33)
    assert error.value.body["message"] == "dimensions = 33; expected 1 to 32"
    assert (error.value.type, error.value.param, error.value.code) == (
        "invalid_request_error", "dimensions", "invalid_value",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["a b c d e f g h"] * 30_001, "max_tokens_per_request"),  # 300,010 tokens
        ("a" * 4_000_001, "request_too_large"),
        (["a", "d " * 60], "context_length_exceeded"),
    ],
    ids=["tokens", "bytes", "long"],
)
def test_clients_are_told_to_shorten_a_text_only_if_one_is_too_long(http, given, code):
    answer = http.post("/v1/embeddings", json={"model": "mlm", "input": given})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (413, code)
    assert ("input 1: " in error["message"]) == (code == "context_length_exceeded")


def test_models(api, served):
    assert [model.id for model in api.models.list()] == list(served)
    assert api.models.retrieve("tags").owned_by == "bertworks"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'; loaded: mlm, labels"):
        api.models.retrieve("gpt")
