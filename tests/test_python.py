"""The functions of `bertworks`: one path with the command line, results that print, and a process left as it was."""

import contextlib
import csv
import io
import json
import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import datasets
import numpy as np
import pandas
import pytest
import torch
from safetensors.numpy import load_file

import bertworks
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.finetuning.recipe import FinetuneConfig
from support.tiny_task import tiny_place

FIELDS = {"optim": {"lr": 1e-3}, "epochs": 2, "max_seq_length": 24, "quiet": True}
FLAGS = "--optim.lr 1e-3 --epochs 2 --max-seq-length 24"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tiny_place(tmp_path_factory.mktemp("python"), 40, 16, seed=1)


@pytest.fixture(scope="module")
def frames(place):
    return [pandas.read_csv(place / f"{name}.csv") for name in ("train", "dev")]


@pytest.fixture(scope="module")
def run(place, frames):
    return bertworks.finetune(place / "model", place / "run", train=frames[0], dev=frames[1], **FIELDS)


def test_a_frame_and_the_command_line_give_the_same_run(place, run):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        main(
            f"finetune {place}/model --train {place}/train.csv --dev {place}/dev.csv --out {place}/line {FLAGS}".split()
        )
    line = json.loads((place / "line" / "results.json").read_text("utf-8"))
    assert line["metrics"] == run.metrics and line["recipe"] == run.details["recipe"]
    assert (place / "line" / "recipe.toml").read_text() == (run.folder / "recipe.toml").read_text()
    assert f"{run.metrics['accuracy']:.4f}" in shown.getvalue()


def test_a_function_called_again_returns_the_finished_run(place, frames, run):
    train, dev = (frame.to_dict("records") for frame in frames)
    again = bertworks.finetune(place / "model", place / "run", train=train, dev=dev, **FIELDS)
    assert again.details == run.details and again.finished
    with pytest.raises(InputError, match=r"finished run with other settings.*epochs = 2.0 \(now 3.0\).* folder$"):
        bertworks.finetune(place / "model", place / "run", train=train, dev=dev, **{**FIELDS, "epochs": 3})


def test_on_record_gets_the_records_of_the_log_and_can_stop_the_run(place, frames, tmp_path):
    seen = []

    def stop(record):
        seen.append(record)
        return record["kind"] == "train"

    train, dev = frames
    given = {"train": train, "dev": dev, **FIELDS, "epochs": 8, "loop": {"log_every": 1}}
    stopped = bertworks.finetune(place / "model", tmp_path / "run", on_record=stop, **given)
    assert not stopped.finished and stopped.metrics == {} and "call again to resume" in repr(stopped)
    assert seen == stopped.log() and {record["step"] for record in seen} == {1}  # of 10; its evaluation is made
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"state", "recipe.toml", "log.jsonl"} <= left and not {"model", "results.json"} & left  # as after SIGTERM
    assert stopped.findings == ()
    done = bertworks.finetune(place / "model", tmp_path / "run", on_record=seen.append, **given)
    assert done.finished and seen[-1] == done.log()[-1] and done.log() == bertworks.read_log(tmp_path / "run")


def test_runs_bring_what_is_wrong_with_their_examples(place, frames, run, tmp_path, capsys):
    """As on the command line; every development example is also in train."""
    assert run.findings and all(line.startswith(("warning: ", "error: ")) for line in run.findings)
    train, dev = frames
    leaked = pandas.concat([train, dev])
    given = {"train": leaked, "dev": dev, **FIELDS, "epochs": 1}
    found = bertworks.finetune(place / "model", tmp_path / "a", **given | {"quiet": False})
    printed = capsys.readouterr().err.splitlines()
    assert [line for line in printed if line in found.findings] == [*found.findings]
    assert any(line.startswith("error: ") and "16 of 16" in line for line in found.findings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 1e-3}, "^arguments: unknown key lr; did you mean optim.lr"),
        ({"train": None}, "^no train; give task and data .*, or train and dev, or train with dev_share"),
        ({"loop": {"steps": 2}, "epochs": 1}, "^epochs would have no effect: "),
        ({"task": "rte", "train": None, "dev": None, "sheet": "a"}, "^task cannot be combined with sheet"),
        ({"text": "sentence"}, r"^train\b.*: no column 'sentence'; found 'label', 'text'"),
        ({"model": 7}, r"^model: a int \(7\); expected a model folder, a run folder, a model name"),
    ],
)
def test_errors_name_arguments(place, frames, tmp_path, given, message):
    arguments = {"model": place / "model", "train": frames[0], "dev": frames[1], "quiet": True, **given}
    with pytest.raises(InputError, match=message):
        bertworks.finetune(**{"out": tmp_path / "run", **arguments})
    assert not (tmp_path / "run" / "model").exists()


def test_recipes_and_fields_of_every_form(place, frames, tmp_path):
    given = {"train": frames[0], "dev": frames[1], "quiet": True, "max_seq_length": 24}
    config = FinetuneConfig(epochs=np.float64(1.0), batch_size=16)
    few = bertworks.finetune(place / "model", tmp_path / "a", recipe=config, **given, **{"optim.lr": np.float64(1e-3)})
    assert few.details["steps"] == 2
    (tmp_path / "r.toml").write_text("epochs = 1.0\n[optim]\nlr = 0.001\n")
    more = bertworks.finetune(
        place / "model", tmp_path / "b", recipe=tmp_path / "r.toml", **given, seeds=(12345, 12346)
    )
    assert more.details["seeds"] == [12345, 12346] and set(more.std) == set(more.metrics)


def test_every_form_of_a_model_is_the_same_model(place, frames, run):
    texts = [*frames[1].text]
    predictor, network = bertworks.Predictor(run), bertworks.load_model(run)
    forms = [run, run.folder, str(run.folder / "model"), predictor, predictor.loaded, network]
    expected = bertworks.predict(run, texts)
    vectors = bertworks.features(run, texts, pool="mean")
    for model in forms:
        assert bertworks.predict(model, texts) == expected
        assert bertworks.evaluate(model, frames[1]).metrics == pytest.approx(run.metrics, abs=1e-6)
        assert np.array_equal(bertworks.features(model, texts, pool="mean"), vectors)
    assert np.array_equal(bertworks.features(bertworks.load_encoder(run), texts, pool="mean"), vectors)


def test_weights_in_memory_are_those_that_a_run_starts_from(place, frames, tmp_path):
    given = {"train": frames[0], "dev": frames[1], **FIELDS}
    model = bertworks.load_model(place / "model")
    same = bertworks.finetune(model, tmp_path / "same", **given)
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.output.weight.zero_()
    other = bertworks.finetune(model, tmp_path / "other", **given)
    assert same.metrics["loss"] != other.metrics["loss"]
    assert other.details["model"] == str(tmp_path / "other" / "start")
    with pytest.raises(
        InputError, match=r"same: this run began with other weights, which are in .*start; give another output folder"
    ):
        bertworks.finetune(model, tmp_path / "same", **given)
    model.folder = None
    with pytest.raises(InputError, match="a Model was not loaded from a folder, so its tokenizer is unknown"):
        bertworks.finetune(model, tmp_path / "new", **given)


def test_data_of_every_form_is_predicted_in_order(place, frames, run, tmp_path):
    dev = frames[1]
    expected = bertworks.predict(run, [*dev.text])
    (tmp_path / "a.txt").write_text("\n".join(dev.text) + "\n", "utf-8")
    streamed = datasets.Dataset.from_pandas(dev).to_iterable_dataset()
    for data in (dev, dev.text, dev.to_dict("records"), iter(dev.text), [(text,) for text in dev.text], streamed):
        assert bertworks.predict(run, data) == expected
    lines = bertworks.predict(run, tmp_path / "a.txt", out=tmp_path / "p.jsonl")
    assert [row.pop("line") for row in lines] == [*range(1, 17)] and lines == expected
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        main(f"predict {run.folder} {tmp_path}/a.txt".split())
    assert shown.getvalue() == (tmp_path / "p.jsonl").read_text("utf-8")
    assert bertworks.predict(run, ["", "good"])[0] == {"empty": True}
    with pytest.raises(InputError, match=r"^data = 'a text': no such file"):
        bertworks.predict(run, "a text")


def test_features_of_a_frame(place, frames, tmp_path):
    dev = frames[1]
    tokens = bertworks.features(place / "model", dev)
    assert len(tokens) == 16 and tokens[0].vectors.shape == (len(tokens[0].ids), 32)
    assert bertworks.features(place / "model", dev, pool="mean", out=tmp_path / "v.safetensors").texts == 16
    saved = load_file(tmp_path / "v.safetensors")["vectors"]
    assert np.array_equal(saved, bertworks.features(place / "model", dev, pool="mean"))
    assert bertworks.features(place / "model", [], pool="mean").shape == (0, 32)


def test_runs_are_compared_and_results_print(place, frames, run, tmp_path):
    other = bertworks.finetune(
        place / "model", tmp_path / "b", train=frames[0], dev=frames[1], **FIELDS | {"epochs": 1}
    )
    found = bertworks.compare(run, tmp_path / "b", samples=100)
    assert found.metrics["accuracy"]["second"] == pytest.approx(other.metrics["accuracy"])
    for result in (found, run, bertworks.evaluate(run, frames[1]), bertworks.read_log(run)):
        text, html = repr(result), result._repr_html_()
        assert "accuracy" in text and "<table>" in html and "object at" not in text
        assert max(map(len, text.splitlines()[1:-1])) <= 110, text
    rows = bertworks.predict(run, [*frames[1].text])
    assert pickle.loads(pickle.dumps(rows)) == rows == json.loads(json.dumps(rows))
    assert "6 more rows" in repr(rows) and pandas.DataFrame(rows).label.isin(["good", "bad"]).all()


def test_the_first_import_draws_no_random_number():
    """A library that is imported with the first function draws one, so a seed set before would mean another number."""
    lines = (
        "import random, sys, bertworks",
        "before = random.getstate()",
        "names = [getattr(bertworks, name) for name in bertworks.__all__]",
        "assert 'rich.style' in sys.modules and random.getstate() == before",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def state_of_the_process():
    """What a library must not change for good."""
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "filled": torch.utils.deterministic.fill_uninitialized_memory,
        "gradients": torch.is_grad_enabled(),
        "random": [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "logging": (logging.root.level, list(logging.root.handlers), logging.root.manager.disable),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "warnings": list(warnings.filters),
        "csv": csv.field_size_limit(),
        "streams": (sys.stdout, sys.stderr),
        "hook": sys.excepthook,
    }


def left_behind(place, store, out):
    """The names of what a call of every function has changed in this process."""
    before, dev = state_of_the_process(), pandas.read_csv(place / "dev.csv")
    given = {"train": str(place / "train.csv"), "dev": dev, "max_seq_length": 24, "quiet": True}
    run = bertworks.finetune(place / "model", out / "run", **given, loop={"steps": 2})
    bertworks.evaluate(run, dev)
    bertworks.predict(run, dev)
    bertworks.features(run, dev, pool="mean")
    bertworks.compare(run, run, samples=100)
    pretrain(store, out / "pretrained")
    after = state_of_the_process()
    return sorted(name for name in before if before[name] != after[name])


FIRST_CALL = """
import pathlib, sys
import sklearn, torch._dynamo, test_python
from bertworks import evaluate, finetune, predict, features, compare, pretrain  # imports have effects of their own
from types import SimpleNamespace
place, out, store, size = sys.argv[1:]
store = SimpleNamespace(path=pathlib.Path(store), vocab_size=int(size))
print(test_python.left_behind(pathlib.Path(place), store, pathlib.Path(out)))
"""


@pytest.mark.heavy
def test_the_first_calls_leave_the_process_as_it_was(place, tiny_store, tmp_path):
    """In a process of its own: what only a first call leaves would be there before any comparison in this one."""
    command = [sys.executable, "-c", FIRST_CALL, place, tmp_path, tiny_store.path, tiny_store.vocab_size]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths})
    assert done.stdout == "[]\n", done


def pretrain(store, out, **more):
    shape = {"vocab_size": store.vocab_size, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 32, "max_position_embeddings": 32}  # fmt: skip
    phases = [{"length": 16, "budget_fraction": 1.0, "batch_size": 4}]
    loop = {"steps": 3, "log_every": 1, "eval_every": 0, **more.pop("loop", {})}
    given = {"model": shape, "phases": phases, "eval_batches": 1, "loop": loop, "quiet": True, **more}
    return bertworks.pretrain("cpu", store.path, out, **given)


def test_pretraining_from_python(tiny_store, tmp_path):
    seen = []
    first = pretrain(tiny_store, tmp_path / "a", on_record=seen.append)
    assert first.finished and "mlm_loss" in first.metrics and first.log() == seen
    assert "\ntokens = 0\n" in (tmp_path / "a/recipe.toml").read_text()  # the argument replaced the recipe's budget
    model = bertworks.load_model(first)
    further = pretrain(tiny_store, tmp_path / "b", init=model)
    assert (tmp_path / "b" / "start" / "config.json").exists()
    assert further.metrics["mlm_loss"] != first.metrics["mlm_loss"]
    with pytest.raises(InputError, match=r"^arguments: model = 'a'; expected a table"):
        pretrain(tiny_store, tmp_path / "c", model="a")
