"""Runs a study: the scheduler computes its runs, and its tables and its picture are written as they are finished.

    OUT/results.json       every value, mean, difference and cost, and the state of all runs
    OUT/study.md           the same as tables, with the paper's figures
    OUT/study.png, .svg    differences from the base variant with their intervals, or curves
    OUT/cells/             the runs themselves, unless --cells names another folder (specs.py)

Rerun the command to resume. Studies with the same --cells share the runs that they have in common. A study that is a
search (search.py) has the best models too.
"""

import os
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..checkpoint.start import concatenate
from ..data.opening import open_store
from ..files import InputError, read_json, write_json
from ..finetuning.recipe import FinetuneConfig
from ..finetuning.run import finetune
from ..pretraining.job import held_out_metrics, pretrain
from ..pretraining.recipe import PretrainConfig
from ..pretraining.static import train_static
from ..reporting.log import duration
from ..reporting.run_files import RESULTS, read_results
from ..reporting.tables import ResultTable
from ..tasks.base import Data, Task
from ..training import machine
from ..training.run import refuse_other_folder
from .baselines import fit_baseline
from .choices import best_setting, data_of_run
from .dask_runner import work_on_dask
from .plan import read_rows
from .recipe import FORMAT
from .results import measure
from .scheduler import Run, RunFolder, Scheduler
from .search import Search
from .specs import Concatenation, HeldOut, Plan, Training, Tuning, describe, setting_of
from .tables import write_tables


@dataclass(frozen=True)
class Options:
    """How a study is run."""

    keep_models: bool = False  # keep the models of all fine-tuning runs
    quiet: bool = False
    dask: str = ""  # address of the dask scheduler whose workers compute the runs, or "local"; "": this process does
    workers: int = 0  # processes of a local dask; 0: one for every GPU, or for every core


def run_study(plan: Plan, out: Path, root: Path, options: Options = Options()) -> dict[str, Any] | None:
    """Compute what is missing of a study, and what has failed; returns its results.

    root: folder of the runs. None if the study was stopped, or if other processes still work on its runs. Raises
    InputError if `out` holds another study, or results in another format, or a run had other settings.
    """
    from .figures import plot_study  # matplotlib

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        advice = "start the command several times on the same --out, each on a GPU or a core of its own"
        raise InputError(f"torchrun trains one run on several processes, not several runs; {advice}")
    folder = RunFolder(root)
    check_folders(plan, out, folder)
    out.mkdir(parents=True, exist_ok=True)
    runner, search = Runner(plan, folder, options), Search(plan, folder, out)
    runner.read_data()
    facts = machine.facts()
    folder.retry(plan.runs)
    write(search, facts)  # before any run, which shows that the claim was named before

    def after(run: Run) -> None:
        if plan.study.search and not options.keep_models:
            search.prune()
        write(search, facts)

    scheduler = Scheduler(plan.runs, folder, runner.compute, after, options.quiet)
    finished = _work_on_dask(scheduler, plan, options) if options.dask else scheduler.work()
    if plan.study.search:
        search.place_models()
    else:
        plot_study(write(search, facts), out / "study")
    results = write(search, facts)  # again, beside its picture
    return results if finished else None


def show_runs(plan: Plan, out: Path, root: Path) -> None:
    """Print the runs in the order of work, their state, and the time that finished ones took. Raises as `run_study`."""
    folder, rows = RunFolder(root), []
    check_folders(plan, out, folder)
    for run in plan.runs:
        results, state = folder.results(run), "busy" if folder.busy(run) else folder.state(run)
        rows.append((run.title, state, duration(results["seconds"]) if results else ""))
    ResultTable(f"{plan.study.title}: {len(plan.runs)} runs", ("run", "state", "took"), rows).show()


def _work_on_dask(scheduler: Scheduler, plan: Plan, options: Options) -> bool:
    """Compute the runs on the workers of dask, for which all paths are absolute."""
    plan, root = replace(plan, inputs=plan.inputs.for_workers()), scheduler.folder.root.absolute()
    return work_on_dask(scheduler, options.dask, options.workers, _worker_scheduler, plan, root, options)


def _worker_scheduler(plan: Plan, root: Path, options: Options) -> Scheduler:
    """The scheduler of a worker."""
    runner = Runner(plan, RunFolder(root), replace(options, quiet=True))
    return Scheduler(plan.runs, runner.folder, runner.compute, quiet=True)


def check_out(plan: Plan, out: Path) -> None:
    """Raises InputError if `out` is no folder of runs, or has the results of something else."""
    refuse_other_folder(out)
    path = out / RESULTS
    if not path.exists():
        return
    results = read_results(path, {}, "restore the file, or give another --out")
    expected = {"kind": "study", "study": plan.study.name, "format": FORMAT, "minute": plan.inputs.minute}
    there = {key: results.get(key) for key in expected}
    if there != expected:
        advice = f"give another --out, and --cells {out / 'cells'} to use finished runs there"
        raise InputError(f"{out} has the results of something else: {there}; expected {expected}; {advice}")


def check_folders(plan: Plan, out: Path, folder: RunFolder) -> None:
    """Raises InputError like `check_out`, and if finished runs lack results, or a snapshot that is needed now."""
    check_out(plan, out)
    for run in plan.runs:
        folder.results(run)
    for start in (one.start for row in plan.rows for one in row.replicates):
        path = start.path_in(folder)
        if start.run and start.step and folder.state(start.run) == "done" and not path.exists():
            raise InputError(f"{path}: no such snapshot; remove {path.parents[1]} to train it again with its snapshots")


def write(search: Search, machine: dict[str, Any]) -> dict[str, Any]:
    """Write results.json and study.md with all results so far; returns the results."""
    plan, path = search.plan, search.out / RESULTS
    results = measure(plan, search.folder, read_json(path) if path.exists() else None) | {"machine": machine}
    if plan.study.search:
        results |= {"chosen": search.choose(results["measured"]), "best": search.best()}
    write_tables(results, search.out)
    write_json(path, results)
    return results


@dataclass
class Runner:
    """Computes the runs of a study."""

    plan: Plan
    folder: RunFolder
    options: Options
    loaded: dict[tuple[str, ...], tuple[Task, Data]] = field(default_factory=dict)  # by the examples that are read

    def read_data(self) -> None:
        """Read the examples of all columns, so that a damaged file is found before hours are spent.

        In a search it fails the runs of its task alone.
        """
        for run in () if self.plan.study.search else self.folder.unfinished(self.plan.runs):
            if isinstance(run.spec, Tuning):
                self.data(run.spec)

    def data(self, spec: Tuning) -> tuple[Task, Data]:
        """The task and the examples of a column, which are read once; a search retains only the last ones."""
        key = (spec.task.name, *spec.reads)
        if key not in self.loaded:
            if self.plan.study.search:
                self.loaded.clear()
            self.loaded[key] = read_rows(spec, self.plan.inputs)
        return self.loaded[key]

    def compute(self, run: Run) -> dict[str, Any] | None:
        """Compute or resume a run; returns its results, None if it was stopped."""
        spec, path = run.spec, self.folder.path(run)
        earlier = setting_of(run, self.folder) if self.folder.state(run) == "part" else ""
        best = best_setting(spec, self.folder, earlier) if isinstance(spec, Tuning) else None
        describe(run, self.folder, best)
        results: dict[str, Any] | None
        if isinstance(spec, Training) and isinstance(spec.config, PretrainConfig):
            results = pretrain(spec.config, self.plan.inputs.corpus or Path(), path, quiet=self.options.quiet)
        elif isinstance(spec, Tuning) and isinstance(spec.config, FinetuneConfig):
            config = best[1] if best else spec.config
            task, data = self.data(spec)
            model = spec.models[0].path_in(self.folder)
            results = finetune(config, task, data_of_run(spec, data), model, path, self.options.quiet)
        else:
            results = self._compute_short(spec, path)
        if results is not None:  # hundreds of finished runs stay small; a search removes models when a better run ends
            shutil.rmtree(path / "state", ignore_errors=True)
            if spec.kind == "finetune" and not self.options.keep_models and not self.plan.study.search:
                shutil.rmtree(path / "model", ignore_errors=True)
        return results

    def _compute_short(self, spec: Any, path: Path) -> dict[str, Any]:
        """Compute a run that is no training of an encoder: it starts again after a stop. Writes its results."""
        shutil.rmtree(path / "model", ignore_errors=True)
        started, results = time.perf_counter(), dict[str, Any]()
        models, corpus = [model.path_in(self.folder) for model in spec.models], self.plan.inputs.corpus or Path()
        if isinstance(spec, Concatenation):
            left, right = models
            concatenate(left, right, path / "model")
        elif isinstance(spec, HeldOut):
            results = {"metrics": held_out_metrics(spec.config, corpus, *models)}
        elif spec.kind == "static":
            train_static(corpus, path / "model", spec.config)
            tokens = sum(shard.n_tokens for shard in open_store(corpus).shards("train"))
            results = {"metrics": {}, "steps": 0, "tokens": tokens * spec.config.epochs}
        else:
            task, data = self.data(spec)
            results = fit_baseline(task, data_of_run(spec, data), spec.config)
        results = {"kind": spec.kind, **results, "seconds": time.perf_counter() - started, "machine": machine.facts()}
        write_json(path / RESULTS, results)
        return results
