"""Progress of a run in a notebook: one output of the cell, with the bar and the last records, drawn by rich.

rich's own live display needs ipywidgets; this one needs nothing but the notebook, and is saved with it.
"""

import time
from collections import deque
from typing import Any

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

EVERY = 0.25  # seconds between two drawings
RECORDS = 8  # the last records that are shown


class Cell:
    """The output of a cell, which is drawn anew as the run goes on."""

    def __init__(self, bar: Progress):
        from IPython.display import display

        self.bar, self.lines, self.drawn = bar, deque[str](maxlen=RECORDS), time.monotonic()
        self.handle: Any = display(self._drawing(), display_id=True)

    def add(self, line: str) -> None:
        """Show one more record."""
        self.lines.append(line)
        self.draw()

    def draw(self, now: bool = False) -> None:
        """Draw the output anew, unless it was drawn a moment ago."""
        if now or time.monotonic() - self.drawn >= EVERY:
            self.handle.update(self._drawing())
            self.drawn = time.monotonic()

    def _drawing(self) -> Table:
        grid = Table.grid()
        grid.add_row(self.bar.make_tasks_table(self.bar.tasks))
        for line in self.lines:
            grid.add_row(Text(line))
        return grid
