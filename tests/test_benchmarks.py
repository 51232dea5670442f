"""The benchmarks' shared code, and that none of them is left out of benchmarks/smoke.py, which .ci/run runs."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("common")


def test_every_benchmark_is_run_by_the_smoke(common):
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    assert {*importlib.import_module("smoke").SCRIPTS} == scripts - {"smoke"}


def test_a_result_names_its_machine(common):
    facts = common.machine_facts()
    assert {"cpu", "cores", "threads", "torch", "python", "commit"} <= facts.keys()
    assert re.fullmatch(r"AMX|AVX-512 bf16|[A-Z0-9-]+", facts["kind"]) and re.fullmatch(
        r"\d{4}-\d\d-\d\d", facts["date"]
    )


def test_a_smoke_keeps_nothing(common, tmp_path):
    parser = common.parser("doc", "some.json")
    with common.parsed(parser, ["--smoke", "--out", str(tmp_path / "kept.json")], {}) as options:
        common.need(options.data / common.TEXT, options.data / common.VOCAB)
        common.finish(options, {"a": 1})
        assert options.out.exists()
    assert not options.out.exists() and not [*tmp_path.iterdir()]


def test_batches_by_length_give_each_row_its_own_result(common):
    batches, lengths = [], [3, 9, 1, 7, 5]
    results = common.by_length(lambda rows: batches.append(rows) or [10 * row for row in rows], lengths, 2)
    assert results == [0, 10, 20, 30, 40] and batches == [[1, 3], [4, 0], [2]]


def test_engines_are_multiples_of_sentence_transformers(common):
    inference = importlib.import_module("inference")
    seconds = {inference.PEER: 40.0, inference.EXACT: 10.0}
    engines = {name: inference.times([one] * 3, [one / 100] * 6, 20) for name, one in seconds.items()}
    ours = inference.with_ratios(engines)[inference.EXACT]
    assert (ours["texts_a_second"], ours["times_peer"], ours["single_times_peer"]) == (2.0, 4.0, pytest.approx(4.0))
    assert inference.with_ratios({inference.EXACT: engines[inference.EXACT]}).keys() == {inference.EXACT}


# ---- gpu.py


@pytest.fixture
def gpu(common):
    return importlib.import_module("gpu")


@pytest.fixture
def cells(common):
    return importlib.import_module("gpu_cells")


def gpu_options(gpu, out, **changes):
    options = gpu.parser().parse_args(["steps", "--device", "cpu", "--out", str(out)])
    vars(options).update(begun=0.0, **changes)
    return options


def test_cells_are_measured_until_the_minutes_are_used_and_continued(gpu, cells, monkeypatch, tmp_path):
    clock, machine = [0.0], {"torch": "2"}
    monkeypatch.setattr(gpu.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(gpu, "facts", lambda options: machine)

    def run_together(work, cells, seconds, here, fraction):
        ((name, given),) = cells.items()
        clock[0] += 60.0
        yield name, {"seconds_left": seconds} if given["works"] else {"error": "out of memory"}

    monkeypatch.setattr(cells, "run_together", run_together)
    options = gpu_options(gpu, tmp_path, minutes=3.0, together=1)
    given = {"a": {"works": True}, "b": {"works": False}, "c": {"works": True}}
    result = gpu.run_cells(options, "steps", None, given, {"steps": 3})
    assert result["cells"] == {"a": {"seconds_left": 180.0}, "b": {"error": "out of memory"}}
    assert result["left_out"] == ["c"] and not result["finished"] and result == gpu.earlier(options, "steps")
    with pytest.raises(SystemExit, match="give another --out"):
        gpu.run_cells(options, "steps", None, given, {"steps": 4})
    given["b"], options.begun = {"works": True}, clock[0]
    again = gpu.run_cells(options, "steps", None, given, {"steps": 3})
    assert {*again["cells"]} == {"a", "b", "c"} and again["left_out"] == [] and again["finished"]
    assert not any("error" in cell for cell in again["cells"].values())


def test_a_cell_runs_in_a_process_of_its_own_and_its_error_is_recorded(common, cells):
    found = dict(cells.run_together(common.machine_facts, {"facts": {}, "wrong": {"no": 1}}, 60.0))
    assert found["facts"]["torch"] == torch.__version__ and found["wrong"]["error"].startswith("TypeError")


def shell(monkeypatch, cells, script_of):
    """Let a cell run the script that `script_of` returns for what the cell is given."""

    def started(work, given):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        return subprocess.Popen(["bash", "-c", script_of(given)], **pipes)

    monkeypatch.setattr(cells, "started", started)


def test_cells_that_are_ready_take_turns(cells, monkeypatch, tmp_path):
    """All are ready before the first is measured; what fails before it is ready gives up its turn."""
    log = tmp_path / "log"

    def script_of(given):
        if given["fails"]:
            return 'echo \'{"error": "no memory"}\''
        name = given["cell"]
        wait = f"echo begun-{name} >> {log}; sleep {name}; echo noise; echo ready; read line"
        work = f"echo measured-{name} >> {log}; sleep 0.2; echo done-{name} >> {log}"
        return f"{wait}; {work}; echo '{{\"cell\": {name}}}'"

    shell(monkeypatch, cells, script_of)
    given = {
        name: {"cell": seconds, "fails": name == "b"} for name, seconds in {"a": "0.3", "b": "0", "c": "0.1"}.items()
    }
    found = dict(cells.run_together(None, given, 60.0))
    assert found == {"a": {"cell": 0.3}, "b": {"error": "no memory"}, "c": {"cell": 0.1}}
    lines = log.read_text().split()
    assert sorted(lines[:2]) == ["begun-0.1", "begun-0.3"]
    assert lines[2:] == ["measured-0.3", "done-0.3", "measured-0.1", "done-0.1"]


def test_a_cell_that_is_not_ready_in_time_is_left_out(cells, monkeypatch):
    """Another keeps its turn, and its result is read though a worker of it still has the pipe open."""
    scripts = {"slow": "sleep 60", "fast": "echo ready; read line; sleep 60 & echo '{\"speed\": 1}'; sleep 60"}
    shell(monkeypatch, cells, lambda given: scripts[given["name"]])
    found = dict(cells.run_together(None, {name: {"name": name} for name in scripts}, 30.0, fraction=0.05))
    assert "error" in found["slow"] and found["fast"] == {"speed": 1}


def test_an_effect_counts_the_seeds_that_both_starts_have(common):
    effect = importlib.import_module("gpu_training").effect
    seeds = {"pretrained": {"1": 0.8, "2": 0.9, "3": 0.5}, "random": {"1": 0.6, "2": 0.6}}
    runs = {
        start: {"by_seed": {seed: {"accuracy": score} for seed, score in scores.items()}}
        for start, scores in seeds.items()
    }
    result = effect("sst2", runs)
    assert (result["metric"], result["n"]) == ("accuracy", 2) and result["mean"] == pytest.approx(0.25)
    assert effect("sst2", {"pretrained": {"error": "no memory"}, "random": runs["random"]}) is None


def test_a_cell_has_a_name_and_micro_batches_that_divide_its_batch(common):
    steps = importlib.import_module("gpu_steps")
    cell = steps.Cell("large", 512, 0.1, "eager", batch=250)
    assert cell.name == "large-512-0.1-eager" and steps.Cell.named(cell.name, batch=250) == cell
    assert cell.recipe(100, torch.device("cpu")).phases[0].micro_batch_size == 25
    assert steps.Cell.named("base-128-0-transformers-compiled").engine == "transformers-compiled"
    for wrong in ("base", "base-128-0.1-other", "huge-128-0.1-eager", "base-x-0.1-eager"):
        with pytest.raises(SystemExit, match="found the cell"):
            steps.Cell.named(wrong)


def test_the_model_of_a_run_is_written_in_bfloat16(common, tmp_path):
    from bertworks.checkpoint.folder import load_model

    training, tiny = importlib.import_module("gpu_training"), importlib.import_module("tiny")
    (tmp_path / "run").mkdir()
    tiny.write_model(tmp_path / "run" / "model")
    (tmp_path / "run" / "results.json").write_text("{}")
    training.write_half(tmp_path / "run", tmp_path / "half")
    ours, theirs = (load_model(tmp_path / name).state_dict() for name in ("run/model", "half"))
    assert all(torch.equal(ours[name].bfloat16().float(), theirs[name]) for name in ours)
    assert (tmp_path / "half" / "results.json").read_text() == "{}"


def test_a_pre_training_that_learns_nothing_ends_early(common):
    failure = importlib.import_module("gpu_training").failure
    assert failure({"step": 1000, "mlm_loss": 7.12}, 7.04).startswith(
        "found a loss of 7.12 nats at update 1,000; expected"
    )
    assert failure({"step": 1000, "mlm_loss": 6.9}, 7.04) == "" == failure({"step": 100, "mlm_loss": 9.0}, 7.04)
