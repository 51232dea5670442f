"""The start with position heads: what it gives at first, and that nothing else of a BERT changes."""

import dataclasses

import pytest
import torch

from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.model.initialization import start_with_position_heads

CONFIG = ModelConfig(60, 256, 2, 4, 64, max_position_embeddings=64, start="position-heads")
IDS = torch.randint(5, 60, (3, 40), generator=torch.Generator().manual_seed(0))


def attentions(model):
    """One (N, L, L) a layer, mean over sentences."""
    out = model.encoder.eval()(IDS, attentions=True)
    return [weights.mean(0) for weights in out.attentions]


def at_offset(weights, offset):
    """Mean share of the attention at that distance, over the positions that have it."""
    return weights.diagonal(offset, dim1=-2, dim2=-1).mean(-1)


def test_each_head_looks_at_its_offset():
    for layer in attentions(build_model(CONFIG, seed=1)):
        for head, offset in enumerate((-1, 1, -2, 2)):
            assert at_offset(layer[head], offset) > 0.5
            assert at_offset(layer[head], offset) > 2 * max(at_offset(layer[head], d) for d in (offset - 1, offset + 1))
    for layer in attentions(build_model(dataclasses.replace(CONFIG, start="normal"), seed=1)):
        assert layer.max() < 0.2


def test_words_and_positions_share_no_dimension_at_first():
    table = build_model(CONFIG, seed=1).encoder.embeddings
    assert not table.word.weight[:, 192:].any() and not table.token_type.weight[:, 192:].any()
    assert not table.position.weight[:, :192].any() and table.position.weight[:, 192:].abs().max() <= 0.03
    assert table.position.weight.requires_grad


def test_values_at_first_carry_words_alone():
    ours = build_model(CONFIG, seed=1)
    for layer in ours.encoder.layers:
        assert not layer.attention.value.weight[:, 192:].any() and layer.attention.value.weight[:, :192].all()


def test_other_weights_are_those_of_the_usual_start():
    ours, usual = build_model(CONFIG, seed=1), build_model(dataclasses.replace(CONFIG, start="normal"), seed=1)
    new = ("word.", "position.", "token_type.", "query.", "key.", "value.")
    for (name, weight), same in zip(ours.named_parameters(), usual.parameters(), strict=True):
        if not any(part in name for part in new):
            assert torch.equal(weight, same), name


def test_heads_without_an_offset_stay_free():
    ours = build_model(dataclasses.replace(CONFIG, start="normal"), seed=1)
    free = [layer.attention.query.weight[128:].clone() for layer in ours.encoder.layers]
    start_with_position_heads(ours.encoder, offsets=(-1, 1))
    assert all(
        torch.equal(layer.attention.query.weight[128:], rows)
        for layer, rows in zip(ours.encoder.layers, free, strict=True)
    )
    assert at_offset(attentions(ours)[0][1], 1) > 0.5


@pytest.mark.parametrize("side, offsets", [("left", (-1, -2)), ("right", (1, 2))])
def test_one_side_has_the_offsets_that_it_sees(side, offsets):
    model = build_model(dataclasses.replace(CONFIG, direction=side), ("mlm",), seed=1)
    for head, offset in enumerate(offsets):
        assert at_offset(attentions(model)[0][head], offset) > 0.5
    pair = build_model(dataclasses.replace(CONFIG, direction="pair"), ("tagger",), labels=3, seed=1)
    found = getattr(pair.encoder, side).layers[0]
    assert torch.equal(found.attention.query.weight[:128], model.encoder.layers[0].attention.query.weight[:128])


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("position_embedding_type", "rotary", "expected position_embedding_type = 'learned'"),
        ("layer_type", "gru", "expected layer_type = 'attention'"),
        ("embedding_size", 32, "expected embedding_size = 0"),
        ("hidden_size", 12, "heads of width 3"),
        ("num_attention_heads", 1, "expected 2 or more"),
    ],
)
def test_settings_without_such_heads_are_refused(field, value, expected):
    with pytest.raises(ValueError, match=expected):
        dataclasses.replace(CONFIG, **{field: value})
