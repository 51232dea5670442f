"""Measures a GPU and trains an encoder on it, in commands of less than ten minutes. Rerun a command to continue.

    benchmarks/gpu.sh day [OPTIONS]             all stages that are not finished, in this order:

    tests      the tests that need a GPU
    steps      speed and memory of a training step, beside transformers: one cell per engine, size, length and dropout
    profile    profile of our fastest cell of `steps`
    pretrain   pre-training by --recipe, in several commands; OUT/model is the model folder in bfloat16
    finetune   that encoder beside random weights on five tasks

    benchmarks/gpu.sh STAGE [OPTIONS]           one of them
    benchmarks/gpu.sh pack FOLDER PARTS         on any machine: FOLDER as files of at most --mib MiB
    benchmarks/gpu.sh receive PARTS FOLDER      the folder again, if all parts are whole
    benchmarks/gpu.sh day --device cpu          the same with a small recipe, in some ten minutes of two cores
    benchmarks/gpu.sh day --smoke               a tiny run of each on a CPU

A stage writes OUT/STAGE.json after each of its parts, and packs OUT into --back, in files of at most 15 MiB. `finished`
means that nothing is left to do; `seconds` are those of all commands. When a stage has used its --limit, `day` goes on.

- `steps`: `tokens_per_second` counts real tokens, without padding; `step_seconds` is the median. `share_of_peak`:
  useful operations per second (six per weight and token; `with_attention` adds the products of attention) beside a
  product of 8192 x 8192 matrices in the same process; `share_of_data_sheet`: beside the data sheet. `start_seconds`:
  those of the first steps, which are not counted. An engine is a value of `loop.compute`, or transformers.
- `profile`: kernels and operators by their time per step; `busy`: the fraction of it in which a kernel ran.
- `pretrain`: the learning rate follows --train-minutes of training; compiling, evaluation and saving are added.
"""

import argparse
import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import bertworks
import common
import gpu_cells
import gpu_parts
import gpu_steps
import gpu_training
from bertworks.checkpoint.folder import find_model
from bertworks.checkpoint.weights import weights_checksum
from bertworks.config import load_recipe, with_fields
from bertworks.data.opening import open_store
from bertworks.files import InputError, read_json, write_json
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.reporting.run_files import read_log
from gpu_cells import KILLED
from gpu_steps import ENGINES, Cell

SAME = ("gpu", "torch", "commit", "python", "cpu")  # facts that a result must share with this process to be continued
CELLS = [f"{shape}-0.1-{engine}" for engine in ENGINES for shape in ("base-128", "base-512", "large-128")]
SAVING = 30.0  # seconds to save the state, and to evaluate and write the model at the end
OUTCOME, TEST = re.compile(r"\b(PASSED|FAILED|ERROR|SKIPPED)\b"), re.compile(r"\S+\.py::\S+")  # of pytest -vv
NOT_FINISHED = 3  # exit status, as of `bertworks pretrain`
# Options by device. together: cells that start at the same time. reserve: seconds that a part needs at least
CUDA: dict[str, Any] = {
    **{"cells": CELLS, "batch": 256, "tokens": 32768, "together": 4, "reserve": 60.0, "tuning": {}, "seeds": [1, 2, 3]},
    **{"recipe": common.HERE / "gpu.toml", "train_minutes": 12.0, "abort_loss": 5.0},
    "limits": {"tests": 2.0, "steps": 4.0, "profile": 1.5, "finetune": 3.0},  # minutes, over all commands
}
CPU: dict[str, Any] = {
    **{"cells": [f"tiny-128-0.1-{engine}" for engine in ("static", "eager", "transformers")], "batch": 32},
    **{"tokens": 2048, "together": 1, "reserve": 20.0, "tuning": {"train_rows": 500}, "seeds": [1]},
    **{"recipe": common.HERE / "gpu-small.toml", "train_minutes": 4.0, "abort_loss": 7.0},
    "limits": {**CUDA["limits"], "finetune": 6.0},
}
SMOKE: dict[str, Any] = {
    **{"device": "cpu", "cells": [f"tiny-16-0.1-{engine}" for engine in ("static", "eager", "transformers")]},
    **{"batch": 4, "tokens": 32, "skip": 1, "steps": 2, "tasks": ["mrpc"], "minutes": math.inf, "train_minutes": 0.0},
    **{"limit": math.inf, "recipe": common.HERE / "gpu-smoke.toml", "seeds": [1]},
    "tuning": {"max_seq_length": 32, "epochs": 0.2, "batch_size": 8},
}


# ---- options and results


def parser() -> argparse.ArgumentParser:
    """The options of all stages; those without a default get that of the device."""
    made = common.parser(__doc__, "gpu")
    made.set_defaults(out=Path("gpu"), skip=8, steps=20, started=time.monotonic())
    made.add_argument("stage", nargs="?", default="day", choices=["day", "pack", "receive", *STAGES])
    made.add_argument("paths", nargs="*", type=Path, help="of `pack` and `receive`")
    made.add_argument("--mib", type=float, default=28.0, help="of a part of `pack`, at most")
    made.add_argument("--back", type=Path, help="folder that gets OUT, packed")
    made.add_argument("--minutes", type=float, default=9.0, help="of this command, start and end included")
    made.add_argument("--limit", type=float, help=f"minutes of a stage, over all commands; by default {CUDA['limits']}")
    made.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cuda: the first GPU that is visible")
    made.add_argument("--corpus", type=Path, default=Path("day/store"), help="corpus store")
    made.add_argument("--cells", nargs="+", help="of `steps`, or of `profile` alone, such as base-128-0.1-graph")
    made.add_argument("--batch", type=int, help="sequences of an update of `steps`")
    made.add_argument("--tokens", type=int, help="of its micro-batch, with padding; LARGE: half")
    made.add_argument("--recipe", type=Path, help="of `pretrain`; by default gpu.toml, on a CPU gpu-small.toml")
    made.add_argument("--run", type=Path, default=Path("runs/gpu"), help="its run folder, outside --out")
    made.add_argument("--train-minutes", type=float, help="of training, over all commands; by default 12, on a CPU 4")
    made.add_argument("--abort-minutes", type=float, default=2.0, help="of training, until a loss must have fallen")
    made.add_argument("--abort-loss", type=float, help="in nats; by default 5, on a CPU 7")
    made.add_argument("--model", type=Path, help="encoder of `finetune`; by default OUT/model")
    made.add_argument("--tasks", nargs="+", choices=gpu_training.TASKS, default=list(gpu_training.TASKS))
    return made


class Part:
    """One stage in this command: its result so far, and its time."""

    def __init__(self, options: Any, name: str) -> None:
        self.options, self.name, self.started = options, name, time.monotonic()
        options.out.mkdir(parents=True, exist_ok=True)
        self.path, self.limit = options.out / f"{name}.json", 60 * (options.limit or options.limits.get(name, math.inf))
        self.result: common.Result = dict(read_json(self.path)) if self.path.exists() else {}
        self.before = self.result.get("seconds", 0.0)

    @property
    def seconds(self) -> float:
        """Of this stage, over all commands."""
        return float(self.before + time.monotonic() - self.started)

    @property
    def left(self) -> float:
        """Seconds that the stage may still take in this command."""
        command = 60 * self.options.minutes - (time.monotonic() - self.options.started)
        return float(min(command, self.limit - self.seconds))

    def keep(self, result: common.Result) -> common.Result:
        """Write the stage's JSON into --out, and --out into --back."""
        self.result = result | {"seconds": self.seconds}
        write_json(self.path, self.result)
        if self.options.back:
            gpu_parts.pack(self.options.out, self.options.back, mib=15, level=1)
        return self.result


def facts(options: Any) -> common.Result:
    """The machine and its GPU. Ends with one line if there is none."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            f"found no CUDA device (torch {torch.__version__}); expected one; give --device cpu or --smoke without it"
        )
    return common.machine_facts() | {"device": options.device, "cuda": torch.version.cuda}


# ---- stages: each returns what its JSON has


def tests(part: Part) -> common.Result:
    """The outcome of each test that needs a GPU; those that have passed before are not repeated."""
    machine, root, outcomes = facts(part.options), common.HERE.parent, dict(part.result.get("outcomes", {}))
    files = [str(path) for path in root.glob("tests/**/test_*.py") if "pytest.mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-vv", "-n", "4", "-p", "no:cacheprovider", *files]
    command += [f"--deselect={name}" for name, outcome in outcomes.items() if outcome == "PASSED"]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True)
    timer = threading.Timer(max(1.0, part.left), gpu_cells.kill_groups, [[process]])
    timer.start()
    try:
        for line in process.stdout:  # type: ignore[union-attr]
            print(line, end="", flush=True)
            outcome, name = OUTCOME.search(line), TEST.search(line)
            if outcome and name:
                outcomes[name[0]] = outcome[0]
                part.keep({"machine": machine, "outcomes": outcomes, "finished": False})
        status = process.wait()
    finally:
        timer.cancel()
        gpu_cells.kill_groups([process])
    return part.keep({"machine": machine, "outcomes": outcomes, "finished": status in (0, 1, 5)})


def run_cells(
    part: Part, work: gpu_cells.Work, cells: Mapping[str, Mapping[str, Any]], settings: common.Result, together: int,
    fraction: float = 1.0,
) -> common.Result:  # fmt: skip
    """Run the cells that the stage's JSON lacks or that failed; write it after each; stop when the time is used.

    together: cells at the same time. fraction: of run_together.
    """
    options, machine, result = part.options, facts(part.options), part.result
    same = {name: machine.get(name) for name in SAME}
    if result and (settings, same) != (result["settings"], {name: result["machine"].get(name) for name in SAME}):
        raise SystemExit(
            f"found {part.path} of other code, settings or another machine; expected results that can be continued; "
            "give another --out"
        )
    found = result.get("cells", {})
    result = {"machine": machine, "settings": settings, "cells": found, "left_out": [], "finished": False}
    missing = [name for name in cells if "error" in found.get(name, {"error": ""})]
    for start in range(0, len(missing), together):
        if part.left < options.reserve:
            break
        group = {name: cells[name] for name in missing[start : start + together]}
        for name, one in gpu_cells.run_together(work, group, part.left, options.smoke, fraction):
            found[name] = one
            print(f"{name}: {json.dumps(one)}", file=sys.stderr, flush=True)
            part.keep(result)
    left_out = [name for name in cells if found.get(name, {"error": KILLED}).get("error", "").startswith(KILLED)]
    result["left_out"] = left_out
    if found and all("error" in cell for cell in found.values()):
        raise SystemExit(f"{part.name}: found an error in every cell; expected a result of one; see {part.path}")
    return part.keep(result | {"finished": not left_out})


def cells_of(options: Any, names: list[str], **how: Any) -> dict[str, dict[str, Any]]:
    """What each cell is given; those with an engine that this version does not have are left out."""
    common.need(options.corpus, option="--corpus")
    if lacking := [name for name in names if not Cell.named(name).is_available]:
        print(f"left out, because this version lacks such a loop.compute: {', '.join(lacking)}", flush=True)
    shared = {"store": str(options.corpus), "device": "cuda:0" if options.device == "cuda" else "cpu"}
    how = {"batch": options.batch, "tokens": options.tokens, "skip": options.skip, **how}
    return {name: {**shared, "cell": vars(Cell.named(name, **how))} for name in names if name not in lacking}


def steps(part: Part) -> common.Result:
    """Speed and memory of each cell."""
    options = part.options
    settings = {name: getattr(options, name) for name in ("batch", "tokens", "steps", "skip")}
    cells = cells_of(options, options.cells, steps=options.steps, waits=not options.smoke)
    settings["corpus"] = open_store(options.corpus, verify=False).fingerprint
    result = run_cells(part, gpu_steps.measure, cells, settings, options.together, fraction=2 / 3)
    for name, cell in result["cells"].items():
        if "share_of_data_sheet" in cell:
            print(f"{name}: {cell['share_of_data_sheet']:.1%} of the data sheet's peak, target {cell['target']:.0%}")
    return result


def profile(part: Part) -> common.Result:
    """The profile of the fastest cell, or of those that --cells names."""
    options = part.options
    names = options.cells if options.stage == "profile" else [gpu_steps.fastest(Part(options, "steps").result["cells"])]
    cells = cells_of(options, names, steps=2)
    for name, given in cells.items():
        given["trace"] = str(options.out / f"trace-{name}.json.gz")
    return run_cells(part, gpu_steps.record, cells, {"batch": options.batch, "tokens": options.tokens}, together=1)


def compute_of(part: Part) -> dict[str, Any]:
    """`loop.compute` of the pre-training as a field: that of earlier commands; static if `steps` had no CUDA graph."""
    if part.result:
        return {"loop.compute": part.result["recipe"]["loop"]["compute"]}
    fails = "error" in Part(part.options, "steps").result.get("cells", {}).get(CELLS[0], {})
    return {"loop.compute": "static"} if fails else {}


def pretrain(part: Part) -> common.Result:
    """Train until the command's time is used; write the losses, and the model of the last state."""
    options, machine = part.options, facts(part.options)
    common.need(options.corpus, option="--corpus")
    store = open_store(options.corpus, verify=False)
    fields = {"model.vocab_size": store.vocab_size, "loop.hours": options.train_minutes / 60} | compute_of(part)
    config = with_fields(load_recipe(options.recipe, PretrainConfig), fields)
    watch = gpu_training.Watch(time.monotonic() + part.left - SAVING, 60 * options.abort_minutes, options.abort_loss)

    watch.review(options.run)  # what earlier commands have trained
    run = bertworks.pretrain(config, options.corpus, options.run, quiet=options.smoke, on_record=watch)
    gpu_training.write_half(config, store, options.run, options.out / "model")
    result: common.Result = {"machine": machine, "recipe": asdict(config), "unigram_entropy": store.unigram_entropy()}
    result |= {"finished": run.finished, "results": run.details if run.finished else None, "log": read_log(options.run)}
    part.keep(result)
    watch.review(options.run)
    if run.finished:
        print(f"held-out loss {run.metrics['mlm_loss']:.2f} nats; unigram entropy {store.unigram_entropy():.2f}")
    return result


def finetune(part: Part) -> common.Result:
    """All tasks and both starts; at once on a GPU, since small batches leave most of it idle."""
    options, model = part.options, part.options.model or part.options.out / "model"
    common.need(model, option="--model")
    common.need(*(options.data / gpu_training.TASKS[task][0] for task in options.tasks))
    pairs = [*itertools.product(options.tasks, gpu_training.STARTS)]
    together = len(pairs) if options.device == "cuda" else 1
    seconds = part.left * together / len(pairs) - 15
    given = {"model": str(model), "data": str(options.data), "seeds": options.seeds, "fields": options.tuning}
    cells = {f"{task} {start}": {**given, "task": task, "start": start, "seconds": seconds} for task, start in pairs}
    settings = {"weights": weights_checksum(find_model(model)), "fields": options.tuning}
    return run_cells(part, gpu_training.finetune, cells, settings, together)


STAGES: dict[str, Callable[[Part], common.Result]] = {
    stage.__name__: stage for stage in (tests, steps, profile, pretrain, finetune)
}


def run_stages(options: Any, names: list[str]) -> None:
    """Run the stages that are not finished. Ends with status 3 if the command's time is used before all are.

    Of several stages, one that fails does not hold up the others; then the status is 1.
    """
    failed = False
    for name in names:
        part = Part(options, name)
        if len(names) > 1 and part.result.get("finished"):
            continue
        has_time = len(names) == 1 or part.left > options.reserve
        try:
            if has_time and STAGES[name](part)["finished"]:
                print(f"{name}: finished; results in {part.path}", flush=True)
                continue
        except (SystemExit, InputError) as error:
            if len(names) == 1:
                raise
            failed = True
            print(f"{name}: {error}", flush=True)
            continue
        if part.limit - part.seconds >= options.reserve:
            print(f"{name}: not finished; rerun the command to continue")
            raise SystemExit(NOT_FINISHED)
        print(f"{name}: its {part.limit / 60:g} minutes are used; --limit gives it more", flush=True)
    if failed:
        raise SystemExit(1)


def main(argv: list[str] | None = None) -> None:
    """Run a stage, or all that are not finished yet."""
    with common.parsed(parser(), argv, SMOKE) as options, tempfile.TemporaryDirectory() as folder:
        given = {name: value for name, value in vars(options).items() if value is not None}
        vars(options).update((CUDA if options.device == "cuda" else CPU) | given)
        if options.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # training takes a GPU wherever it sees one
        if options.stage in ("pack", "receive"):
            if len(options.paths) != 2:
                raise SystemExit(f"found {len(options.paths)} paths; expected two: {options.stage} SOURCE TARGET")
            source, target = options.paths
            if options.stage == "pack":
                return print(*gpu_parts.pack(source, target, options.mib, level=19), sep="\n")
            return print(f"{target}: received{'' if gpu_parts.receive(source, target) else ' before'}")
        if options.smoke:
            work = Path(folder)
            gpu_parts.pack(common.make_store(options.data, 0.05, work), work / "parts", mib=0.01, level=1)
            gpu_parts.receive(work / "parts", work / "received")
            vars(options).update(corpus=work / "received", run=work / "run", back=work / "back", model=None)
        names = [options.stage] if options.stage != "day" else [n for n in STAGES if n != "tests" or not options.smoke]
        run_stages(options, names)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the processes of cells too
    main()
