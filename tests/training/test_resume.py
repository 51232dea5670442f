"""Exact resume: however often and whenever a run is stopped, it ends in the same bytes. Several processes equal one."""

import dataclasses
import json
import random
import subprocess
import sys
import time

import psutil
import pytest

from bertworks.config import load_recipe
from bertworks.pretraining.job import pretrain
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.pretraining.run import PretrainingFeed
from bertworks.training.state import saved_step
from support.loops import killed_at
from support.segments import Segment, records, state_of, tensors, weights, write_recipe

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def undisturbed(tiny_store, tmp_path_factory):
    """A run left alone, in each precision."""
    made = {}

    def run(**settings):
        key = tuple(settings.items())
        if key not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            sitting = Segment(write_recipe(folder, **settings), tiny_store.path, folder / "run")
            assert sitting.end() == 0, sitting.said.read_text()
            made[key] = folder / "run"
        return made[key]

    return run


def same(one, other):
    assert weights(one) == weights(other)
    assert records(one) == records(other)
    assert records(one, "eval") == records(other, "eval")


SETTINGS = [  # and by how many seconds a flush of a state takes longer before each kill, which then hits a write
    ({"precision": "float32"}, (0, 0.2, 0.2, 0)),
    ({"precision": "bfloat16", "rule": "muon"}, (0, 0)),
    pytest.param({"precision": "bfloat16", "compute": "reference"}, (0,) * 5, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("settings, kills", SETTINGS, ids=str)
def test_a_run_killed_again_and_again_ends_in_the_same_bytes(tiny_store, undisturbed, tmp_path, settings, kills):
    expected, out = undisturbed(**settings), tmp_path / "run"
    recipe, rng = write_recipe(tmp_path, **settings), random.Random(str(settings))
    steps = []
    for slow_flush in kills:
        more = ["--loop.save-every", "1"] if slow_flush else []
        sitting = Segment(recipe, tiny_store.path, out, *more, slow_flush=slow_flush)
        sitting.wait_for_save(state_of(out), None if slow_flush else rng)
        while slow_flush and not half_written(out):
            assert sitting.processes[0].is_alive()
            time.sleep(0.002)
        if not sitting.processes[0].is_alive():
            break
        sitting.processes[0].kill()
        assert sitting.end() == -9 and (half_written(out) or not slow_flush)
        steps.append(saved_step(out / "state"))
    sitting = Segment(recipe, tiny_store.path, out)
    assert sitting.end() == 0, sitting.said.read_text()
    assert len({step for step in steps if 0 < step < 40}) >= min(len(kills), 3), steps  # most came in the middle
    assert "resuming at step" in sitting.said.read_text() and not half_written(out)
    same(expected, out)
    assert [record["step"] for record in records(out)] == list(range(1, 41))
    results = [json.loads((run / "results.json").read_text()) for run in (expected, out)]
    assert results[0]["metrics"] == results[1]["metrics"] and results[0]["tokens"] == results[1]["tokens"]


def half_written(out):
    """The temporary files of states."""
    return [*state_of(out).parent.glob(".state.safetensors.*.tmp")]


def test_a_run_with_batches_made_ahead_is_the_same_run(tiny_store, undisturbed, tmp_path):
    """Killed and stopped, resumed with another number of workers; and it leaves no process behind."""
    settings = {"precision": "float32"}
    recipe, out, rng = write_recipe(tmp_path, **settings), tmp_path / "run", random.Random(1)
    for workers, how, code in ((2, "kill", -9), (1, "terminate", 3)):
        segment = Segment(recipe, tiny_store.path, out, "--workers", str(workers))
        segment.wait_for_save(state_of(out), rng)
        family = psutil.Process(segment.processes[0].pid).children(recursive=True)
        getattr(segment.processes[0], how)()
        assert segment.end() == code
        assert len(family) >= workers and not psutil.wait_procs(family, timeout=60)[1]
    segment = Segment(recipe, tiny_store.path, out, "--workers", "2")
    assert segment.end() == 0, segment.said.read_text()
    same(undisturbed(**settings), out)


def test_the_undisturbed_run_is_what_it_should_be(tiny_store, undisturbed):
    """Two phases, more than an epoch of each, and losses that fall: else equal bytes would show little."""
    out = undisturbed(precision="float32")
    data = [tiny_store.data(length, dupe_factor=2, seed=12345) for length in (24, 40)]
    an_epoch = [len(one.stream.group(0)[1]) for one in data]
    assert [one.stream.groups for one in data] == [1, 1]
    assert an_epoch[0] < 24 * 48 and an_epoch[1] < 16 * 36
    log = records(out)
    assert log[-1]["mlm_loss"] < 0.95 * log[0]["mlm_loss"]
    assert [record["step"] for record in records(out, "eval")] == [10, 20, 30, 40]


def test_sigterm_saves_and_the_same_line_goes_on(tiny_store, undisturbed, tmp_path):
    settings = {"precision": "float32"}
    recipe, out = write_recipe(tmp_path, **settings), tmp_path / "run"
    sitting = Segment(recipe, tiny_store.path, out)
    sitting.wait_for_save(state_of(out), random.Random(1))
    sitting.processes[0].terminate()
    assert sitting.end() == 3
    said = sitting.said.read_text()
    step = saved_step(out / "state")
    assert f"stopped at step {step:,}, saved; rerun the command to resume" in said and "Traceback" not in said
    assert records(out)[-1]["step"] == step  # not one step was lost
    assert not (out / "results.json").exists() and not (out / "model").exists()
    assert Segment(recipe, tiny_store.path, out).end() == 0
    same(undisturbed(**settings), out)


def test_a_resumed_run_must_be_the_same_run(tiny_store, tmp_path, refused):
    recipe, out = write_recipe(tmp_path, steps=12), tmp_path / "run"
    config = load_recipe(recipe, PretrainConfig)
    pretrain(config, tiny_store.path, tmp_path / "whole", quiet=True)
    with killed_at(8, PretrainingFeed):
        pretrain(config, tiny_store.path, out, quiet=True)
    before = state_of(out).read_bytes()
    said = refused("pretrain", recipe, "--corpus", tiny_store.path, "--out", out, "--optim.lr", "2e-3")
    assert "belongs to a run with other settings" in said and "Traceback" not in said
    assert state_of(out).read_bytes() == before
    assert "lr = 0.001" in (out / "recipe.toml").read_text()
    rarer = dataclasses.replace(config.loop, log_every=5, save_every=7)
    pretrain(dataclasses.replace(config, loop=rarer), tiny_store.path, out, quiet=True)
    assert weights(out) == weights(tmp_path / "whole")


def test_two_processes_stopped_and_resumed_by_one(tiny_store, tmp_path):
    """The number of processes is no part of a run: what two began, one can end."""
    recipe, out = write_recipe(tmp_path, steps=30, micro=5), tmp_path / "run"
    sitting = Segment(recipe, tiny_store.path, out, size=2)
    sitting.wait_for_save(state_of(out), random.Random(2))
    for process in sitting.processes:
        process.terminate()
    assert sitting.end() == 3
    assert [process.exitcode for process in sitting.processes] == [3, 3]
    assert 0 < saved_step(out / "state") < 30
    for run in (out, tmp_path / "whole"):
        pretrain(load_recipe(recipe, PretrainConfig), tiny_store.path, run, quiet=True)
    one, two = tensors(out), tensors(tmp_path / "whole")
    assert (one - two).norm() < 1e-6 * one.norm()


def test_a_budget_in_hours_ends_on_one_step_for_all_processes(tiny_store, tmp_path):
    """Each process has its own clock; if each followed it, they would wait for each other for ever."""
    recipe = write_recipe(tmp_path, steps=0, micro=5)
    sitting = Segment(recipe, tiny_store.path, tmp_path / "run", "--loop.hours", "0.0001", size=2)
    assert sitting.end(60) == 0
    assert [process.exitcode for process in sitting.processes] == [0, 0]


def test_the_same_line_under_torchrun(tiny_store, tmp_path):
    recipe = write_recipe(tmp_path, steps=4, dropout=0.0, micro=8)
    line = ["pretrain", str(recipe), "--corpus", str(tiny_store.path), "--out", str(tmp_path / "two")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run([*torchrun, "bertworks.cli", *line], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "two" / "results.json").read_text())["processes"] == 2
    pretrain(load_recipe(recipe, PretrainConfig), tiny_store.path, tmp_path / "one", quiet=True)
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert (one - two).norm() < 1e-6 * one.norm()
