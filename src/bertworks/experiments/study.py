"""Running a study: its cells go through the engine, and its tables and its picture are written as they are finished.

    OUT/results.json       every value, mean, difference and cost, and the state of all cells
    OUT/study.md           the same as tables, with the paper's figures
    OUT/study.png, .svg    differences from the base variant with their intervals, or curves
    OUT/cells/             the runs themselves, unless --cells names another folder (cells.py)

Rerun the command to resume. Studies with the same --cells share the runs that they have in common. A study that is a
search (search.py) has the best models too.
"""

import os
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model
from ..checkpoint.start import concatenate
from ..data.store import Store
from ..files import InputError, read_json, write_json
from ..finetuning.run import finetune
from ..pretraining.job import held_out_metrics, pretrain
from ..pretraining.recipe import PretrainConfig, StaticConfig
from ..pretraining.static import train_static
from ..reporting.log import duration
from ..reporting.run_files import RESULTS, read_results
from ..reporting.tables import ResultTable
from ..tasks.base import Data, Task
from ..training import machine
from ..training.run import refuse_other_folder
from .baselines import BaselineConfig, fit_baseline
from .cells import Concatenation, HeldOut, StudyCell, StudyWork, Training, Tuning, describe, results_of, setting_of
from .choices import chosen, rows_of_run
from .engine import Engine, Grid
from .plan import read_rows
from .recipe import FORMAT
from .results import measure
from .rows import Plan
from .search import Search
from .spread import work_on_scheduler
from .tables import write_tables


@dataclass(frozen=True)
class Options:
    """How a study is run."""

    keep_models: bool = False  # keep the models of all fine-tuning cells
    quiet: bool = False
    scheduler: str = ""  # dask scheduler whose workers run the cells, or "local"; "": this process does
    workers: int = 0  # processes of a local scheduler; 0: one for every GPU, or for every core


def run_study(plan: Plan, out: Path, folder: Path, options: Options = Options()) -> dict[str, Any] | None:
    """Run what is missing of a study, and what has failed; returns its results.

    folder: of the cells. None if the study was stopped, or if other processes still work on its cells. Raises
    InputError if `out` holds another study, or results in another format, or a cell had other settings.
    """
    from .figures import plot_study  # matplotlib

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "torchrun trains one run on several processes, not several runs; start the command several times on the "
            "same --out, each on a GPU or a core of its own: the processes share the runs"
        )
    grid = Grid(folder)
    check_out(plan, out)
    check_cells(plan, grid)
    out.mkdir(parents=True, exist_ok=True)
    runner, search = Runner(plan, grid, options), Search(plan, grid, out)
    runner.read_data()
    facts = machine.facts()
    grid.retry(plan.cells)
    write(search, facts)  # before any run, so that the claim is seen to be named before

    def after(cell: StudyCell) -> None:
        if plan.study.search and not options.keep_models:
            search.prune()
        write(search, facts)

    engine = Engine(plan.cells, grid, runner.run, after, options.quiet)
    finished = _work_on_scheduler(engine, plan, options) if options.scheduler else engine.work()
    if plan.study.search:
        search.place_models()
    else:
        plot_study(write(search, facts), out / "study")
    results = write(search, facts)  # again, beside its picture
    return results if finished else None


def show_cells(plan: Plan, folder: Path) -> None:
    """Print the cells in the order of work, their state, and what finished ones took."""
    grid, rows = Grid(folder), []
    for cell in plan.cells:
        results = results_of(cell, grid)
        state = "busy" if grid.busy(cell) else grid.state(cell)
        rows.append((cell.title, state, duration(results["seconds"]) if results else ""))
    ResultTable(f"{plan.study.title}: {len(plan.cells)} runs", ("run", "state", "took"), rows).show()


def _work_on_scheduler(engine: Engine[StudyWork], plan: Plan, options: Options) -> bool:
    """Run the cells on the workers of a scheduler, to whom all paths are absolute."""
    theirs, folder = replace(plan, inputs=plan.inputs.for_workers()), engine.grid.folder.absolute()
    return work_on_scheduler(engine, options.scheduler, options.workers, _worker_engine, theirs, folder, options)


def _worker_engine(plan: Plan, folder: Path, options: Options) -> Engine[StudyWork]:
    """The engine of a worker."""
    runner = Runner(plan, Grid(folder), replace(options, quiet=True))
    return Engine(plan.cells, runner.grid, runner.run, quiet=True)


def check_out(plan: Plan, out: Path) -> None:
    """Raises InputError if `out` is no folder of runs, or has the results of something else."""
    refuse_other_folder(out)
    path = out / RESULTS
    if not path.exists():
        return
    found = read_results(path, {}, "restore the file, or give another --out")
    expected = {"kind": "study", "study": plan.study.name, "format": FORMAT, "minute": plan.inputs.minute}
    there = {key: found.get(key) for key in expected}
    if there != expected:
        raise InputError(
            f"{out} has the results of something else: {there}; expected {expected}; give another --out, and --cells "
            f"{out / 'cells'} to use finished runs there"
        )


def check_cells(plan: Plan, grid: Grid) -> None:
    """Raises InputError if finished cells lack their results, or a snapshot: no study had asked for it then."""
    for cell in plan.cells:
        results_of(cell, grid)
    for start in (one.start for row in plan.rows for one in row.every):
        done = start.cell is not None and start.step is not None and grid.state(start.cell) == "done"
        if done and not start.path(grid).exists():
            raise InputError(
                f"{start.path(grid)}: no such snapshot; the run was shorter, or of a study without it; leave "
                f"the snapshot out of the study, or remove {start.path(grid).parents[1]} to run it again"
            )


def write(search: Search, machine: dict[str, Any]) -> dict[str, Any]:
    """Write results.json and study.md with all that is known so far; returns the results."""
    plan, path = search.plan, search.out / RESULTS
    results = measure(plan, search.grid, read_json(path) if path.exists() else None) | {"machine": machine}
    if plan.study.search:
        results |= {"chosen": search.choose(results["measured"]), "best": search.best()}
    write_tables(results, search.out)
    write_json(path, results)
    return results


@dataclass
class Runner:
    """Runs the cells of a study."""

    plan: Plan
    grid: Grid
    options: Options
    loaded: dict[tuple[str, ...], tuple[Task, Data]] = field(default_factory=dict)  # by the rows that are read

    def read_data(self) -> None:
        """Read the rows of all columns, so that a damaged file is found before hours are spent.

        In a search it fails the runs of its task alone.
        """
        for cell in () if self.plan.study.search else self.grid.left(self.plan.cells):
            if isinstance(cell.work, Tuning):
                self.rows(cell.work)

    def rows(self, work: Tuning) -> tuple[Task, Data]:
        """The task and the rows of a column, which are read once; in a search only the last ones stay in memory."""
        key = (work.task.name, *work.reads)
        if key not in self.loaded:
            if self.plan.study.search:
                self.loaded.clear()
            self.loaded[key] = read_rows(work, self.plan.inputs)
        return self.loaded[key]

    def run(self, cell: StudyCell) -> dict[str, Any] | None:
        """Run or resume a cell; returns its results, None if it was stopped."""
        work, path = cell.work, self.grid.path(cell)
        earlier = setting_of(cell, self.grid) if self.grid.state(cell) == "part" else ""
        best = chosen(work, self.grid, earlier) if isinstance(work, Tuning) else None
        describe(cell, self.grid, best)
        results: dict[str, Any] | None
        if isinstance(work, Training) and isinstance(work.config, PretrainConfig):
            results = pretrain(work.config, self.corpus, path, quiet=self.options.quiet)
        elif isinstance(work, Tuning) and work.start is not None:
            config: Any = best[1] if best else work.config
            task, data = self.rows(work)
            model = find_model(work.start.path(self.grid))
            results = finetune(config, task, rows_of_run(work, data), model, path, self.options.quiet)
        else:
            results = self._short(work, path)
        if results is not None:  # hundreds of finished runs stay small; a search removes models when a better run ends
            shutil.rmtree(path / "state", ignore_errors=True)
            if work.kind == "finetune" and not self.options.keep_models and not self.plan.study.search:
                shutil.rmtree(path / "model", ignore_errors=True)
        return results

    def _short(self, work: StudyWork, path: Path) -> dict[str, Any]:
        """Run a cell that is no training of an encoder: it starts again after a stop. Writes its results."""
        shutil.rmtree(path / "model", ignore_errors=True)
        began, found = time.perf_counter(), dict[str, Any]()
        if isinstance(work, Concatenation):
            left, right = (find_model(model.path(self.grid)) for model in (work.left, work.right))
            concatenate(left, right, path / "model")
        elif isinstance(work, HeldOut):
            found = {"metrics": held_out_metrics(work.config, self.corpus, find_model(work.start.path(self.grid)))}
        elif isinstance(work, Training):
            assert isinstance(work.config, StaticConfig)
            train_static(self.corpus, path / "model", work.config)
            tokens = sum(shard.n_tokens for shard in Store.open(self.corpus).shards("train"))
            found = {"metrics": {}, "steps": 0, "tokens": tokens * work.config.epochs}
        else:
            assert isinstance(work.config, BaselineConfig)
            task, data = self.rows(work)
            found = fit_baseline(task, rows_of_run(work, data), work.config)
        results = {"kind": work.kind, **found, "seconds": time.perf_counter() - began, "machine": machine.facts()}
        write_json(path / RESULTS, results)
        return results

    @property
    def corpus(self) -> Path:
        assert self.plan.inputs.corpus is not None  # the plan has checked it
        return self.plan.inputs.corpus
