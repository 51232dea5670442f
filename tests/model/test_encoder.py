"""The encoder's own promises: configuration, layout, sizes, positions, bad input. Parity has a folder of its own."""

import dataclasses

import pytest
import torch

from bertworks.model import layout as layout_module
from bertworks.model.bert import Encoder
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.initialization import initialize, sinusoids
from bertworks.model.layout import Layout

TINY = ModelConfig(40, 16, 2, 2, 24, max_position_embeddings=10)
SIZES = {  # layers, width, heads; parameters of encoder with pooler; with both heads, tied (vocabulary 30,522)
    "tiny": (2, 128, 2, 4_385_920, 4_433_468),
    "mini": (4, 256, 4, 11_170_560, 11_267_900),
    "small": (4, 512, 8, 28_763_648, 29_058_876),
    "medium": (8, 512, 8, 41_373_184, 41_668_412),
    "base": (12, 768, 12, 109_482_240, 110_106_428),
    "large": (24, 1024, 16, 335_141_888, 336_226_108),
}


@pytest.mark.parametrize("name", SIZES)
def test_parameter_counts_of_the_published_sizes(name):
    layers, D, N, encoder, whole = SIZES[name]
    config = ModelConfig(hidden_size=D, num_hidden_layers=layers, num_attention_heads=N, intermediate_size=4 * D)
    with torch.device("meta"):
        model, masked_lm = build_model(config), build_model(config, ("mlm",))
    assert parameters(model.encoder) == encoder
    assert parameters(model) == whole
    if name == "base":
        assert parameters(masked_lm) == 109_514_298  # no pooler, as BertForMaskedLM


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("step", [1, 4, 128])  # how many rows of padding fill up the packed form
def test_packing_and_back(monkeypatch, step):
    monkeypatch.setattr(layout_module, "ROW_MULTIPLE", step)
    mask = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0]])
    layout = Layout.of(mask, 3, 4)
    x = torch.randn(12, 5, requires_grad=True)
    packed, real = layout.pack(x), mask.flatten().nonzero().squeeze(1)
    assert torch.equal(packed[layout.rows(real)], x[real])
    assert len(packed) == {1: 6, 4: 8, 128: 12}[step]
    assert (layout.index is None) == (step == 128)  # where all padding is needed to fill up, no row moves
    cells = layout.restore(packed).view(12, 5)
    assert torch.equal(cells, x * mask.flatten()[:, None])
    weights = torch.randn(12, 5)
    (cells * weights).sum().backward()
    assert torch.equal(x.grad, weights * mask.flatten()[:, None])
    x = x.detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: layout.restore(layout.pack(t).exp()), x)


def encode(encoder: Encoder, *arguments, **more):
    with torch.no_grad():
        return encoder.eval()(*arguments, **more)


def test_a_sequence_without_a_token_is_refused():
    ids, mask = torch.zeros(3, 4, dtype=torch.long), torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    with pytest.raises(ValueError, match="a sequence without a real token"):
        encode(build_model(TINY, seed=1).encoder, ids, mask)


def test_segments_count():
    model = build_model(TINY, seed=1)
    ids = torch.zeros(1, 4, dtype=torch.long)
    zero, one = torch.zeros_like(ids), torch.ones_like(ids)
    assert torch.equal(encode(model.encoder, ids).packed, encode(model.encoder, ids, None, zero).packed)
    assert not torch.equal(encode(model.encoder, ids, None, one).packed, encode(model.encoder, ids, None, zero).packed)
    without = Encoder(dataclasses.replace(TINY, type_vocab_size=0))
    assert without.embeddings.token_type is None
    assert encode(without, ids, None, one).packed.shape == (4, 16)


def test_sinusoidal_positions_are_the_formula_and_fixed():
    config = dataclasses.replace(TINY, position_embedding_type="sinusoidal")
    encoder = Encoder(config)
    initialize(encoder, 0.02, torch.Generator().manual_seed(0))
    table = encoder.embeddings.position
    assert not table.weight.requires_grad
    for position, i in [(0, 0), (3, 1), (9, 7)]:
        angle = torch.tensor(position / 10000 ** (2 * i / 16))
        torch.testing.assert_close(table.weight[position, 2 * i], angle.sin())
        torch.testing.assert_close(table.weight[position, 2 * i + 1], angle.cos())
    assert sinusoids(4, 5).shape == (4, 5)


def test_initialisation_follows_the_seed_alone():
    one, same, other = (build_model(TINY, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(
        one["encoder.layers.1.attention.query.weight"], other["encoder.layers.1.attention.query.weight"]
    )
