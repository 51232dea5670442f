"""The benchmarks' shared code, and that none of them is left out of benchmarks/smoke.py, which .ci/run runs."""

import importlib
import os
import re
from pathlib import Path

import pytest

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


def test_a_side_in_this_process_counts_its_memory(common):
    result = common.fresh(lambda size: {"size": len(bytearray(size))}, {"size": 1 << 20}, here=True)
    assert result["size"] == 1 << 20 and result["tree_mb"] > 10


def test_missing_data_is_named(common, tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere is missing.*--data"):
        common.need(tmp_path / "nowhere")


def test_memory_of_a_process_that_has_ended_is_nothing(common):
    watch = common.TreeMemory(os.getpid())
    watch.process = type("Gone", (), {"children": lambda self, recursive: _gone()})()
    assert watch._resident() == 0.0


def _gone():
    import psutil

    raise psutil.NoSuchProcess(1)
