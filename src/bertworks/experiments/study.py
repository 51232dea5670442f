"""Running a study: its cells go through the engine, and its tables and its picture are written as they are finished.

    OUT/results.json       every value, mean, difference and cost, and the state of all cells
    OUT/study.md           the same as tables, with the paper's figures
    OUT/study.png, .svg    differences from the base variant with their intervals, or curves
    OUT/cells/             the runs themselves, unless --cells names another folder (cells.py)

Rerun the command to resume. Studies with the same --cells share the runs that they have in common.
"""

import shutil
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..checkpoint.folder import find_model
from ..checkpoint.start import concatenate
from ..data.store import Store
from ..files import InputError, read_json, write_json
from ..finetuning.recipe import FinetuneConfig
from ..finetuning.run import finetune
from ..pretraining.estimate import estimate as estimate_pretraining
from ..pretraining.recipe import PretrainConfig
from ..pretraining.run import held_out_metrics, pretrain, useful_flops
from ..pretraining.static import train_static
from ..reporting.log import duration
from ..reporting.run_files import LOG, RESULTS, read_log, read_results
from ..reporting.tables import ResultTable
from ..tasks.base import Data
from ..training import machine
from ..training.run import refuse_other_folder
from .baselines import fit_baseline
from .cells import (
    TRAINED,
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
    setting_of,
)
from .choices import chosen, rows_of_run
from .engine import Engine, Grid
from .plan import read_rows
from .report import FORMAT, measure
from .rows import Plan
from .spread import work_on_scheduler
from .study_tables import write_tables

BULKY = ("model", "nbest_predictions.json")  # of a finished fine-tuning, many megabytes each


@dataclass(frozen=True)
class Options:
    """How a study is run."""

    only: Literal["", "pretrain", "finetune"] = ""  # these cells alone
    keep_models: bool = False  # keep the models of fine-tuning cells too
    retry: bool = False  # run cells again that diverged or failed before
    quiet: bool = False
    scheduler: str = ""  # dask scheduler whose workers run the cells, or "local"; "": this process does
    workers: int = 0  # processes of a local scheduler; 0: one for every GPU, or for every core


def run_study(plan: Plan, out: Path, folder: Path, options: Options = Options()) -> dict[str, Any] | None:
    """Run what is missing of a study; returns its results, or None if it was stopped before the end.

    folder: of the cells. Results have `left`: cells that other processes are working on, or that --only left out.
    Raises InputError if `out` holds another study, or results in another format, or a cell had other settings.
    """
    from .figures import plot_study  # matplotlib, which a sweep can do without

    grid = Grid(folder)
    check_out(plan, out)
    check_cells(plan, grid)
    out.mkdir(parents=True, exist_ok=True)
    runner = Runner(plan, grid, options)
    runner.read_data()
    runner.tidy_finished()
    facts = machine.facts()
    if options.retry:
        grid.retry(plan.cells)
    write(plan, grid, out, facts)  # before any run, so that the claim is seen to be named before
    after = lambda cell: write(plan, grid, out, facts)  # noqa: E731
    engine = Engine(plan.cells, grid, runner.run, None, after, runner.wanted, quiet=options.quiet)
    finished = _work_on_scheduler(engine, plan, options) if options.scheduler else engine.work()
    plot_study(write(plan, grid, out, facts), out / "study")
    results = write(plan, grid, out, facts)  # again, beside its picture
    return results if finished else None


def _work_on_scheduler(engine: Engine[StudyWork], plan: Plan, options: Options) -> bool:
    """Run the cells on the workers of a scheduler, to whom all paths are absolute."""
    inputs, folder = plan.inputs, engine.grid.folder.absolute()
    paths = {key: path.absolute() for key in ("corpus", "data") if (path := getattr(inputs, key)) is not None}
    theirs = replace(plan, inputs=replace(inputs, **paths))
    return work_on_scheduler(engine, options.scheduler, options.workers, _worker_engine, theirs, folder, options)


def _worker_engine(plan: Plan, folder: Path, options: Options) -> Engine[StudyWork]:
    """The engine of a worker."""
    runner = Runner(plan, Grid(folder), replace(options, quiet=True))
    return Engine(plan.cells, runner.grid, runner.run, wanted=runner.wanted, quiet=True)


def check_out(plan: Plan, out: Path) -> None:
    """Raises InputError if `out` is no folder of runs, or has the results of something else."""
    refuse_other_folder(out)
    path = out / RESULTS
    if not path.exists():
        return
    found = read_results(path, {}, "restore the file, or give another --out")
    if found.get("kind") != "study" or found.get("study") != plan.study.name:
        what = " ".join(str(found[key]) for key in ("kind", "study", "task") if key in found)
        raise InputError(f"{out} has the results of something else ({what}); give another --out")
    if found.get("format") != FORMAT:
        raise InputError(
            f"{path}: format {found.get('format')!r}; this program writes format {FORMAT}. Give another --out, and "
            f"--cells {out / 'cells'} if the runs are there: finished ones are not run again"
        )
    if found.get("minute") != plan.inputs.minute:
        raise InputError(f"{out} was made {'with' if found['minute'] else 'without'} --minute; give another --out")


def check_cells(plan: Plan, grid: Grid) -> None:
    """Raises InputError if cells that were begun cannot be used."""
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
        steps = (results_of(start.cell, grid) or {}).get("steps", start.step)
        if steps < start.step:
            raise InputError(
                f"{start.path(grid)}: no such snapshot, because the run ended at step {steps}, before step "
                f"{start.step}; leave that snapshot out of the study, or give the recipe a larger training budget"
            )
        raise InputError(
            f"{start.path(grid)}: no such snapshot, but the run is finished, for a study without it; remove "
            f"{grid.path(*start.needs)} to run it again"
        )


def write(plan: Plan, grid: Grid, out: Path, machine: dict[str, Any]) -> dict[str, Any]:
    """Write results.json and study.md with all that is known so far; returns the results."""
    path = out / RESULTS
    results = measure(plan, grid, read_json(path) if path.exists() else None) | {"machine": machine}
    write_tables(results, out)
    write_json(path, results)
    return results


@dataclass
class Runner:
    """What the engine needs to run the cells of a study."""

    plan: Plan
    grid: Grid
    options: Options
    loaded: dict[str, Data] = field(default_factory=dict)  # rows of each column

    def wanted(self, cell: StudyCell) -> bool:
        """Whether --only leaves the cell in. Raises InputError if the snapshot that it needs was never kept."""
        if isinstance(cell.work, Finetuning):
            check_snapshot(cell.work.start, self.grid)
        if self.options.only == "pretrain":
            return cell.work.kind in TRAINED
        if self.options.only == "finetune":
            needed = (one for one in cell.ancestors if one.work.kind in TRAINED)
            made = all(self.grid.state(one) == "done" or self.grid.busy(one) for one in needed)
            return cell.work.kind not in TRAINED and made
        return True

    def read_data(self) -> None:
        """Read the rows of all columns, so that a damaged file is found before hours are spent."""
        if self.options.only == "pretrain":
            return
        for cell in self.grid.left(self.plan.cells):
            if isinstance(cell.work, Finetuning | Baseline) and self.wanted(cell):
                self.rows(cell.work)

    def rows(self, work: Finetuning | Baseline) -> Data:
        """The rows of a column, which are read once."""
        assert self.plan.inputs.data is not None  # the plan has checked it
        name = work.column.name
        if name not in self.loaded:
            self.loaded[name] = read_rows(work, self.plan.inputs.data)
        return self.loaded[name]

    def run(self, cell: StudyCell) -> dict[str, Any] | None:
        """Run or resume a cell; returns its results, None if it was stopped."""
        begun = setting_of(cell, self.grid) if self.grid.state(cell) == "part" else ()
        best = chosen(cell.work, self.grid, begun) if isinstance(cell.work, Finetuning) else None
        describe(cell, self.grid, self.options.keep_models, best)
        results = self._results(cell, best[1] if best else None)
        if results is not None:
            self._tidy(cell, self.options.keep_models)
        return results

    def _results(self, cell: StudyCell, best: FinetuneConfig | None) -> dict[str, Any] | None:
        work, path, quiet = cell.work, self.grid.path(cell), self.options.quiet
        if isinstance(work, Pretraining):
            return pretrain(work.config, self.corpus, path, quiet=quiet)
        if isinstance(work, Finetuning):
            model, rows = find_model(work.start.path(self.grid)), rows_of_run(work, self.rows(work))
            return finetune(best or work.config, work.task, rows, model, path, quiet)
        return self._short(work, path)

    def _short(self, work: Concatenation | StaticVectors | HeldOut | Baseline, path: Path) -> dict[str, Any]:
        """Run a cell that is no training of an encoder: it begins anew after a stop. Returns and writes its results."""
        shutil.rmtree(path / "model", ignore_errors=True)
        began, found = time.perf_counter(), {}
        if isinstance(work, StaticVectors):
            train_static(self.corpus, path / "model", work.config)
            tokens = sum(shard.n_tokens for shard in Store.open(self.corpus).shards("train"))
            found = {"metrics": {}, "steps": 0, "tokens": tokens * work.config.epochs}
        elif isinstance(work, HeldOut):
            found = {"metrics": held_out_metrics(work.config, self.corpus, find_model(work.start.path(self.grid)))}
        elif isinstance(work, Baseline):
            found = fit_baseline(work.task, rows_of_run(work, self.rows(work)), work.config)
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
                        self._tidy(cell, keep or self.options.keep_models)

    def _tidy(self, cell: StudyCell, keep_models: bool) -> None:
        """Remove what nobody needs of a finished run, so that hundreds of runs stay small."""
        path = self.grid.path(cell)
        shutil.rmtree(path / "state", ignore_errors=True)
        if cell.work.kind != "finetune" or keep_models:
            return
        for name in BULKY:
            bulky = path / name
            shutil.rmtree(bulky) if bulky.is_dir() else bulky.unlink(missing_ok=True)


# ---- --dry-run


def show_cells(plan: Plan, folder: Path) -> None:
    """Print the cells in the order of work, and about how long what is left takes one process."""
    grid = Grid(folder)
    estimate = Estimate(plan, grid)
    if to_measure := estimate.first_unknown():
        print(f"measuring a few updates of: {to_measure.title}", file=sys.stderr, flush=True)
        try:
            estimate.measure(to_measure)
        except InputError as error:  # such as a rate with which it diverges: the list is worth printing all the same
            print(f"not measured: {error}", file=sys.stderr)
    rows, left, unknown = [], 0.0, 0
    for cell in plan.cells:
        state = "busy" if grid.busy(cell) else grid.state(cell)
        seconds = estimate.left(cell)
        left, unknown = left + (seconds or 0), unknown + (seconds is None)
        spent = (results_of(cell, grid) or {}).get("seconds")
        times = ["" if s is None else duration(s) for s in (spent, None if state == "done" else seconds)]
        rows.append((cell.title, state, *times))
    header = ("run", "state", "took", "left, about")
    ResultTable(f"{plan.study.title}: {len(plan.cells)} runs", header, rows).show()
    known = f"about {duration(left)} of one process" if left or not unknown else ""
    without = f"{unknown} runs without an estimate: no similar run is finished yet" if unknown else ""
    print(f"left: {', and '.join(filter(None, (known, without)))}", file=sys.stderr)


class Estimate:
    """Estimates times from finished cells: of pre-training by operations, of fine-tuning by column.

    Before a pre-training is finished, a few updates of the first one can be measured.
    """

    def __init__(self, plan: Plan, grid: Grid):
        self.plan, self.grid = plan, grid
        self.rates: list[float] = []  # seconds an operation
        self.columns: dict[str, list[float]] = {}
        for cell in plan.cells:
            results = results_of(cell, grid)
            if results and isinstance(cell.work, Pretraining):
                self.rates.append(results["seconds"] / (useful_flops(cell.work.config) * results["tokens"]))
            elif results and isinstance(cell.work, Finetuning | Baseline):
                self.columns.setdefault(cell.work.column.name, []).append(results["seconds"])

    def first_unknown(self) -> StudyCell | None:
        """The first pre-training without an estimate; none: every one has one, or another process is at work on it."""
        cells = [cell for cell in self.plan.cells if isinstance(cell.work, Pretraining)]
        # The log of one that another process is at work on soon has an estimate, and measuring would slow it down.
        if any(self.grid.busy(cell) for cell in cells):
            return None
        return next((cell for cell in cells if self.left(cell) is None), None)

    def measure(self, cell: StudyCell) -> None:
        """Train a few steps of this pre-training in a scratch folder, which gives the others an estimate too."""
        work, corpus = cell.work, self.plan.inputs.corpus
        assert isinstance(work, Pretraining) and corpus is not None  # the plan has checked it
        found = estimate_pretraining(work.config, corpus)
        self.rates.append(found["hours"] * 3600 / (useful_flops(work.config) * found["tokens"]))

    def left(self, cell: StudyCell) -> float | None:
        """Seconds that the cell will still take: 0 if it is finished or has failed, None without an estimate."""
        if results_of(cell, self.grid) or self.grid.failure(cell) or cell.work.kind == "concat":
            return 0.0
        log = read_log(self.grid.path(cell)) if (self.grid.path(cell) / LOG).exists() else []
        if times := [float(record["left"]) for record in log if "left" in record]:
            return times[-1]
        if isinstance(cell.work, Finetuning | Baseline):
            known = self.columns.get(cell.work.column.name)
            return statistics.fmean(known) if known else None
        if isinstance(cell.work, Pretraining) and self.rates:
            return _seconds(cell.work.config, statistics.fmean(self.rates) * useful_flops(cell.work.config))
        return None


def _seconds(config: PretrainConfig, token: float) -> float:
    """How long the budget of a pre-training lasts if a token takes so many seconds; updates count as full ones."""
    loop = config.loop
    update = sum(phase.share * phase.batch_size * phase.length for phase in config.phases)
    limits = (loop.tokens * token, loop.steps * update * token, loop.hours * 3600)
    return min(limit for limit in limits if limit)
