"""The last layer for the tokens that are read: the same vectors, pooled outputs and gradients as with all tokens."""

import copy
import dataclasses

import pytest
import torch

from bertworks.model.acceleration import for_inference
from bertworks.model.build import build_model
from bertworks.model.config import TopConfig
from bertworks.model.dropout import DropoutKey
from bertworks.model.layout import Layout
from bertworks.training.objectives import PretrainingObjective
from support.encoder_options import OPTIONS, TINY

SHAPES = {"bert": {}, "left": {"direction": "left"}, "one layer": {"num_hidden_layers": 1}, **OPTIONS}
del SHAPES["mean"]  # it reads every token
L = 18  # the most positions that all of them have
LENGTHS = {"padded": [L] + [3] * 7, "full": [L] * 8}  # packed rows, and a rectangle
KEY = DropoutKey(3, 5)


def batch_of(lengths, seed=1):
    B = len(lengths)
    mask = torch.arange(L) < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, 50, (B, L), generator=torch.Generator().manual_seed(seed))
    positions = torch.tensor([1, 2, L + 1, 0])  # the last slot is not used
    labels = torch.tensor([7, 8, 9, -100])
    return {
        "input_ids": ids * mask,
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(ids),
        "masked_positions": positions,
        "masked_labels": labels,
        "pair_labels": torch.tensor([0, 1] * (B // 2)),
    }


def model_of(shape, heads=("classifier",)):
    return build_model(dataclasses.replace(TINY, **SHAPES[shape]), heads, labels=3, seed=1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_vectors_and_gradients_are_those_of_all_tokens(shape, lengths, training):
    whole, batch = model_of(shape).train(training), batch_of(lengths)
    few, packing = copy.deepcopy(whole), Layout.of_batch(batch)
    assert (packing.index is not None) == (lengths == LENGTHS["padded"])
    cells = torch.cat([whole.encoder.pooled_positions(packing, torch.device("cpu")), torch.tensor([2, L + 1])])
    expected, found = whole.encode(batch, KEY), few.encode(batch, KEY, cells)
    assert found.packed.shape == (10, 24)
    close(found.packed, expected.packed[expected.layout.rows(cells)])
    close(found.packed[found.layout.rows(cells)], found.packed)
    close(found.pooled, expected.pooled)
    grads = torch.randn(10, 24, generator=torch.Generator().manual_seed(2))
    for out in (expected, found):
        ((out.packed[out.layout.rows(cells)] * grads).sum() + out.pooled.sum()).backward()
    for (name, p), q in zip(whole.named_parameters(), few.parameters(), strict=True):
        if p.grad is None:
            assert q.grad is None, name
        else:
            close(q.grad, p.grad, 1e-5)  # they are as large as 30


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_pooled_outputs_in_inference(shape, lengths):
    model, batch = model_of(shape).eval(), batch_of(lengths)
    rows, layer = [], model.encoder.layers[-1]
    with torch.no_grad():
        expected = model.encode(batch).pooled
        close(for_inference(model).pool(batch), expected)
        layer.feed_forward.register_forward_hook(lambda module, given, out: rows.append(len(out)))
        close(model.pool(batch), expected)
    assert rows[-1] == 16  # of eight sequences


@pytest.mark.parametrize("lengths", [[L] * 24, [3, 5, L] * 8])
def test_the_loss_of_pre_training_reads_few_tokens(lengths):
    """Loss and gradients are those of a model whose last layer computes every token.

    Cells that fill up the number are cells of the packing: another one would share a row, and so a gradient, with one.
    """
    objective, rows = PretrainingObjective(), []
    whole = model_of("bert", ("mlm", "nsp")).train()
    few, batch = copy.deepcopy(whole), objective.prepare(batch_of(lengths, seed=2))
    losses = []
    for model in (few, whole):
        encode = model.encode
        given = {} if model is few else {"output_positions": None}
        model.encode = lambda *args, encode=encode, given=given: seen(rows, encode(*(args[:2] if given else args)))
        terms = objective(model, batch, KEY)
        losses.append({name: term.loss for name, term in terms.items()})
        sum(losses[-1].values()).backward()
    assert rows[0] == 64 < rows[1]
    for name, loss in losses[0].items():
        close(loss, losses[1][name])
    for p, q in zip(few.parameters(), whole.parameters(), strict=True):
        close(p.grad, q.grad)


def seen(rows, out):
    rows.append(len(out.packed))
    return out


def test_what_is_not_computed_is_not_returned():
    model, batch = model_of("bert").eval(), batch_of(LENGTHS["padded"])
    out = model.encode(batch, None, torch.arange(8) * L)
    for ask in (lambda: out.last_hidden_state, lambda: out.layout.mean(out.packed)):
        with pytest.raises(ValueError, match="computed for some tokens only"):
            ask()


@pytest.mark.parametrize(
    "given",
    [{"hidden_states": True}, {"hidden_states": False, "attentions": True}, {"hidden_states": False, "depth": 2}],
)
def test_where_every_token_is_asked_for(given):
    model, batch = model_of("bert").eval(), batch_of(LENGTHS["padded"])
    asked = [batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")]
    given = {"hidden_states": False} | given
    found = model.encoder(*asked, **given, output_positions=torch.tensor([0]))
    assert torch.equal(found.packed, model.encoder(*asked, **given).packed)


@pytest.mark.parametrize("shape", [{"classifier_pooling": "mean"}, {"layer_type": "lstm"}, {"direction": "pair"}])
def test_encoders_whose_heads_read_every_token(shape):
    model = build_model(dataclasses.replace(TINY, **shape), ("classifier",), labels=3, seed=1).eval()
    batch = batch_of(LENGTHS["padded"])
    assert torch.equal(model.pool(batch), model.encode(batch).pooled)


def test_a_top_reads_every_layer():
    top = TopConfig(layers="concat-last-2", bilstm_layers=1, bilstm_width=8)
    model, batch = build_model(TINY, ("classifier",), 3, seed=1, top=top).eval(), batch_of(LENGTHS["padded"])
    assert torch.equal(model.pool(batch), model.encode(batch).pooled)


def close(found, expected, tolerance=1e-6):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=tolerance)
