"""`--dry-run` of a study: its runs, their state, and about how long what is left takes one process."""

import statistics
import sys
from pathlib import Path

from ..files import InputError
from ..pretraining.estimate import estimate as estimate_pretraining
from ..pretraining.recipe import PretrainConfig
from ..pretraining.run import useful_flops
from ..reporting.log import duration
from ..reporting.run_files import LOG, read_log
from ..reporting.tables import ResultTable
from .cells import Baseline, Finetuning, Pretraining, StudyCell, results_of
from .engine import Grid
from .rows import Plan


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
