"""The benchmarks' shared code, and that none of them is left out of benchmarks/smoke.py, which .ci/run runs."""

import argparse
import dataclasses
import importlib
import os
import re
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

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
    watch.process = type("Gone", (), {"memory_info": lambda self: _gone()})()
    watch._look()
    assert watch.peak == watch.own == watch.largest == 0.0


def _gone():
    import psutil

    raise psutil.NoSuchProcess(1)


@pytest.fixture
def rounds(common, monkeypatch, tmp_path):
    """The rounds of inference.py on two engines that take no time but the clock's: a function of the minutes."""
    inference, clock = importlib.import_module("inference"), [0.0]

    class Engine(inference.Side):
        def __init__(self, seconds):
            self.seconds, self.answer = seconds, True

        def ask(self, what, texts=()):
            if what == "memory":
                return 5_000_000
            clock[0] += self.seconds if what == "all" else 0.0
            return self.seconds if what == "all" else [0.01 * self.seconds] * 2

    engines = {inference.PEER: Engine(40.0), inference.EXACT: Engine(10.0), "export, int8": "onnxruntime is missing"}
    facts = {"cosine": {"mean": 1.0, "smallest": 0.9}, "stsb_spearman": 0.8, "pairs": 3}
    monkeypatch.setattr(inference, "mixed_texts", lambda data, count: ["a"] * count)
    monkeypatch.setattr(inference, "single_texts", lambda *given: ["a"])
    monkeypatch.setattr(inference, "started", lambda *given: iter(engines.items()))
    monkeypatch.setattr(inference, "compared", lambda options, sides, texts: dict.fromkeys(sides, facts))
    monkeypatch.setattr(inference.Tokenizer, "load", lambda folder: type("T", (), {"encode_batch": lambda s, t: []})())
    monkeypatch.setattr(inference.time, "perf_counter", lambda: clock[0])
    kept = []
    monkeypatch.setattr(common, "keep", lambda options, result: kept.append(result))

    def run(minutes):
        options = argparse.Namespace(data=tmp_path, model=tmp_path, texts=20, singles=2, rounds=5, minutes=minutes)
        return inference, inference.measure(options, tmp_path), kept

    return run


def test_rounds_of_engines_end_in_time_and_each_is_kept(rounds):
    _, result, kept = rounds(3.5)
    assert result["rounds"] == 4 and [one["rounds"] for one in kept] == [1, 2, 3, 4]  # of 50 seconds each
    assert kept[0]["engines"].keys() == result["engines"].keys() and kept[-1] == result


def test_the_first_round_of_engines_is_always_made(rounds):
    assert rounds(0.1)[1]["rounds"] == 1


def test_engines_are_multiples_of_sentence_transformers(rounds):
    inference, result, _ = rounds(60.0)
    ours = result["engines"][inference.EXACT]
    assert result["rounds"] == 5 and ours["seconds"] == [10.0] * 5 and ours["texts_a_second"] == 2.0
    assert ours["times_peer"] == 4.0 and ours["single_times_peer"] == pytest.approx(4.0)
    lines = inference.table(result).splitlines()
    assert next(line for line in lines if line.startswith("packed")).split() == [
        *("packed,", "float32", "2.0", "4.00", "100.00", "4.00", "100.00", "5", "0.9000", "0.800")
    ]
    assert lines[-1] == "export, int8: left out, onnxruntime is missing"
    alone = inference.with_ratios({inference.EXACT: {"texts_a_second": 2.0}})
    assert alone == {inference.EXACT: {"texts_a_second": 2.0}}


def test_engines_that_others_are_compared_with_are_loaded_however_late(common, monkeypatch, tmp_path):
    inference = importlib.import_module("inference")
    times = iter(range(0, 10_000, 1000))
    monkeypatch.setattr(inference.time, "perf_counter", lambda: float(next(times)))
    monkeypatch.setattr(inference, "missing", lambda name: "")
    monkeypatch.setattr(inference, "write_exports", lambda *given: None)
    monkeypatch.setattr(inference, "Side", lambda *given: type("Side", (), {"ask": lambda *asked: None})())
    engines = [inference.EXACT, "compiled, float32", inference.PEER]
    options = argparse.Namespace(engines=engines, minutes=8.0, model=tmp_path, smoke=False)
    found = dict(inference.started(options, tmp_path, ["a"], ["a"]))
    assert [name for name, side in found.items() if side == "no time was left"] == ["compiled, float32"]


def test_products_alone_are_those_of_a_step(common, monkeypatch):
    """Their operations: six for each weight and row, and six products of attention."""
    products = importlib.import_module("products")
    monkeypatch.setattr(products, "is_supported", lambda x: False)  # torch counts its own operators only
    shape, sizes = tiny_shape(hidden_size=8, intermediate_size=20, num_hidden_layers=3), products.Sizes(2, 16, 24, 7, 5)
    with FlopCounterMode(display=False) as counted:
        products.seconds_alone(shape, sizes, torch.device("cpu"), torch.float32, passes=1)
    rows = 24 * (3 * 3 * 8 * 8) + (2 * 24 + 7) * (8 * 8 + 2 * 8 * 20)  # query, key and value; what comes behind them
    layers = 6 * rows + 3 * 6 * 2 * 2 * 16 * 16 * 8
    assert counted.get_total_flops() == layers + 6 * 5 * (8 * 8 + 8 * shape.vocab_size)


def tiny_shape(**changes):
    return dataclasses.replace(importlib.import_module("tiny").SHAPE, **changes)
