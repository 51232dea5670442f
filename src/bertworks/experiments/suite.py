"""Every fine-tuning task of the paper whose files are there, one after the other, and its figures beside ours.

A task has its own defaults, several seeds, and a folder in OUT. All runs are cells of the engine (engine.py): rerun the
command to resume and to run again what failed, or start it in several processes to share the runs. A run that fails
does not end the others. The paper's figures are BERT-BASE's: tables 1, 2, 4 and 7.
"""

import contextlib
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, OtherRun, write_json, write_text
from ..finetuning.job import Job
from ..finetuning.recipe import FinetuneConfig
from ..finetuning.run import check_folder, joined_job
from ..reporting.run_files import RESULTS
from ..reporting.tables import ResultTable, points
from ..tasks.base import Task
from ..tasks.catalogue import TASKS, plain_name
from ..tasks.kinds import load_data
from ..training import machine
from ..training.run import refuse_other_folder
from .engine import Cell, Engine, Grid, failure_notes
from .spread import work_on_scheduler
from .sweep import Search, SeedRun, run_cell, with_seeds


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


def run_suite(
    config_of: Callable[[Task], FinetuneConfig],
    data: Path | str,
    model: Path | str,
    out: Path | str,
    grid: str = "",
    scheduler: str = "",
    workers: int = 0,
) -> dict[str, Any] | None:
    """Fine-tune on every task found under `data`; None if stopped, or if other processes still work on it.

    config_of: the recipe for a task. grid: the name of a sweep to choose each task's setting by; none: its defaults.
    scheduler: dask scheduler whose workers do the runs, or "local" for one with so many `workers`; none: this process.
    Returned and written to results.json: `tasks` (results or `error` of each), `rows`, `average`, `missing`. Raises
    InputError if there is none of the tasks, or `out` holds anything else.
    """
    out, data = Path(out), Path(data)
    refuse_other_folder(out)
    check_folder(out, {"kind": "suite", "suite": "paper"})
    folders, missing = find_folders(data)
    if not folders:
        wanted = ", ".join(dict.fromkeys(folder for _, folder in PAPER))
        raise InputError(f"{data}: none of the paper's tasks is here; expected some of the folders {wanted}")
    with machine.prepared_process(), machine.joined_world() as world, contextlib.ExitStack() as stack:
        runs = SuiteRuns(Grid(out), folders, model, grid, world, stack)
        for name in folders:
            runs.add(TASKS[name], config_of)
        if not runs.work(scheduler, workers):
            return None
        tasks = {name: runs.results(name) for name in folders}
    results = _results(tasks, missing, grid)
    if world.main:
        write_text(out / "suite.md", table(results).markdown())
        write_json(out / RESULTS, results)
    return results


@dataclass
class SuiteRuns:
    """The runs of all tasks. The rows of one task at a time are in memory."""

    grid: Grid
    folders: dict[str, Path]  # of the data, by task
    model: Path | str
    sweep: str
    world: machine.World
    stack: contextlib.ExitStack  # closes the task that is open
    searches: dict[str, Search] = field(default_factory=dict)  # by task
    errors: dict[str, str] = field(default_factory=dict)  # of tasks that cannot be run
    quiet: bool = False
    job: Job | None = None  # of the task that is open

    def add(self, task: Task, config_of: Callable[[Task], FinetuneConfig]) -> None:
        """The cells of a task; a recipe or a folder that does not fit is an error of this task alone."""
        try:
            search = Search(self.sweep, task.name, task.metrics[0], with_seeds(config_of(task)), self.grid, task.name)
            search.check()
            self.searches[task.name] = search
        except InputError as error:
            self._refuse(task.name, error)

    def _refuse(self, name: str, error: InputError) -> None:
        self.errors[name] = str(error)
        if self.world.main:
            print(f"{name} failed: {error}", file=sys.stderr)

    def work(self, scheduler: str = "", workers: int = 0) -> bool:
        """Run what is missing; False if stopped, or if other processes still work on it."""
        engine = self.engine()
        if self.world.main:
            self.grid.retry(engine.cells)
        if scheduler:
            grid = Grid(self.grid.folder.absolute())
            searches = {name: replace(search, grid=grid) for name, search in self.searches.items()}
            folders = {name: folder.absolute() for name, folder in self.folders.items()}
            made = (_worker_engine, grid, folders, Path(self.model).absolute(), self.sweep, searches)
            whole = work_on_scheduler(engine, scheduler, workers, *made)
        else:
            whole = engine.work()
        return whole and not engine.others_work()

    def engine(self) -> Engine[SeedRun]:
        """The cells of all tasks, and what runs them."""
        return Engine(
            [cell for search in self.searches.values() for cell in search.cells],
            self.grid,
            self._run,
            self._verify,
            after=lambda cell: self.searches[cell.work.task].prune(),
            wanted=lambda cell: cell.work.task not in self.errors,
            world=self.world,
            quiet=self.quiet,
        )

    def _run(self, cell: Cell[SeedRun]) -> dict[str, Any] | None:
        return run_cell(self._job(cell.work), cell, self.grid)

    def _verify(self, cell: Cell[SeedRun]) -> None:
        """Files that cannot be read any more are an error of the task, whose other runs are left alone."""
        if cell.work.task not in self.errors:
            try:
                self._run(cell)
            except OtherRun:
                raise
            except InputError as error:
                self._refuse(cell.work.task, error)

    def _job(self, run: SeedRun) -> Job:
        """What the runs of a task share. Raises InputError if its files are damaged."""
        task = TASKS[run.task]
        if self.job is None or self.job.task.name != task.name:
            self.job = None
            self.stack.close()
            data = load_data(task, self.folders[task.name])
            self.job = self.stack.enter_context(joined_job(run.config, task, data, self.model, self.quiet))
        return self.job

    def results(self, name: str) -> dict[str, Any]:
        """What a task came to, or why it could not be run."""
        if name in self.errors:
            return {"error": self.errors[name]}
        search = self.searches[name]
        failed = self.world.ask_first(lambda: self.grid.failures(search.cells))
        return {"error": failed[0]["message"]} if len(failed) == len(search.cells) else search.finish(self.world)


def _worker_engine(
    grid: Grid, folders: dict[str, Path], model: Path, sweep: str, searches: dict[str, Search]
) -> Engine[SeedRun]:
    """The engine of a worker, which prepares a task when a run of it comes."""
    world = machine.World(0, 1, machine.this_device())
    return SuiteRuns(grid, folders, model, sweep, world, contextlib.ExitStack(), searches, quiet=True).engine()


def find_folders(data: Path) -> tuple[dict[str, Path], list[str]]:
    """The folder of each task that is there, in `data` or in glue/ inside it; and what is not there, in words.

    Names of folders are those of the official files, in small letters or capitals, with hyphens or without.
    """
    bases = (data / "glue", data / "GLUE", data)
    inner = {plain_name(path.name): path for base in bases for path in sorted(base.glob("*")) if path.is_dir()}
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


def _results(tasks: dict[str, Any], missing: list[str], grid: str) -> dict[str, Any]:
    rows = [
        {"task": name, **figure._asdict(), **_measured(tasks[name], figure.metric)}
        for (name, _), figures in PAPER.items()
        if name in tasks
        for figure in figures
    ]
    glue = list(dict.fromkeys(figure.name for figures in list(PAPER.values())[:8] for figure in figures))
    averaged = [row for row in rows if row["name"] in glue and row["mean"] is not None]
    ours, paper = (statistics.fmean(row[key] for row in averaged) if averaged else None for key in ("mean", "paper"))
    return {
        "kind": "suite",
        "suite": "paper",
        "sweep": grid,
        "tasks": tasks,
        "rows": rows,
        "average": {"of": [row["name"] for row in averaged], "mean": ours, "paper": paper},
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


def table(results: dict[str, Any]) -> ResultTable:
    """Ours and the paper's, in hundredths."""
    rows = []
    for row in results["rows"]:
        paper = "-" if row["paper"] is None else f"{row['paper']:.1f} {row['where']}"
        metric = row["metric"].replace("_test", " (test)").replace("_mm", "")
        lost, spread = str(row["collapsed"] or "-"), points(row["sd"] if row["n"] > 1 else None)
        rows.append((row["name"], metric, str(row["n"]), points(row["mean"]), spread, lost, paper))
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
    notes += [note for found in results["tasks"].values() for note in failure_notes(found)]
    if results["missing"]:
        notes.append(f"Not there: {', '.join(dict.fromkeys(results['missing']))}.")  # two tasks may share a folder
    header = ("task", "metric", "n", "mean", "sd over seeds", "collapsed", "BERT-BASE")
    return ResultTable("The tasks of the paper", header, rows, tuple(notes))
