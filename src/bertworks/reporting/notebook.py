"""Progress of a run in a notebook: one output of the cell, with the bar and the last records, drawn by rich.

rich's own live display needs ipywidgets; this one needs only the notebook, and is saved with it.
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
    """The output of a cell, which is updated during the run."""

    def __init__(self, bar: Progress):
        from IPython.display import display

        self.bar, self.lines, self.drawn = bar, deque[Text](maxlen=RECORDS), time.monotonic()
        self.handle: Any = display(self._drawing(), display_id=True)

    def draw(self, line: str = "", now: bool = False) -> None:
        """Update the output, with one more record if given, unless it was updated a moment ago."""
        if line:
            self.lines.append(Text(line))
        if now or time.monotonic() - self.drawn >= EVERY:
            self.handle.update(self._drawing())
            self.drawn = time.monotonic()

    def _drawing(self) -> Table:
        grid = Table.grid()
        grid.add_row(self.bar.make_tasks_table(self.bar.tasks))
        for line in self.lines:
            grid.add_row(line)
        return grid
