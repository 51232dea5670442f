"""A small table of results, shown on a terminal or written as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ResultTable:
    """Rows of cells under a header: the first column has names, the others numbers."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()  # sentences below it

    def show(self) -> None:
        """Print it on standard output."""
        from rich.console import Console
        from rich.table import Table

        console, table = Console(), Table(*self.header, title=self.title, title_justify="left")
        table.columns[0].overflow = "fold"  # on a narrow terminal names are broken, never cut, and numbers stay whole
        for column in table.columns[1:]:
            column.justify = "right"
        for row in self.rows:
            table.add_row(*row)
        console.print(table, markup=False)
        for note in self.notes:
            console.print(note, highlight=False, markup=False, soft_wrap=True)

    def markdown(self) -> str:
        """The table as a Markdown file."""
        lines = [self.header, *self.rows]
        table = [f"| {' | '.join(map(cell_text, cells))} |" for cells in lines]
        table.insert(1, f"| {' | '.join(['---', *('---:' for _ in self.header[1:])])} |")
        notes = (line for note in self.notes for line in ("", no_tags(note)))
        return "\n".join([f"# {no_tags(self.title)}", "", *table, *notes, ""])


def cell_text(text: str) -> str:
    """Escape a text for a cell of a Markdown table: no bars, line ends or HTML."""
    return no_tags(text).replace("|", "\\|")


def no_tags(text: str) -> str:
    """Escape a text for one line of Markdown: names of labels, tasks and folders must not become HTML."""
    return " ".join(text.splitlines()).replace("<", "\\<")


def points(value: Any) -> str:
    """Format a fraction as points with two digits, 0.8456 as 84.56; None becomes a dash."""
    return "-" if value is None else f"{100 * value:.2f}"
