"""Keyed dropout: masks are a function of seed, step, place and row, and of nothing else."""

import dataclasses
import hashlib

import pytest
import torch

from bertworks.model import dropout
from bertworks.model.bert import Encoder
from bertworks.model.config import ModelConfig
from bertworks.model.dropout import DropoutKey, SiteDropout, keyed_dropout, rescale, threshold
from bertworks.model.fast.attention import KeyedAttention
from bertworks.model.fast.backend import accelerated
from bertworks.model.initialization import initialize
from support.encoder_options import TINY

CONFIG = dataclasses.replace(TINY, num_hidden_layers=2)


def used_rate(rate: float) -> float:
    """The share of elements that a keyed mask drops."""
    dropped, values = threshold(rate)
    return dropped / values


@pytest.mark.parametrize("threads", [1, 3])
def test_masks_of_many_sites_are_those_of_each(threads, monkeypatch):
    monkeypatch.setattr(dropout, "_THREADED_FROM", 0)  # else one thread draws them
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    key, sites = (
        DropoutKey(9, 4, row=2),
        [(site, rate, (3, 5 + site)) for site, rate in enumerate((0.1, 0.0, 0.5, 0.001))],
    )
    masks = key.masks(sites)
    assert masks[1] is None
    assert all(torch.equal(masks[i], key.mask(*sites[i])) for i in (0, 2, 3))


@pytest.mark.parametrize("rate", [0.5, 0.01])
@pytest.mark.parametrize("row", [(1,), (31,), (33,), (3, 4, 4), (1000,)])
def test_masks_do_not_depend_on_how_rows_are_divided(row, rate):
    key = DropoutKey(seed=7, step=3)
    whole = key.mask(5, rate, (8, *row))
    assert whole.shape == (8, *row) and whole.dtype == torch.bfloat16
    for cut in (1, 4, 7):
        rest = dataclasses.replace(key, row=cut)
        parts = [key.mask(5, rate, (cut, *row)), rest.mask(5, rate, (8 - cut, *row))]
        assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(dataclasses.replace(key, row=2).mask(5, rate, (3, *row)), whole[2:5])


def test_masks_differ_by_seed_step_place_and_row():
    key, shape = DropoutKey(seed=7, step=3), (1, 4096)
    made = [
        key.mask(5, 0.5, shape),
        key.mask(6, 0.5, shape),
        dataclasses.replace(key, row=1).mask(5, 0.5, shape),
        *(DropoutKey(seed, step).mask(5, 0.5, shape) for seed, step in [(8, 3), (7, 4), (7, 0), (0, 3)]),
    ]
    for i, one in enumerate(made):
        for other in made[:i]:  # unrelated masks agree in half of their elements
            assert abs((one == other).float().mean() - 0.5) < 5 * 0.5 / 4096**0.5


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.99, 0.999, 1 - 2**-40])
def test_rate_and_expectation(rate):
    n = 1 << 20
    mask = DropoutKey(seed=1, step=1).mask(0, rate, (64, n // 64))
    p = used_rate(rate)
    assert abs(p - rate) <= (0.5 / 256 if 1 / 32 < rate < 31 / 32 else 1 / 65536) and 0 < p < 1
    assert torch.equal(mask.unique().float(), torch.tensor([0.0, 1.0]))
    assert abs((mask == 0).float().mean() - p) < 5 * (p * (1 - p) / n) ** 0.5
    assert abs((mask.double() * rescale(rate)).mean() - 1) < 5 * (p / (1 - p) / n) ** 0.5


def test_usual_rates_are_decided_by_one_byte_as_ever():
    """So that runs from before small rates were made exact go on with the same masks."""
    assert [used_rate(rate) * 256 for rate in (1 / 32, 0.05, 0.1, 0.3, 0.5, 31 / 32)] == [8, 13, 26, 77, 128, 248]
    mask = DropoutKey(seed=1, step=2, row=3).mask(4, 0.1, (5, 67))
    assert hashlib.sha256(mask.view(torch.int16).numpy().tobytes()).hexdigest()[:16] == "a181a549d04ae0c5"


def test_rate_zero_drops_nothing():
    assert used_rate(0.0) == 0 and rescale(0.0) == 1
    assert DropoutKey(1, 1).mask(0, 0.0, (4, 300)).all()


def fresh(config: ModelConfig = CONFIG) -> Encoder:
    encoder = Encoder(config)
    initialize(encoder, 0.5, torch.Generator().manual_seed(1))
    return accelerated(encoder).train()


def batch(B: int = 6, L: int = 12):
    ids = torch.randint(0, 50, (B, L), generator=torch.Generator().manual_seed(2))
    return ids, torch.arange(L) < (torch.arange(B)[:, None] + 5)


def test_every_dropout_of_the_paper_is_there_and_only_in_training():
    """Each site draws bytes of its own: embeddings, and in a layer attention weights and two sub-layers."""
    ids, mask = batch()
    plain = fresh().eval()(ids, mask, dropout=DropoutKey(9, 4)).hidden_states
    for hidden, attention in [(0.0, 0.3), (0.3, 0.0)]:
        config = dataclasses.replace(CONFIG, hidden_dropout_prob=hidden, attention_probs_dropout_prob=attention)
        states = fresh(config)(ids, mask, dropout=DropoutKey(9, 4)).hidden_states
        assert torch.equal(states[0], plain[0]) == (hidden == 0)  # attention dropout does not touch the embeddings
        assert not torch.allclose(states[1], plain[1])
    dropout = keyed_dropout(CONFIG, CONFIG.num_hidden_layers, DropoutKey(9, 4), fresh()(ids, mask).layout)
    drawn = [dropout.embeddings.mask, *(site.mask for layer in dropout.layers for site in layer)]
    assert len({tuple(t.flatten()[:200].tolist()) for t in drawn}) == 1 + 3 * CONFIG.num_hidden_layers


def test_without_dropout_a_key_changes_nothing():
    """Neither values nor gradients, though the attention is another function then."""
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    encoder, (ids, mask) = fresh(config), batch()
    results = []
    for key in (None, DropoutKey(1, 1)):
        packed = encoder(ids, mask, dropout=key).packed
        results.append([packed, *torch.autograd.grad((packed**3).sum(), encoder.layers.parameters())])
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-5)
    for one, other in zip(*results, strict=True):
        assert (one - other).norm() <= 1e-5 * one.norm() + 1e-3  # key biases: all rounding


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_gradients_of_keyed_attention(dropped, padded):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=generator, dtype=torch.double).requires_grad_() for _ in range(3))
    visible = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None] if padded else None
    mask = DropoutKey(1, 1).mask(0, 0.4, (2, 3, 5, 5)) if dropped else None
    attention, dropout = KeyedAttention(None, 3, visible, None), SiteDropout(0.4, mask)
    assert torch.autograd.gradcheck(lambda *qkv: attention.context(*qkv, visible, dropout), (q, k, v))

    scores = q @ k.transpose(2, 3) / 2
    weights = torch.softmax(scores if visible is None else scores.masked_fill(~visible, -torch.inf), -1)
    weights = weights if mask is None else weights * mask * rescale(0.4)
    torch.testing.assert_close(attention.context(q, k, v, visible, dropout), weights @ v)


def test_without_a_key_torch_draws():
    encoder, (ids, mask) = fresh(), batch()
    torch.manual_seed(0)
    one = encoder(ids, mask).packed
    assert not torch.equal(encoder(ids, mask).packed, one)
    torch.manual_seed(0)
    assert torch.equal(encoder(ids, mask).packed, one)
