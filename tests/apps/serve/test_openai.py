"""OpenAI's routes: the openai client, unmodified, and the bodies that it cannot send."""

import base64

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
    numbers = api.embeddings.create(model="mlm", input=TEXTS, encoding_format="float")
    np.testing.assert_array_equal(vectors(numbers), vectors(found))
    raw = api.embeddings.create(model="mlm", input=TEXTS[0], encoding_format="base64").data[0].embedding
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(raw), "<f4"), vectors(found)[0], atol=1e-6)


def test_dimensions_are_cut_and_the_vectors_scaled_again(api, expected):
    found = vectors(api.embeddings.create(model="mlm", input=TEXTS, dimensions=5))
    short = expected[:, :5]
    np.testing.assert_allclose(found, short / np.linalg.norm(short, axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(openai.UnprocessableEntityError) as error:
        api.embeddings.create(model="mlm", input="a", dimensions=33)
    assert error.value.body == {
        "message": "dimensions = 33; expected 1 to 32",
        "type": "invalid_request_error",
        "param": "dimensions",
        "code": "invalid_value",
    }


def test_ids_are_read_as_the_text_is(api, expected, served):
    ids = [served["mlm"].predictor.tokenizer.encode(text).ids for text in TEXTS]
    found = api.embeddings.create(model="mlm", input=ids)
    np.testing.assert_allclose(vectors(found), expected, atol=1e-6)
    one = api.embeddings.create(model="mlm", input=ids[0])
    np.testing.assert_allclose(vectors(one), expected[:1], atol=1e-6)


@pytest.mark.parametrize("ids", [[5, 6], [5], [2, 5], [5, 3], [2], [2, 5, 3, 5]])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed"])
def test_ids_that_may_be_of_another_tokenizer_are_refused(http, path, ids):
    """Other tokenizers do not begin and end with this one's [CLS] and [SEP]."""
    name = "input" if path.startswith("/v1") else "inputs"
    found = http.post(path, json={"model": "mlm", name: [[2, 5, 3], ids]})
    assert found.status_code == 422 and "input 1 has token ids from" in found.text
    assert http.post(path, json={"model": "mlm", name: [[2, 5, 3]]}).status_code == 200


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["a b c d e f g h"] * 30_001, "max_tokens_per_request"),  # 300,010 tokens
        (["a"] * 300_001, "max_tokens_per_request"),
        ("a" * 4_000_001, "request_too_large"),
        ("d " * 60, "context_length_exceeded"),
        (["a", "d " * 60], "context_length_exceeded"),
    ],
    ids=["tokens", "elements", "bytes", "long", "long in a list"],
)
def test_clients_are_told_to_shorten_a_text_only_if_one_is_too_long(http, given, code):
    found = http.post("/v1/embeddings", json={"model": "mlm", "input": given})
    error = found.json()["error"]
    assert (found.status_code, error["code"]) == (413, code)
    assert ("input 1: " in error["message"]) == (code == "context_length_exceeded" and isinstance(given, list))


@pytest.mark.parametrize("number", [-1, 62, 2**31, 2**63])
def test_ids_of_another_vocabulary_are_refused(http, number):
    found = http.post("/v1/embeddings", json={"model": "mlm", "input": [[2, number, 3]]})
    assert found.status_code == 422
    assert f"token id {number}; this vocabulary has 0 to 61" in found.json()["error"]["message"]


def test_long_input_is_refused_or_cut(api, http):
    with pytest.raises(openai.APIStatusError) as error:
        api.embeddings.create(model="mlm", input="d " * 60)
    assert error.value.status_code == 413 and "truncate" in str(error.value)
    found = api.embeddings.create(model="mlm", input="d " * 60, extra_body={"truncate": True})
    np.testing.assert_allclose(vectors(found), vectors(api.embeddings.create(model="mlm", input="d " * 30)), atol=1e-6)
    ids = http.post("/v1/embeddings", json={"model": "mlm", "input": [2, *[5] * 60, 3], "truncate": True})
    assert ids.headers["x-truncated-tokens"] == "30"


def test_models(api, served):
    assert [model.id for model in api.models.list()] == list(served)
    assert api.models.retrieve("tags").owned_by == "bertworks"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'; loaded: mlm, labels"):
        api.models.retrieve("gpt")
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'; loaded: mlm, labels"):
        api.embeddings.create(model="gpt", input="a")
