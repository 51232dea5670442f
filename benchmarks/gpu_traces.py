"""Profiles of the fastest and the slowest of our training steps on a GPU. Stage `traces` of gpu.sh.

    benchmarks/gpu.sh traces [--corpus STORE | --data FOLDER] [--out FOLDER] [--smoke]

The two cells are those of steps.json in --out with the most and the fewest useful operations a second; --cells names
others. Each trains in a fresh process. After the first steps, which warm up and compile, some are timed, and then
torch's profiler records a few. Of each cell --out gets `trace-CELL.json.gz`, for Perfetto or chrome://tracing, and
traces.json gets:

- `kernels`: of a GPU, by their time: seconds and calls of a step, share of all kernels.
- `operators`: the same of torch's operators on the processor, without the operators that they call.
- `step_seconds`: of the recorded steps; the profiler makes them slower. `unrecorded_step_seconds`: of those before.
- `busy_seconds`: of a GPU, the time of a step in which a kernel ran; `busy`: its share of `step_seconds`. What is left
  is time that the GPU waited for the processor.

`--read TRACE ...` makes traces.json of traces that an interrupted command has left.
"""

import dataclasses
import gzip
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import common
import gpu_common
import gpu_steps
import pretraining
from bertworks.data.store import Store
from bertworks.files import InputError, read_json
from gpu_steps import Cell

ROWS = 60  # of each table
RESERVE = 75.0
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a trace
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
        if self.waits and self.left == self.timed + 1:  # as gpu_steps.StepClock
            self._now()
            gpu_common.wait_for_turn()
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
    try:
        with gzip.open(trace, "rt", encoding="utf-8") as file:
            events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{trace}: no trace that can be read ({error}); expected a .json.gz of the stage `traces`; name another"
        ) from error
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
    return {
        "step_seconds": (clock.end - clock.start) / one.steps,
        "unrecorded_step_seconds": clock.pace,
        "trace": Path(trace).name,
        **read_trace(Path(trace), one.steps),
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
    made.add_argument("--steps", type=gpu_common.positive, default=2, help="recorded steps")
    made.add_argument("--timed", type=gpu_common.positive, default=8, help="steps that are timed before")
    made.add_argument("--cells", nargs="+", help="names of cells, such as base-128-0.1-compiled")
    made.add_argument("--read", type=Path, nargs="+", default=[], help="traces of --steps steps that were made before")
    with common.parsed(made, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        if options.read:
            cells = {path.name: read_trace(path, options.steps) for path in options.read}
            gpu_common.finish(options, "traces", {"cells": cells})
            return
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
