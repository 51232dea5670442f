"""`bertworks study`: variants of a recipe side by side."""

import signal
import sys
from typing import Any

from .ending import STOPPED, run_to_its_end


def study(argv: list[str]) -> None:
    """A study: variants of a recipe side by side, next to the paper's figures: STUDY --corpus --data --out."""
    from pathlib import Path
    from typing import Literal

    import tyro

    from ..config import find_recipe
    from ..experiments.engine import refuse_torchrun
    from ..experiments.plan import StudyInputs, make_plan
    from ..experiments.report import tables
    from ..experiments.study import Options, run_study, show_cells

    def run(
        recipe: tyro.conf.Positional[str],
        out: Path,
        corpus: Path | None = None,
        data: Path | None = None,
        model: Path | None = None,
        cells: Path | None = None,
        only: Literal["", "pretrain", "finetune"] = "",
        minute: bool = False,
        dry_run: bool = False,
        keep_models: bool = False,
        retry: bool = False,
    ) -> None:
        """Run what is missing of a study, and show its tables. Typing the same line again goes on; so does the same
        line in a second process at the same time, which takes other cells.

        Args:
            recipe: a study that `bertworks recipes` lists (masking, paper/masking), or a .toml file of your own
            out: folder of results.json, study.md and study.png
            corpus: store made by `bertworks corpus build`, for studies that pre-train
            data: folder that has the columns' folders, glue/MNLI say
            model: a model folder instead of the pre-training of all variants that do not differ in it
            cells: folder of the runs; studies that share it share equal runs (OUT/cells)
            only: these runs alone: pretrain or finetune
            minute: tiny models and a dozen steps, to see that the study runs; its figures mean nothing
            dry_run: list the runs, with their state and an estimate of what is left, and begin nothing
            keep_models: keep the models of fine-tuning too
            retry: try again what diverged or failed before
        """
        refuse_torchrun("a study")
        plan = make_plan(StudyInputs(find_recipe(recipe, "study"), corpus, data, model, minute))
        folder = cells or out / "cells"
        if dry_run:
            show_cells(plan, folder)
            return
        results = _stoppable(lambda: run_study(plan, out, folder, Options(only, keep_models, retry)))
        for sheet in tables(results):
            sheet.show()
        if busy := [one["what"] for one in results["left"] if one["busy"]]:
            print(f"other processes still work on: {'; '.join(busy)}", file=sys.stderr)
            raise SystemExit(STOPPED)
        if results["failed"]:
            raise SystemExit(1)

    tyro.cli(run, prog="bertworks study", args=argv)


def _stoppable(work: Any) -> Any:
    """Return what `work` returns. SIGTERM between two runs stops it as Ctrl-C does; a run handles its own."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_to_its_end(work)
    finally:
        signal.signal(signal.SIGTERM, before)
