"""Attention weights against direct computation."""

import numpy as np
import pytest
import torch

from bertworks.apps.probing.attention import attend
from bertworks.apps.probing.model import ProbedModel
from bertworks.checkpoint.folder import load_encoder, load_tokenizer
from bertworks.files import InputError
from support.tiny_task import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("attention") / "model")


@pytest.fixture(scope="module")
def attention(folder):
    return attend(ProbedModel(folder, device="cpu"), "good film , a b", "bad c")


@torch.no_grad()
def test_weights_are_those_of_the_encoder(folder, attention):
    encoding = load_tokenizer(folder).encode("good film , a b", "bad c")
    ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
    encoder = load_encoder(folder)
    x = encoder.embeddings.norm(
        encoder.embeddings.word(ids)
        + encoder.embeddings.position.weight[: ids.shape[1]]
        + encoder.embeddings.token_type(types)
    )
    layer = encoder.layers[0]
    q, k = (project(x).view(1, -1, 2, 16).transpose(1, 2) for project in (layer.query, layer.key))
    np.testing.assert_allclose(attention.weights[0], (q @ k.transpose(2, 3) / 4).softmax(-1)[0], atol=1e-6)
    assert attention.weights.shape == (2, 2, 10, 10) and attention.segments == [0] * 7 + [1] * 3
    assert attention.tokens == encoding.tokens and attention.cut == 0


@pytest.mark.parametrize("length", [7, 99])
def test_lengths_that_do_not_fit(folder, length):
    with pytest.raises(InputError, match=f"max_length = {length}; expected 8 to 32"):
        attend(ProbedModel(folder, device="cpu"), "a", max_length=length)
