"""Exact resume: however often and whenever a run is stopped, it ends in the same bytes. Several processes equal one."""

import json
import random
import subprocess
import sys
import time

import psutil
import pytest

from support.segments import Segment, changed, records, state_of, tensors, weights, write_recipe


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


SETTINGS = [  # and how often it is killed
    ({"precision": "float32"}, 5),
    ({"precision": "bfloat16"}, 2),
    pytest.param({"precision": "bfloat16", "compute": "reference"}, 5, marks=pytest.mark.slow),
]


@pytest.mark.heavy
@pytest.mark.parametrize("settings, most", SETTINGS, ids=str)
def test_a_run_killed_again_and_again_ends_in_the_same_bytes(tiny_store, undisturbed, tmp_path, settings, most):
    expected, out = undisturbed(**settings), tmp_path / "run"
    recipe, rng = write_recipe(tmp_path, **settings), random.Random(str(settings))
    steps, kills = [], 0
    while kills < most:
        sitting = Segment(recipe, tiny_store.path, out)
        sitting.wait_for_save(state_of(out), rng)
        if not sitting.processes[0].is_alive():
            break
        sitting.processes[0].kill()
        assert sitting.end() == -9
        kills += 1
        steps.append(int(header(state_of(out))["step"]) if state_of(out).exists() else 0)
    sitting = Segment(recipe, tiny_store.path, out)
    assert sitting.end() == 0, sitting.said.read_text()
    assert len({step for step in steps if 0 < step < 40}) >= min(most, 3), steps  # most kills came in the middle
    said = sitting.said.read_text()
    assert "resuming at step" in said
    same(expected, out)
    assert [record["step"] for record in records(out)] == list(range(1, 41))
    results = [json.loads((run / "results.json").read_text()) for run in (expected, out)]
    assert results[0]["metrics"] == results[1]["metrics"] and results[0]["tokens"] == results[1]["tokens"]


@pytest.mark.heavy
def test_a_kill_inside_a_write_harms_nothing(tiny_store, undisturbed, tmp_path):
    """The flush of every state takes a fifth of a second; the run is killed while one is under way."""
    settings = {"precision": "float32"}
    recipe, out = write_recipe(tmp_path, **settings), tmp_path / "run"
    kills = 0
    while kills < 4:
        segment = Segment(recipe, tiny_store.path, out, "--loop.save-every", "1", slow_flush=0.2)
        before, deadline = changed(state_of(out)), time.monotonic() + 300
        while changed(state_of(out)) == before or not half_written(out):
            assert time.monotonic() < deadline and segment.processes[0].is_alive()
            time.sleep(0.002)
        segment.processes[0].kill()
        assert segment.end() == -9 and half_written(out)
        kills += 1
    segment = Segment(recipe, tiny_store.path, out)
    assert segment.end() == 0, segment.said.read_text()
    same(undisturbed(**settings), out)
    assert not half_written(out)


def half_written(out):
    """The temporary files of states."""
    return [*state_of(out).parent.glob(".state.safetensors.*.tmp")]


@pytest.mark.heavy
@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_run_with_batches_made_ahead_is_the_same_run(tiny_store, undisturbed, tmp_path, how):
    """Killed or stopped, resumed with another number of workers; and it leaves no process behind."""
    settings = {"precision": "float32"}
    recipe, out, rng = write_recipe(tmp_path, **settings), tmp_path / "run", random.Random(how)
    for workers in (2, 1):
        segment = Segment(recipe, tiny_store.path, out, "--workers", str(workers))
        segment.wait_for_save(state_of(out), rng)
        family = psutil.Process(segment.processes[0].pid).children(recursive=True)
        getattr(segment.processes[0], how)()
        assert segment.end() == {"kill": -9, "terminate": 3}[how]
        assert len(family) >= workers and not psutil.wait_procs(family, timeout=60)[1]
    segment = Segment(recipe, tiny_store.path, out, "--workers", "2")
    assert segment.end() == 0, segment.said.read_text()
    same(undisturbed(**settings), out)


def header(path):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["progress"])


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


@pytest.mark.parametrize("settings", [{"precision": "float32"}, {"precision": "bfloat16", "rule": "muon"}], ids=str)
def test_sigterm_saves_and_the_same_line_goes_on(tiny_store, undisturbed, tmp_path, settings):
    recipe, out = write_recipe(tmp_path, **settings), tmp_path / "run"
    sitting = Segment(recipe, tiny_store.path, out)
    sitting.wait_for_save(state_of(out), random.Random(1))
    sitting.processes[0].terminate()
    assert sitting.end() == 3
    said = sitting.said.read_text()
    step = header(state_of(out))["step"]
    assert f"stopped at step {step:,}, saved; rerun the command to resume" in said and "Traceback" not in said
    assert records(out)[-1]["step"] == step  # not one step was lost
    assert not (out / "results.json").exists() and not (out / "model").exists()
    assert Segment(recipe, tiny_store.path, out).end() == 0
    same(undisturbed(**settings), out)


@pytest.mark.heavy
def test_a_resumed_run_must_be_the_same_run(tiny_store, undisturbed, tmp_path):
    recipe, out = write_recipe(tmp_path, precision="float32"), tmp_path / "run"
    sitting = Segment(recipe, tiny_store.path, out)
    sitting.wait_for_save(state_of(out), random.Random(1))
    sitting.processes[0].kill()
    sitting.end()
    before = state_of(out).read_bytes()
    other = Segment(recipe, tiny_store.path, out, "--optim.lr", "2e-3")
    assert other.end() == 1
    assert "belongs to a run with other settings" in other.said.read_text()
    assert "Traceback" not in other.said.read_text()
    assert state_of(out).read_bytes() == before
    assert "lr = 0.001" in (out / "recipe.toml").read_text()
    assert Segment(recipe, tiny_store.path, out, "--loop.log-every", "5", "--loop.save-every", "7").end() == 0
    assert weights(out) == weights(undisturbed(precision="float32"))
    finished = Segment(recipe, tiny_store.path, out)
    assert finished.end() == 0 and "is finished" in finished.said.read_text()


@pytest.mark.heavy
def test_two_processes_stopped_and_resumed_by_one(tiny_store, tmp_path):
    """The number of processes is no part of a run: what two began, one can end."""
    recipe, out = write_recipe(tmp_path, steps=30, micro=5), tmp_path / "run"
    sitting = Segment(recipe, tiny_store.path, out, size=2)
    sitting.wait_for_save(state_of(out), random.Random(2))
    for process in sitting.processes:
        process.terminate()
    assert sitting.end() == 3
    assert [process.exitcode for process in sitting.processes] == [3, 3]
    assert 0 < header(state_of(out))["step"] < 30
    assert Segment(recipe, tiny_store.path, out).end() == 0
    assert Segment(recipe, tiny_store.path, tmp_path / "whole").end() == 0
    one, two = tensors(out), tensors(tmp_path / "whole")
    assert (one - two).norm() < 1e-6 * one.norm()


@pytest.mark.heavy
def test_a_budget_in_hours_ends_on_one_step_for_all_processes(tiny_store, tmp_path):
    """Each process has its own clock; if each followed it, they would wait for each other for ever."""
    recipe = write_recipe(tmp_path, steps=0, micro=5)
    sitting = Segment(recipe, tiny_store.path, tmp_path / "run", "--loop.hours", "0.0001", size=2)
    assert sitting.end(60) == 0
    assert [process.exitcode for process in sitting.processes] == [0, 0]


@pytest.mark.heavy
def test_the_same_line_under_torchrun(tiny_store, tmp_path):
    recipe = write_recipe(tmp_path, steps=4, dropout=0.0, micro=8)
    line = ["pretrain", str(recipe), "--corpus", str(tiny_store.path), "--out", str(tmp_path / "two")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run([*torchrun, "bertworks.cli", *line], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "two" / "results.json").read_text())["processes"] == 2
    assert Segment(recipe, tiny_store.path, tmp_path / "one").end() == 0
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert (one - two).norm() < 1e-6 * one.norm()
