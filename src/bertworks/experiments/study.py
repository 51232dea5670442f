"""Running a study: its cells go through the engine, and its tables and its picture are written as they are finished.

    OUT/results.json       every value, mean, difference and cost, and the state of all cells
    OUT/study.md           the same as tables, with the paper's figures
    OUT/study.png, .svg    differences from the base variant with their intervals, or curves
    OUT/cells/             the runs themselves, unless --cells names another folder (cells.py)

Rerun the command to resume. Studies with the same --cells share the runs that they have in common. A sweep or a suite
(search.py) has the best models too.
"""

import shutil
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model
from ..checkpoint.start import concatenate
from ..data.store import Store
from ..files import InputError, read_json, write_json
from ..finetuning.recipe import FinetuneConfig
from ..finetuning.run import finetune
from ..pretraining.job import held_out_metrics, pretrain
from ..pretraining.static import train_static
from ..reporting.log import duration
from ..reporting.run_files import RESULTS, read_results
from ..reporting.tables import ResultTable
from ..tasks.base import Data, Task
from ..training import machine
from ..training.run import refuse_other_folder
from .baselines import fit_baseline
from .cells import (
    Baseline,
    Concatenation,
    Finetuning,
    HeldOut,
    InitialModel,
    Pretraining,
    StaticVectors,
    StudyCell,
    StudyWork,
    describe,
    keeps_model,
    results_of,
    rows_read,
    setting_of,
)
from .choices import chosen, rows_of_run
from .engine import Engine, Grid, refuse_torchrun
from .plan import make_plan, read_rows
from .recipe import FORMAT
from .results import measure
from .rows import Plan, StudyInputs
from .search import Search
from .spread import work_on_scheduler
from .tables import write_tables

BULKY = ("model",)  # of a finished fine-tuning, many megabytes


@dataclass(frozen=True)
class Options:
    """How a study is run."""

    keep_models: bool = False  # keep the models of fine-tuning cells too
    retry: bool = False  # run cells again that diverged or failed before
    quiet: bool = False
    scheduler: str = ""  # dask scheduler whose workers run the cells, or "local"; "": this process does
    workers: int = 0  # processes of a local scheduler; 0: one for every GPU, or for every core


def run_study(plan: Plan, out: Path, folder: Path, options: Options = Options()) -> dict[str, Any] | None:
    """Run what is missing of a study; returns its results, or None if it was stopped before the end.

    folder: of the cells. Results have `left`: cells that other processes are working on.
    Raises InputError if `out` holds another study, or results in another format, or a cell had other settings.
    """
    from .figures import plot_study  # matplotlib

    grid = Grid(folder)
    check_out(plan, out)
    check_cells(plan, grid)
    out.mkdir(parents=True, exist_ok=True)
    runner, search = Runner(plan, grid, options), Search(plan, grid, out)
    runner.read_data()
    runner.tidy_finished()
    facts = machine.facts()
    if options.retry:
        grid.retry(plan.cells)
    write(search, facts)  # before any run, so that the claim is seen to be named before

    def after(cell: StudyCell) -> None:
        if plan.study.search and not options.keep_models:
            search.prune()
        write(search, facts)

    engine = Engine(plan.cells, grid, runner.run, None, after, runner.check, quiet=options.quiet)
    finished = _work_on_scheduler(engine, plan, options) if options.scheduler else engine.work()
    if plan.study.search:
        search.place_models()
    else:
        plot_study(write(search, facts), out / "study")
    results = write(search, facts)  # again, beside its picture
    return results if finished else None


def run_search(
    inputs: StudyInputs, out: Path, keep_models: bool = False, scheduler: str = "", workers: int = 0
) -> dict[str, Any] | None:
    """Run a sweep or a suite (search.py); None if it was stopped, or if other processes still work on it.

    keep_models: of all runs. scheduler, workers: as of `Options`. What failed before is run again.
    """
    refuse_torchrun("a sweep or a suite")
    options = Options(keep_models=keep_models, retry=True, scheduler=scheduler, workers=workers)
    results = run_study(make_plan(inputs), out, out / "cells", options)
    return None if results and others_work(results) else results


def show_cells(plan: Plan, folder: Path) -> None:
    """Print the cells in the order of work, their state, and what finished ones took."""
    grid, rows = Grid(folder), []
    for cell in plan.cells:
        results = results_of(cell, grid)
        took = duration(results["seconds"]) if results else ""
        rows.append((cell.title, "busy" if grid.busy(cell) else grid.state(cell), took))
    ResultTable(f"{plan.study.title}: {len(plan.cells)} runs", ("run", "state", "took"), rows).show()


def others_work(results: dict[str, Any]) -> bool:
    """Whether other processes work on runs of the study, which a message then names."""
    busy = [one["what"] for one in results["left"] if one["busy"]]
    if busy:
        print(f"other processes still work on: {'; '.join(busy)}", file=sys.stderr)
    return bool(busy)


def _work_on_scheduler(engine: Engine[StudyWork], plan: Plan, options: Options) -> bool:
    """Run the cells on the workers of a scheduler, to whom all paths are absolute."""
    theirs, folder = replace(plan, inputs=plan.inputs.for_workers()), engine.grid.folder.absolute()
    return work_on_scheduler(engine, options.scheduler, options.workers, _worker_engine, theirs, folder, options)


def _worker_engine(plan: Plan, folder: Path, options: Options) -> Engine[StudyWork]:
    """The engine of a worker."""
    runner = Runner(plan, Grid(folder), replace(options, quiet=True))
    return Engine(plan.cells, runner.grid, runner.run, check=runner.check, quiet=True)


def check_out(plan: Plan, out: Path) -> None:
    """Raises InputError if `out` is no folder of runs, or has the results of something else."""
    refuse_other_folder(out)
    path = out / RESULTS
    if not path.exists():
        return
    found = read_results(path, {}, "restore the file, or give another --out")
    expected = {"kind": "study", "study": plan.study.name, "format": FORMAT, "minute": plan.inputs.minute}
    for key, value in expected.items():
        if found.get(key) != value:
            what = " ".join(str(found[name]) for name in ("kind", "study", "task") if name in found)
            raise InputError(
                f"{out} has the results of something else ({what}): {key} is {found.get(key)!r}, expected {value!r}; "
                f"give another --out, and --cells {out / 'cells'} to use finished runs there"
            )


def check_cells(plan: Plan, grid: Grid) -> None:
    """Raises InputError if cells that were started cannot be used."""
    for cell in plan.cells:
        results_of(cell, grid)
    for row in plan.rows:
        for one in row.every:
            check_snapshot(one.start, grid)


def check_snapshot(start: InitialModel, grid: Grid) -> None:
    """Raises InputError if a finished run lacks a snapshot: it had fewer steps, or no study had asked for it."""
    if start.step is None or start.cell is None or grid.state(start.cell) != "done":
        return
    if not start.path(grid).exists():
        ended = (results_of(start.cell, grid) or {}).get("steps")
        raise InputError(
            f"{start.path(grid)}: no such snapshot; the run ended at step {ended}, or was run for a study without this "
            f"snapshot; leave it out of the study, or remove {grid.path(start.cell)} to run it again"
        )


def write(search: Search, machine: dict[str, Any]) -> dict[str, Any]:
    """Write results.json and study.md with all that is known so far; returns the results."""
    plan, path = search.plan, search.out / RESULTS
    results = measure(plan, search.grid, read_json(path) if path.exists() else None) | {"machine": machine}
    if plan.study.search:
        measured = results["measured"]
        results |= {"chosen": search.choose(measured), "best": search.best()}
    write_tables(results, search.out)
    write_json(path, results)
    return results


@dataclass
class Runner:
    """What the engine needs to run the cells of a study."""

    plan: Plan
    grid: Grid
    options: Options
    loaded: dict[tuple[str, ...], tuple[Task, Data]] = field(default_factory=dict)  # by the rows that are read

    def check(self, cell: StudyCell) -> None:
        """Raises InputError if the snapshot that the cell needs was never kept."""
        if isinstance(cell.work, Finetuning):
            check_snapshot(cell.work.start, self.grid)

    def read_data(self) -> None:
        """Read the rows of all columns, so that a damaged file is found before hours are spent.

        In a suite it fails the runs of its task alone.
        """
        if self.plan.study.search:
            return
        for cell in self.grid.left(self.plan.cells):
            if isinstance(cell.work, Finetuning | Baseline):
                self.rows(cell.work)

    def rows(self, work: Finetuning | Baseline) -> tuple[Task, Data]:
        """The task and the rows of a column, which are read once; in a suite only the last ones stay in memory."""
        key = (work.task.name, *rows_read(work.rows, work.column))
        if key not in self.loaded:
            if self.plan.study.search:
                self.loaded.clear()
            self.loaded[key] = read_rows(work, self.plan.inputs)
        return self.loaded[key]

    def run(self, cell: StudyCell) -> dict[str, Any] | None:
        """Run or resume a cell; returns its results, None if it was stopped."""
        earlier = setting_of(cell, self.grid) if self.grid.state(cell) == "part" else ()
        best = chosen(cell.work, self.grid, earlier) if isinstance(cell.work, Finetuning) else None
        describe(cell, self.grid, self._keeps_models, best)
        results = self._results(cell, best[1] if best else None)
        if results is not None:
            self._tidy(cell, self._keeps_models)
        return results

    @property
    def _keeps_models(self) -> bool:
        """Whether models of fine-tuning stay; those of a search do until a better run has ended."""
        return self.options.keep_models or self.plan.study.search

    def _results(self, cell: StudyCell, best: FinetuneConfig | None) -> dict[str, Any] | None:
        work, path, quiet = cell.work, self.grid.path(cell), self.options.quiet
        if isinstance(work, Pretraining):
            return pretrain(work.config, self.corpus, path, quiet=quiet)
        if isinstance(work, Finetuning):
            task, data = self.rows(work)
            model = find_model(work.start.path(self.grid))
            return finetune(best or work.config, task, rows_of_run(work, data), model, path, quiet)
        return self._short(work, path)

    def _short(self, work: Concatenation | StaticVectors | HeldOut | Baseline, path: Path) -> dict[str, Any]:
        """Run a cell that is no training of an encoder: it starts again after a stop. Writes its results."""
        shutil.rmtree(path / "model", ignore_errors=True)
        began, found = time.perf_counter(), {}
        if isinstance(work, StaticVectors):
            train_static(self.corpus, path / "model", work.config)
            tokens = sum(shard.n_tokens for shard in Store.open(self.corpus).shards("train"))
            found = {"metrics": {}, "steps": 0, "tokens": tokens * work.config.epochs}
        elif isinstance(work, HeldOut):
            found = {"metrics": held_out_metrics(work.config, self.corpus, find_model(work.start.path(self.grid)))}
        elif isinstance(work, Baseline):
            task, data = self.rows(work)
            found = fit_baseline(task, rows_of_run(work, data), work.config)
        else:
            left, right = (find_model(model.path(self.grid)) for model in (work.left, work.right))
            concatenate(left, right, path / "model")
        facts = {} if isinstance(work, Concatenation) else {"machine": machine.facts()}
        seconds = 0.0 if isinstance(work, Concatenation) else time.perf_counter() - began
        results = {"kind": work.kind, **found, "seconds": seconds, **facts}
        write_json(path / RESULTS, results)
        return results

    @property
    def corpus(self) -> Path:
        assert self.plan.inputs.corpus is not None  # the plan has checked it
        return self.plan.inputs.corpus

    def tidy_finished(self) -> None:
        """Tidy finished cells whose processes were killed before they could do so."""
        for cell in self.plan.cells:
            path, keep = self.grid.path(cell), keeps_model(cell, self.grid)
            bulky = cell.work.kind == "finetune" and not keep and any((path / name).exists() for name in BULKY)
            if self.grid.state(cell) == "done" and (bulky or (path / "state").exists()):
                with self.grid.claimed(cell) as mine:
                    if mine:
                        self._tidy(cell, keep or self._keeps_models)

    def _tidy(self, cell: StudyCell, keep_models: bool) -> None:
        """Remove what is unused of a finished run, so that hundreds of runs stay small."""
        path = self.grid.path(cell)
        shutil.rmtree(path / "state", ignore_errors=True)
        if cell.work.kind != "finetune" or keep_models:
            return
        for name in BULKY:
            bulky = path / name
            shutil.rmtree(bulky) if bulky.is_dir() else bulky.unlink(missing_ok=True)
