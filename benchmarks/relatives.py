"""BERT and its relatives, each pre-trained from the same store for the same time, then fine-tuned with three seeds.

    OMP_NUM_THREADS=1 python benchmarks/relatives.py --corpus STORE --work DIR [--hours 0.1667] [--smoke]

The recipes are pretrain/{study,roberta-cpu,albert-cpu,gpt-cpu} with four layers, and a student of two, distill/cpu,
that learns from the BERT of this very run, beside the same student without a teacher. Fine-tuning is finetune/study on
MRPC and the first rows of SST-2 and CoNLL-2003, beside BERT's shape with random weights. Every run is a folder in
--work: rerun the command to resume after a stop. The runs take turns, so that equal time means the same for all.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from bertworks.checkpoint.folder import load_model
from bertworks.cli import main as bertworks
from bertworks.config import RECIPES
from bertworks.data.store import Store
from bertworks.files import read_json
from bertworks.reporting.run_files import read_log
from bertworks.tasks.catalogue import find_task

SEEDS = (1, 2, 3)
SMOKE = {"only": ["BERT", "DistilBERT"], "seeds": (1, 2), "hours": 0.0}


@dataclass(frozen=True)
class Side:
    """One encoder: how its training is started."""

    name: str
    verb: str  # pretrain or distill
    recipe: str
    flags: tuple[str, ...] = ()


IN_HOURS = ("--loop.tokens", "0")  # study.toml's budget is in tokens
SIDES = (
    Side("BERT", "pretrain", "pretrain/study.toml", ("--model.num-hidden-layers", "4", *IN_HOURS)),
    Side("RoBERTa", "pretrain", "pretrain/roberta-cpu.toml"),
    Side("ALBERT", "pretrain", "pretrain/albert-cpu.toml"),
    Side("GPT", "pretrain", "pretrain/gpt-cpu.toml"),
    Side("DistilBERT", "distill", "distill/cpu.toml"),
    Side("two layers without a teacher", "pretrain", "pretrain/study.toml", ("--objective", "mlm", *IN_HOURS)),
)
RANDOM = "random weights"  # of the shape of the first side


@dataclass(frozen=True)
class Column:
    """A task of fine-tuning. Rows end with `between`; the first line of a .tsv is its head."""

    task: str
    folder: str  # under --data
    metric: str = "accuracy"
    rows: int = 0  # of its training file; 0 means all
    between: bytes = b"\n"
    flags: tuple[str, ...] = ()


COLUMNS = (
    Column("mrpc", "glue/MRPC"),
    Column("sst2", "glue/SST-2", rows=5001),
    Column("conll2003", "conll2003", "f1", 5000, b"\n\n", ("--max-seq-length", "128")),
)


def run(args: Any, *words: str) -> None:
    """One `bertworks` command, in a process of its own or, with --smoke, in this one; it prints to standard error."""
    print("$ bertworks", *words, file=sys.stderr)
    if args.smoke:
        bertworks([*words])
    else:
        subprocess.run([sys.executable, "-m", "bertworks.cli", *words], check=True, stdout=sys.stderr)


def folder_of(work: Path, side: Side) -> Path:
    return work / side.name.lower().replace(" ", "-")


def train(side: Side, args: Any) -> None:
    out = folder_of(args.work, side)
    words = [side.verb, str(RECIPES / side.recipe), "--corpus", str(args.corpus), "--out", str(out)]
    teacher = ["--teacher", str(folder_of(args.work, SIDES[0]))] if side.verb == "distill" else []
    tiny = ["--loop.steps", "2", "--eval-batches", "1"] if args.smoke else []
    if args.smoke and side.verb == "pretrain":
        width = ["--model.hidden-size", "32", "--model.intermediate-size", "64", "--snapshots"]
        tiny += ["--model.vocab-size", str(Store.open(args.corpus).vocab_size), *width]
    run(args, *words, *teacher, *side.flags, "--loop.hours", str(args.hours), *tiny)


def rows_of(column: Column, args: Any) -> Path:
    """A folder with the first training rows of a task and all its development rows."""
    source, out, task = args.data / column.folder, args.work / "rows" / column.task, find_task(column.task)
    out.mkdir(parents=True, exist_ok=True)
    train = (source / task.train).read_bytes()
    if column.rows:
        train = column.between.join(train.split(column.between)[: column.rows]) + column.between
    (out / task.train).write_bytes(train)
    (out / task.dev).write_bytes((source / task.dev).read_bytes())
    return out


def scores(name: str, model: Path, args: Any) -> dict[str, Any]:
    """Three seeds of each task on the development rows, from an encoder or from random weights of its shape."""
    found: dict[str, Any] = {}
    for column in COLUMNS:
        out = args.work / "finetune" / f"{name.lower().replace(' ', '-')}-{column.task}"
        words = ["finetune", "--recipe", str(RECIPES / "finetune/study.toml"), "--task", column.task, "--out", str(out)]
        words += ["--model", str(model), "--data", str(rows_of(column, args)), *column.flags]
        run(args, *words, "--seeds", *map(str, args.seeds), *(["--random-init"] if name == RANDOM else []))
        values = [read_json(path)["metrics"][column.metric] for path in sorted(out.glob("*/results.json"))]
        assert len(values) == len(args.seeds), values
        found[column.task] = {column.metric: values, "mean": statistics.mean(values), "sd": statistics.stdev(values)}
    return found


def facts(side: Side, work: Path) -> dict[str, Any]:
    """What one training came to: its cost, its size and the losses on held-out text, at the end and during training."""
    out = folder_of(work, side)
    results = read_json(out / "results.json")
    model = load_model(out / "model")
    evaluations = [r for r in read_log(out) if r["kind"] == "eval"]
    kept = ("steps", "tokens", "seconds", "metrics", "seed", "teacher", "student", "ratio")
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "layers": sum(p.numel() for p in model.encoder.layers.parameters()),
        **{key: results[key] for key in kept if key in results},
        "evaluations": [{k: r[k] for k in r if k in ("step", "seconds") or "_" in k} for r in evaluations],
    }


def compare(args: Any) -> common.Result:
    """Train every side, fine-tune from each and from random weights."""
    sides = [side for side in SIDES if side.name in args.only]
    for side in sides:
        train(side, args)
    report = {side.name: facts(side, args.work) for side in sides}
    folders = {side.name: folder_of(args.work, side) for side in sides}
    if SIDES[0] in sides:
        folders[RANDOM] = folder_of(args.work, SIDES[0])
    for name, folder in folders.items():
        report.setdefault(name, {})["scores"] = scores(name, folder, args)
    setting = {"hours": args.hours, "seeds": args.seeds, "threads": os.environ.get("OMP_NUM_THREADS")}
    return {"setting": setting, "sides": report, "machine": common.machine_facts()}


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = common.parser(__doc__, "relatives.json")
    parser.add_argument("--corpus", type=Path, help="a store with a vocabulary of 8,192 tokens")
    parser.add_argument("--work", type=Path, help="folder of the runs")
    parser.add_argument("--hours", type=float, default=0.1667, help="training time of each encoder")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--only", nargs="*", default=[side.name for side in SIDES], help="these encoders alone")
    with common.parsed(parser, argv, SMOKE) as args, tempfile.TemporaryDirectory() as folder:
        if args.smoke:
            args.work, args.corpus = Path(folder), common.make_store(args.data, 0.05, Path(folder))
        if not (args.work and args.corpus):
            parser.error("expected --corpus and --work, or --smoke")
        common.finish(args, compare(args))


if __name__ == "__main__":
    main(sys.argv[1:])
