"""`bertworks study run`, `sweep`, `baseline`, `report` and `plot`: many runs, compared."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..config import find_recipe
from ..finetuning.recipe import FinetuneConfig, refuse_idle
from .arguments import DividedRows, Flat, Positional, flags_in, parse, required
from .exit_status import FAILED, run_to_its_end
from .finetune import read_arguments, show

if TYPE_CHECKING:
    from ..experiments.specs import Plan


@dataclass(frozen=True)
class DaskOptions:
    """Where the runs are computed."""

    # run on a dask cluster: address of its scheduler (tcp://host:8786), or "local" for a new one on this machine; none:
    # run in this process. Needs the extra `cluster` and a disk that all workers share
    scheduler: str = ""
    workers: int = 0  # worker processes with --scheduler local; 0: one per GPU, without GPUs one per core


@dataclass(frozen=True)
class RunArguments:
    """Run a study, and print its tables. Rerun the command to resume.

    Example:
        bertworks study run masking --corpus store --data data --out runs/masking

    `bertworks recipes` lists the studies that come with bertworks.

    A second process with the same command works on other runs of the study.
    """

    recipe: Positional[str]  # study from `bertworks recipes`, or a .toml file (or: --recipe RECIPE)
    out: Path  # folder to write results.json, study.md and study.png to
    corpus: Path | None = None  # corpus store made by `bertworks corpus build`, for studies that pre-train
    data: Path | None = None  # folder that contains the tasks' folders (for glue/MNLI the one that contains glue)
    model: Path | None = None  # pre-trained model or run folder for the variants that do not change pre-training
    cells: Path | None = None  # folder of the runs; studies with the same folder share equal runs; none: OUT/cells
    minute: bool = False  # check in a minute that the study works: tiny models, a dozen steps, meaningless figures
    dry_run: bool = False  # only list the runs, with state and duration
    keep_models: bool = False  # keep the models of fine-tuning runs too
    on: Flat[DaskOptions] = field(default_factory=DaskOptions)


def run(argv: list[str]) -> None:
    """Run the study, and print its tables; or list its runs."""
    arguments = parse(RunArguments, argv, "study run")
    from ..experiments.plan import make_plan
    from ..experiments.specs import StudyInputs
    from ..experiments.study import show_runs

    recipe = find_recipe(arguments.recipe, "study")
    plan = make_plan(StudyInputs(recipe, arguments.corpus, arguments.data, arguments.model, arguments.minute))
    folder = arguments.cells or arguments.out / "cells"
    if arguments.dry_run:
        show_runs(plan, arguments.out, folder)
    else:
        _run(plan, arguments.out, folder, arguments.keep_models, arguments.on)


def _run(plan: "Plan", out: Path, folder: Path, keep_models: bool, on: DaskOptions) -> None:
    """Run the study, and print its tables, after doctor's findings in a search. Exit status 1: a run has failed."""
    from ..apps.doctor.examination import of_finetuning
    from ..apps.doctor.listing import print_warnings
    from ..experiments.study import Options, run_study
    from ..experiments.tables import tables

    options = Options(keep_models, False, on.scheduler, on.workers)
    results = run_to_its_end(lambda: run_study(plan, out, folder, options))
    if plan.study.search:
        print_warnings(lambda: of_finetuning(out))
    for sheet in tables(results):
        sheet.show()
    if results["failed"]:
        raise SystemExit(FAILED)


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """Fine-tune with every setting of a grid, and keep the best model.

    Rerun the command to resume.

    Example:
        bertworks study sweep runs/base paper --task mrpc --data glue/MRPC \\
            --out runs/grid --seeds 1 2 3
        bertworks study sweep runs/base "optim.lr=1e-4,3e-4 epochs=3" \\
            --train a.csv --dev b.csv --out runs/grid

    The other flags are those of `bertworks finetune`; -H explains them.
    """

    model: Positional[Path]  # model folder or run folder to start from (or: --model MODEL)
    # settings to try: paper (batch_size, optim.lr and epochs of appendix A.3), glue (section 4.1), or your own such as
    # "optim.lr=1e-4,3e-4 epochs=3"
    grid: Positional[str]
    out: Path  # folder to write; an unfinished sweep in it is resumed
    config: Flat[FinetuneConfig]
    rows: Flat[DividedRows] = field(default_factory=DividedRows)
    recipe: str | None = None  # name from `bertworks recipes`, or a .toml file; none: the task's defaults
    keep_all: bool = False  # keep the models of all runs, not only the best
    on: Flat[DaskOptions] = field(default_factory=DaskOptions)


def sweep(argv: list[str]) -> None:
    """Train every setting, and print the table."""
    arguments = read_arguments(SweepArguments, argv, "study sweep")
    from ..experiments.plan import make_plan
    from ..experiments.search import grid_of, sweep_study

    varied = [*grid_of(arguments.grid)]
    flags = {f"--{name.replace('_', '-')}" for name in varied}
    instead = f"grid {arguments.grid} sets {', '.join(varied)} itself; leave the flag out"
    refuse_idle([(True, flags, instead)], flags_in(argv))
    plan = make_plan(sweep_study(arguments.config, arguments.rows, arguments.model, arguments.grid))
    _run(plan, arguments.out, arguments.out / "cells", arguments.keep_all, arguments.on)


@dataclass(frozen=True)
class BaselineArguments:
    """Score a linear model, to compare a fine-tuned encoder with.

    Example:
        bertworks study baseline --train own.csv --dev-share 0.2

    A logistic regression on TF-IDF; for tagging, on each word and its neighbours.
    The development rows are those of `bertworks finetune` with the same flags.
    """

    rows: Flat[DividedRows] = field(default_factory=DividedRows)
    # what TF-IDF counts: words and pairs of words; characters (one to four in a word), for languages such as Korean; or
    # overlap: characters, and which of them two texts share
    units: Literal["words", "characters", "overlap"] = "words"


def baseline(argv: list[str]) -> None:
    """Fit the linear model, and print its metrics."""
    arguments = parse(BaselineArguments, argv, "study baseline")
    from ..experiments.baselines import BaselineConfig, fit_baseline

    results = fit_baseline(*arguments.rows.read_data(), BaselineConfig(units=arguments.units))
    counts = results["examples"]
    print(f"linear model: {counts['train']:,} rows to train on, {counts['dev']:,} to evaluate on", file=sys.stderr)
    show(results)


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
    from ..experiments.tables import load_results, tables, write_tables

    for folder in arguments.folders:
        for sheet in tables(write_tables(load_results(folder), folder)):
            sheet.show()


@dataclass(frozen=True)
class PlotArguments:
    """Draw the curves of runs in one figure.

    Example:
        bertworks study plot runs/one runs/other --out curves.png --x tokens
    """

    runs: Annotated[tuple[Path, ...], Positional, required("RUN")]
    """run folders, finished or not"""
    out: Path | None = None  # file to write: .png or .svg, without an ending both; none: RUN/curves of the first run
    x: Literal["step", "tokens", "seconds"] = "step"  # horizontal axis of the curves


def plot(argv: list[str]) -> None:
    """Draw the figure, and print the names of its files."""
    arguments = parse(PlotArguments, argv, "study plot")
    from ..reporting.figures import plot_runs

    print(*plot_runs(arguments.runs, arguments.out or arguments.runs[0] / "curves", arguments.x), sep="\n")
