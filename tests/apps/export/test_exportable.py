"""The forward pass that keeps padding: the packed pass's numbers for every family and head, and a graph of any size."""

import dataclasses

import pytest
import torch
from torch.export import Dim, export

from bertworks.apps.export.exportable import ExportableModel
from bertworks.files import InputError
from bertworks.inference.exported import STATES
from bertworks.model.build import build_model
from bertworks.model.config import TopConfig
from bertworks.model.heads import TOKEN_HEADS
from support.encoder_options import OPTIONS, TINY

LONG = dataclasses.replace(TINY, max_position_embeddings=640, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SHAPES = {
    "bert": {},
    **{name: OPTIONS[name] for name in ("roberta", "albert", "distilbert", "modernbert", "rotary")},
    "modernbert-mean": OPTIONS["modernbert"] | OPTIONS["mean"],
    "factorised": {"embedding_size": 10, "tie_word_embeddings": False},
    "shared": {"shared_layers": "all", "norm": "pre"},
    "left": {"direction": "left", "attention_window": 3},
    "pair": {"direction": "pair"},
}
HEADS = ("mlm", "nsp", "classifier", "tagger", "span", "choice")


def model_of(shape, heads=HEADS, num_hidden_layers=4, **more):
    config = dataclasses.replace(LONG, num_hidden_layers=num_hidden_layers, **SHAPES[shape])
    heads = tuple(name for name in heads if config.direction != "pair" or name not in ("mlm", "nsp"))
    model = build_model(config, heads, labels=3, seed=1, pooler=True, **more)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(len(p) if p.ndim else 0))
    return model.eval()


def batch_of(B, L, lengths):
    generator = torch.Generator().manual_seed(B)
    ids, types = (torch.randint(0, n, (B, L), generator=generator) for n in (50, 2))
    return {"input_ids": ids, "attention_mask": torch.arange(L) < lengths[:, None], "token_type_ids": types}


def assert_equal_to_packed(model, results, batch):
    """On real tokens the results are those of the packed pass."""
    full = model.encoder(**batch)
    out = model.encode(batch)
    real = batch["attention_mask"]
    assert set(results) == {STATES, *model.heads}
    for name, found in results.items():
        if name == STATES:
            wanted = full.last_hidden_state
        elif name == "mlm":
            wanted = model.masked_lm_logits(out.layout.restore(out.packed))
        elif name in TOKEN_HEADS:
            wanted = out.layout.restore(model.heads[name](out))
        else:
            wanted = model.heads[name](out.pooled)
        assert found.shape == wanted.shape, name
        found, wanted = (part[real] if part.ndim == 3 else part for part in (found, wanted))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5, msg=name)


@torch.no_grad()
@pytest.mark.parametrize("shape", SHAPES)
def test_the_packed_numbers(shape):
    model, batch = model_of(shape), batch_of(3, 9, torch.tensor([9, 4, 1]))
    assert_equal_to_packed(model, ExportableModel(model)(**batch), batch)


OTHERS = ("modernbert-mean", "factorised", "shared", "pair")  # than in test_heads_and_engines.py
EXPORTED = ["bert", *(pytest.param(shape, marks=pytest.mark.heavy) for shape in OTHERS)]


@torch.no_grad()
@pytest.mark.parametrize("shape", EXPORTED)
def test_a_recorded_graph_serves_every_size(shape):
    model = model_of(shape, num_hidden_layers=2)
    example = batch_of(3, 9, torch.tensor([9, 4, 1]))
    B, L = Dim("B", max=64), Dim("L", max=model.config.max_length)
    with torch.enable_grad():  # as a caller would export
        graph = export(ExportableModel(model), tuple(example.values()), dynamic_shapes=[{0: B, 1: L}] * 3).module()
    for sizes in (example, batch_of(2, 17, torch.tensor([17, 6])), batch_of(1, 3, torch.tensor([3]))):
        assert_equal_to_packed(model, graph(*sizes.values()), sizes)


@torch.no_grad()
@pytest.mark.parametrize("shape", ["modernbert", "left"])
def test_long_sequences_equal_attention_in_blocks(shape):
    model, batch = model_of(shape), batch_of(2, 600, torch.tensor([600, 77]))
    assert_equal_to_packed(model, ExportableModel(model)(**batch), batch)


@torch.no_grad()
@pytest.mark.parametrize("top", [TopConfig(layers="second-to-last"), TopConfig(layers="concat-last-2", pooler=False)])
def test_a_choice_of_layers_below_the_head(top):
    model, batch = model_of("bert", ("classifier", "tagger"), top=top), batch_of(3, 9, torch.tensor([9, 4, 1]))
    assert_equal_to_packed(model, ExportableModel(model)(**batch), batch)


@torch.no_grad()
def test_only_what_is_asked_for_is_computed(monkeypatch):
    model, batch = model_of("bert"), batch_of(2, 5, torch.tensor([5, 2]))
    monkeypatch.setattr(type(model), "masked_lm_logits", None)  # calling it would raise
    assert list(ExportableModel(model, ["span", "nsp"])(**batch)) == ["span", "nsp"]


def test_what_cannot_be_recorded_is_refused():
    lstm = build_model(dataclasses.replace(LONG, layer_type="lstm"), ("classifier",), labels=2)
    with pytest.raises(InputError, match="recurrent layers"):
        ExportableModel(lstm)
    top = TopConfig(bilstm_layers=1, bilstm_width=8)
    with pytest.raises(InputError, match="recurrent layers"):
        ExportableModel(build_model(TINY, ("classifier",), labels=2, top=top))
