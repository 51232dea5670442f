"""The choices of layers against plain indexing of the hidden states, and what is refused."""

import pytest
import torch

from bertworks.files import InputError
from bertworks.model.comparators import LayerChoice, WeightedSum

L, D = 6, 4


@pytest.fixture(scope="module")
def states() -> list[torch.Tensor]:
    """Embeddings and six layers, (2, 3, D) each."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 3, D, generator=generator) for _ in range(L + 1)]


EXPECTED = {  # over h[0] = embeddings, h[1] to h[6] = layers
    "last": lambda h: h[6],
    "second-to-last": lambda h: h[5],
    "embeddings": lambda h: h[0],
    "0": lambda h: h[1],
    "0,3,5": lambda h: torch.cat([h[1], h[4], h[6]], -1),
    "-1,-2,-3,-4": lambda h: torch.cat([h[6], h[5], h[4], h[3]], -1),
    "embeddings, 0": lambda h: torch.cat([h[0], h[1]], -1),
    "concat-last-4": lambda h: torch.cat([h[3], h[4], h[5], h[6]], -1),
    "sum-last-4": lambda h: h[3] + h[4] + h[5] + h[6],
    "sum-all": lambda h: h[1] + h[2] + h[3] + h[4] + h[5] + h[6],
    "weighted-sum": lambda h: torch.stack(h[1:]).mean(0),
    "weighted-sum-last-4": lambda h: torch.stack(h[3:]).mean(0),
}


@pytest.mark.parametrize("text", EXPECTED)
def test_choices(states, text):
    choice, before = LayerChoice.parse(text, L), [state.clone() for state in states]
    found = choice.combine(states)
    torch.testing.assert_close(found, EXPECTED[text](states), rtol=0, atol=1e-6)
    assert found.shape[-1] == choice.width(D)
    assert all(torch.equal(a, b) for a, b in zip(states, before, strict=True)), "the states themselves were changed"
    packed = [state.view(-1, D) for state in states]
    torch.testing.assert_close(choice.combine(packed), found.view(-1, choice.width(D)), rtol=0, atol=0)


def test_learned_weights(states):
    choice = LayerChoice.parse("weighted-sum-last-2", L)
    weighting = WeightedSum(2)
    torch.testing.assert_close(choice.combine(states, weighting), choice.combine(states))  # fresh: the mean
    with torch.no_grad():
        weighting.weights.copy_(torch.tensor([0.0, 3.0]).log1p())  # softmax: 1/5, 4/5
        weighting.scale.fill_(2.0)
    found = choice.combine(states, weighting)
    torch.testing.assert_close(found, 2 * (0.2 * states[5] + 0.8 * states[6]))
    found.square().sum().backward()
    assert weighting.weights.grad.abs().min() > 0 and weighting.scale.grad != 0
    with pytest.raises(ValueError):
        WeightedSum(3)(states[:2])


@pytest.mark.parametrize("text", ["6", "-7", "concat-last-7", "sum-last-0", "first", "1,,2", "", "1.5", "last,0"])
def test_unknown_layers_are_refused(text):
    with pytest.raises(InputError, match=rf"layers '{text}': expected last, .*has layers 0 to 5 .*-1 to -6"):
        LayerChoice.parse(text, L)


def test_encoders_without_layers_or_with_one():
    assert LayerChoice.parse("last", 0).depth == LayerChoice.parse("embeddings", 0).depth == 0
    for text in ("sum-all", "weighted-sum", "0", "-1", "second-to-last"):
        with pytest.raises(InputError, match="embeddings only"):
            LayerChoice.parse(text, 0)
    assert LayerChoice.parse("sum-all", 1).states == (1,)
    with pytest.raises(InputError):
        LayerChoice.parse("second-to-last", 1)
