"""Fine-tuning: it learns, resumes to the same bytes, reports seeds and what was cut, and never swaps labels."""

import dataclasses
import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertworks.checkpoint.folder import load_model, read_config, save_folder
from bertworks.cli import main
from bertworks.cli.finetune import Arguments, read_arguments
from bertworks.config import load_recipe
from bertworks.files import Diverged, InputError, read_json
from bertworks.finetuning import run as running
from bertworks.finetuning.job import ExampleFeed, Job
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune, joined_job
from bertworks.inference.evaluation import evaluate
from bertworks.model.build import build_model
from bertworks.reporting.log import read_log
from bertworks.tasks.base import Data, Example, Task
from bertworks.tokenizer import Tokenizer
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.optim import learning_rate
from support.loops import killed_at
from support.processes import together
from support.segments import PROCESSES, sit, weights
from support.tiny_task import TINY, VOCAB, tiny_folder, tiny_place, tiny_rows, tiny_table

CONFIG = FinetuneConfig(
    optim=OptimConfig(lr=3e-3, warmup=0.1),
    loop=LoopConfig(eval_every=0, save_every=4, log_every=4, seed=1, precision="float32"),
    epochs=2,
    batch_size=16,
    max_seq_length=16,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with model/, train.csv (200 rows) and dev.csv (60 rows)."""
    return tiny_place(tmp_path_factory.mktemp("finetune"), 200, 60)


@pytest.fixture(scope="module")
def table(place):
    return tiny_rows(place)


@pytest.fixture(scope="module")
def finished(place, table):
    """A run left alone, and its results."""
    results = finetune(dataclasses.replace(CONFIG, epochs=6), *table, place / "model", place / "run", quiet=True)
    return place / "run", results


def changed(config: FinetuneConfig = CONFIG, **loop) -> FinetuneConfig:
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, **loop))


def test_unknown_words_are_noted(tmp_path):
    folder, config = tiny_folder(tmp_path / "model"), FinetuneConfig(max_seq_length=16)
    task = Task("own", ("text",))

    def notes(text, dev):
        rows = [Example(text, label=label) for label in ("x", "y")]
        with joined_job(config, task, Data(rows, [Example(dev, label="x")]), folder, True) as job:
            return job.notes

    assert notes("good film", "bad film") == ()
    assert notes("good good \u20ac", "bad") == ("33.33% of the tokens of the training rows are [UNK]",)
    Tokenizer.load(folder).save(folder, model_max_length=3)
    assert notes("good", "bad") == ()
    assert "up to 4 tokens; the encoder was trained with at most 3" in notes("good film", "bad film")[0]


def test_it_learns_and_reports(finished):
    run, results = finished
    assert results["metrics"]["accuracy"] > 0.95 > results["majority"]
    assert results == json.loads((run / "results.json").read_text())
    assert results["steps"] == int(200 / 16 * 6) and results["examples"] == {"train": 200, "dev": 60}
    assert sum(results["predicted"].values()) == 60 and not results["collapsed"] and results["fresh"] == ["classifier"]
    assert results["truncation"]["train"]["examples"] > 0 and results["truncation"]["train"]["tokens"] > 0
    assert results["notes"] == [
        f"{results['truncation']['train']['examples']} of 200 training rows are cut to 16 tokens"
    ]
    config, settings = read_config(run / "model")
    assert settings["id2label"] == {"0": "bad", "1": "good"} and config.hidden_dropout_prob == 0.1
    assert json.loads((run / "model/tokenizer_config.json").read_text())["model_max_length"] == 16
    assert not (run / "state").exists()
    kinds = [record["kind"] for record in read_log(run)]
    assert kinds.count("eval") == 7 and {"accuracy", "macro_f1", "loss"} <= read_log(run)[-1].keys()
    assert load_recipe(run / "recipe.toml", FinetuneConfig).loop.steps == results["steps"]


def test_a_finished_run_stays_as_it_is(finished, place, table):
    run, results = finished
    config = dataclasses.replace(CONFIG, epochs=6)
    assert finetune(changed(config, log_every=1), *table, place / "model", run, quiet=True) == results


@pytest.mark.parametrize("other", ["weights", "rows"])
def test_a_finished_run_of_another_start_or_other_rows_is_refused(finished, place, table, tmp_path, other):
    run, _ = finished
    task, data, start = *table, place / "model"
    if other == "weights":
        start = shutil.copytree(start, tmp_path / "model")
        tensors = load_file(start / "model.safetensors")
        next(iter(tensors.values())).add_(1)
        save_file(tensors, start / "model.safetensors")
    else:
        data = dataclasses.replace(data, train=data.train[1:])
    with pytest.raises(InputError, match="finished run with other settings, data or model"):
        finetune(dataclasses.replace(CONFIG, epochs=6), task, data, start, run, quiet=True)


@pytest.mark.parametrize("at", [0, 4, 13])
def test_a_stopped_run_resumes_to_the_same_bytes(place, table, tmp_path, at):
    """Stopped at step `at` without a word: what was done since the last save is done again."""
    config = dataclasses.replace(CONFIG, micro_batch_size=8)
    whole = finetune(config, *table, place / "model", tmp_path / "whole", quiet=True)
    with killed_at(at, ExampleFeed):
        finetune(config, *table, place / "model", tmp_path / "stopped", quiet=True)
    torch.manual_seed(at)  # nothing may hang on torch's own generator
    resumed = finetune(config, *table, place / "model", tmp_path / "stopped", quiet=True)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    assert resumed["metrics"] == whole["metrics"]
    losses = [[r["task_loss"] for r in read_log(tmp_path / n) if r["kind"] == "train"] for n in ("whole", "stopped")]
    assert losses[0] == losses[1]


def run_with_signal(line, said, at, number):
    """The command, to which the signal comes before update `at`."""
    give = ExampleFeed.__call__

    def call(self, progress, budget_used):
        if progress.step == at:
            os.kill(os.getpid(), number)
        return give(self, progress, budget_used)

    ExampleFeed.__call__ = call
    sit(line, said, {})


@pytest.mark.heavy
def test_killed_and_stopped_from_outside(place, tmp_path):
    """SIGKILL and SIGTERM in a process of its own; the same line goes on and ends in the same bytes."""
    line = ["finetune", "--train", place / "train.csv", "--dev", place / "dev.csv", "--model", place / "model"]
    line = [*map(str, line), "--max-seq-length", "16", "--batch-size", "16", "--epochs", "1", "--loop.save-every", "5"]
    for at, number, code in ((7, signal.SIGKILL, -signal.SIGKILL), (9, signal.SIGTERM, 3), (-1, 0, 0)):
        given = ([*line, "--out", str(tmp_path / "run")], tmp_path / "said.txt", at, number)
        process = PROCESSES.Process(target=run_with_signal, args=given)
        process.start()
        process.join(120)
        found = process.exitcode
        process.kill()
        assert found == code, (tmp_path / "said.txt").read_text()
    main([*line, "--out", str(tmp_path / "whole")])
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_signal_in_the_last_evaluation_ends_all_runs(place, table, tmp_path, monkeypatch):
    """It comes too late for the first seed; the second one must not begin."""
    config = dataclasses.replace(CONFIG, seeds=(1, 2), epochs=1)
    original, told = Job.evaluate, []

    def interrupted(self, *given):
        if not told:
            told.append(True)
            signal.raise_signal(signal.SIGTERM)
        return original(self, *given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Job, "evaluate", interrupted)
        finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    assert told and not (tmp_path / "run/seed-2").exists()
    results = finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    assert results["runs"] == finetune(config, *table, place / "model", tmp_path / "whole", quiet=True)["runs"]


def test_seeds_differ_and_are_summed_up(place, table, tmp_path):
    config = dataclasses.replace(CONFIG, seeds=(1, 2), epochs=1)
    results = finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    first, second = (json.loads((tmp_path / f"run/seed-{s}/results.json").read_text()) for s in (1, 2))
    assert weights(tmp_path / "run/seed-1") != weights(tmp_path / "run/seed-2")
    losses = [first["metrics"]["loss"], second["metrics"]["loss"]]
    assert losses[0] != losses[1] and results["seeds"] == [1, 2] and (first["seed"], second["seed"]) == (1, 2)
    assert results["metrics"]["loss"] == pytest.approx(sum(losses) / 2)
    assert results["std"]["loss"] == pytest.approx(abs(losses[0] - losses[1]) / 2**0.5)
    second_alone = changed(dataclasses.replace(config, seeds=()), seed=2)
    one = finetune(second_alone, *table, place / "model", tmp_path / "one", True)
    assert weights(tmp_path / "one") == weights(tmp_path / "run/seed-2") and one["metrics"] == second["metrics"]
    with pytest.raises(InputError, match="holds several runs; give one of"):
        evaluate(tmp_path / "run", table[0], table[1].dev)


def test_other_seeds_with_other_settings_do_not_join_a_folder(place, table, tmp_path):
    """`compare` would take the mean over seeds of two settings."""
    config = dataclasses.replace(CONFIG, seeds=(1,), epochs=1)
    finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    before = (tmp_path / "run/results.json").read_bytes()
    other = dataclasses.replace(config, seeds=(2,), batch_size=8)
    with pytest.raises(InputError, match=r"seed-1 is a finished run with other settings.*batch_size"):
        finetune(other, *table, place / "model", tmp_path / "run", quiet=True)
    assert (tmp_path / "run/results.json").read_bytes() == before and not (tmp_path / "run/seed-2").exists()
    more = dataclasses.replace(config, seeds=(1, 2))
    assert finetune(more, *table, place / "model", tmp_path / "run", quiet=True)["seeds"] == [1, 2]


def test_micro_batches_give_the_same_gradients(place, table, tmp_path):
    for micro in (0, 4):
        config = dataclasses.replace(changed(steps=6), micro_batch_size=micro)
        finetune(config, *table, place / "model", tmp_path / str(micro), quiet=True)
    one, other = (load_model(tmp_path / name / "model").state_dict() for name in ("0", "4"))
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=2e-5)


def test_random_init_takes_only_the_shape(place, table, tmp_path):
    config = dataclasses.replace(changed(steps=1), random_init=True)
    results = finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    assert results["random_init"] and "encoder" in results["fresh"]
    start, ours = load_model(place / "model"), load_model(tmp_path / "run/model")
    name = "encoder.layers.0.attention.query.weight"
    assert (start.state_dict()[name] - ours.state_dict()[name]).abs().max() > 0.01
    assert dataclasses.replace(ours.config, hidden_dropout_prob=0.1) == start.config


@pytest.mark.parametrize(
    ("keep_best", "scores"),
    [
        ("", [0.1, 0.3, 0.2]),
        ("accuracy", [0.1, 0.2, 0.3]),
        ("accuracy", [0.1, 0.3, 0.2, 0.3]),
        ("accuracy", [0.1, 0.3, 0.3, 0.3]),
    ],
)
def test_the_weights_of_a_run_are_evaluated_once(place, table, tmp_path, monkeypatch, keep_best, scores):
    """A run has three evaluations; a fourth comes only after the best weights came back."""
    evaluated, seen = Job.evaluate, []

    def scored(self, model, rows):
        result = evaluated(self, model, rows)
        seen.append(model.state_dict()["heads.classifier.weight"].clone())
        return dataclasses.replace(result, metrics=result.metrics | {"accuracy": scores[len(seen) - 1]})

    monkeypatch.setattr(Job, "evaluate", scored)
    config = dataclasses.replace(changed(keep_best=keep_best, eval_every=5), epochs=1)
    results = finetune(config, *table, place / "model", tmp_path / "run", quiet=True)
    assert len(seen) == len(scores) and results["metrics"]["accuracy"] == scores[-1]
    kept = load_model(tmp_path / "run" / "model").state_dict()["heads.classifier.weight"]
    assert torch.equal(kept, seen[-1])
    if len(scores) == 4:
        assert torch.equal(kept, seen[1]) and not torch.equal(kept, seen[2])


def test_a_small_table_gets_enough_updates(place, tmp_path, capsys):
    """20 rows are less than a batch: three epochs are one update. Own tables get 100, unless the user says how long."""
    tiny_table(tmp_path / "train.csv", 20, seed=1)
    line = ["finetune", "--train", str(tmp_path / "train.csv"), "--dev", str(place / "dev.csv"), "--max-seq-length"]
    line += ["16", "--model", str(place / "model"), "--optim.lr", "3e-3", "--out"]
    main([*line, str(tmp_path / "run")])
    results, told = read_json(tmp_path / "run/results.json"), capsys.readouterr().err
    assert results["steps"] == 100 and results["metrics"]["accuracy"] > 0.9
    assert "100 updates of 32 rows (160 epochs; 3 epochs would be fewer than min_steps = 100)" in told
    assert sum(record["kind"] == "eval" for record in read_log(tmp_path / "run")) == 10
    for name, value in (("--epochs", "3"), ("--min-steps", "0"), ("--loop.hours", "1e-9")):
        main([*line, str(tmp_path / name), name, value])
        assert read_json(tmp_path / name / "results.json")["steps"] == 1
    assert "; budget: 1e-09 hours; " in capsys.readouterr().err
    for more in (["--recipe", str(tmp_path / "r.toml")], ["--task", "rte"]):
        (tmp_path / "r.toml").write_text("epochs = 3.0\n")
        assert read_arguments(Arguments, ["m", "--out", "o", *more], "finetune").config.min_steps == 0


@pytest.mark.parametrize(("steps", "whole"), [(9, 0), (10, 1), (43, 4), (343, 34)])
def test_warm_up_is_whole_updates_as_in_the_original(steps, whole):
    """int(num_train_steps * warmup_proportion); the update that begins a warm-up has the rate 0 there too."""
    config = changed(steps=steps)
    rates = [learning_rate(config.whole_warmup, step / steps) for step in range(steps)]
    assert rates[0] == (0 if whole else config.optim.lr)
    if whole:
        assert rates[whole - 1] == pytest.approx(config.optim.lr * (whole - 1) / whole)
    assert rates[whole] == pytest.approx(config.optim.lr * (1 - whole / steps))
    assert changed(tokens=1000).whole_warmup == config.optim


@pytest.mark.parametrize("value", [math.nan, 2e38])
def test_a_model_that_is_not_finite_leaves_no_results(place, table, tmp_path, monkeypatch, value):
    start = running.start_model

    def broken(*arguments):
        model, fresh = start(*arguments)
        model.heads["classifier"].bias.data = torch.tensor([value, -value])
        return model, fresh

    monkeypatch.setattr(running, "start_model", broken)
    with pytest.raises(Diverged, match="development rows: its scores or its loss there are not finite"):
        finetune(changed(steps=1), *table, place / "model", tmp_path / "run", quiet=True)
    assert not (tmp_path / "run/results.json").exists()


# ---- several processes


def tune_in_a_process(rank, place, out):
    finetune(changed(steps=6), *tiny_rows(place), place / "model", out, quiet=True)


@pytest.mark.heavy
def test_two_processes_train_the_used_rows_as_one_does(place, tmp_path):
    """Each of them shortens the table of words by itself; the texts have the letters a to f, not the others."""
    tune_in_a_process(0, place, tmp_path / "one")
    assert together(tune_in_a_process, place, tmp_path / "two") == [None, None]
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    before = load_file(place / "model" / "model.safetensors")
    table = "bert.embeddings.word_embeddings.weight"
    unused = VOCAB.index("z")
    assert not torch.equal(one[table][unused], before[table][unused])  # decay
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=2e-5)


# ---- labels


def test_a_folder_without_a_classifier_is_not_evaluated(place):
    with pytest.raises(InputError, match="has no classifier"):
        evaluate(place / "model", Task("t", ("text",), "label"), [Example("good film", None, "positive")])


def test_a_model_with_more_labels_than_the_data(tmp_path, place):
    folder = tmp_path / "model"
    model = build_model(TINY, ("classifier",), labels=3, seed=1)
    with torch.no_grad():
        model.heads["classifier"].bias.copy_(torch.tensor([9.0, 0.0, 0.0]))  # always the label the data has not
    save_folder(folder, model, place / "model", labels=["neutral", "bad", "good"])
    result = evaluate(folder, Task("t", ("text",), "label"), [Example("a", None, "good"), Example("b", None, "bad")])
    assert result["metrics"]["accuracy"] == 0 and result["predicted"] == {"bad": 0, "good": 0, "neutral": 2}
    assert result["majority"] == 0.5  # of the two labels of the data; as in the results of a run


# ---- what is refused


def test_a_development_row_without_a_label_is_refused(place, table, tmp_path):
    task, data = table
    unlabelled = dataclasses.replace(data, dev=[Example("a")])
    with pytest.raises(InputError, match="every row a label"):
        finetune(CONFIG, task, unlabelled, place / "model", tmp_path / "run", quiet=True)


# ---- the command line


def test_the_whole_road_on_the_command_line(place, tmp_path, capsys):
    recipe = tmp_path / "small.toml"
    recipe.write_text("epochs = 8\nbatch_size = 16\nmax_seq_length = 16\n[optim]\nlr = 1e-4\nwarmup = 0.1\n")
    tables = ["--train", str(place / "train.csv"), "--dev", str(place / "dev.csv")]
    line = ["finetune", *tables, "--model", str(place / "model"), "--out", str(tmp_path / "run"), "--optim.lr", "3e-3"]
    main([*line, "--recipe", str(recipe), "--loop.seed", "1"])  # one seed of ten does not learn in so few steps
    assert "accuracy" in capsys.readouterr().out
    ran = load_recipe(tmp_path / "run/recipe.toml", FinetuneConfig)
    assert (ran.optim.lr, ran.epochs, ran.batch_size) == (3e-3, 8.0, 16)
    main(["evaluate", "--model", str(tmp_path / "run"), "--dev", str(place / "dev.csv"), "--out", str(tmp_path / "e")])
    accuracy = json.loads(capsys.readouterr().out)["metrics"]["accuracy"]
    assert accuracy == json.loads((tmp_path / "e").read_text())["metrics"]["accuracy"] > 0.9
    main(["predict", str(tmp_path / "run"), str(place / "dev.csv")])
    predicted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(predicted) == 60 and predicted[0]["line"] == 2 and any(row["windows"] > 1 for row in predicted)
