"""A network for inference: the same numbers from the same weights, through another class of linear modules."""

import pytest
import torch
from torch import nn

from bertworks.model.config import ModelConfig
from bertworks.model.encoder import Encoder
from bertworks.model.prepare import OneDnnLinear, for_inference

SHAPE = ModelConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=16,
)


@torch.no_grad()
def test_same_numbers_from_the_same_weights():
    torch.manual_seed(1)
    encoder = Encoder(SHAPE)
    fast = for_inference(encoder)
    assert not encoder.training and not fast.training
    ids, mask = torch.randint(50, (3, 9)), torch.arange(9) < torch.tensor([[9], [4], [1]])
    for _ in range(2):
        torch.testing.assert_close(fast(ids, mask).pooled, encoder(ids, mask).pooled, rtol=0, atol=1e-6)
        encoder.layers[0].query.weight.mul_(2)  # shared: the twin sees it


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_what_is_changed():
    encoder = Encoder(SHAPE)
    fast = for_inference(encoder)
    assert for_inference(fast) is fast  # prepared once
    kinds = {type(module) for module in fast.modules()}
    assert OneDnnLinear in kinds and nn.Linear not in kinds
    assert OneDnnLinear not in {type(module) for module in encoder.modules()}
    assert for_inference(encoder.to(torch.bfloat16)) is encoder
    shallow = Encoder(SHAPE, pooler=False)
    assert for_inference(shallow).pooler is None
