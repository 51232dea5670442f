"""Findings on the terminal: a report of at most 80 columns, or one line per finding."""

import os
import sys
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from ...files import InputError
from .examination import Report

WIDTH = 80
COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def show(report: Report) -> None:
    """Print a report on standard output."""
    console = Console(highlight=False, markup=False, width=min(WIDTH, Console().width))
    _print(console, Text(f"{report.target}: {report.kind}", style="bold"))
    for one in report.findings:
        where = f", {one.where}" if one.where else ""
        _print(console, Text.assemble((one.severity, COLOURS[one.severity]), f": {one.check}{where}"))
        _print(console, Text(one.evidence), "  ")
        if one.advice:
            _print(console, Text(f"-> {one.advice}", style="dim"), "  ")
    if not report.findings:
        console.print("no findings")


def _print(console: Console, text: Text, indent: str = "") -> None:
    """Print a text in as many lines as it needs, without blanks at their ends."""
    for line in text.wrap(console, console.width - len(indent)):
        line.rstrip()
        console.print(Text(indent).append_text(line))


def print_warnings(examine: Callable[[], Report], quiet: bool = False) -> list[str]:
    """Print the errors and warnings of an examination on stderr, one per line, unless `quiet`; return the lines.

    If it fails, a message says so, and the run is unaffected. Of the processes of a torchrun the first one examines.
    """
    if os.environ.get("RANK", "0") != "0":
        return []
    try:
        lines = [str(finding) for finding in examine().findings if finding.severity != "note"]
    except Exception as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        lines = [f"not examined ({reason}); the run or store is complete"]
    for line in lines if not quiet else ():
        print(line, file=sys.stderr)
    return lines
