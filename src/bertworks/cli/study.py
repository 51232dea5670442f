"""`bertworks study` and `study report`: variants of a recipe side by side, and their tables."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ..config import find_recipe
from .arguments import Positional, parse, required
from .ending import FAILED, STOPPED, run_to_its_end
from .recipes import studies


@dataclass(frozen=True)
class Arguments:
    """Run what is missing of a study, and print its tables. Rerun it to resume.

    Example:
        bertworks study masking --corpus store --data data --out runs/masking

    A second process with the same command works on other runs of the study.
    """

    recipe: Positional[str]  # study from `bertworks recipes`, or a .toml file (or: --recipe RECIPE)
    out: Path  # folder to write results.json, study.md and study.png to
    corpus: Path | None = None  # corpus store made by `bertworks corpus build`, for studies that pre-train
    # folder that contains the tasks' folders that the study names: for glue/MNLI the folder that contains glue, or glue
    data: Path | None = None
    model: Path | None = None  # model folder or run folder to use instead of pre-training the unvaried variants
    cells: Path | None = None  # folder of the runs; studies with the same folder share equal runs; none: OUT/cells
    only: Literal["pretrain", "finetune"] | None = None  # do only the pre-training or only the fine-tuning runs
    minute: bool = False  # tiny models and a dozen steps, to check that the study works; the figures mean nothing
    # list the runs, their state and the estimated time left, from a few updates if need be; start none
    dry_run: bool = False
    keep_models: bool = False  # also keep the models of fine-tuning runs
    retry: bool = False  # repeat the runs that diverged or failed before
    # dask scheduler whose workers do the runs: its address (tcp://host:8786), or "local" for one on this machine; none:
    # this process does them. Needs the extra `cluster` and a disk that all workers share
    scheduler: str = ""
    workers: int = 0  # worker processes of --scheduler local; 0 is one for every GPU, or for every core


def study(argv: list[str]) -> None:
    """Run the study, and print its tables; or list its runs."""
    arguments = parse(Arguments, argv, "study", "--recipe", more=studies())
    from ..experiments.dry_run import show_cells
    from ..experiments.engine import refuse_torchrun
    from ..experiments.plan import make_plan
    from ..experiments.rows import StudyInputs
    from ..experiments.study import Options, others_work, run_study
    from ..experiments.tables import tables

    refuse_torchrun("a study")
    recipe = find_recipe(arguments.recipe, "study")
    plan = make_plan(StudyInputs(recipe, arguments.corpus, arguments.data, arguments.model, arguments.minute))
    folder = arguments.cells or arguments.out / "cells"
    if arguments.dry_run:
        show_cells(plan, folder)
        return
    workers = (arguments.scheduler, arguments.workers)
    options = Options(arguments.only or "", arguments.keep_models, arguments.retry, False, *workers)
    results = _stoppable(lambda: run_study(plan, arguments.out, folder, options))
    for sheet in tables(results):
        sheet.show()
    if others_work(results):
        raise SystemExit(STOPPED)
    if results["failed"]:
        raise SystemExit(FAILED)


@dataclass(frozen=True)
class ReportArguments:
    """Print the tables of studies from their results, and write them. Run nothing.

    Example:
        bertworks study report runs/masking runs/size
    """

    folders: Annotated[tuple[Path, ...], Positional, required("FOLDER")]
    """folders that `bertworks study` has written to, finished or not"""


def report(argv: list[str]) -> None:
    """Print the tables of each study, and write them."""
    arguments = parse(ReportArguments, argv, "study report")
    from ..experiments.tables import report_study, tables

    for results in [report_study(folder) for folder in arguments.folders]:
        for sheet in tables(results):
            sheet.show()


def _stoppable(work: Any) -> Any:
    """Return what `work` returns. SIGTERM between two runs stops it as Ctrl-C does; a run handles its own."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_to_its_end(work)
    finally:
        signal.signal(signal.SIGTERM, before)
