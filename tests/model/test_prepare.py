"""A network for inference: the same numbers from the same weights, through another class of linear modules."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from bertworks.model.acceleration import for_inference, reference
from bertworks.model.bert import Encoder, SelfAttention
from bertworks.model.build import build_model
from bertworks.model.fast.onednn import OneDnnLinear
from bertworks.model.initialization import initialize
from support.encoder_options import TINY

SHAPE = replace(TINY, num_hidden_layers=2)


@torch.no_grad()
def test_same_numbers_from_the_same_weights():
    torch.manual_seed(1)
    encoder = Encoder(SHAPE)
    fast = for_inference(encoder)
    assert not encoder.training and not fast.training
    ids, mask = torch.randint(50, (3, 9)), torch.arange(9) < torch.tensor([[9], [4], [1]])
    for _ in range(2):
        torch.testing.assert_close(fast(ids, mask).pooled, encoder(ids, mask).pooled, rtol=0, atol=1e-6)
        encoder.layers[0].attention.query.weight.mul_(2)  # shared: the twin sees it


def plain(network):
    """The names of linear modules that are torch's own."""
    return {name for name, module in network.named_modules() if type(module) is nn.Linear}


HEADS = {  # heads and changes of SHAPE: what reads no tokens, a row a sequence or a masked token
    "pre-training": (("mlm", "nsp"), {}, {"heads.mlm.dense"}),
    "narrow embeddings": (("tagger",), {"embedding_size": 16}, set()),
    "a pair": (("classifier",), {"direction": "pair"}, {"encoder.pooler"}),
    "ModernBERT": (("tagger",), {"family": "modernbert"}, set()),
}


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
@pytest.mark.parametrize(("heads", "changes", "expected"), HEADS.values(), ids=HEADS)
def test_modules_that_read_tokens_use_onednn(heads, changes, expected):
    model = build_model(replace(SHAPE, **changes), heads, labels=3, seed=1)
    assert plain(for_inference(model)) == expected


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_what_is_changed():
    encoder = Encoder(SHAPE)
    fast = for_inference(encoder)
    assert for_inference(fast) is fast  # prepared once
    assert plain(fast) == set()
    assert OneDnnLinear not in {type(module) for module in encoder.modules()}
    assert for_inference(encoder.to(torch.bfloat16)) is encoder
    shallow = Encoder(SHAPE, pooler=False)
    assert for_inference(shallow).pooler is None


def test_a_requested_reference_comes_first_then_the_precision_then_what_was_prepared():
    model = reference(build_model(SHAPE, ("mlm",), seed=1))
    assert for_inference(model, "bfloat16") is model and not model.training and model.decoder.dtype is torch.float32
    fast = for_inference(build_model(SHAPE, ("mlm",), seed=1))
    assert {p.dtype for p in for_inference(fast, "bfloat16").parameters()} == {torch.bfloat16}
    assert {p.dtype for p in fast.parameters()} == {torch.float32}


class Adapted(nn.Linear):
    """A linear layer that computes something else, as adapters do."""

    def forward(self, x):
        return 1.5 * super().forward(x)


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 1.5 * self.inner(x)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    "place", ["attention.query", "attention.value", "attention.output", "feed_forward.intermediate"]
)
@pytest.mark.parametrize("how", ["subclass", "wrapper", "hook", "pruned"])
@torch.no_grad()
def test_adapters_and_hooks_stay(how, place, frozen):
    encoder = build_model(SHAPE, ()).encoder.eval()
    initialize(encoder, 0.3, torch.Generator().manual_seed(1))
    parent, name = encoder.layers[1].get_submodule(place.partition(".")[0]), place.partition(".")[2]
    linear, ids = getattr(parent, name), torch.randint(50, (3, 9))
    before = encoder(ids).packed
    if how == "subclass":
        adapted = Adapted(linear.in_features, linear.out_features)
        adapted.load_state_dict(linear.state_dict())
        setattr(parent, name, adapted)
    elif how == "wrapper":
        setattr(parent, name, Wrapped(linear))
    elif how == "hook":
        linear.register_forward_hook(lambda module, given, out: 2 * out + 1)
    else:
        prune.l1_unstructured(linear, "weight", 0.5)
    expected = encoder(ids).packed
    assert (expected - before).abs().max() > 1e-4
    torch.testing.assert_close(for_inference(encoder, frozen=frozen)(ids).packed, expected, rtol=0, atol=1e-5)


def test_a_twin_has_the_names_of_the_weights_and_a_backend_of_its_own():
    encoder = build_model(SHAPE, (), seed=1).encoder
    fast = for_inference(encoder)
    assert fast.state_dict().keys() == encoder.state_dict().keys()
    fast.backend.compiled = "compiled"
    assert encoder.backend.compiled is None


LASTING = {
    "BERT": {},
    "rotary": {"position_embedding_type": "rotary"},
    "gated, no biases": {"feed_forward": "geglu", "bias": False, "norm": "pre"},
    "shared layers": {"shared_layers": "all"},
    "left to right": {"direction": "left"},
}


@torch.no_grad()
@pytest.mark.parametrize("changes", LASTING.values(), ids=LASTING)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_that_last_give_the_same_numbers(changes, precision):
    torch.manual_seed(1)
    encoder = Encoder(replace(SHAPE, **changes))
    encoder = encoder.to(torch.bfloat16).float()  # both precisions have these weights
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    fast = for_inference(encoder, precision, frozen=True)
    ids, mask = torch.randint(50, (3, 9)), torch.arange(9) < torch.tensor([[9], [4], [1]])
    found, expected = fast(ids, mask), encoder(ids, mask)
    tolerance = 2e-6 if precision == "float32" else 0.1
    torch.testing.assert_close(found.packed.float(), expected.packed, rtol=0, atol=tolerance)
    after = encoder.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_weights_that_last_are_packed_once():
    encoder = Encoder(SHAPE)
    fast = for_inference(encoder, frozen=True)
    for layer in fast.layers:
        assert isinstance(layer.attention.projections, OneDnnLinear) and not hasattr(layer.attention, "query")
        assert all(part.packed is not None for part in layer.modules() if isinstance(part, OneDnnLinear))
    assert all(type(layer.attention) is SelfAttention for layer in encoder.layers)
