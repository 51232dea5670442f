"""The benchmarks' shared code, and that none of them is left out of benchmarks/smoke.py, which .ci/run runs."""

import importlib
import re
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
