"""The benchmarks' shared code, and that none of them is left out of benchmarks/smoke.py, which .ci/run runs."""

import contextlib
import importlib
import json
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("common")


def test_every_benchmark_is_run_by_the_smoke(common):
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    assert {*sum(importlib.import_module("smoke").GROUPS, ())} == scripts - {"smoke"}


def test_a_result_names_its_machine(common):
    facts = common.machine_facts()
    assert {"cpu", "cores", "threads", "torch", "python", "commit"} <= facts.keys()
    assert re.fullmatch(r"AMX|AVX-512 bf16|[A-Z0-9-]+", facts["kind"]) and re.fullmatch(
        r"\d{4}-\d\d-\d\d", facts["date"]
    )


def test_batches_by_length_give_each_row_its_own_result(common):
    batches, lengths = [], [3, 9, 1, 7, 5]
    results = common.by_length(lambda rows: batches.append(rows) or [10 * row for row in rows], lengths, 2)
    assert results == [0, 10, 20, 30, 40] and batches == [[1, 3], [4, 0], [2]]


# ---- gpu.py


@pytest.fixture
def cells(common):
    return importlib.import_module("gpu_cells")


def test_a_cell_runs_in_a_process_of_its_own_and_its_error_is_recorded(common, cells):
    found = dict(cells.run_together(common.machine_facts, {"facts": {}, "wrong": {"no": 1}}, 60.0))
    assert found["facts"]["torch"] == torch.__version__ and found["wrong"]["error"].startswith("TypeError")


@pytest.fixture
def gpu(common):
    return importlib.import_module("gpu")


def sleep(seconds):
    time.sleep(seconds)
    return {"slept": seconds}


def test_a_result_is_known_before_the_others_end_and_these_end_with_the_command(cells, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    starts, start = [], cells.started
    monkeypatch.setattr(cells, "started", lambda *given: starts.append(start(*given)) or starts[-1])
    results = cells.run_together(sleep, {"long": {"seconds": 3600}, "short": {"seconds": 0}}, 1800.0)
    assert next(results) == ("short", {"slept": 0})
    results.close()
    assert starts[0].wait(60) < 0


def test_a_cell_without_time_is_stopped(cells, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    assert "stopped after" in dict(cells.run_together(sleep, {"long": {"seconds": 3600}}, 0.0))["long"]["error"]


def test_a_folder_is_received_only_if_all_its_parts_are_whole(gpu, tmp_path):
    from bertworks.files import InputError

    parts, folder = importlib.import_module("gpu_parts"), tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "random").write_bytes(torch.randint(256, (5000,), dtype=torch.uint8).numpy().tobytes())
    parts.pack(folder, tmp_path / "parts", mib=0.001, level=1)
    *_, last = paths = parts.pack(folder, tmp_path / "parts", mib=0.002, level=1)
    assert len(paths) == 3 and {*(tmp_path / "parts").iterdir()} == {*paths, tmp_path / "parts" / parts.INDEX}
    assert max(path.stat().st_size for path in paths) <= 0.002 * 2**20
    whole = last.read_bytes()
    for wrong in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), None):
        last.unlink() if wrong is None else last.write_bytes(wrong)
        with pytest.raises(InputError, match=last.name):
            parts.receive(tmp_path / "parts", tmp_path / "received")
        assert not (tmp_path / "received").exists()
    last.write_bytes(whole)
    assert parts.receive(tmp_path / "parts", tmp_path / "received")
    assert (tmp_path / "received/inner/random").read_bytes() == (folder / "inner/random").read_bytes()
    assert not parts.receive(tmp_path / "parts", tmp_path / "received")  # a rerun
    gpu.main(["pack", str(folder), str(tmp_path / "parts"), "--mib=1"])
    gpu.main(["receive", str(tmp_path / "parts"), str(tmp_path / "again")])
    assert (tmp_path / "again/inner/random").read_bytes() == (folder / "inner/random").read_bytes()


def test_a_stage_that_has_used_its_limit_does_not_hold_up_the_next(gpu, tmp_path, monkeypatch):
    options = SimpleNamespace(out=tmp_path, back=None, minutes=9.0, limit=None, reserve=60.0, limits={"steps": 4.0})
    options.started = time.monotonic()
    done = []
    for name in ("steps", "profile"):
        run = lambda part: done.append(part.name) or part.keep({"finished": part.name != "steps"})  # noqa: E731
        monkeypatch.setitem(gpu.STAGES, name, run)
    with pytest.raises(SystemExit, match="3"):  # the command's time is not used, but `steps` has more to do
        gpu.run_stages(options, ["steps", "profile"])
    (tmp_path / "steps.json").write_text(json.dumps({"finished": False, "seconds": 60 * 4.0 - 30}))
    gpu.run_stages(options, ["steps", "profile"])
    gpu.run_stages(options, ["steps", "profile"])  # finished ones are not repeated
    assert done == ["steps", "profile"]
    options.started -= 60 * options.minutes
    with pytest.raises(SystemExit, match="3"):
        gpu.run_stages(options, ["pretrain", "finetune"])


def test_cells_are_continued_where_a_command_ended(gpu, cells, tmp_path, monkeypatch):
    options = SimpleNamespace(out=tmp_path, back=tmp_path / "back", minutes=9.0, limit=None, limits={}, reserve=0.0)
    options.started, options.device, options.smoke, runs = time.monotonic(), "cpu", True, []

    def interrupted(work, group, *given):
        runs.append([*group])
        errors = {"b": "out of memory", "c": "killed, or stopped after 9 seconds"} if len(runs) == 1 else {}
        yield from ((name, {"error": errors[name]} if name in errors else {}) for name in group)
        if len(runs) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(cells, "run_together", interrupted)
    names = {name: {} for name in "abcd"}
    with pytest.raises(KeyboardInterrupt):
        gpu.run_cells(gpu.Part(options, "steps"), None, names, {}, together=3)
    options.reserve = math.inf
    again = gpu.run_cells(gpu.Part(options, "steps"), None, names, {}, together=3)
    assert (again["left_out"], again["finished"]) == (["c", "d"], False)  # the error of b is a result
    options.reserve = 0.0
    again = gpu.run_cells(gpu.Part(options, "steps"), None, names, {}, together=3)
    assert runs == [["a", "b", "c"], ["b", "c", "d"]] and again["finished"] and {*again["cells"]} == {*names}
    importlib.import_module("gpu_parts").receive(options.back, tmp_path / "received")
    assert json.loads((tmp_path / "received/steps.json").read_text()) == again
    with pytest.raises(SystemExit, match="another --out"):
        gpu.run_cells(gpu.Part(options, "steps"), None, names, {"batch": 1}, together=3)


def test_pre_training_does_without_a_graph_that_could_not_be_recorded(gpu, tmp_path):
    options, name = SimpleNamespace(out=tmp_path, limit=None, limits={}), "base-128-0.1-graph"
    assert gpu.compute_of(gpu.Part(options, "pretrain")) == {}
    for cell, expected in (({"error": "RuntimeError"}, {"loop.compute": "static"}), ({"target": 0.45}, {})):
        (tmp_path / "steps.json").write_text(json.dumps({"cells": {name: cell}}))
        assert gpu.compute_of(gpu.Part(options, "pretrain")) == expected
    (tmp_path / "pretrain.json").write_text(json.dumps({"recipe": {"loop": {"compute": "static"}}}))
    assert gpu.compute_of(gpu.Part(options, "pretrain")) == {"loop.compute": "static"}  # the same run goes on


RECIPE = """
phases = [{ length = 16, batch_size = 4 }]
eval_batches = 1
[model]
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 64
[loop]
steps = 3
log_every = 1
"""


def test_pre_training_is_continued_and_its_weights_are_there_after_each_command(gpu, tiny_store, tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    command = f"pretrain --device cpu --train-minutes 0 --corpus {tiny_store.path} --recipe {tmp_path}/recipe.toml"

    def run(name, *flags):
        with pytest.raises(SystemExit) if flags else contextlib.nullcontext() as ending:
            gpu.main([*command.split(), f"--run={tmp_path}/{name}", f"--out={tmp_path}/out-{name}", *flags])
        result = json.loads((tmp_path / f"out-{name}/pretrain.json").read_text())
        steps = [one["step"] for one in result["log"] if one["kind"] == "train"]
        return steps, result["finished"], ending.value.code if flags else 0

    weights = tmp_path / "out-a/model/model.safetensors"
    assert run("a", "--minutes=0.5") == ([1], False, gpu.NOT_FINISHED)
    before = safetensors.torch.load_file(weights)
    assert {tensor.dtype for tensor in before.values()} == {torch.bfloat16}
    assert run("a") == ([1, 2, 3], True, 0)
    after = safetensors.torch.load_file(weights)
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)
    for _ in range(2):  # rerun, it does not go on
        steps, finished, message = run("b", "--abort-minutes=0", "--abort-loss=1")
        assert (steps, finished) == ([1], False) and "expected below 1" in message


@pytest.mark.heavy
def test_tests_that_have_passed_are_not_repeated(gpu, common, tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    note = f"open({str(tmp_path / 'runs')!r}, 'a').write"
    lines = ["import pytest", "@pytest.mark.gpu", "@pytest.mark.parametrize('x', [0, 1])", "def test_some(x):"]
    (tmp_path / "tests/test_some.py").write_text("\n".join([*lines, f"    {note}(str(x))", "    assert x"]))
    monkeypatch.setattr(common, "HERE", tmp_path / "benchmarks")
    options = SimpleNamespace(out=tmp_path / "out", back=None, minutes=9.0, limit=math.inf, device="cpu")
    options.started = time.monotonic()
    for _ in range(2):
        result = gpu.tests(gpu.Part(options, "tests"))
        names = (f"tests/test_some.py::test_some[{x}]" for x in (0, 1))
        assert result["finished"] and result["outcomes"] == dict(zip(names, ("FAILED", "PASSED"), strict=True))
    assert sorted((tmp_path / "runs").read_text()) == ["0", "0", "1"]
