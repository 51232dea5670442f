"""Frozen layers and early stopping: what they change, how they resume, where they are refused."""

import dataclasses

import psutil
import pytest
import torch
from safetensors.torch import load_file

from bertworks.files import InputError
from bertworks.finetuning.job import ExampleFeed
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune, start_model
from bertworks.reporting.log import read_log
from bertworks.training.config import LoopConfig, OptimConfig
from support.loops import killed_at
from support.tiny_task import TINY, VOCAB, tiny_place, tiny_rows

CONFIG = FinetuneConfig(
    optim=OptimConfig(lr=3e-3, warmup=0.1),
    loop=LoopConfig(eval_every=2, save_every=3, log_every=2, seed=1, steps=6, precision="float32"),
    batch_size=8,
    max_seq_length=16,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tiny_place(tmp_path_factory.mktemp("fields"), 48, 20)


@pytest.fixture(scope="module")
def table(place):
    return tiny_rows(place)


CHANGES = {
    "frozen": {"trained": 1},
    "patience": {"patience": 1, "loop": dataclasses.replace(CONFIG.loop, keep_best="loss", steps=20)},
}


@pytest.mark.parametrize("name", [*CHANGES])
def test_each_field_changes_the_run_and_resumes_to_the_same_bytes(place, table, tmp_path, name):
    config = dataclasses.replace(CONFIG, **CHANGES[name])
    if name == "patience":  # a rate at which the loss on dev soon rises
        loop = dataclasses.replace(config.loop, log_every=50)
        config = dataclasses.replace(config, optim=OptimConfig(lr=0.3, warmup=0.0), loop=loop)
    runs = {}
    for folder, at in (("whole", None), ("stopped", 5)):
        if at:
            with killed_at(at, ExampleFeed):
                finetune(config, *table, place / "model", tmp_path / folder, quiet=True)
        runs[folder] = finetune(config, *table, place / "model", tmp_path / folder, quiet=True)
    tensors = [load_file(tmp_path / folder / "model/model.safetensors") for folder in runs]
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    assert runs["whole"]["metrics"] == runs["stopped"]["metrics"]
    if name == "patience":
        assert runs["whole"]["steps"] < 20 and runs["whole"]["stopped_early"]
        assert runs["stopped"]["steps"] == runs["whole"]["steps"]
        evaluated = [record for record in read_log(tmp_path / "whole") if record["kind"] == "eval"]
        assert min(r["loss"] for r in evaluated) == runs["whole"]["metrics"]["loss"] < evaluated[-1]["loss"]
    else:
        first = load_file(place / "model/model.safetensors")
        fixed = {key for key in first if key in tensors[0] and torch.equal(first[key], tensors[0][key])}
        assert fixed == {key for key in first if ".embeddings." in key or ".layer.0." in key}


def test_a_run_that_reached_its_end_was_not_stopped_early(place, table, tmp_path, capsys):
    """The final evaluation, which brings no new best, ends nothing."""
    loop = dataclasses.replace(CONFIG.loop, keep_best="accuracy", steps=4)
    config = dataclasses.replace(CONFIG, patience=1, loop=loop, optim=OptimConfig(lr=1e-9))
    results = finetune(config, *table, place / "model", tmp_path / "run")
    assert results["steps"] == 4 and not results["stopped_early"] and "stopped early" not in capsys.readouterr().err
    loop = dataclasses.replace(loop, steps=5)
    results = finetune(dataclasses.replace(config, loop=loop), *table, place / "model", tmp_path / "early", quiet=True)
    assert results["steps"] == 4 and results["stopped_early"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patience": 2}, "patience = 2 without loop.keep_best"),
        ({"trained": 3}, "trained = 3, but the model has 2 layers"),
        ({"max_seq_length": 33}, "max_seq_length = 33, but the model has 32 positions"),
        ({"loop": LoopConfig(keep_best="x", steps=1)}, "keep_best = 'x'; expected one of accuracy"),
    ],
)
def test_settings_that_mean_nothing_are_refused(place, table, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        finetune(dataclasses.replace(CONFIG, **change), *table, place / "model", tmp_path / "run", quiet=True)


@pytest.mark.parametrize("change", [{}, {"trained": "head"}])
def test_a_batch_that_no_memory_holds_is_refused(place, table, tmp_path, monkeypatch, change):
    """By the tokens of the rows, not by max_seq_length; a micro-batch makes it fit."""
    config = dataclasses.replace(CONFIG, batch_size=1 << 20, **change)
    there = psutil.virtual_memory()._replace(total=10_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: there)
    with pytest.raises(InputError, match=r"^[\d,]+ tokens in each forward pass: .* a smaller batch_size"):
        finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    finetune(dataclasses.replace(CONFIG, **change), *table, place / "model", tmp_path / "other", quiet=True)


@pytest.mark.parametrize(("trained", "frozen"), [("all", 0), (2, 0), (1, 1), ("head", 2)])
def test_what_is_frozen(place, trained, frozen):
    """Layers from below; with any of them, or a number, the embeddings; dropout only stops in a frozen encoder."""
    model, _ = start_model(FinetuneConfig(trained=trained), place / "model", "classifier", ("bad", "good"))
    fixed = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    lowest = tuple(f"encoder.layers.{i}." for i in range(frozen)) + ("encoder.embeddings.",) * (trained != "all")
    if trained == "head":
        lowest += ("encoder.",)
    expected = {name for name, _ in model.named_parameters() if lowest and name.startswith(lowest)}
    assert fixed == {name for name in expected if "pooler" not in name}
    assert model.train().encoder.training == (trained != "head")


@pytest.mark.parametrize("rule", ["bert_adam", "albert_lamb"])
def test_rows_of_tokens_without_a_text_only_decay(place, table, tmp_path, rule):
    """They are no part of the training, unless LAMB needs the norm of the whole table."""
    config = dataclasses.replace(CONFIG, optim=dataclasses.replace(CONFIG.optim, rule=rule))
    with killed_at(5, ExampleFeed):
        finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    state = load_file(tmp_path / "run/state/state.safetensors")
    shortened = len(state["model.encoder.embeddings.word.weight"]) < TINY.vocab_size
    assert shortened == (rule == "bert_adam")
    finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    name = "bert.embeddings.word_embeddings.weight"
    first, last = (
        load_file(folder / "model.safetensors")[name] for folder in (place / "model", tmp_path / "run/model")
    )
    shrunk = (last / first)[VOCAB.index("##z")]
    assert shrunk.max() < 1
    if rule == "bert_adam":
        torch.testing.assert_close(shrunk, shrunk[:1].expand(len(shrunk)), rtol=1e-5, atol=0)
    moved = (last - first * shrunk[0])[VOCAB.index("good")]
    assert moved.abs().max() > 1e-4
