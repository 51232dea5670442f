"""Questions that take the place of their contexts: half of the positions are the context's."""

import pytest

CONTEXT = "a good film , b c d e f " * 5


@pytest.mark.parametrize("most", [20, 10**9])
def test_half_of_the_positions_are_the_contexts(make_client, most):
    client, question = make_client("span"), "b c d e f " * 6  # a model of 24 positions
    body = {"inputs": {"question": question, "context": CONTEXT}, "parameters": {"max_question_len": most}}
    refused = client.post("/", json=body)
    assert refused.status_code == 413 and "tokens more than the 12 that are read of a question" in refused.text
    body["parameters"]["truncate"] = True
    found = client.post("/", json=body)
    assert found.status_code == 200, found.text
    windows = int(found.headers["x-compute-tokens"]) / 24
    assert windows <= 12  # of 9 tokens each, 4 tokens apart
