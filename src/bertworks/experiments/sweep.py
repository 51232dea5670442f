"""The paper's search as one command: a grid of settings, each with several seeds, chosen on dev alone (4.1, A.3).

    OUT/b16-lr5e-05-e2/seed-1/    a run folder of finetuning/run.py; model/ is removed once another run is better
    OUT/b16-lr5e-05-e2/           results.json of the setting: mean and standard deviation over its seeds
    OUT/model/, best.json         a copy of the best run's model, and which run that is
    OUT/results.json, sweep.md    the settings side by side, and the chosen one

The setting is chosen by the mean over its seeds, collapsed ones included. The best single run, which the paper took
for LARGE, is listed too. Rows are read and featurised once. The runs are cells of the engine (engine.py): rerun
the command to resume, or start it in several processes to share the runs. A run that fails does not end the others.
"""

import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..files import InputError, read_json, try_lock, write_json, write_text
from ..finetuning.job import Job
from ..finetuning.recipe import FinetuneConfig
from ..finetuning.run import check_folder, run_seed, summarise
from ..reporting.run_files import METRICS, RESULTS
from ..reporting.tables import ResultTable, counted, points
from ..tasks.base import Data, Task
from ..tasks.draws import WHOLE, Division
from ..tasks.kinds import divided_data
from ..training import machine
from ..training.machine import World
from ..training.run import refuse_other_folder
from .engine import Cell, Engine, Grid, failure_notes
from .grids import SWEEPS, OwnSetting, Setting, check_grid, check_runs, settings_of
from .spread import work_on_scheduler

RUN = {"metrics": METRICS, "collapsed": bool, "seconds": float}  # of a run's results.json, what a sweep reads


class SeedRun(NamedTuple):
    """One fine-tuning run: what a cell of a sweep or a suite has to do."""

    task: str
    config: FinetuneConfig
    seed: int


def seed_cells(task: str, folder: str, title: str, config: FinetuneConfig) -> list[Cell[SeedRun]]:
    """A cell for each seed of a recipe. Their names are for people; the run folders hold the hash of their recipe."""
    return [
        Cell(f"{folder}/seed-{seed}", f"{title}, seed {seed}", SeedRun(task, config, seed)) for seed in config.seeds
    ]


def with_seeds(config: FinetuneConfig) -> FinetuneConfig:
    return replace(config, seeds=config.seeds or (config.loop.seed,))


def run_cell(job: Job, cell: Cell[SeedRun], grid: Grid) -> dict[str, Any] | None:
    """Run, resume or verify a cell; None if it was stopped."""
    return run_seed(replace(job, config=cell.work.config), cell.work.seed, grid.path(cell))


@dataclass(frozen=True)
class RowFiles:
    """The files of a job's rows, for workers that read them themselves."""

    task: Task
    files: tuple[Path, ...]  # the folder of a known task, or the training and the development table of one's own
    division: Division = WHOLE

    def read(self) -> tuple[Task, Data]:
        """The task with its labels, and its rows. Raises InputError with file and line."""
        return divided_data(self.task, self.files, self.division)


class Elsewhere(NamedTuple):
    """Where the runs of a sweep are done, if not in this process."""

    scheduler: str  # dask scheduler, or "local"
    workers: int  # processes of a local one; 0: one for every GPU, or for every core
    rows: RowFiles


def run_sweep(
    job: Job, out: Path | str, name: str = "paper", keep_all: bool = False, elsewhere: Elsewhere | None = None
) -> dict[str, Any] | None:
    """Train every setting of the grid `name` with the recipe's seeds; None if stopped, or if others still work on it.

    name: paper or glue (SWEEPS), or a grid of one's own (`own_grid`). keep_all: keep every run's model, not the best
    one's alone. Returned and written to results.json: `settings`, `chosen` (the name of one), its `metrics` and `std`,
    `best` (a run), `failed` (if any run has failed), ... Raises InputError for an unknown grid, if `out` holds anything
    else, and if no run has finished.
    """
    search = Search(name, job.task.name, job.task.metrics[0], with_seeds(job.config), Grid(Path(out)), "", keep_all)
    search.check()
    check_runs(name, job.config, job.task, job.folder, job.world)
    varied = ("batch_size", "optim.lr", "epochs") if name in SWEEPS else settings_of(name)[0].fields
    settings = f"{len(search.settings)} settings of {', '.join(varied)}"
    job.say(f"sweep {name}: {settings}, each with seeds {', '.join(map(str, search.config.seeds))}")

    def run(cell: Cell[SeedRun]) -> dict[str, Any] | None:
        return run_cell(job, cell, search.grid)

    if job.world.main:
        search.grid.retry(search.cells)
    engine = Engine(search.cells, search.grid, run, run, lambda _: search.prune(), world=job.world, quiet=job.quiet)
    if elsewhere:
        theirs = replace(search, grid=Grid(search.grid.folder.absolute()))
        rows = replace(elsewhere.rows, files=tuple(file.absolute() for file in elsewhere.rows.files))
        teacher = str(Path(job.config.teacher).absolute()) if job.config.teacher else ""
        made = (_worker_engine, rows, replace(job.config, teacher=teacher), job.folder.absolute(), theirs)
        whole = work_on_scheduler(engine, elsewhere.scheduler, elsewhere.workers, *made)
    else:
        whole = engine.work()
    return None if not whole or engine.others_work() else search.finish(job.world)


def _worker_engine(rows: RowFiles, config: FinetuneConfig, model: Path, search: "Search") -> Engine[SeedRun]:
    """The engine of a worker, which prepares the job once."""
    task, data = rows.read()
    machine.prepare_process()
    world = machine.World(0, 1, machine.this_device())
    job = Job.of(config, task, data, model, world, quiet=True)
    return Engine(search.cells, search.grid, lambda cell: run_cell(job, cell, search.grid), world=world, quiet=True)


@dataclass(frozen=True)
class Search:
    """A grid of settings on one task, in a folder of its own; or the settings of the recipe alone, for a suite."""

    name: str  # of the grid; "": the settings of the recipe alone
    task: str
    metric: str  # to choose by
    config: FinetuneConfig  # with its seeds
    grid: Grid
    folder: str = ""  # below that of the cells
    keep_all: bool = False

    @property
    def out(self) -> Path:
        return self.grid.folder / self.folder

    @cached_property
    def settings(self) -> dict[Setting | OwnSetting, list[Cell[SeedRun]]]:
        """The cells of each setting."""
        start = f"{self.task}: " if self.folder else ""
        return {
            one: seed_cells(self.task, f"{self.folder}/{one.name}".lstrip("/"), start + one.name, one.of(self.config))
            for one in settings_of(self.name)
        }

    @property
    def cells(self) -> list[Cell[SeedRun]]:
        if not self.name:
            return seed_cells(self.task, self.folder, self.task, self.config)
        return [cell for cells in self.settings.values() for cell in cells]

    def check(self) -> None:
        """Raises InputError for an unknown grid, a recipe that does not fit it, or if `out` holds anything else."""
        if self.name:
            check_grid(self.name, self.config)
        if not any(self.grid.path(cell).exists() for cell in self.cells):  # else a `model` in `out` is the sweep's own
            refuse_other_folder(self.out)
        mine = {"kind": "sweep", "sweep": self.name} if self.name else {"kind": "finetune", "recipe": None}
        check_folder(self.out, mine)

    def best(self) -> dict[str, Any] | None:
        """The best run that is finished, as best.json has it; of equal ones the first. Collapsed runs come last."""
        found = [(cell, results) for cell in self.cells if (results := self.grid.results(cell, RUN))]
        if not found:
            return None
        cell, results = max(found, key=lambda pair: (not pair[1]["collapsed"], pair[1]["metrics"][self.metric]))
        run = self.grid.path(cell).relative_to(self.out).as_posix()
        value, collapsed = results["metrics"][self.metric], results["collapsed"]
        return {"run": run, "metric": self.metric, "value": value, "collapsed": collapsed}

    def prune(self) -> None:
        """Remove the models of all finished runs but the best one, unless all are kept; results and predictions stay.

        Any number of processes may do so at any time: the run that is the best in the end is the best from its end on.
        """
        best = self.best() if self.name and not self.keep_all else None
        if best is None:
            return
        for cell in self.cells:
            path = self.grid.path(cell)
            if self.grid.state(cell) == "done" and path != self.out / best["run"]:
                shutil.rmtree(path / "model", ignore_errors=True)

    def finish(self, world: World) -> dict[str, Any]:
        """Write the results of all settings, the table, and the best run's model; returns the results."""
        failed = world.ask_first(lambda: self.grid.failures(self.cells))
        if not self.name:
            alone = summarise_cells(self.cells, self.grid, self.out, world) or {}
            return {**alone, **({"failed": failed} if failed else {})}
        summaries = {
            setting: summary
            for setting, cells in self.settings.items()
            if (summary := summarise_cells(cells, self.grid, self.out / setting.name, world))
        }
        if not summaries:
            raise InputError(f"no run of the sweep has finished; the first of {len(failed)}: {failed[0]['message']}")
        results = world.ask_first(lambda: _results(self, summaries, failed))
        if world.main:
            with try_lock(self.grid.folder / "locks" / f"{self.task}-results.lock") as mine:
                if mine:  # else another process has finished at the same time, and writes the same
                    self._write(results)
        world.wait()
        return results

    def _write(self, results: dict[str, Any]) -> None:
        best, note = results["best"], self.out / "best.json"
        run, temporary = self.out / best["run"], self.out / ".model.tmp"
        if not (note.exists() and read_json(note) == best and (self.out / "model").exists()):
            if not (run / "model").exists():
                raise InputError(f"{run} has lost its model to a better run; remove the folder to train it again")
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.copytree(run / "model", temporary)
            note.unlink(missing_ok=True)
            shutil.rmtree(self.out / "model", ignore_errors=True)
            temporary.rename(self.out / "model")
            write_json(note, best)
        write_text(self.out / "sweep.md", table(results).markdown())
        write_json(self.out / RESULTS, results)


def summarise_cells(cells: list[Cell[SeedRun]], grid: Grid, out: Path, world: World) -> dict[str, Any] | None:
    """Mean and standard deviation over the finished seeds of a setting, written to `out`; None if none has finished."""
    every = world.ask_first(lambda: [grid.results(cell, RUN) for cell in cells])
    found = [(cell.work, results) for cell, results in zip(cells, every, strict=True) if results]
    if not found:
        return None
    config = replace(cells[0].work.config, seeds=tuple(work.seed for work, _ in found))
    return summarise(config, [results for _, results in found], out, world)


def _entry(setting: Setting | OwnSetting, found: dict[str, Any], metric: str) -> dict[str, Any]:
    """A setting's figures, from the summary of its seeds."""
    without = found["without_collapsed"]
    return {
        "name": setting.name,
        **setting.fields,
        "n": len(found["runs"]),
        "best": max(run[metric] for run in found["runs"]),
        "mean": found["metrics"][metric],
        "sd": found["std"][metric],
        "collapsed": sum(found["collapsed"]),
        "mean_without_collapsed": without["metrics"].get(metric),
        "sd_without_collapsed": without["std"].get(metric),
        "metrics": found["metrics"],
        "std": found["std"],
        "seconds": found["seconds"],
    }


def _results(
    search: Search, summaries: dict[Setting | OwnSetting, dict[str, Any]], failed: list[dict[str, str]]
) -> dict[str, Any]:
    """A setting of which a seed has failed is chosen only where no setting has all of them."""
    entries = [_entry(setting, summary, search.metric) for setting, summary in summaries.items()]
    pairs = zip(entries, summaries.values(), strict=True)
    chosen, summary = max(pairs, key=lambda pair: (pair[0]["n"], pair[0]["mean"]))
    shared = ("task", "majority", "examples", "data", "model", "random_init", "machine")
    return {
        "kind": "sweep",
        "sweep": search.name,
        **{key: summary[key] for key in shared},
        "metric": search.metric,
        "seeds": summary["seeds"],
        "chosen": chosen["name"],
        "metrics": chosen["metrics"],
        "std": chosen["std"],
        "collapsed": summary["collapsed"],
        "best": search.best(),
        "settings": entries,
        "seconds": sum(entry["seconds"] for entry in entries),
        **({"failed": failed} if failed else {}),
    }


def table(results: dict[str, Any]) -> ResultTable:
    """The settings side by side; where runs collapsed, also without these."""
    header: tuple[str, ...] = ("setting", "n", "best", "mean", "sd over seeds")
    lost = any(entry["collapsed"] for entry in results["settings"])
    sound = any(0 < entry["collapsed"] < entry["n"] for entry in results["settings"])  # beside collapsed seeds
    header += ("collapsed",) if lost else ()
    header += ("mean of sound seeds", "sd of sound seeds") if sound else ()
    rows = []
    for entry in results["settings"]:
        chosen, n, fallen = " *" if entry["name"] == results["chosen"] else "", entry["n"], entry["collapsed"]
        numbers = [entry["best"], entry["mean"], entry["sd"] if n > 1 else None]
        row: tuple[str, ...] = (entry["name"] + chosen, str(n), *map(points, numbers))
        row += (str(fallen or "-"),) if lost else ()
        if sound:
            others = entry["mean_without_collapsed"] if fallen else None
            spread = entry["sd_without_collapsed"] if fallen and n - fallen > 1 else None
            row += (points(others), points(spread))
        rows.append(row)
    best, over = results["best"], counted(len(results["seeds"]), "seed")
    said = f"{best['run']}, {points(best['value'])}{' (collapsed)' if best['collapsed'] else ''}"
    said += "" if best["run"].startswith(f"{results['chosen']}/") else ", of another setting than the chosen one"
    notes = (
        f"* chosen by its mean over {over}; every figure here was chosen on dev and is a little too good",
        f"best run: {said}; its model is in model/",
        *(["sound seeds: those that did not collapse to one answer for every row"] if sound else []),
        *failure_notes(results),
    )
    rows_of_dev = results["examples"]["dev"]
    return ResultTable(f"{results['task']}: {results['metric']} on {rows_of_dev:,} rows of dev", header, rows, notes)
