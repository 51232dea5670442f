"""The choice of how a batch is computed: one table, every row of which gives the numbers of the reference."""

import dataclasses
import itertools
import math
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bertworks
from bertworks.model.acceleration import for_inference, load_kernels, training_method, use_kernels
from bertworks.model.attention import Attention, TorchAttention
from bertworks.model.bert import Encoder, Layer
from bertworks.model.build import build_model
from bertworks.model.dropout import DropoutKey
from bertworks.model.fast import backend
from bertworks.model.fast.backend import METHODS, Facts, choose, compile_layers
from bertworks.model.forward import ForwardOptions, ReferenceBackend
from bertworks.model.initialization import initialize
from bertworks.model.layout import Layout
from bertworks.model.recurrent import RecurrentLayer
from support.encoder_options import OPTIONS, TINY

KEY, TESTS = DropoutKey(3, 1), Path(__file__).parents[1]
WITHOUT_FAST = (  # parity, pre-training, fine-tuning, evaluation, exact resume, export, every kind of prediction
    *("parity/test_transformers.py::test_outputs_under_every_padding", "parity/test_transformers.py::test_gradients"),
    "parity/test_transformers.py::test_attention_weights_and_the_path_that_gives_them",
    "pretraining/test_pretrain.py::test_the_reference_has_the_losses_of_the_faster_methods",
    "pretraining/test_pretrain.py::test_batches_of_one_shape_have_the_losses_of_packed_ones",
    "finetuning/test_teacher.py::test_a_stopped_run_goes_on_to_the_same_bytes_and_only_with_its_teacher",
    "apps/export/test_exportable.py",
    "inference/test_steps.py::test_requests_in_one_pass_get_the_answers_of_each_alone",
)


def expected_way(facts: Facts) -> str:
    """What the head of fast/backend.py says, written out."""
    if facts.recurrent:
        return "recurrent"
    if facts.weights:
        return "weights"
    if facts.static:
        return "rectangle"
    if facts.keyed:  # training on a CPU
        return "kernels" if facts.kernels and not facts.compiled else "keyed"
    if facts.flash:
        return "flash"
    return "sequences" if facts.unpadded and not facts.compiled else "torch"


def test_every_combination_of_facts_has_its_way():
    names, chosen = [field.name for field in dataclasses.fields(Facts)], set()
    for values in itertools.product([False, True], repeat=len(names)):
        facts = Facts(**dict(zip(names, values, strict=True)))
        assert choose(facts) == expected_way(facts), facts
        chosen.add(choose(facts))
    assert chosen == {name for name, _ in METHODS}


@pytest.mark.parametrize(
    ("change", "dtype", "keyed", "method"),
    [
        ({}, torch.float32, True, "keyed"),
        ({}, torch.float32, False, "torch"),
        ({"layer_type": "lstm"}, torch.float32, True, "recurrent"),
        ({}, torch.bfloat16, True, "kernels"),
        ({"norm": "pre"}, torch.bfloat16, True, "keyed"),
    ],
)
def test_a_run_names_the_method_of_its_layers(change, dtype, keyed, method):
    shape = dataclasses.replace(TINY, hidden_size=32, num_attention_heads=2, intermediate_size=64, **change)
    model = build_model(shape, ())
    kernels = load_kernels()
    if kernels is not None:
        use_kernels(model, kernels)
    elif method == "kernels":
        method = "keyed"
    assert training_method(model, dtype, keyed) == method


def encoder_of(option, **more):
    change = {"layer_type": option} if option in ("lstm", "gru") else OPTIONS.get(option, {})
    model = build_model(dataclasses.replace(TINY, **change, **more), ())
    initialize(model, 0.3, torch.Generator().manual_seed(1))
    return model.encoder


def inputs():
    """Padding behind the tokens, and in one sequence before and among them."""
    generator = torch.Generator().manual_seed(2)
    ids, lengths = torch.randint(3, 50, (6, 18), generator=generator), torch.tensor([18, 3, 2, 18, 5, 1])
    mask = torch.arange(18) < lengths[:, None]
    mask[3] = torch.arange(18) % 2 == 1
    return ids, mask


def way_of(encoder, layout, **options):
    return encoder.backend.make_plan(encoder, layout, ForwardOptions(**options), torch.device("cpu")).name


def defined(encoder):
    """The same encoder from the modules and definitions of bert.py alone."""
    layer = Layer if encoder.config.layer_type == "attention" else RecurrentLayer
    plain = Encoder(encoder.config, encoder.pooler is not None, layer)
    plain.load_state_dict(encoder.state_dict())
    return plain.train(encoder.training)


METHOD_CASES = ["weights", "rectangle", "keyed rectangle", "keyed", "sequences", "torch", "compiled"]


@pytest.mark.parametrize("option", ["bert", "lstm", *OPTIONS])
@pytest.mark.parametrize("method", METHOD_CASES)
def test_every_method_gives_the_numbers_of_the_definition(option, method, monkeypatch):
    """The outputs of all layers and, where there are gradients, those of all parameters, on packed rows."""
    monkeypatch.setattr("bertworks.model.layout.ROW_MULTIPLE", 4)
    if option == "lstm" and method in ("weights", "rectangle", "sequences"):
        pytest.skip("recurrent layers have one method")
    encoder, (ids, mask) = encoder_of(option).eval(), inputs()
    layout, options, name = Layout.of(mask, *ids.shape), {}, method
    if method == "weights":
        options = {"attentions": True}
    elif method.endswith("rectangle"):
        layout, name = Layout.rectangle(mask, *ids.shape), "rectangle"
    elif method == "compiled":
        monkeypatch.setattr(torch, "compile", lambda layer: layer)
        compile_layers(encoder)
        name = "torch"
    elif method == "sequences":
        monkeypatch.setattr(backend, "CALL_COST", -math.inf)
    if method.startswith("keyed"):
        options = {"dropout": KEY}
        encoder.train()
    with torch.set_grad_enabled(method != "sequences"):
        assert way_of(encoder, layout, **options) == ("recurrent" if option == "lstm" else name)
    results = []
    for one in (encoder, defined(encoder)):
        with torch.set_grad_enabled(method != "sequences"):
            out = one(ids, layout=layout, **options)
        results.append({"pooled": out.pooled, **{str(i): state for i, state in enumerate(out.hidden_states)}})
        if method != "sequences":
            factors = torch.linspace(-1, 1, out.packed.numel()).view_as(out.packed)
            ((out.packed * factors).sum() + (0 if out.pooled is None else out.pooled.sum())).backward()
            results[-1] |= {name: p.grad for name, p in one.named_parameters() if p.grad is not None}
    found, expected = results
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        slack = 1e-3 if name.endswith("key.bias") else 1e-5  # the gradients of these are rounding alone
        assert tensor is None or (found[name] - tensor).norm() <= 1e-4 * tensor.norm() + slack, name


def test_a_head_mask_has_a_row_for_each_layer():
    encoder, (ids, mask) = encoder_of("bert"), inputs()
    with pytest.raises(ValueError, match=r"head_mask of shape \(1, 3\); expected \(4, 3\)"):
        encoder(ids, mask, head_mask=torch.ones(1, 3))


def test_pooled_tokens_must_be_computed():
    encoder, (ids, mask) = encoder_of("bert"), inputs()
    with pytest.raises(ValueError, match="output_positions lacks tokens that the pooler reads"):
        encoder(ids, mask, hidden_states=False, output_positions=torch.tensor([1, 2]))


def test_an_encoder_with_a_compiled_layer_is_pickled_without_it():
    encoder = encoder_of("bert")
    compile_layers(encoder)
    assert pickle.loads(pickle.dumps(encoder)).backend.compiled is None


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_recurrent_layers_stay_in_float32(cell):
    encoder, (ids, mask) = encoder_of(cell), inputs()
    found = for_inference(encoder, "bfloat16")(ids, mask).packed
    torch.testing.assert_close(found.float(), encoder.eval()(ids, mask).packed, rtol=0.05, atol=0.1)


@pytest.mark.heavy
def test_everything_works_without_the_folder_of_faster_ways(tmp_path):
    shutil.copytree(Path(bertworks.__file__).parent, tmp_path / "bertworks", ignore=lambda folder, names: {"fast"})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(TESTS)])}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *WITHOUT_FAST]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_requested_reference_is_the_definition_in_evaluation_too():
    encoder, layout = build_model(TINY, (), seed=1).eval().encoder, Layout.of(None, 2, 4)
    for requested, kind in ((False, TorchAttention), (True, Attention)):
        plan = ReferenceBackend(requested).make_plan(encoder, layout, ForwardOptions(), torch.device("cpu"))
        assert {type(attention) for attention in plan.layer_attentions} == {kind}
