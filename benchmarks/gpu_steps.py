"""Cells of the stages `steps` and `traces` of gpu.py: a training step on a GPU, ours or that of transformers."""

import dataclasses
import gzip
import json
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

SIZES = ("base", "large")
ENGINES = ("compiled", "eager", "transformers", "transformers-compiled")
ROWS = 60  # of each table of a profile
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace


@dataclass(frozen=True)
class Cell:
    """One cell of the grid, and how it is measured."""

    size: str  # base, large; tiny: the encoder of tiny.py
    length: int
    dropout: float
    engine: str
    batch: int = 256  # sequences of an update, as in the paper
    tokens: int = 32768  # cells of a micro-batch, padding included; LARGE has half
    steps: int = 20  # counted
    skip: int = 8  # steps before

    @property
    def name(self) -> str:
        return f"{self.size}-{self.length}-{self.dropout:g}-{self.engine}"

    @classmethod
    def named(cls, name: str, **how: Any) -> "Cell":
        """The cell of a name. Ends with one line if it is none."""
        size, length, dropout, engine = (*name.split("-", 3), "", "", "")[:4]
        try:
            cell = cls(size, int(length), float(dropout), engine, **how)
        except ValueError:
            cell = cls("", 0, 0.0, "")
        if cell.engine not in ENGINES or cell.size not in (*SIZES, "tiny"):
            raise SystemExit(
                f"found the cell {name!r}; expected SIZE-LENGTH-DROPOUT-ENGINE; give base-128-0.1-compiled"
            )
        return cell

    @property
    def is_ours(self) -> bool:
        return not self.engine.startswith("transformers")

    def recipe(self, vocab_size: int, device: torch.device) -> PretrainConfig:
        """The same model, batch and optimizer for both sides."""
        shape = {"tiny": tiny.SHAPE, "base": ModelConfig(), "large": tiny.LARGE}[self.size]
        model = dataclasses.replace(
            shape, vocab_size=vocab_size, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout
        )
        fits = max(1, self.tokens // self.length // (2 if self.size == "large" else 1))
        micro = next(rows for rows in range(min(fits, self.batch), 0, -1) if self.batch % rows == 0)
        return PretrainConfig(
            model=model,
            optim=OptimConfig(lr=1e-4, rule="adamw", warmup=0.0),
            loop=LoopConfig(
                steps=self.skip + self.steps,
                eval_every=0,
                save_every=0,
                save_minutes=0,
                log_every=10**9,
                compute="auto" if self.engine == "compiled" else "eager",
            ),
            phases=(Phase(self.length, 1.0, self.batch, micro),),
            workers=2 if device.type == "cuda" else 0,
        )


class StepClock(pretraining.Clock):
    """A clock that also has the seconds of each step. On a GPU a step ends when it was asked for.

    waits: whether it waits for its turn one step before it counts (gpu_cells.run_together).
    """

    def __init__(self, skip: int, device: torch.device, waits: bool) -> None:
        super().__init__(skip, device)
        self.skip, self.each, self.waits = skip, list[float](), waits
        self.before = self._now()

    def step(self, tokens: int, last: bool) -> None:
        self.each.append(time.perf_counter() - self.before)
        if self.waits and self.left == min(2, self.skip):  # one more that does not count: its memory was given back
            self._now()
            gpu_cells.wait_for_turn()
        super().step(tokens, last)
        self.before = time.perf_counter()

    def pace(self) -> float:
        """The median seconds of the counted steps."""
        return statistics.median(self.each[self.skip :])

    def beyond(self) -> float:
        """What the steps before took beyond that pace, in seconds."""
        return max(0.0, sum(self.each[: self.skip]) - self.skip * self.pace())


def train(cell: Cell, store: Store, device: torch.device, clock: pretraining.Clock) -> PretrainConfig:
    """Train the cell's steps; returns its recipe."""
    config = cell.recipe(store.vocab_size, device)
    if cell.is_ours:
        pretraining.ours(store, config, device, clock)
    else:
        compiled = cell.engine == "transformers-compiled"
        pretraining.peer(store, config, device, clock, config.workers, compiled)
    return config


def measure(store: str, device: str, cell: dict[str, Any], waits: bool) -> common.Result:
    """Train one cell in this process."""
    found, one = torch.device(device), Cell(**cell)
    dtype = compute_dtype("auto", found)
    before, clock = peaks.matmul_peak(found, dtype), StepClock(one.skip, found, waits)
    config = train(one, open_store(store, verify=False), found, clock)
    memory = machine.peak_memory(found)
    flops, rate = peaks.useful_flops(config), clock.rate()
    products = 12.0 * config.model.num_hidden_layers * config.model.hidden_size * one.length  # of attention, a token
    result: common.Result = {
        "tokens_per_second": round(rate),
        "step_seconds": clock.pace(),
        "memory": memory,
        "micro_batch": config.phases[0].micro_batch_size,
        "useful_flops_per_token": flops,
        "attention_flops_per_token": products,
        "flops_per_second": rate * (flops + products),
        **compiled(),
        "start_seconds": clock.beyond(),
        "seconds_of_each_step": clock.each,
    }
    best = max(before, peaks.matmul_peak(found, dtype))
    for name, peak in {"peak": best, "data_sheet": peaks.data_sheet_peak(found, dtype)}.items():
        if peak:
            result |= {name: peak, f"share_of_{name}": rate * flops / peak}
            result[f"share_of_{name}_with_attention"] = rate * (flops + products) / peak
    return result


def compiled() -> common.Result:
    """What torch.compile has done in this process. torch's names for it are not public, so None means unknown."""
    import torch._dynamo.utils as dynamo

    counters, times = getattr(dynamo, "counters", {}), getattr(dynamo, "compilation_time_metrics", {})
    spent = [sum(seconds) for name, seconds in times.items() if name.endswith("compile_inner")]
    return {
        "graphs": counters["stats"]["unique_graphs"] if "stats" in counters else 0,
        "frames": dict(counters["frames"]) if "frames" in counters else {},
        "compile_seconds": sum(spent) if spent or not times else None,
    }


def best_and_worst(cells: dict[str, common.Result]) -> tuple[str, str]:
    """The names of our cells with the most and the fewest operations a second."""
    speeds = {
        name: cell["flops_per_second"]
        for name, cell in cells.items()
        if "error" not in cell and Cell.named(name).is_ours
    }
    if not speeds:
        raise SystemExit("found no cell of ours in steps.json; expected one at least; run the stage `steps` first")
    return max(speeds, key=speeds.__getitem__), min(speeds, key=speeds.__getitem__)


# ---- profiles


class ProfilerClock(pretraining.Clock):
    """A clock that counts `timed` steps, then turns the profiler on until the last step."""

    def __init__(self, skip: int, timed: int, device: torch.device, waits: bool) -> None:
        super().__init__(skip + timed, device)
        self.timed, self.waits, self.before = timed, waits, 0.0
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self.profile = profile(activities=activities)

    def step(self, tokens: int, last: bool) -> None:
        super().step(tokens, last)
        if self.waits and self.left == self.timed + 1:  # as StepClock
            self._now()
            gpu_cells.wait_for_turn()
        if self.left == self.timed:
            self.before = self._now()
        if self.left == 0:
            self.pace = (self.start - self.before) / self.timed
            self.profile.start()
            self.start = self._now()  # without what the profiler takes to start
        if last:
            self.profile.stop()


def read_trace(trace: Path, steps: int) -> common.Result:
    """What a trace of so many steps says of one of them; operators on the processor have their own time."""
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    kernels = sorted((one for one in events if one.get("cat") in ON_GPU), key=begin)
    found: common.Result = {"kernel_calls": len(kernels) / steps}
    found["kernels"] = rows_of(((one["name"], one["dur"]) for one in kernels), steps)
    found["operators"] = rows_of(own_times([one for one in events if one.get("cat") == "cpu_op"]), steps)
    if kernels:
        busy, last = 0.0, 0.0
        for one in kernels:
            busy += max(0.0, end(one) - max(last, begin(one)))
            last = max(last, end(one))
        found["step_seconds"] = (last - begin(kernels[0])) / 1e6 / steps
        found["busy_seconds"] = busy / 1e6 / steps
        found["busy"] = found["busy_seconds"] / found["step_seconds"]
    return found


def begin(event: dict[str, Any]) -> float:
    """Microseconds at which an event of a trace begins."""
    return float(event["ts"])


def end(event: dict[str, Any]) -> float:
    """Microseconds at which it ends."""
    return float(event["ts"] + event["dur"])


def own_times(operators: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """The name of each operator, and its microseconds without those of the operators inside it."""
    inside: dict[int, list[dict[str, Any]]] = {}
    for one in sorted(operators, key=lambda one: (begin(one), -one["dur"])):
        around = inside.setdefault(one["tid"], [])
        while around and end(around[-1]) <= begin(one):
            around.pop()
        yield one["name"], one["dur"]
        if around:
            yield around[-1]["name"], -one["dur"]
        around.append(one)


def rows_of(times: Iterable[tuple[str, float]], steps: int) -> list[dict[str, Any]]:
    """Microseconds by name as rows, longest first: seconds and calls of a step, share of all."""
    spent, calls = Counter[str](), Counter[str]()
    for name, microseconds in times:
        spent[name] += microseconds  # type: ignore[assignment]
        calls[name] += microseconds > 0
    whole = sum(spent.values()) or 1
    return [
        {"name": name[:200], "seconds": time / 1e6 / steps, "calls": calls[name] / steps, "share": time / whole}
        for name, time in spent.most_common(ROWS)
    ]


def record(store: str, device: str, cell: dict[str, Any], trace: str, timed: int, waits: bool) -> common.Result:
    """Profile one cell in this process; writes its trace."""
    found, one = torch.device(device), Cell(**cell)
    clock = ProfilerClock(one.skip, timed, found, waits)
    train(dataclasses.replace(one, skip=one.skip + timed), open_store(store, verify=False), found, clock)
    with tempfile.TemporaryDirectory() as work:
        plain = Path(work) / "trace.json"
        clock.profile.export_chrome_trace(str(plain))
        with open(plain, "rb") as source, gzip.open(trace, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
    return {
        "step_seconds": (clock.end - clock.start) / one.steps,
        "unrecorded_step_seconds": clock.pace,
        "trace": Path(trace).name,
        **read_trace(Path(trace), one.steps),
    }
