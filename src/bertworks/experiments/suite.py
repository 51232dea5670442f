"""Every fine-tuning task of the paper whose files are there, one after the other, and its figures beside ours.

A task has its own defaults, several seeds, and a folder in OUT; one that fails is marked, and the others go on. Typing
the same line again resumes, and tries again what failed. The paper's figures are BERT-BASE's: tables 1, 2, 4 and 7.
"""

import os
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, write_json, write_text
from ..finetuning.job import FinetuneConfig
from ..finetuning.run import check_folder, joined_job, run_seeds
from ..reporting.tables import Sheet, points
from ..tasks.base import Task
from ..tasks.catalogue import TASKS, plain_name
from ..tasks.kinds import load_data
from ..training import machine
from .sweep import sweep


class Figure(NamedTuple):
    """A number that the paper prints."""

    name: str  # of the column or row there
    metric: str  # of ours
    paper: float | None  # BERT-BASE, in hundredths; None: not in the paper
    where: str = "test"  # what the paper's number was measured on


PAPER: dict[tuple[str, str], tuple[Figure, ...]] = {  # (task, folder)
    ("mnli", "MNLI"): (Figure("MNLI-m", "accuracy", 84.6), Figure("MNLI-mm", "accuracy_mm", 83.4)),
    ("qqp", "QQP"): (Figure("QQP", "f1", 71.2),),
    ("qnli", "QNLI"): (Figure("QNLI", "accuracy", 90.5),),
    ("sst2", "SST-2"): (Figure("SST-2", "accuracy", 93.5),),
    ("cola", "CoLA"): (Figure("CoLA", "matthews", 52.1),),
    ("stsb", "STS-B"): (Figure("STS-B", "spearman", 85.8),),
    ("mrpc", "MRPC"): (Figure("MRPC", "f1", 88.9),),
    ("rte", "RTE"): (Figure("RTE", "accuracy", 66.4),),
    ("squad1", "squad"): (Figure("SQuAD 1.1", "exact", 80.8, "dev"), Figure("SQuAD 1.1", "f1", 88.5, "dev")),
    ("squad2", "squad"): (Figure("SQuAD 2.0", "exact", None), Figure("SQuAD 2.0", "f1", None)),
    ("conll2003", "conll2003"): (Figure("CoNLL-2003", "f1", 96.4, "dev"), Figure("CoNLL-2003", "f1_test", 92.4)),
    ("swag", "swag"): (Figure("SWAG", "accuracy", 81.6, "dev"),),
}
AVERAGED = 9  # the numbers of table 1; its Average is their plain mean


def suite(
    config_of: Callable[[Task], FinetuneConfig], data: Path | str, model: Path | str, out: Path | str, grid: str = ""
) -> dict[str, Any] | None:
    """Fine-tune on every task found under `data`; None if stopped before the end.

    config_of: the recipe for a task. grid: the name of a sweep to choose each task's setting by; none: its defaults.
    Returned and written to results.json: `tasks` (results or `error` of each), `rows`, `average`, `missing`. Raises
    InputError if there is none of the tasks, or `out` holds anything else.
    """
    out, data = Path(out), Path(data)
    check_folder(out, {"kind": "suite", "suite": "paper"})
    folders, missing = find_folders(data)
    if not folders:
        wanted = ", ".join(dict.fromkeys(folder for _, folder in PAPER))
        raise InputError(f"{data}: none of the paper's tasks is here; expected some of the folders {wanted}")
    tasks: dict[str, Any] = {}
    for number, (name, folder) in enumerate(folders.items(), 1):
        if _main():
            print(f"[{number}/{len(folders)}] {name} from {folder}", file=sys.stderr)
        found = _attempt(config_of, TASKS[name], folder, model, out / name, grid)
        if found is None:
            return None
        tasks[name] = found
    results = _results(tasks, missing, grid)
    if _main():
        write_text(out / "suite.md", table(results).markdown())
        write_json(out / "results.json", results)
    return results


def _main() -> bool:
    """Whether this process, of those that torchrun started, is the one that writes."""
    return os.environ.get("RANK", "0") == "0"


def find_folders(data: Path) -> tuple[dict[str, Path], list[str]]:
    """The folder of each task that is there, in `data` or in glue/ inside it; and what is not there, in words.

    Names of folders are those of the official files, in small letters or capitals, with hyphens or without.
    """
    bases = (data / "glue", data / "GLUE", data)
    inner = {plain_name(folder.name): folder for base in bases for folder in _folders(base)}
    found, missing = {}, []
    for name, official in PAPER:
        folder, task = inner.get(plain_name(official)), TASKS.get(name)
        if task is None or folder is None:
            missing.append(official if task else name)
            continue
        lacking = [file for file in (task.train, task.dev) if not (folder / file).exists()]
        if lacking:
            missing.append(f"{name} (no {lacking[0]} in {folder.name})")
        else:
            found[name] = folder
    return found, missing


def _folders(base: Path) -> Iterator[Path]:
    return (folder for folder in sorted(base.iterdir()) if folder.is_dir()) if base.is_dir() else iter(())


def _attempt(
    config_of: Callable[[Task], FinetuneConfig], task: Task, folder: Path, model: Path | str, out: Path, grid: str
) -> dict[str, Any] | None:
    """Results of one task, or what went wrong; None if stopped."""
    try:
        config = config_of(task)
        config = replace(config, seeds=config.seeds or (config.loop.seed,))
        with joined_job(config, task, load_data(task, folder), model) as job:
            return sweep(job, out, grid) if grid else run_seeds(job, out)
    except InputError as error:
        message = str(error)
    except Exception as error:  # memory that ran out, say: hours of other tasks must not be lost by it
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
    print(f"{task.name} failed: {message}", file=sys.stderr)
    return {"error": message}


def _results(tasks: dict[str, Any], missing: list[str], grid: str) -> dict[str, Any]:
    rows = [
        {"task": name, **figure._asdict(), **_measured(tasks[name], figure.metric)}
        for (name, _), figures in PAPER.items()
        if name in tasks
        for figure in figures
    ]
    glue = list(dict.fromkeys(figure.name for figures in list(PAPER.values())[:8] for figure in figures))
    averaged = [row for row in rows if row["name"] in glue and row["mean"] is not None]
    return {
        "kind": "suite",
        "suite": "paper",
        "sweep": grid,
        "tasks": tasks,
        "rows": rows,
        "average": {
            "of": [row["name"] for row in averaged],
            "mean": statistics.fmean(row["mean"] for row in averaged) if averaged else None,
            "paper": statistics.fmean(row["paper"] for row in averaged) if averaged else None,
        },
        "missing": missing,
        "machine": machine.facts(),
    }


def _measured(found: dict[str, Any], metric: str) -> dict[str, Any]:
    """Mean and deviation of a metric; None where a task failed or has not measured it."""
    return {
        "mean": found.get("metrics", {}).get(metric),
        "sd": found.get("std", {}).get(metric),
        "n": len(found.get("seeds", [])),
        "collapsed": sum(found.get("collapsed", [])),
    }


def table(results: dict[str, Any]) -> Sheet:
    """Ours and the paper's, in hundredths."""
    rows = []
    for row in results["rows"]:
        paper = "-" if row["paper"] is None else f"{row['paper']:.1f} {row['where']}"
        metric = row["metric"].replace("_test", " (test)").replace("_mm", "")
        lost = str(row["collapsed"] or "-")
        rows.append((row["name"], metric, str(row["n"]), points(row["mean"]), points(row["sd"]), lost, paper))
    average = results["average"]
    if average["of"]:
        of = f"{len(average['of'])} of {AVERAGED}"
        rows.append((f"average, {of}", "", "", points(average["mean"]), "", "", f"{average['paper']:.1f} test"))
    notes = [
        "Ours are on the development sets, if nothing else is said; the paper's for GLUE are test scores, which only "
        "the leaderboard's server can measure."
    ]
    if results["sweep"]:
        notes.append(f"Each task's setting was chosen on dev (sweep {results['sweep']}).")
    notes += [f"{name} failed: {found['error']}" for name, found in results["tasks"].items() if "error" in found]
    if results["missing"]:
        notes.append(f"Not there: {', '.join(results['missing'])}.")
    header = ("task", "metric", "n", "mean", "sd", "collapsed", "BERT-BASE")
    return Sheet("The tasks of the paper", header, rows, tuple(notes))
