"""`--dry-run` of a study: its runs and their state, and the time left as finished runs of the same kind suggest."""

import statistics
import sys
from pathlib import Path

from ..pretraining.run import useful_flops
from ..reporting.log import duration
from ..reporting.tables import ResultTable
from .cells import Baseline, Finetuning, Pretraining, StudyCell, results_of
from .engine import Grid
from .rows import Plan


def show_cells(plan: Plan, folder: Path) -> None:
    """Print the cells in the order of work, and about how long what is left takes one process."""
    grid, rows, left, unknown = Grid(folder), [], 0.0, 0
    spent = {cell.name: (results_of(cell, grid) or {}).get("seconds") for cell in plan.cells}
    for cell in plan.cells:
        state, known = "busy" if grid.busy(cell) else grid.state(cell), spent[cell.name]
        rows.append((cell.title, state, "" if known is None else duration(known)))
        if state in ("busy", "part", "missing"):
            seconds = _estimate(cell, plan, spent)
            left, unknown = left + (seconds or 0), unknown + (seconds is None)
    ResultTable(f"{plan.study.title}: {len(plan.cells)} runs", ("run", "state", "took"), rows).show()
    without = f", and {unknown} runs of which no similar run is finished" if unknown else ""
    print(f"left: about {duration(left)} of one process{without}", file=sys.stderr)


def _estimate(cell: StudyCell, plan: Plan, spent: dict[str, float | None]) -> float | None:
    """Seconds of the whole run: the mean of finished runs of its column, a pre-training's by operations; or None."""
    alike = [(other, seconds) for other in plan.cells if (seconds := spent[other.name]) is not None]
    work, found = cell.work, list[float]()
    for other, seconds in alike:
        if isinstance(work, Pretraining) and isinstance(other.work, Pretraining):
            if work.config.loop.hours == other.work.config.loop.hours == 0:
                found.append(seconds * _operations(work) / _operations(other.work))
        elif isinstance(work, Finetuning | Baseline) and isinstance(other.work, type(work)):
            found += [seconds] * (work.column == other.work.column)
    return statistics.fmean(found) if found else None


def _operations(work: Pretraining) -> float:
    """Floating-point operations of a pre-training of so many tokens or full updates."""
    loop = work.config.loop
    update = sum(phase.share * phase.batch_size * phase.length for phase in work.config.phases)
    return useful_flops(work.config) * min(n for n in (loop.tokens, loop.steps * update) if n)
