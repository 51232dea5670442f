"""Cells of the stages `steps` and `profile` of gpu.py: a training step on a GPU, ours or that of transformers."""

import dataclasses
import gzip
import json
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from torch.profiler import ProfilerActivity, profile

import common
import gpu_cells
import peaks
import pretraining
import tiny
from bertworks.data.opening import open_store
from bertworks.data.store import Store
from bertworks.model.config import ModelConfig
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.training import machine
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.precision import compute_dtype

TARGETS = {"base": 0.45, "large": 0.5}  # fraction of the data sheet's peak, by size
PEERS = ("transformers-compiled", "transformers")
COMPUTE: tuple[str, ...] = get_args(get_type_hints(LoopConfig)["compute"])  # what `loop.compute` of this version allows
ENGINES = ("graph", "transformers-compiled", "static", "packed", "transformers")  # in the order of their measurement
ROWS = 60  # of each table of a profile
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace


@dataclass(frozen=True)
class Cell:
    """One cell of the grid, and how it is measured."""

    size: str  # base, large; tiny: the encoder of tiny.py
    length: int
    dropout: float
    engine: str  # a value of `loop.compute`, or a peer
    batch: int = 256  # sequences of an update, as in the paper
    tokens: int = 32768  # cells of a micro-batch, padding included; LARGE has half
    steps: int = 20  # counted
    skip: int = 8  # steps before
    waits: bool = False  # for its turn, two steps before it counts (gpu_cells.run_together)

    @classmethod
    def named(cls, name: str, **how: Any) -> "Cell":
        """The cell of a name. Ends with one line if it is none."""
        size, length, dropout, engine = (*name.split("-", 3), "", "", "")[:4]
        try:
            cell = cls(size, int(length), float(dropout), engine, **how)
        except ValueError:
            cell = cls("", 0, 0.0, "")
        if cell.engine not in (*ENGINES, *COMPUTE) or cell.size not in (*TARGETS, "tiny"):
            raise SystemExit(f"found the cell {name!r}; expected SIZE-LENGTH-DROPOUT-ENGINE; give base-128-0.1-graph")
        return cell

    @property
    def is_ours(self) -> bool:
        return self.engine not in PEERS

    @property
    def is_available(self) -> bool:
        """Whether this version of bertworks has the engine."""
        return self.engine in (*PEERS, *COMPUTE)

    def recipe(self, vocab_size: int, device: torch.device) -> PretrainConfig:
        """The same model, batch and optimizer for both sides."""
        shape = {"tiny": tiny.SHAPE, "base": ModelConfig(), "large": tiny.LARGE}[self.size]
        model = dataclasses.replace(
            shape, vocab_size=vocab_size, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout
        )
        fits = max(1, self.tokens // self.length // (2 if self.size == "large" else 1))
        micro = next(rows for rows in range(min(fits, self.batch), 0, -1) if self.batch % rows == 0)
        compute: Any = self.engine if self.is_ours else "eager"
        never = {"eval_every": 0, "save_every": 0, "save_minutes": 0, "log_every": 10**9}
        return PretrainConfig(
            model=model,
            optim=OptimConfig(lr=1e-4, rule="adamw", warmup=0.0),
            loop=LoopConfig(steps=self.skip + self.steps, compute=compute, **never),  # type: ignore[arg-type]
            phases=(Phase(self.length, 1.0, self.batch, micro),),
            workers=2 if device.type == "cuda" else 0,
        )


class StepClock(pretraining.Clock):
    """A clock that also has the seconds of each step. On a GPU a step ends when its last operation was started."""

    def __init__(self, cell: Cell, device: torch.device) -> None:
        super().__init__(cell.skip, device)
        self.cell, self.each, self.before = cell, list[float](), self._now()

    def step(self, tokens: int, last: bool) -> None:
        self.each.append(time.perf_counter() - self.before)
        if self.cell.waits and self.left == min(2, self.cell.skip):  # one more is not counted: its memory was freed
            self._now()
            gpu_cells.wait_for_turn()
        super().step(tokens, last)
        self.before = time.perf_counter()


def train(cell: Cell, store: Store, device: torch.device, clock: pretraining.Clock) -> PretrainConfig:
    """Train the cell's steps; returns its recipe."""
    config = cell.recipe(store.vocab_size, device)
    if cell.is_ours:
        pretraining.ours(store, config, device, clock)
    else:
        pretraining.peer(store, config, device, clock, config.workers, cell.engine == "transformers-compiled")
    return config


def measure(store: str, device: str, cell: dict[str, Any]) -> common.Result:
    """Train one cell in this process."""
    where, one = torch.device(device), Cell(**cell)
    dtype = compute_dtype("auto", where)
    square = 256 if one.size == "tiny" else 0
    before, clock = peaks.matmul_peak(where, dtype, square), StepClock(one, where)
    config = train(one, open_store(store, verify=False), where, clock)
    memory = machine.peak_memory(where)
    flops, rate = peaks.useful_flops(config), clock.rate()
    products = 12.0 * config.model.num_hidden_layers * config.model.hidden_size * one.length  # of attention, a token
    result: common.Result = {
        "target": TARGETS.get(one.size, 0.0),
        "tokens_per_second": round(rate),
        "step_seconds": statistics.median(clock.each[one.skip :]),
        "memory": memory,
        "micro_batch": config.phases[0].micro_batch_size,
        "useful_flops_per_token": flops,
        "flops_per_second": rate * (flops + products),
        "start_seconds": sum(clock.each[: one.skip]),
        "seconds_of_each_step": clock.each,
    }
    best = max(before, peaks.matmul_peak(where, dtype, square))
    for name, peak in {"peak": best, "data_sheet": peaks.data_sheet_peak(where, dtype)}.items():
        if peak:
            result |= {name: peak, f"share_of_{name}": rate * flops / peak}
            result[f"share_of_{name}_with_attention"] = rate * (flops + products) / peak
    return result


def fastest(cells: dict[str, common.Result]) -> str:
    """The name of our cell with the most operations per second."""
    speeds = {name: cell["flops_per_second"] for name, cell in cells.items() if "error" not in cell}
    ours = [name for name in speeds if Cell.named(name).is_ours]
    if not ours:
        raise SystemExit("found no cell of ours in steps.json; expected one at least; run the stage `steps` first")
    return max(ours, key=speeds.__getitem__)


class ProfilerClock(pretraining.Clock):
    """A clock that turns the profiler on for the counted steps."""

    def __init__(self, skip: int, device: torch.device) -> None:
        super().__init__(skip, device)
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self.profile = profile(activities=activities)

    def step(self, tokens: int, last: bool) -> None:
        super().step(tokens, last)
        if self.left == 0:
            self.profile.start()
            self.start = self._now()  # without what the profiler takes to start
        if last:
            self.profile.stop()


def kernels_of(trace: Path, steps: int) -> common.Result:
    """The kernels of one step by their time, from a trace of so many steps; how busy they keep the GPU."""
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    kernels = sorted((event for event in events if event.get("cat") in ON_GPU), key=lambda event: float(event["ts"]))
    spent, calls, busy, last = Counter[str](), Counter[str](), 0.0, 0.0
    for event in kernels:
        begin, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        spent[event["name"]] += end - begin  # type: ignore[assignment]
        calls[event["name"]] += 1
        busy, last = busy + max(0.0, end - max(last, begin)), max(last, end)
    result: common.Result = {"kernel_calls": len(kernels) / steps}
    result["kernels"] = rows_of([(name, time, calls[name]) for name, time in spent.items()], steps)
    if kernels:
        seconds = (last - float(kernels[0]["ts"])) / 1e6 / steps
        result |= {"step_seconds": seconds, "busy_seconds": busy / 1e6 / steps, "busy": busy / 1e6 / steps / seconds}
    return result


def rows_of(times: list[tuple[str, float, int]], steps: int) -> list[dict[str, Any]]:
    """Name, microseconds and calls as rows, longest first: seconds and calls per step, fraction of all."""
    whole = sum(time for _, time, _ in times) or 1
    return [
        {"name": name[:200], "seconds": time / 1e6 / steps, "calls": calls / steps, "share": time / whole}
        for name, time, calls in sorted(times, key=lambda row: -row[1])[:ROWS]
    ]


def record(store: str, device: str, cell: dict[str, Any], trace: str) -> common.Result:
    """Profile one cell in this process; writes its trace."""
    where, one = torch.device(device), Cell(**cell)
    clock = ProfilerClock(one.skip, where)
    train(one, open_store(store, verify=False), where, clock)
    clock.profile.export_chrome_trace(trace)
    operators = [(row.key, row.self_cpu_time_total, row.count) for row in clock.profile.key_averages()]
    result: common.Result = {"step_seconds": (clock.end - clock.start) / one.steps, "trace": Path(trace).name}
    return result | {"operators": rows_of(operators, one.steps), **kernels_of(Path(trace), one.steps)}
