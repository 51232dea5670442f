"""What a study would run: its cells, their state, and about how long what is left takes one process."""

import statistics
import sys
from pathlib import Path

from ..pretraining.run import PretrainConfig, useful_flops
from ..reporting.log import duration
from ..reporting.run_files import LOG, read_log
from ..reporting.tables import Sheet
from .cells import Cell, Cells, Finetuning
from .plan import Plan


def show(plan: Plan, folder: Path) -> None:
    """Print the cells in the order of work, and an estimate from those that are finished."""
    cells = Cells(folder)
    guess = Guess(plan, cells)
    rows, left, unknown = [], 0.0, 0
    for cell in plan.cells:
        state = "busy" if cells.busy(cell) else cells.state(cell)
        seconds = guess.left(cell)
        left, unknown = left + (seconds or 0), unknown + (seconds is None)
        spent = (cells.results(cell) or {}).get("seconds")
        told = ["" if s is None else duration(s) for s in (spent, None if state == "done" else seconds)]
        rows.append((cell.told, state, *told))
    header = ("run", "state", "took", "left, about")
    Sheet(f"{plan.study.title}: {len(plan.cells)} runs", header, rows).show()
    without = f", and {unknown} of which nothing like them is finished yet" if unknown else ""
    print(f"left: about {duration(left)} of one process{without}", file=sys.stderr)


class Guess:
    """Times of finished cells: pre-training by operations, fine-tuning by column."""

    def __init__(self, plan: Plan, cells: Cells):
        self.cells = cells
        self.rates: list[float] = []  # seconds an operation
        self.columns: dict[str, list[float]] = {}
        for cell in plan.cells:
            results = cells.results(cell)
            if results and isinstance(cell.work, PretrainConfig):
                self.rates.append(results["seconds"] / _operations(cell.work, results["tokens"]))
            elif results and isinstance(cell.work, Finetuning):
                self.columns.setdefault(cell.work.column.name, []).append(results["seconds"])

    def left(self, cell: Cell) -> float | None:
        """Seconds that the cell will still take; 0 if it is finished or has failed, None if nobody knows."""
        if self.cells.results(cell) or self.cells.failure(cell) or cell.kind == "concat":
            return 0.0
        if (self.cells.place(cell) / LOG).exists():
            records = [record for record in read_log(self.cells.place(cell)) if "left" in record]
            if records:
                return float(records[-1]["left"])
        if isinstance(cell.work, Finetuning):
            known = self.columns.get(cell.work.column.name)
            return statistics.fmean(known) if known else None
        if isinstance(cell.work, PretrainConfig) and self.rates and cell.work.loop.tokens:
            return statistics.fmean(self.rates) * _operations(cell.work, cell.work.loop.tokens)
        return None


def _operations(config: PretrainConfig, tokens: float) -> float:
    return useful_flops(config) * tokens
