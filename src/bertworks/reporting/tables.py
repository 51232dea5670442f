"""A small table of results, shown on a terminal or written as Markdown."""

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

TEXT_WIDTH = 110  # columns of a table as text


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

        self._print(Console())

    def text(self) -> str:
        """The table as `show` prints it on a terminal of 110 columns, without colours."""
        from rich.console import Console

        shown = io.StringIO()
        self._print(Console(width=TEXT_WIDTH, file=shown, force_terminal=False, force_jupyter=False, no_color=True))
        return "\n".join(line.rstrip() for line in shown.getvalue().splitlines())

    def html(self) -> str:
        """The table as HTML, for a notebook."""
        header = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p>{html.escape(self.title)}</p><table><tr>{header}</tr>{rows}</table>{notes}"

    def _print(self, console: "Console") -> None:
        from rich.table import Table

        if self.title:
            console.print(self.title, markup=False, highlight=False, soft_wrap=True)
        table = Table(*self.header)
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
        table = [f"| {' | '.join(map(cell_text, texts))} |" for texts in lines]
        table.insert(1, f"| {' | '.join(['---', *('---:' for _ in self.header[1:])])} |")
        notes = (line for note in self.notes for line in ("", no_tags(note)))
        return "\n".join([f"# {no_tags(self.title)}", "", *table, *notes, ""])


def cell_text(text: str) -> str:
    """Escape a text for a cell of a Markdown table: no bars, line ends or HTML."""
    return no_tags(text).replace("|", "\\|")


def no_tags(text: str) -> str:
    """Escape a text for one line of Markdown: names of labels, tasks and folders must not become HTML."""
    return " ".join(text.splitlines()).replace("<", "\\<")


def number(value: Any) -> str:
    """Format a number for a cell: four digits behind the point of a fraction, fewer of large numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 or not value else f"{value:,.4g}"


def counted(count: int, noun: str) -> str:
    """A number of things: 1 seed, 1,200 seeds, 2 processes."""
    return f"{count:,} {noun}{'' if count == 1 else 'es' if noun.endswith('s') else 's'}"


def points(value: Any) -> str:
    """Format a fraction as points with two digits, 0.8456 as 84.56; None becomes a dash."""
    return "-" if value is None else f"{100 * value:.2f}"
