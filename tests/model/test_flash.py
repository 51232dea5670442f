"""Attention on packed rows, as a GPU computes it in half precision: here the flash kernel is replaced by a slow one.

tests/test_gpu.py compares the kernel itself with the rectangle, on a GPU.
"""

import dataclasses

import pytest
import torch
import torch._dynamo
from torch._dynamo.backends.debugging import aot_eager

from bertworks.model.acceleration import compile_layers
from bertworks.model.attention import TorchAttention
from bertworks.model.bert import Encoder
from bertworks.model.build import build_model
from bertworks.model.comparators import ConcatenatedEncoders
from bertworks.model.config import ModelConfig
from bertworks.model.dropout import DropoutKey, SiteDropout
from bertworks.model.fast import attention as attention_module
from bertworks.model.fast import backend, products
from bertworks.model.fast.attention import SequenceAttention, is_flash_possible, with_indices, without_padding
from bertworks.model.fast.backend import accelerated
from bertworks.model.layout import Layout
from bertworks.training.task_objectives import DistillationObjective
from support.batches import batch_of

KINDS = {
    "bert": {},
    "rotary": {"position_embedding_type": "rotary"},
    "left": {"direction": "left"},
    "local": {"attention_window": 4, "global_every": 2},
}
LENGTHS = {
    "padding left out": [64, 20, 30, 9],
    "padding in every row": [5, 3, 4],  # all of it is needed to fill up the last step
    "none": [40, 40, 40],
    "many": [100] * 12 + [1, 50, 99],
    "more filling than a sequence has tokens": [16] * 60 + [5] * 14,
}


def shape(**settings) -> ModelConfig:
    return ModelConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=200, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **settings,
    )  # fmt: skip


def inputs(lengths):
    L = max(lengths)
    ids = torch.randint(0, 50, (len(lengths), L), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(L) < torch.tensor(lengths)[:, None]


@pytest.fixture
def flash(monkeypatch):
    """A switch of attention on packed rows; the calls of the kernel are counted."""
    calls = []

    def slow(q, k, v, bounds, longest, rate, causal):
        lengths = bounds.diff().tolist()
        assert bounds.dtype is torch.int32 and bounds[0] == 0 and bounds[-1] == q.shape[2] and not rate
        assert min(lengths) >= 0 and max(lengths) <= longest
        calls.append(lengths)
        sequences = SequenceAttention(None, q.shape[1], None, None, causal=causal, lengths=tuple(lengths))
        return sequences.context(q, k, v, None, SiteDropout())

    monkeypatch.setattr(attention_module, "flash_attention", slow)

    def switch(on):
        calls.clear()
        monkeypatch.setattr(backend, "is_flash_possible", lambda x, H: on)
        return calls

    return switch


@pytest.mark.parametrize("some", [False, True], ids=["all cells", "some cells"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_give_what_the_rectangle_gives(flash, kind, lengths, some):
    """Outputs and gradients, those of the last layer for some cells too."""
    encoder, (ids, mask) = accelerated(Encoder(shape(**KINDS[kind]))).train(), inputs(lengths)
    read = mask & (torch.arange(mask.shape[1]) % 3 == 0)
    read |= mask & ~mask.roll(-1, 1)  # the last token, which an encoder that reads from the left pools
    read[:, -1] |= mask[:, -1]
    cells = read.flatten().nonzero().squeeze(1) if some else None
    sides = []
    for on in (True, False):
        calls = flash(on)
        encoder.zero_grad()
        out = encoder(ids, mask, hidden_states=False, output_positions=cells)
        states = out.packed[out.layout.rows(mask.flatten().nonzero().squeeze(1) if cells is None else cells)]
        grad = torch.randn(states.shape, generator=torch.Generator().manual_seed(2))
        ((states * grad).sum() + out.pooled.sum()).backward()
        sides.append([states, out.pooled, *(p.grad for p in encoder.parameters() if p.grad is not None)])
        assert len(calls) == (0 if not on else 2 if kind == "local" else 3)
    torch.testing.assert_close(*sides, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [LENGTHS["padding in every row"], LENGTHS["padding left out"]])
def test_both_sides_of_a_pair_have_one_order_of_rows(flash, lengths):
    """The right side does not use the kernel."""
    pair, (ids, mask) = accelerated(ConcatenatedEncoders(shape(direction="pair"))).eval(), inputs(lengths)
    sides = []
    for on in (True, False):
        flash(on)
        out = pair(ids, mask)
        sides.append((out.last_hidden_state, out.pooled))
    torch.testing.assert_close(*sides, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths", [[3, 5], [64] * 16, [16] * 60 + [5] * 14])
def test_rows_of_padding_are_sequences_of_their_own(lengths):
    """Their number does not depend on the padding, and none is longer than the longest sequence may be."""
    _, mask = inputs(lengths)
    layout = with_indices(Layout.of(mask, *mask.shape), torch.device("cpu"), in_sequence=True)
    attention = without_padding(TorchAttention(layout, 1, None, None), causal=False, flash=True)
    bounds, B = attention.cu_seqlens.tolist(), len(lengths)
    assert bounds[: B + 1] == [0, *torch.tensor(lengths).cumsum(0).tolist()]
    assert len(bounds) == 2 * B + 1 and bounds[-1] == len(layout.index)
    assert max(attention.cu_seqlens.diff()) <= layout.L
    real = mask.flatten()[layout.index]
    assert real[: sum(lengths)].all() and not real[sum(lengths) :].any()
    assert layout.rows(layout.index).tolist() == list(range(len(layout.index)))


def test_a_rectangle_whose_padding_is_longer_than_a_sequence(flash):
    """As in passes of one shape (training/graph.py)."""
    encoder, (ids, mask), sides = accelerated(Encoder(shape())).train(), inputs([40, 3, 5, 2]), []
    for on in (True, False):
        calls = flash(on)
        sides.append(encoder(ids, layout=Layout(*mask.shape, mask, None, None)).last_hidden_state)
        assert all(len(lengths) == 8 for lengths in calls) and len(calls) == 3 * on
    torch.testing.assert_close(*sides, rtol=1e-4, atol=1e-5)


def test_what_asks_for_weights_or_keyed_masks_keeps_the_rectangle(flash):
    encoder, (ids, mask) = accelerated(Encoder(shape())).train(), inputs([9, 4])
    calls = flash(True)
    encoder(ids, mask, attentions=True)
    encoder(ids, mask, head_mask=torch.ones(3, 4))
    encoder(ids, mask, dropout=DropoutKey(1, 1, 0))
    encoder(ids, layout=Layout.rectangle(mask, *mask.shape))
    assert not calls
    right, calls = accelerated(Encoder(shape(direction="right"))), flash(True)
    right(ids, mask)
    assert not calls


def test_the_kernel_is_for_half_precision_on_a_gpu():
    assert not is_flash_possible(torch.zeros(0), 64)
    assert not is_flash_possible(torch.zeros(0, dtype=torch.bfloat16), 64)


@pytest.mark.heavy
def test_the_kernel_stays_within_the_budget_of_graphs(monkeypatch):
    """The real operator on tensors without values: one graph has the whole layer, and both phases need six."""
    made = []

    def traced(graph, given):
        made.append(graph)
        return aot_eager(graph, given)

    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda layer: compile(layer, backend=traced, fullgraph=True))
    monkeypatch.setattr(backend, "is_flash_possible", lambda x, H: True)
    for module in (backend, products):
        monkeypatch.setattr(module, "in_autocast_dtype", lambda x: x)  # autocast does not know the device
    torch._dynamo.reset()
    encoder = accelerated(Encoder(shape())).to("meta", torch.bfloat16).train()
    compile_layers(encoder)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for L in (32, 160):
            for part in (4, 5, 7):
                ids, mask = inputs([L - L * (row % 4) // part for row in range(40)])
                layout = Layout.of(mask, *mask.shape)
                tensors = {name: getattr(layout, name).to("meta") for name in ("mask", "index", "inverse")}
                cells = mask.flatten().nonzero().squeeze(1)[:128].to("meta")
                out = encoder(
                    ids.to("meta"), mask.to("meta"), layout=dataclasses.replace(layout, **tensors),
                    hidden_states=False, output_positions=cells,
                )  # fmt: skip
                out.packed.float().sum().backward()
    torch._dynamo.reset()
    assert 0 < len(made) <= 6
    assert all("_flash_attention_forward" in graph.code for graph in made)


def test_a_teacher_without_the_kernel_is_read_in_its_own_order_of_rows(flash):
    config = dataclasses.replace(shape(), vocab_size=100)
    teacher = build_model(dataclasses.replace(config, direction="right"), ("mlm",), seed=1).eval()
    student = build_model(config, ("mlm",), seed=2).eval()
    objective, batch = DistillationObjective(teacher, every_token=True), batch_of([16, 12, 14], 16)
    sides = []
    for on in (True, False):
        flash(on)
        sides.append({name: term.loss for name, term in objective(student, batch).items()})
    torch.testing.assert_close(*sides, rtol=1e-4, atol=1e-4)
