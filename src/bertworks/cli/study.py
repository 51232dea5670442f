"""`bertworks study run`, `sweep`, `suite`, `report`, `plot` and `submit`: many runs side by side."""

import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..config import find_recipe
from ..files import InputError
from ..finetuning.recipe import FinetuneConfig, refuse_idle
from .arguments import DividedRows, Flat, Positional, flags_in, parse, required
from .ending import FAILED, STOPPED, run_to_its_end
from .finetune import read_arguments

if TYPE_CHECKING:
    from ..tasks.base import Task


@dataclass(frozen=True)
class Scheduler:
    """Where the runs are computed."""

    # dask scheduler whose workers do the runs: its address (tcp://host:8786), or "local" for one on this machine; none:
    # this process does them. Needs the extra `cluster` and a disk that all workers share
    scheduler: str = ""
    workers: int = 0  # worker processes of --scheduler local; 0 is one for every GPU, or for every core


@dataclass(frozen=True)
class RunArguments:
    """Run what is missing of a study, and print its tables. Rerun it to resume.

    Example:
        bertworks study run masking --corpus store --data data --out runs/masking

    `bertworks recipes` lists the studies that come with bertworks.

    A second process with the same command works on other runs of the study.
    """

    recipe: Positional[str]  # study from `bertworks recipes`, or a .toml file (or: --recipe RECIPE)
    out: Path  # folder to write results.json, study.md and study.png to
    corpus: Path | None = None  # corpus store made by `bertworks corpus build`, for studies that pre-train
    data: Path | None = None  # folder that contains the tasks' folders, for glue/MNLI the folder that contains glue
    model: Path | None = None  # model folder or run folder to use instead of pre-training the unvaried variants
    cells: Path | None = None  # folder of the runs; studies with the same folder share equal runs; none: OUT/cells
    minute: bool = False  # tiny models and a dozen steps, to check that the study works; the figures mean nothing
    dry_run: bool = False  # list the runs, their state and what finished ones took; start none
    keep_models: bool = False  # also keep the models of fine-tuning runs
    retry: bool = False  # repeat the runs that diverged or failed before
    on: Flat[Scheduler] = field(default_factory=Scheduler)


def run(argv: list[str]) -> None:
    """Run the study, and print its tables; or list its runs."""
    arguments = parse(RunArguments, argv, "study run")
    from ..experiments.engine import refuse_torchrun
    from ..experiments.plan import make_plan
    from ..experiments.rows import StudyInputs
    from ..experiments.study import Options, others_work, run_study, show_cells

    refuse_torchrun("a study")
    recipe = find_recipe(arguments.recipe, "study")
    plan = make_plan(StudyInputs(recipe, arguments.corpus, arguments.data, arguments.model, arguments.minute))
    folder = arguments.cells or arguments.out / "cells"
    if arguments.dry_run:
        show_cells(plan, folder)
        return
    workers = (arguments.on.scheduler, arguments.on.workers)
    options = Options(arguments.keep_models, arguments.retry, False, *workers)
    results = run_to_its_end(lambda: run_study(plan, arguments.out, folder, options))
    _show(results)
    if others_work(results):
        raise SystemExit(STOPPED)
    if results["failed"]:
        raise SystemExit(FAILED)


@dataclass(frozen=True, kw_only=True)
class Search:
    """Arguments of several runs of fine-tuning."""

    model: Positional[Path]  # model folder or run folder to start from (or: --model MODEL)
    out: Path  # folder to write; what is unfinished in it is resumed
    config: Flat[FinetuneConfig]
    recipe: str | None = None  # name from `bertworks recipes`, or a .toml file; none: the task's own defaults
    keep_all: bool = False  # keep the models of all runs, not of the best run alone
    on: Flat[Scheduler] = field(default_factory=Scheduler)


@dataclass(frozen=True, kw_only=True)
class SweepArguments(Search):
    """Fine-tune with every setting of a grid, and keep the best. Rerun it to resume.

    Example:
        bertworks study sweep runs/base paper --task mrpc --data glue/MRPC \\
            --out runs/grid --seeds 1 2 3
        bertworks study sweep runs/base "optim.lr=1e-4,3e-4 epochs=3" \\
            --train a.csv --dev b.csv --out runs/grid

    The other flags are those of `bertworks finetune`; -H explains them.
    """

    # settings to try: paper (batch_size, optim.lr and epochs of appendix A.3), glue (section 4.1), or your own such as
    # "optim.lr=1e-4,3e-4 epochs=3"
    grid: Positional[str]
    rows: Flat[DividedRows] = field(default_factory=DividedRows)


def sweep(argv: list[str]) -> None:
    """Train every setting, and print the table."""
    arguments = read_arguments(SweepArguments, argv, "study sweep")
    _check_grid(arguments, argv)
    from ..experiments.rows import Examples
    from ..experiments.search import sweep_study

    task, data = arguments.rows.read_data()
    given = (Path(arguments.rows.data or ""),) if arguments.rows.task else arguments.rows.find()[1]
    examples = Examples(task, tuple(map(Path, given)), arguments.rows.division, data)
    _search(sweep_study(arguments.config, examples, arguments.model, arguments.grid), arguments)


@dataclass(frozen=True, kw_only=True)
class SuiteArguments(Search):
    """Fine-tune on every task of the paper whose files are under --data.

    Example:
        bertworks study suite runs/base --data glue --out runs/suite --seeds 1 2 3

    The other flags are those of `bertworks finetune`; -H explains them.
    """

    data: Path  # folder that contains the tasks' folders
    grid: str = ""  # settings to choose each task's by, as in `bertworks study sweep`; empty: the defaults


def suite(argv: list[str]) -> None:
    """Fine-tune on all tasks, and print the table."""
    arguments = read_arguments(SuiteArguments, argv, "study suite")
    if arguments.grid:
        _check_grid(arguments, argv)
    from ..experiments.search import suite_study

    def config_of(task: "Task") -> FinetuneConfig:
        return read_arguments(SuiteArguments, argv, "study suite", task=task).config

    _search(suite_study(config_of, arguments.data, arguments.model, arguments.grid), arguments)


def _check_grid(arguments: SweepArguments | SuiteArguments, argv: list[str]) -> None:
    """Raises InputError for a setting that does not fit, or a flag that every setting of the grid replaces."""
    from ..experiments.search import check_settings_of

    check_settings_of(arguments.grid, arguments.config)
    own = [part.partition("=")[0] for part in arguments.grid.split() if "=" in part]
    varied = own or ["batch_size", "optim.lr", "epochs"]
    flags = {f"--{name.removeprefix('--').replace('_', '-')}" for name in varied}
    instead = f"grid {arguments.grid} sets {', '.join(varied)} itself; leave the flag out"
    refuse_idle([(True, flags, instead)], flags_in(argv))


def _search(study: Any, arguments: Search) -> None:
    """Run the study; print what doctor finds, and the tables. Exit with status 1 if a run has failed."""
    from ..apps.doctor.examination import of_finetuning
    from ..apps.doctor.listing import print_warnings
    from ..experiments.study import run_search

    options = (arguments.keep_all, arguments.on.scheduler, arguments.on.workers)
    results = run_to_its_end(lambda: run_search(study, arguments.out, *options))
    print_warnings(lambda: of_finetuning(arguments.out))
    _show(results)
    if results.get("failed"):
        raise SystemExit(FAILED)


def _show(results: dict[str, Any]) -> None:
    from ..experiments.tables import tables

    for sheet in tables(results):
        sheet.show()


@dataclass(frozen=True)
class ReportArguments:
    """Print the tables of studies from their results, and write them. Run nothing.

    Example:
        bertworks study report runs/masking runs/size
    """

    folders: Annotated[tuple[Path, ...], Positional, required("FOLDER")]
    """folders that `bertworks study run` has written to, finished or not"""


def report(argv: list[str]) -> None:
    """Print the tables of each study, and write them."""
    arguments = parse(ReportArguments, argv, "study report")
    from ..experiments.tables import report_study

    for folder in arguments.folders:
        _show(report_study(folder))


@dataclass(frozen=True)
class PlotArguments:
    """Draw the curves of runs in one figure, and a figure for each study.

    Example:
        bertworks study plot runs/one runs/other --out curves.png --x tokens
    """

    folders: Annotated[tuple[Path, ...], Positional, required("FOLDER")]
    """run folders and folders of studies, finished or not"""
    # file to write, .png or .svg; without an ending: both; none: RUN/curves of the first run, STUDY/study of each study
    out: Path | None = None
    x: Literal["step", "tokens", "seconds"] = "step"  # horizontal axis of the curves


def plot(argv: list[str]) -> None:
    """Draw the figures, and print the names of their files."""
    arguments = parse(PlotArguments, argv, "study plot")
    from ..experiments.figures import plot_study
    from ..experiments.tables import read_study
    from ..reporting.figures import plot_runs

    out = arguments.out
    studies = {folder: found for folder in arguments.folders if (found := read_study(folder))}
    runs = [folder for folder in arguments.folders if folder not in studies]
    if out and len(studies) + bool(runs) > 1:
        raise InputError(f"--out {out} is one figure, but every study has a figure of its own; leave --out out")
    files = {folder: plot_study(results, out or folder / "study") for folder, results in studies.items()}
    if runs:
        files[runs[0]] = plot_runs(runs, out or runs[0] / "curves", arguments.x)
    for file in itertools.chain.from_iterable(files.values()):
        print(file)
    if empty := [str(folder) for folder, drawn in files.items() if not drawn]:
        raise InputError(f"{', '.join(empty)}: nothing to draw yet; a study's figure needs two finished variants")


@dataclass(frozen=True)
class SubmitArguments:
    """Predict GLUE's test files with finished runs, and write the submission.

    Example:
        bertworks study submit runs/glue/* --data glue --out submission.zip

    Missing files are listed: the leaderboard takes complete submissions only.
    """

    runs: Annotated[tuple[Path, ...], Positional, required("RUN")]
    """a run folder for each task; MNLI's also predicts AX"""
    data: Path  # folder with the tasks' folders: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX
    out: Path = Path("submission.zip")  # zip file to write


def submit(argv: list[str]) -> None:
    """Write the zip file, and print what is missing in it."""
    arguments = parse(SubmitArguments, argv, "study submit")
    from ..experiments.submission import ENTRIES
    from ..experiments.submission import submit as write_submission

    results = write_submission(arguments.runs, arguments.data, arguments.out)
    cut = sum(facts["cut"] for facts in results["files"].values())
    truncated = f"; {cut:,} inputs were truncated" if cut else ""
    print(f"{arguments.out}: {len(results['files'])} of {len(ENTRIES)} files{truncated}")
    for name, why in results["missing"].items():
        print(f"missing {name}: {why}", file=sys.stderr)
    if results["missing"]:
        print("the leaderboard takes complete submissions only", file=sys.stderr)
