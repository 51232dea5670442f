"""Speed and memory of a training step on a GPU, side by side with transformers. Stage `steps` of gpu.sh.

    benchmarks/gpu.sh steps [--corpus STORE | --data FOLDER] [--out FOLDER] [--minutes 9] [--smoke]

A cell is BASE or LARGE, length 128 or 512, dropout 0.1 or 0, and an engine: ours `compiled` (torch.compile of the
layer, the default on a GPU), ours `eager`, `transformers`, `transformers-compiled`. Every cell trains in a fresh
process on the same instances, in bfloat16, with updates of 256 sequences in micro-batches. Loading and masking are
included, by two processes on both sides. The first steps are not counted. --together cells start and compile at the
same time, since that uses the processor; then they are measured one after the other. Of a cell the JSON has:

- `tokens_per_second`: real tokens, without padding; `step_seconds`: the median step.
- `share_of_peak`: useful operations a second beside an 8192 x 8192 x 8192 product in the same process;
  `share_of_data_sheet`: beside the data sheet. Useful are six operations a weight and token; `with_attention` adds the
  products of attention, as `flops_per_second` does.
- `memory`: the peak that torch has allocated, in bytes.
- `graphs`: graphs that torch.compile made; `compile_seconds`: what it says that they took; `start_seconds`: what the
  first steps took beyond the pace of the others, which includes compiling, beside that of other cells.

The command ends before its minutes are used. Rerun it to measure the cells that are left out, and those that failed.
"""

import dataclasses
import itertools
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import common
import gpu_common
import peaks
import pretraining
import tiny
from bertworks.data.store import Store
from bertworks.model.presets import PRESETS
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.training import machine
from bertworks.training.config import LoopConfig, OptimConfig

SIZES = ("base", "large")
ENGINES = ("compiled", "eager", "transformers", "transformers-compiled")
BATCH = 256  # sequences of an update, as in the paper
RESERVE = 75.0  # seconds that a cell needs at least: start, compiling, steps
WORKERS = 2  # processes that make batches, for both sides
SMOKE = {
    **{"device": "cpu", "sizes": ["tiny"], "lengths": [16], "dropouts": [0.1], "batch": 4, "tokens": 32, "steps": 2},
    **{"skip": 1, "megabytes": 0.05, "engines": ["eager", "transformers"]},
}


@dataclass(frozen=True)
class Cell:
    """One cell of the grid, and how it is measured."""

    size: str  # base, large; tiny: the encoder of tiny.py
    length: int
    dropout: float
    engine: str
    batch: int = BATCH
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
        shape = tiny.SHAPE if self.size == "tiny" else PRESETS[self.size]
        model = dataclasses.replace(
            shape,
            vocab_size=vocab_size,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
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
                compile="on" if self.engine == "compiled" else "off",
            ),
            phases=(Phase(self.length, 1.0, self.batch, micro),),
            workers=WORKERS if device.type == "cuda" else 0,
        )


class StepClock(pretraining.Clock):
    """A clock that also has the seconds of each step. On a GPU a step ends when it was asked for.

    waits: whether it waits for its turn one step before it counts (gpu_common.run_together).
    """

    def __init__(self, skip: int, device: torch.device, waits: bool) -> None:
        super().__init__(skip, device)
        self.skip, self.each, self.waits = skip, list[float](), waits
        self.before = self._now()

    def step(self, tokens: int, last: bool) -> None:
        self.each.append(time.perf_counter() - self.before)
        if self.waits and self.left == min(2, self.skip):  # one more that does not count: its memory was given back
            self._now()
            gpu_common.wait_for_turn()
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
    found, one = gpu_common.need_device(device), Cell(**cell)
    dtype = machine.compute_dtype("auto", found)
    before, clock = peaks.matmul_peak(found, dtype), StepClock(one.skip, found, waits)
    config = train(one, Store.open(store, verify=False), found, clock)
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


def one_cell(**given: Any) -> common.Result:
    """What a process of this script does."""
    return gpu_common.attempted(lambda: measure(**given))


def grid(options: Any) -> dict[str, Cell]:
    """The cells by name, in the order in which they are measured: those that are named, or all of one engine first."""
    how = {name: getattr(options, name) for name in ("batch", "tokens", "steps", "skip")}
    if options.cells:
        return {name: Cell.named(name, **how) for name in options.cells}
    every = itertools.product(options.engines, options.sizes, options.lengths, options.dropouts)
    cells = [Cell(size, length, dropout, engine, **how) for engine, size, length, dropout in every]
    return {cell.name: cell for cell in cells}


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


def add_cell_options(made: Any) -> None:
    """How a cell is measured."""
    made.add_argument("--batch", type=int, default=BATCH, help="sequences of an update")
    made.add_argument("--tokens", type=int, default=32768, help="cells of a micro-batch, padding included; LARGE: half")
    made.add_argument("--skip", type=gpu_common.positive, default=8, help="steps before counting")
    gpu_common.add_together(made)


def main(argv: list[str] | None = None) -> None:
    """Measure the cells that are left, write steps.json after each."""
    if common.answer(one_cell, argv):
        return
    made = gpu_common.parser(__doc__, minutes=9.0)
    gpu_common.add_corpus(made, megabytes=20)
    add_cell_options(made)
    made.add_argument("--steps", type=gpu_common.positive, default=20, help="counted steps")
    made.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    made.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    made.add_argument("--dropouts", type=float, nargs="+", default=[0.1, 0.0])
    made.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    made.add_argument("--cells", nargs="+", help="names of cells, such as base-128-0.1-compiled, in place of a grid")
    with common.parsed(made, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        facts = gpu_common.facts(gpu_common.need_device(options.device))
        store = gpu_common.corpus(options, Path(work))
        how = {name: getattr(options, name) for name in ("batch", "tokens", "steps", "skip")}
        how["corpus"] = Store.open(store, verify=False).fingerprint
        result: common.Result = {"machine": facts, "settings": how}
        result["cells"] = gpu_common.earlier(options, "steps", facts, how)
        given = {"store": str(store), "device": options.device}
        cells = {name: {**given, "cell": vars(cell)} for name, cell in grid(options).items()}
        gpu_common.run_cells(options, "steps", result, one_cell, cells, RESERVE)
        gpu_common.finish(options, "steps", result)


if __name__ == "__main__":
    main()
