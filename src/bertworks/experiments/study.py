"""Working through a study's cells: what is missing is run, by as many processes as are started on the same folder.

    OUT/results.json             every value, mean, difference and cost, and the state of all cells
    OUT/study.md                 the same as tables, with the paper's figures
    OUT/study.png, .svg          differences from the base variant with their intervals, or curves
    OUT/cells/                   the runs themselves, unless --cells says otherwise (cells.py)

Typing the same line again goes on; equal cells of several studies with one --cells are run once.
"""

import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..checkpoint.concat import concatenate
from ..checkpoint.folder import find_model
from ..files import Diverged, InputError, NotWritten, write_json, write_text
from ..finetuning.run import finetune
from ..pretraining.run import PretrainConfig, pretrain
from ..reporting.run_files import read_results
from ..tasks.base import Data
from ..training import machine
from .cells import Cell, Cells, Finetuning, Start
from .figures import plot_study
from .plan import Plan, read_rows
from .report import FORMAT, measure, tables

PAUSE = 5.0  # seconds between looks at what other processes have finished
BULKY = ("model", "nbest_predictions.json")  # of a finished fine-tuning, many megabytes each


@dataclass(frozen=True)
class Options:
    """How a study is worked through."""

    only: Literal["", "pretrain", "finetune"] = ""  # these cells alone
    keep_models: bool = False  # keep the models of fine-tuning cells too
    retry: bool = False  # try again what diverged or failed before
    quiet: bool = False


def run_study(plan: Plan, out: Path, folder: Path, options: Options = Options()) -> dict[str, Any] | None:
    """Run what is missing of a study; returns its results, or None if it was stopped before the end.

    folder: of the cells. Results have `left`: cells that other processes are working on, or that --only left out.
    Raises InputError if `out` holds another study, or results in another format, or a cell had other settings.
    """
    check_out(plan, out)
    cells = Cells(folder)
    check_cells(plan, cells)
    out.mkdir(parents=True, exist_ok=True)
    worker = Worker(plan, cells, options)
    worker.read_data()
    facts = machine.facts()
    finished = worker.work(lambda: write(plan, cells, out, facts))
    plot_study(write(plan, cells, out, facts), out / "study")
    results = write(plan, cells, out, facts)  # again, beside its picture
    return results if finished else None


def check_out(plan: Plan, out: Path) -> None:
    """Raises InputError if `out` has the results of something else."""
    path = out / "results.json"
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
    if found.get("minute") != plan.sources.minute:
        raise InputError(f"{out} was made {'with' if found['minute'] else 'without'} --minute; give another --out")


def check_cells(plan: Plan, cells: Cells) -> None:
    """Raises InputError if cells that were begun cannot be used."""
    for cell in plan.cells:
        cells.check(cell)
        cells.results(cell)
    for row in plan.rows:
        if row.step and row.trained and cells.state(row.trained[0]) == "done":
            check_start(row.start, cells)


def check_start(start: Start, cells: Cells) -> None:
    """Raises InputError if a model that finished runs should have left is not there: a snapshot nobody asked for."""
    place = cells.folder / start.folder
    if start.needs and not place.exists():
        raise InputError(
            f"{place}: no such snapshot, but the run is finished, for a study without it; remove "
            f"{cells.place(start.needs[-1])} to run it again"
        )


def write(plan: Plan, cells: Cells, out: Path, machine: dict[str, Any]) -> dict[str, Any]:
    """results.json and study.md as things stand, with the picture if there is one."""
    results = measure(plan, cells) | {"machine": machine}
    sheets = tables(results)
    text = "\n".join("#" * (number > 0) + sheet.markdown() for number, sheet in enumerate(sheets))
    picture = f"\n![{results['title']}](study.png)\n" if (out / "study.png").exists() else ""
    write_text(out / "study.md", text + picture)
    write_json(out / "results.json", results)
    return results


@dataclass
class Worker:
    """One process that works on a study."""

    plan: Plan
    cells: Cells
    options: Options
    data: dict[str, Data] = field(default_factory=dict)  # rows of each column
    told: str = ""  # what it said last about waiting

    def read_data(self) -> None:
        """Read every column's rows, so that a damaged file is found before hours are spent."""
        for cell in self.plan.cells if self.options.only != "pretrain" else ():
            if isinstance(cell.work, Finetuning) and self._open(cell):
                self._rows(cell.work)

    def work(self, after: Callable[[], object]) -> bool:
        """Run cells until none is left for this process; `after` is called when one is finished. False if stopped."""
        for cell in self.plan.cells:  # whose process was killed before it could tidy up
            if self.cells.state(cell) == "done" and self._is_untidy(cell):
                with self.cells.claimed(cell) as mine:
                    if mine:
                        self._tidy(cell, self.cells.place(cell))
        for cell in self.plan.cells if self.options.retry else ():
            with self.cells.claimed(cell) as mine:
                if mine:
                    self.cells.retry(cell)
        while left := [cell for cell in self.plan.cells if self._open(cell)]:
            ran = self._next(left)
            if ran is None:
                return False
            if ran:
                after()
            elif all(self.cells.busy(cell) for cell in left):
                break
            else:
                self._wait(left)
        return True

    def _open(self, cell: Cell) -> bool:
        """Whether it is to be run, now or when what it needs is there."""
        only, cells = self.options.only, self.cells
        if cells.state(cell) in ("done", "failed") or cells.failure(cell):
            return False
        if only == "pretrain":
            return cell.kind == "pretrain"
        if only == "finetune":
            return cell.kind != "pretrain" and all(
                cells.state(one) == "done" or cells.busy(one) for one in cell.before if one.kind == "pretrain"
            )
        return True

    def _next(self, left: list[Cell]) -> bool | None:
        """Run the first cell that can be run and that nobody else has; False if there is none, None if stopped."""
        for cell in left:
            if any(self.cells.state(one) != "done" for one in cell.needs):
                continue
            with self.cells.claimed(cell) as mine:
                if mine and self.cells.state(cell) in ("part", "missing"):
                    if isinstance(cell.work, Finetuning):
                        check_start(cell.work.start, self.cells)
                    return self._run(cell)
        return False

    def _run(self, cell: Cell) -> bool | None:
        """Run a claimed cell; a failure is marked, so that the others go on. None if it was stopped."""
        place, all_cells = self.cells.place(cell), self.plan.cells
        done = sum(self.cells.state(one) in ("done", "failed") for one in all_cells)
        self._say(f"[{done + 1}/{len(all_cells)}] {cell.told} ({place})")
        self.cells.describe(cell, self.options.keep_models)
        try:
            results = self._results(cell, place)
        except (OSError, NotWritten):  # a full disk is nothing of this cell's
            raise
        except Exception as error:
            message = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            if not isinstance(error, InputError):
                traceback.print_exc()
            print(f"{cell.told} failed: {message}", file=sys.stderr)
            self.cells.fail(cell, message, "diverged" if isinstance(error, Diverged) else "failed")
            return True
        if results is None:
            return None
        self._tidy(cell, place)
        return True

    def _results(self, cell: Cell, place: Path) -> dict[str, Any] | None:
        work, quiet = cell.work, self.options.quiet
        if isinstance(work, PretrainConfig):
            corpus = self.plan.sources.corpus
            assert corpus is not None  # the plan has made sure
            return pretrain(work, corpus, place, quiet=quiet)
        if isinstance(work, Finetuning):
            return finetune(work.config, work.task, self._rows(work), self._folder(work.start), place, quiet)
        shutil.rmtree(place / "model", ignore_errors=True)
        left, right = (self._folder(start) for start in work)
        concatenate(left, right, place / "model")
        results = {"kind": "concat", "seconds": 0.0}
        write_json(place / "results.json", results)
        return results

    def _folder(self, start: Start) -> Path:
        return find_model(self.cells.folder / start.folder)

    def _rows(self, work: Finetuning) -> Data:
        """The rows of a column, read once."""
        assert self.plan.sources.data is not None
        name = work.column.name
        if name not in self.data:
            self.data[name] = read_rows(work, self.plan.sources.data)
        return self.data[name]

    def _is_untidy(self, cell: Cell) -> bool:
        """Whether a finished cell still has what its run was to remove."""
        place = self.cells.place(cell)
        bulky = cell.kind == "finetune" and any((place / name).exists() for name in BULKY)
        return (place / "state").exists() or (bulky and not self.cells.keeps_model(cell))

    def _tidy(self, cell: Cell, place: Path) -> None:
        """Remove what nobody needs of a finished run, so that hundreds of them stay small."""
        shutil.rmtree(place / "state", ignore_errors=True)
        if cell.kind != "finetune" or self.options.keep_models:
            return
        for name in BULKY:
            path = place / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _wait(self, left: list[Cell]) -> None:
        busy = ", ".join(cell.told for cell in left if self.cells.busy(cell))
        if busy and busy != self.told:
            self._say(f"waiting for what other processes work on: {busy}")
            self.told = busy
        time.sleep(PAUSE)

    def _say(self, text: str) -> None:
        if not self.options.quiet:
            print(text, file=sys.stderr)


def alone() -> None:
    """Raises InputError under torchrun: the processes of a study share its cells, not one cell."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "a study is not run by torchrun: start it several times on the same --out, a GPU or a core each, and each "
            "process takes cells of its own"
        )
