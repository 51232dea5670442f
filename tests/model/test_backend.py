"""The choice of how a batch is computed: one table, every row of which gives the numbers of the reference."""

import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bertworks
from bertworks.model.acceleration import load_kernels, training_way, use_kernels
from bertworks.model.computation import ForwardOptions, Reference
from bertworks.model.dropout import DropoutKey
from bertworks.model.fast import backend
from bertworks.model.fast.backend import WAYS, Facts, choose, compile_layers
from bertworks.model.heads import build_model
from bertworks.model.initialization import initialise
from bertworks.model.layout import Layout
from support.encoder_options import OPTIONS, TINY

KEY, TESTS = DropoutKey(3, 1), Path(__file__).parents[1]
NEEDS = {  # what must hold for a way, beside its place in the table
    "recurrent": {"recurrent"},
    "weights": {"weights"},
    "rectangle": {"static"},
    "kernels": {"keyed", "kernels"},
    "flash": {"flash"},
    "keyed": {"keyed"},
    "sequences": {"unpadded"},
    "torch": set(),
}


def test_every_combination_of_facts_has_a_way():
    names, chosen = [field.name for field in dataclasses.fields(Facts)], {}
    for values in itertools.product([False, True], repeat=len(names)):
        facts = {name for name, value in zip(names, values, strict=True) if value}
        way = choose(Facts(**dict(zip(names, values, strict=True))))
        chosen.setdefault(way, []).append(facts)
        assert NEEDS[way] <= facts
        assert way in ("recurrent", "weights") or "weights" not in facts  # nothing else returns weights
        assert not ("static" in facts and way in ("kernels", "flash", "keyed", "sequences", "torch"))
        assert not ("keyed" in facts and way in ("flash", "sequences", "torch"))  # their dropout has no key
        assert not ("compiled" in facts and way in ("kernels", "sequences"))
    assert list(chosen) and {name for name, _ in WAYS} == {*chosen} == {*NEEDS}


@pytest.mark.parametrize(
    ("change", "dtype", "keyed", "way"),
    [
        ({}, torch.float32, True, "keyed"),
        ({}, torch.float32, False, "torch"),
        ({"layer_type": "lstm"}, torch.float32, True, "recurrent"),
        ({}, torch.bfloat16, True, "kernels"),
        ({"norm": "pre"}, torch.bfloat16, True, "keyed"),
    ],
)
def test_a_run_names_the_way_of_its_layers(change, dtype, keyed, way):
    shape = dataclasses.replace(TINY, hidden_size=32, num_attention_heads=2, intermediate_size=64, **change)
    model = build_model(shape, ())
    kernels = load_kernels()
    if kernels is not None:
        use_kernels(model, kernels)
    elif way == "kernels":
        way = "keyed"
    assert training_way(model, dtype, keyed) == way


def encoder_of(option, **more):
    model = build_model(dataclasses.replace(TINY, **OPTIONS.get(option, {}), **more), ())
    initialise(model, 0.3, torch.Generator().manual_seed(1))
    return model.encoder


def inputs():
    generator = torch.Generator().manual_seed(2)
    ids, lengths = torch.randint(3, 50, (6, 18), generator=generator), torch.tensor([18, 3, 2, 18, 5, 1])
    return ids, torch.arange(18) < lengths[:, None]


def way_of(encoder, layout, **options):
    return encoder.backend.select(encoder, layout, ForwardOptions(**options), torch.device("cpu")).name


@pytest.mark.parametrize("option", ["bert", *OPTIONS])
@pytest.mark.parametrize("way", ["weights", "rectangle", "keyed", "sequences", "torch", "compiled"])
def test_every_way_gives_the_numbers_of_the_reference(option, way, monkeypatch):
    """The outputs of all layers and, where there are gradients, those of all parameters."""
    encoder, (ids, mask) = encoder_of(option), inputs()
    layout, options = Layout.of(mask, *ids.shape), {}
    if way == "weights":
        options = {"attentions": True}
    elif way == "rectangle":
        layout = Layout.rectangle(mask, *ids.shape)
    elif way == "keyed":
        options = {"dropout": KEY}
    elif way == "compiled":
        monkeypatch.setattr(torch, "compile", lambda layer: layer)
        compile_layers(encoder)
    elif way == "sequences":
        monkeypatch.setattr(backend, "unpadded_is_cheaper", lambda lengths, L: True)
    encoder.train(way == "keyed")
    results = []
    for chosen in (encoder.backend, Reference()):
        encoder.backend = chosen
        encoder.zero_grad()
        with torch.set_grad_enabled(way != "sequences"):
            if isinstance(chosen, Reference):
                assert way_of(encoder, layout, **options) == "reference"
            else:
                assert way_of(encoder, layout, **options) == ("torch" if way == "compiled" else way)
            out = encoder(ids, layout=layout, **options)
        if way != "sequences":
            out.packed.square().sum().backward()
        results.append([*out.hidden_states, *(p.grad for p in encoder.parameters() if p.grad is not None)])
    for found, expected in zip(*results, strict=True):
        assert (found - expected).norm() <= 1e-4 * expected.norm() + 1e-3  # biases of keys: all rounding


@pytest.mark.heavy
def test_everything_works_without_the_folder_of_faster_ways(tmp_path):
    """Pre-training, fine-tuning, evaluation, an export, and parity with transformers."""
    shutil.copytree(Path(bertworks.__file__).parent, tmp_path / "bertworks", ignore=lambda folder, names: {"fast"})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(TESTS)])}
    tests = ["parity/test_transformers.py", "pretraining/test_pretrain.py", "finetuning/test_teacher.py"]
    tests += ["model/test_rectangular.py", "inference/test_steps.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
