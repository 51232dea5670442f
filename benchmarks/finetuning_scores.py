"""Fine-tuning, side by side with transformers: dev scores of the same model with the same settings, seed by seed.

    python benchmarks/finetuning_scores.py --side transformers --data ../shared/data --threads 2
    python benchmarks/finetuning_scores.py --side ours --data ../shared/data --threads 2
    python benchmarks/finetuning_scores.py --summarise
    python benchmarks/finetuning_scores.py --smoke

Both sides start from all-MiniLM-L6-v2 (BERT, 6 layers of width 384, uncased) and share the settings of
finetuning_settings.py. A run writes `<task>-<side>-<seed>.json` into --out and is skipped if it has its file, so rerun
the command to resume. The tasks that are run with several seeds come first, seed by seed; then the others, with the
first of the seeds. With `--side ours-same-head` each seed begins with the head that transformers has drawn, with
`--side transformers-any-order` its Trainer draws rows in any order instead of grouping them by length.
`--summarise` writes means, sample standard deviations and differences. Needs `pip install -e '.[test,bench]'`.
"""

import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import common
from bertworks.files import read_json, write_json
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune
from bertworks.tasks.base import Data, Task
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import load_data
from bertworks.training.config import LoopConfig, OptimConfig
from finetuning_settings import FILES, FOLDERS, TASKS, Settings

# ours-same-head begins with the head that transformers has drawn; transformers-any-order does not group rows by length
SIDES = ("ours", "transformers", "ours-same-head", "transformers-any-order")
SMOKE = {"tasks": ["mrpc", "stsb", "conll2003", "squad1", "squad2"], "seeds": [1], "threads": 1}

NAMES = {f"{name}_test": f"test_{name}" for name in ("f1", "precision", "recall")}  # ours: the other system's
NAMES_2 = {"f1": "best_f1", "exact": "exact_at_best_f1", "f1_at_0": "f1", "exact_at_0": "exact"}  # SQuAD 2.0


def data_of(task: str, settings: Settings) -> tuple[Task, Data]:
    """The task and its rows, as many as the settings take."""
    known = dataclasses.replace(find_task(task), **FILES.get(task, {}))
    if task == "conll2003":
        known = dataclasses.replace(known, more={"test": "eng.testb"})
    data = load_data(known, settings.data / FOLDERS[task])
    more = {name: rows[: settings.dev_rows] for name, rows in data.more.items()}
    train, dev = data.train[: settings.rows], data.dev[: settings.dev_rows]
    return known, dataclasses.replace(data, train=train, dev=dev, more=more)


def fine_tuned(task: str, seed: int, settings: Settings, out: Path) -> dict[str, Any]:
    """Fine-tune into the run folder `out`; returns its results."""
    known, data = data_of(task, settings)
    config = FinetuneConfig(
        max_seq_length=settings.max_seq_length,
        doc_stride=settings.doc_stride or FinetuneConfig.doc_stride,
        optim=OptimConfig(
            lr=settings.lr,
            rule="adamw",
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.clip,
            warmup=settings.warmup,
            schedule="hf",
        ),
        loop=LoopConfig(seed=seed, precision="bfloat16", eval_every=10**9, save_every=10**9),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        dropout=settings.dropout,
    )
    results = finetune(config, known, data, settings.model, out, quiet=True)
    assert results is not None
    return results


def ours(task: str, seed: int, settings: Settings) -> dict[str, Any]:
    """bertworks: `metrics` (named as by the other side), `seconds` of training, `rows`, `steps`."""
    with tempfile.TemporaryDirectory() as out:
        results = fine_tuned(task, seed, settings, Path(out) / "run")
    names = NAMES_2 if task == "squad2" else NAMES
    return {
        "metrics": {names.get(name, name): value for name, value in results["metrics"].items()},
        "collapsed": results["collapsed"],
        "seconds": results["seconds"],
        "rows": results["examples"],
        "steps": results["steps"],
        "tokens": results["tokens"],
        "kernels": results["kernels"],
    }


def train(side: str, task: str, seed: int, settings: Settings) -> dict[str, Any]:
    """One run of a system of SIDES."""
    if side == "ours":
        return ours(task, seed, settings)
    import finetuning_peer

    if side != "ours-same-head":
        return finetuning_peer.peer(task, seed, settings, grouped=side == "transformers")
    with tempfile.TemporaryDirectory() as folder:
        model = finetuning_peer.save_start(task, seed, settings, Path(folder))
        return ours(task, seed, dataclasses.replace(settings, model=model))


def plan(tasks: Iterable[str], seeds: list[int]) -> list[tuple[str, int]]:
    """The runs in their order: every task of several seeds for the first seed, then for the second; the rest last."""
    tasks = list(tasks)
    runs = [(task, seed) for seed in seeds for task in tasks if TASKS[task].seeds is None]
    return runs + [(task, seed) for task in tasks for seed in seeds[: TASKS[task].seeds or 0]]


def run(side: str, options: Any) -> None:
    """Every run that has no file yet."""
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    for task, seed in plan(options.tasks, options.seeds):
        path = options.out / f"{task}-{side}-{seed}.json"
        if path.exists():
            continue
        settings = dataclasses.replace(TASKS[task], data=options.data, model=options.model)
        if options.limit:
            settings = dataclasses.replace(settings, rows=options.limit, dev_rows=options.limit)
        start = time.perf_counter()
        head = {"task": task, "side": side, "seed": seed, "settings": settings.recorded()}
        result = {**head, **train(side, task, seed, settings)}
        result["seconds_of_all"] = time.perf_counter() - start
        result["machine"] = common.machine_facts()
        write_json(path, result)
        shown = {k: result[k] for k in ("metrics", "seconds", "seconds_of_all", "rows")}
        print(time.strftime("%H:%M:%S"), path.stem, json.dumps(shown), file=sys.stderr, flush=True)


def spread(values: list[float]) -> dict[str, Any]:
    """Mean, sample standard deviation (of two or more) and each value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": deviation, "every_seed": values}


def summarise(folder: Path) -> dict[str, Any]:
    """All finished runs by task: settings, and each metric of both sides with the difference of the means."""
    runs = [read_json(path) for path in sorted(folder.glob("*.json"))]
    if not runs:
        raise SystemExit(f"{folder}: no runs; start with --side")
    tasks: dict[str, Any] = {}
    for task in sorted({run["task"] for run in runs}, key=list(TASKS).index):
        sides = {side: [r for r in runs if (r["task"], r["side"]) == (task, side)] for side in SIDES}
        done = [run for side in SIDES for run in sides[side]]
        settings = done[0]["settings"]
        if any(run["settings"] != settings for run in done):
            raise SystemExit(f"{folder}: the runs of {task} have different settings")
        tasks[task] = {
            "settings": settings,
            "seeds": {side: [run["seed"] for run in sides[side]] for side in SIDES if sides[side]},
            "rows": {side: sides[side][0]["rows"] for side in SIDES if sides[side]},
            "steps": {side: sides[side][0]["steps"] for side in SIDES if sides[side]},
            "metrics": {
                metric: beside(sides, metric) for metric in dict.fromkeys(m for r in done for m in r["metrics"])
            },
            "seconds": {side: spread([run["seconds"] for run in sides[side]]) for side in SIDES if sides[side]},
        }
    versions = {name: value for run in runs for name, value in run.get("versions", {}).items()}
    machine = {side: next((r["machine"] for r in runs if r["side"] == side), None) for side in SIDES}
    return {
        "what": "dev scores of fine-tuning all-MiniLM-L6-v2 with the same settings; difference: ours - transformers",
        "tasks": tasks,
        "versions": versions,
        "machine": machine,
    }


def beside(sides: dict[str, list[dict[str, Any]]], metric: str) -> dict[str, Any]:
    """One metric of both sides."""
    given = {side: [run["metrics"][metric] for run in runs if metric in run["metrics"]] for side, runs in sides.items()}
    shown: dict[str, Any] = {side: spread(values) for side, values in given.items() if values}
    for side, name in (("ours", "difference"), ("ours-same-head", "difference_with_the_same_head")):
        if side in shown and "transformers" in shown:
            shown[name] = shown[side]["mean"] - shown["transformers"]["mean"]
    return shown


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments; run or summarise."""
    parser = common.parser(__doc__, "finetuning_scores")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(TASKS), help="a,b,... (all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the model both start from")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--limit", type=int, default=0, help="rows of train and dev, to try it out")
    parser.add_argument("--summarise", action="store_true", help="write the summary of --out's runs to --out.json")
    with common.parsed(parser, argv, SMOKE) as options:
        unknown = set(options.tasks) - set(TASKS)
        if unknown:
            parser.error(f"no such task: {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
        if not options.side and not options.summarise and not options.smoke:
            parser.error("expected --side, --summarise or --smoke")
        for side in SIDES if options.smoke else filter(None, [options.side]):
            common.need(options.data, options.model)
            run(side, options)
        if options.summarise or options.smoke:
            write_json(options.out.with_suffix(".json"), summarise(options.out))


if __name__ == "__main__":
    main(sys.argv[1:])
