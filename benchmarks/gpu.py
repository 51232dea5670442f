"""Measures a GPU, one stage after the other, in commands of less than ten minutes. Rerun a command to continue.

    benchmarks/gpu.sh day --corpus STORE [--data FOLDER] [--run RUN] [--out FOLDER]     every stage, in this order:

    tests        the tests that need a GPU
    steps        speed and memory of a training step, beside transformers: a cell per size, length, dropout and engine
    pretraining  a whole pre-training of 8 layers of width 512; --run keeps its state between the commands
    traces       profiles of our fastest and our slowest cell of `steps`
    finetuning   that encoder beside random weights on five tasks, all at once on the GPU

    benchmarks/gpu.sh STAGE [OPTIONS]            one of them
    benchmarks/gpu.sh build --corpus STORE       on any machine: the corpus store, of Wikipedia and books in --data
    benchmarks/gpu.sh day --smoke                a tiny run of each on a CPU

A stage writes OUT/STAGE.json after each of its parts. `finished` in it says that nothing is left to do.

- `steps`: `tokens_per_second` counts real tokens, without padding; `step_seconds` is the median step. `share_of_peak`:
  useful operations a second beside an 8192 x 8192 x 8192 product in the same process; `share_of_data_sheet`: beside the
  data sheet. Useful are six operations per weight and token; `with_attention` adds the products of attention, as
  `flops_per_second` does. `memory`: the peak that torch has allocated, in bytes. `graphs`, `compile_seconds`: what
  torch.compile reports; `start_seconds`: what the first steps took beyond the pace of the others. All cells train in
  bfloat16 on the same instances, which two processes load and mask. The first steps are not counted.
- `traces`: `kernels` and `operators` by their time per step; `busy`: the fraction of a step in which a kernel ran. The
  profiles are beside the JSON, for Perfetto. The profiler makes steps slower; `unrecorded_step_seconds` are without it.
- `pretraining`: the losses; OUT/model is the model folder in bfloat16. A run whose loss is not below that of word
  frequencies after 800 updates has failed, and ends. The recipe differs from the paper in an initialization that lets
  learned positions leave their plateau early (docs/plateau.md), in 40 % masked tokens and in its batch.
- `finetuning`: the metrics on development examples by seed, and `effects`: pre-trained minus random, the mean over the
  seeds and its 95 % interval. It is a statement about one encoder.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import common
import gpu_cells
import gpu_steps
import gpu_training
from bertworks.data.opening import open_store
from bertworks.files import read_json, write_json
from bertworks.reporting.run_files import LOG, read_log
from gpu_steps import ENGINES, SIZES, Cell

SAME = ("gpu", "torch", "commit", "python", "cpu")  # facts that a result must share with this process to be continued
CELLS = [
    f"{size}-{length}-{dropout}-{engine}"
    for engine, size, length, dropout in itertools.product(ENGINES, SIZES, (128, 512), (0.1, 0))
]
RESERVE = 75.0  # seconds that a cell needs at least: start, compiling, steps
SAVING = 30.0  # seconds to save the state, and to evaluate and write the model at the end
BOOKS = Path("text", "books.tar.zst")
NOT_FINISHED = 3  # exit status, as of `bertworks pretrain`
SMOKE = {
    **{"device": "cpu", "cells": ["tiny-16-0.1-eager", "tiny-16-0.1-transformers"], "batch": 4, "tokens": 32},
    **{"skip": 1, "steps": 2, "megabytes": 0.05, "tasks": ["mrpc"], "seeds": [1]},
}


# ---- options and results


def parser() -> argparse.ArgumentParser:
    """The options of all stages."""
    made = common.parser(__doc__, "gpu")
    made.set_defaults(out=Path("gpu"), skip=8, steps=20, begun=time.monotonic())
    made.add_argument("stage", nargs="?", default="day", choices=["day", "build", "tests", *STAGES])
    made.add_argument("--minutes", type=float, default=9.0, help="of this command, start and end included")
    made.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cuda: the first GPU that is visible")
    made.add_argument("--corpus", type=Path, help="corpus store; left out: `steps` and `traces` build one of --data")
    made.add_argument("--megabytes", type=float, default=95.0, help="of text in a store that is built")
    made.add_argument("--cells", nargs="+", default=[], help="of `steps` and `traces`, such as base-128-0.1-compiled")
    made.add_argument("--together", type=int, default=4, help="cells that start and compile together, then take turns")
    made.add_argument("--batch", type=int, default=Cell.batch, help="sequences of an update of `steps`")
    made.add_argument("--tokens", type=int, default=Cell.tokens, help="of its micro-batch, with padding; LARGE: half")
    made.add_argument("--run", type=Path, default=Path("runs/gpu"), help="run folder of `pretraining`")
    made.add_argument("--train-minutes", type=float, default=14.0, help="of training, over all commands")
    made.add_argument("--lr", type=float, default=6e-4, help="peak learning rate of `pretraining`")
    made.add_argument("--model", type=Path, help="encoder of `finetuning`; left out: that of --run")
    made.add_argument("--tasks", nargs="+", choices=gpu_training.TASKS, default=list(gpu_training.TASKS))
    made.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of `finetuning`, as many as fit")
    return made


def seconds_left(options: Any) -> float:
    """Seconds of the command's minutes that are not used yet."""
    return 60 * float(options.minutes) - (time.monotonic() - options.begun)


def facts(options: Any) -> common.Result:
    """The machine and its GPU. Ends with one line if there is none."""
    found = common.machine_facts() | {"device": options.device}
    if options.device == "cpu":
        return found
    if not torch.cuda.is_available():
        raise SystemExit(
            f"found no CUDA device (torch {torch.__version__}); expected one for --device cuda; use a machine with an "
            "NVIDIA GPU and a torch built for CUDA, or give --smoke for a tiny run on the CPU"
        )
    properties = torch.cuda.get_device_properties(0)
    return found | {"gpu_memory": properties.total_memory, "multiprocessors": properties.multi_processor_count,
                    "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}  # fmt: skip


def keep(options: Any, stage: str, result: common.Result) -> common.Result:
    """Write the stage's JSON into --out."""
    options.out.mkdir(parents=True, exist_ok=True)
    write_json(options.out / f"{stage}.json", result)
    return result


def earlier(options: Any, stage: str) -> common.Result:
    """The stage's JSON in --out, or {}."""
    path = options.out / f"{stage}.json"
    return dict(read_json(path)) if path.exists() else {}


def corpus(options: Any, work: Path) -> Path:
    """The store that --corpus names, or one built in `work` of the text in --data."""
    if not options.corpus:
        common.need(options.data / common.TEXT, options.data / common.VOCAB)
        texts = [text for text in (common.TEXT, BOOKS) if (options.data / text).exists()]
        return common.make_store(options.data, options.megabytes, work, texts)
    common.need(options.corpus, option="--corpus")
    return Path(options.corpus)


# ---- stages: each returns what its JSON has


def run_cells(
    options: Any, stage: str, work: gpu_cells.Work, cells: Mapping[str, Mapping[str, Any]], settings: common.Result
) -> common.Result:
    """Run the cells that the stage's JSON lacks or that failed; write it after each; stop when the minutes are used."""
    result, machine = earlier(options, stage), facts(options)
    same = {name: machine.get(name) for name in SAME}
    if result and (settings, same) != (result["settings"], {name: result["machine"].get(name) for name in SAME}):
        raise SystemExit(
            f"found {options.out / stage}.json of other code, settings or another machine; expected results that can "
            "be continued; give another --out"
        )
    found = result.get("cells", {})
    result = {"machine": machine, "settings": settings, "cells": found, "left_out": [], "finished": False}
    missing = [name for name in cells if "error" in found.get(name, {"error": ""})]
    for start in range(0, len(missing), options.together):
        left = seconds_left(options)
        if left < RESERVE and not options.smoke:
            break
        group = {n: {**cells[n], "waits": not options.smoke} for n in missing[start : start + options.together]}
        for name, one in gpu_cells.run_together(work, group, left, options.smoke, fraction=2 / 3):
            found[name] = one
            print(f"{name}: {json.dumps(one)}", file=sys.stderr, flush=True)
            keep(options, stage, result)
    result["left_out"] = [name for name in cells if name not in found]
    if found and all("error" in cell for cell in found.values()):
        raise SystemExit(f"{stage}: found an error in every cell; expected a result of one at least; see {options.out}")
    return keep(options, stage, result | {"finished": not result["left_out"]})


def cells_of(options: Any, names: list[str], store: Path, **how: Any) -> dict[str, dict[str, Any]]:
    """What each cell is given."""
    shared = {"store": str(store), "device": "cuda:0" if options.device == "cuda" else "cpu"}
    how = {"batch": options.batch, "tokens": options.tokens, "skip": options.skip, **how}
    return {name: {**shared, "cell": vars(Cell.named(name, **how))} for name in names}


def steps(options: Any, work: Path) -> common.Result:
    """Speed and memory of each cell."""
    store = corpus(options, work)
    settings = {name: getattr(options, name) for name in ("batch", "tokens", "steps", "skip")}
    settings["corpus"] = open_store(store, verify=False).fingerprint
    cells = cells_of(options, options.cells or CELLS, store, steps=options.steps)
    return run_cells(options, "steps", gpu_steps.measure, cells, settings)


def traces(options: Any, work: Path) -> common.Result:
    """Profiles of two cells, or of those that --cells names."""
    names = options.cells or list(dict.fromkeys(gpu_steps.best_and_worst(earlier(options, "steps").get("cells", {}))))
    cells = cells_of(options, names, corpus(options, work), steps=2)
    for name, given in cells.items():
        given |= {"trace": str(options.out / f"trace-{name}.json.gz"), "timed": 1 if options.smoke else 8}
    options.out.mkdir(parents=True, exist_ok=True)
    return run_cells(options, "traces", gpu_steps.record, cells, {"batch": options.batch, "tokens": options.tokens})


def pretraining(options: Any, work: Path) -> common.Result:
    """Train until the minutes are used, write the losses, and the model of a finished run."""
    machine = facts(options)
    if not options.corpus:
        raise SystemExit("found no --corpus; expected a corpus store; make one with the stage `build`")
    common.need(options.corpus, option="--corpus")
    store = open_store(options.corpus, verify=False)
    results = gpu_training.train(options, seconds_left(options) - SAVING)
    records = read_log(options.run) if (options.run / LOG).exists() else []
    result: common.Result = {"machine": machine, "recipe": asdict(gpu_training.recipe(options, store.vocab_size))}
    result |= {"finished": results is not None, "results": results}
    for kind in ("train", "eval"):
        result[kind] = [{k: v for k, v in one.items() if k != "kind"} for one in records if one["kind"] == kind]
    if results is not None:
        gpu_training.write_half(options.run, options.out / "model")
    keep(options, "pretraining", result)
    if failed := gpu_training.failure(records[-1], store.unigram_entropy()) if records else "":
        raise SystemExit(failed)
    return result


def finetuning(options: Any, work: Path) -> common.Result:
    """All tasks and both starts at once, since small batches leave most of a GPU idle."""
    machine, model = facts(options), options.model or options.run
    common.need(model, option="--model")
    common.need(*(options.data / gpu_training.TASKS[task][0] for task in options.tasks))
    left = seconds_left(options)
    given = {"model": str(model), "data": str(options.data), "seeds": options.seeds, "seconds": left - 15}
    given["small"] = options.smoke
    pairs = itertools.product(options.tasks, gpu_training.STARTS)
    cells = {f"{task} {start}": {"task": task, "start": start} | given for task, start in pairs}
    found = dict(gpu_cells.run_together(gpu_training.finetune, cells, left - 5, options.smoke))
    effects = {
        task: gpu_training.effect(task, {start: found[f"{task} {start}"] for start in gpu_training.STARTS})
        for task in options.tasks
    }
    result = {"machine": machine, "model": str(model), "cells": found, "effects": effects}
    return keep(options, "finetuning", result | {"finished": any(effects.values())})


def tests(options: Any, work: Path) -> common.Result:
    """pytest's report of the tests that need a GPU."""
    facts(options)
    path = str(common.HERE.parent / "tests" / "test_gpu.py")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", path]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    return keep(options, "tests", {"finished": True, "status": done.returncode, "report": done.stdout[-20_000:]})


STAGES: dict[str, Callable[[Any, Path], common.Result]] = {
    "tests": tests,
    "steps": steps,
    "pretraining": pretraining,
    "traces": traces,
    "finetuning": finetuning,
}


# ---- the program


def run_stages(options: Any, work: Path, names: list[str]) -> None:
    """Run the stages that are not finished. Ends with status 3 if the minutes are used before all are."""
    for name in names:
        if len(names) > 1 and earlier(options, name).get("finished"):
            continue
        has_time = len(names) == 1 or seconds_left(options) > RESERVE
        if has_time and STAGES[name](options, work)["finished"]:
            print(f"{name}: finished; results in {options.out / name}.json", flush=True)
            continue
        print(f"{name}: not finished; rerun the command to continue")
        raise SystemExit(NOT_FINISHED)


def main(argv: list[str] | None = None) -> None:
    """Run a stage, or all that are not finished yet."""
    with common.parsed(parser(), argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        if options.device == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # training takes a GPU wherever it sees one
        if options.smoke:
            options.corpus, options.run = corpus(options, Path(work)), Path(work) / "run"
        names = [options.stage] if options.stage != "day" else [n for n in STAGES if n != "tests" or not options.smoke]
        if options.stage == "build":
            target, options.corpus = options.corpus, None
            if not target or target.exists():
                raise SystemExit(f"found --corpus {target}; expected a path where there is nothing yet; give another")
            corpus(options, Path(work)).rename(target)
        else:
            run_stages(options, Path(work), names)


if __name__ == "__main__":
    main()
