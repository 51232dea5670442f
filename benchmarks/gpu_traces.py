"""Profiles of the fastest and the slowest of our training steps on a GPU. Stage `traces` of gpu.sh.

    benchmarks/gpu.sh traces [--corpus STORE | --data FOLDER] [--out FOLDER] [--smoke]

The two cells are those of steps.json in --out with the most and the fewest useful operations a second; --cells names
others. Each trains in a fresh process. After the first steps, which warm up and compile, some are timed, and then
torch's profiler records a few. Of each cell --out gets `trace-CELL.json.gz`, for Perfetto or chrome://tracing, and
traces.json gets:

- `kernels`: of a GPU, by their time: seconds and calls of a step, share of all kernels.
- `operators`: the same of torch's operators, without the operators that they call. On a GPU these are the seconds of
  the kernels that an operator started.
- `step_seconds`: of the recorded steps; the profiler makes them slower. `unrecorded_step_seconds`: of those before.
- `busy`: seconds of all kernels beside that time. Kernels that run side by side can bring it above 1.
"""

import dataclasses
import gzip
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import common
import gpu_common
import gpu_steps
import pretraining
from bertworks.data.store import Store
from bertworks.files import read_json
from gpu_steps import Cell

ROWS = 60  # of each table
RESERVE = 75.0
SMOKE = {**{name: gpu_steps.SMOKE[name] for name in ("device", "batch", "tokens", "skip", "megabytes")}}
SMOKE |= {"steps": 1, "timed": 1, "cells": ["tiny-16-0.1-eager"]}


class ProfilerClock(pretraining.Clock):
    """A clock that counts `timed` steps, then turns the profiler on until the last step."""

    def __init__(self, skip: int, timed: int, device: torch.device, waits: bool) -> None:
        super().__init__(skip + timed, device)
        self.timed, self.waits, self.before = timed, waits, 0.0
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self.profile = profile(activities=activities)

    def step(self, tokens: int, last: bool) -> None:
        super().step(tokens, last)
        if self.left == self.timed:
            self._now()
            if self.waits:
                gpu_common.wait_for_turn()
            self.before = self._now()
        if self.left == 0:
            self.pace = (self.start - self.before) / self.timed
            self.profile.start()
            self.start = self._now()  # without what the profiler takes to start
        if last:
            self.profile.stop()


def by_time(profiled: profile, steps: int, device: torch.device) -> dict[str, list[dict[str, Any]]]:
    """Rows of the profiler by their own time in a step, longest first: kernels of a GPU, and operators.

    An operator's own time on a GPU is that of the kernels that it started itself.
    """
    attribute = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    found: dict[str, list[dict[str, Any]]] = {"kernels": [], "operators": []}
    for event in profiled.key_averages():
        kind = "operators" if event.device_type.name == "CPU" else "kernels"
        if spent := getattr(event, attribute, 0.0) / 1e6 / steps:
            found[kind].append({"name": event.key[:200], "seconds": spent, "calls": event.count / steps})
    for rows in found.values():
        whole = sum(row["seconds"] for row in rows)
        rows.sort(key=lambda row: -row["seconds"])
        for row in rows:
            row["share"] = row["seconds"] / whole
    return found


def measure(store: str, device: str, cell: dict[str, Any], trace: str, timed: int, waits: bool) -> common.Result:
    """Profile one cell in this process; writes its trace."""
    found, one = gpu_common.need_device(device), Cell(**cell)
    clock = ProfilerClock(one.skip, timed, found, waits)
    gpu_steps.train(dataclasses.replace(one, skip=one.skip + timed), Store.open(store, verify=False), found, clock)
    with tempfile.TemporaryDirectory() as work:
        plain = Path(work) / "trace.json"
        clock.profile.export_chrome_trace(str(plain))
        with open(plain, "rb") as source, gzip.open(trace, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
    tables, spent = by_time(clock.profile, one.steps, found), (clock.end - clock.start) / one.steps
    computed = sum(row["seconds"] for row in tables["kernels" if found.type == "cuda" else "operators"])
    return {
        "step_seconds": spent,
        "unrecorded_step_seconds": clock.pace,
        "busy": computed / spent,
        "trace": Path(trace).name,
        "trace_bytes": Path(trace).stat().st_size,
        **{name: rows[:ROWS] for name, rows in tables.items()},
    }


def one_cell(**given: Any) -> common.Result:
    """What a process of this script does."""
    return gpu_common.attempted(lambda: measure(**given))


def chosen(options: Any) -> list[str]:
    """The cells that --cells names, or the best and the worst of steps.json."""
    if options.cells:
        return list(options.cells)
    path = options.out / "steps.json"
    if not path.exists():
        raise SystemExit(f"found no {path}; expected the cells to choose from; run the stage `steps`, or give --cells")
    return list(dict.fromkeys(gpu_steps.best_and_worst(read_json(path)["cells"])))


def main(argv: list[str] | None = None) -> None:
    """Profile both cells, write traces.json and the traces."""
    if common.answer(one_cell, argv):
        return
    made = gpu_common.parser(__doc__, minutes=9.0)
    gpu_common.add_corpus(made, megabytes=10)
    gpu_steps.add_cell_options(made)
    made.add_argument("--steps", type=int, default=2, help="recorded steps")
    made.add_argument("--timed", type=int, default=8, help="steps that are timed before")
    made.add_argument("--cells", nargs="+", help="names of cells, such as base-128-0.1-compiled")
    with common.parsed(made, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        facts = gpu_common.facts(gpu_common.need_device(options.device))
        how = {name: getattr(options, name) for name in ("batch", "tokens", "steps", "skip")}
        names, store = chosen(options), gpu_common.corpus(options, Path(work))
        options.out.mkdir(parents=True, exist_ok=True)
        cells = {
            name: {
                "store": str(store),
                "device": options.device,
                "cell": vars(Cell.named(name, **how)),
                "trace": str(options.out / f"trace-{name}.json.gz"),
                "timed": options.timed,
            }
            for name in names
        }
        result: common.Result = {"machine": facts, "settings": how}
        gpu_common.run_cells(options, "traces", result, one_cell, cells, RESERVE)
        gpu_common.finish(options, "traces", result)


if __name__ == "__main__":
    main()
