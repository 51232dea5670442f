"""Joined linear layers equal separate ones, forward and backward, and training on a CPU uses them."""

import pytest
import torch
from torch import nn

from bertworks.model.bert import Encoder
from bertworks.model.dropout import DropoutKey
from bertworks.model.fast import products
from bertworks.model.fast.backend import accelerated
from bertworks.model.fast.products import linear
from bertworks.model.initialization import has_bfloat16
from support.batches import batch
from support.encoder_options import TINY

D, WIDE = TINY.hidden_size, TINY.intermediate_size
ONEDNN = pytest.mark.skipif(not products.is_supported(torch.ones(1)), reason="needs oneDNN")


def encoded(encoder: Encoder) -> torch.Tensor:
    given = batch()
    return encoder(given["input_ids"], given["attention_mask"], dropout=DropoutKey(1, 1)).packed


def outputs_and_gradients(x: torch.Tensor, layers: list[nn.Linear], join: bool) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    parts = linear(x, *layers) if join else [layer(x) for layer in layers]
    out = torch.cat([*parts], -1).float()
    asked = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    weights = torch.linspace(-1, 1, out.numel()).view_as(out)
    return [out, *torch.autograd.grad((weights * out).sum(), [x, *asked])]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", ["none", "weights", "biases", "first layer"])
def test_joined_layers_equal_separate_ones(bias, frozen):
    torch.manual_seed(1)
    layers = [nn.Linear(8, 4, bias), nn.Linear(8, 6, bias)]
    for i, layer in enumerate(layers):
        layer.weight.requires_grad = frozen != "weights" and (frozen != "first layer" or i > 0)
        if layer.bias is not None:
            layer.bias.requires_grad = frozen != "biases" and (frozen != "first layer" or i > 0)
    x = torch.randn(5, 8)
    for found, expected in zip(*(outputs_and_gradients(x, layers, join) for join in (True, False)), strict=True):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not has_bfloat16(), reason="this processor has no fast products in bfloat16")
def test_near_in_bfloat16_with_gradients_in_float32():
    torch.manual_seed(1)
    layers, x = [nn.Linear(64, 32), nn.Linear(64, 32)], torch.randn(50, 64)
    expected = outputs_and_gradients(x, layers, join=False)
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs_and_gradients(x.bfloat16(), layers, join=True)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() / other.norm() < 0.02
    assert all(gradient.dtype == torch.float32 for gradient in found[2:])  # of the parameters


@ONEDNN
def test_second_derivatives_are_refused():
    """The gradient is computed outside of torch's record: it would leave out a part."""
    x = torch.randn(3, 4, requires_grad=True)
    (y,) = linear(x, nn.Linear(4, 5))
    (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@ONEDNN
def test_training_joins_and_everything_else_does_not(monkeypatch):
    """Four products a layer: query, key and value; the attention's output; both of the feed-forward half."""
    widths, product = [], products.product
    monkeypatch.setattr(products, "product", lambda x, w, b: widths.append(len(w)) or product(x, w, b))
    encoder = accelerated(Encoder(TINY))
    encoded(encoder)
    assert widths == [3 * D, D, WIDE, D] * TINY.num_hidden_layers
    with torch.no_grad():
        encoded(encoder)
    assert len(widths) == 4 * TINY.num_hidden_layers
