"""A report on the terminal: findings with evidence and advice, at most 80 columns wide; or a line each."""

import os
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.text import Text

from ...files import InputError
from .findings import Report

WIDTH = 80
COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def show(report: Report, fix: bool = False) -> None:
    """Print a report on standard output. fix: whether fixes were asked for, so that the end says if there were none."""
    width = min(WIDTH, Console().width)
    console = Console(highlight=False, markup=False, width=width)
    kind = "" if report.target == f"this {report.kind}" else f": {report.kind}"
    _print(console, Text(f"{report.target}{kind}", style="bold"))
    for one in report.sorted():
        where = f", {one.where}" if one.where else ""
        _print(console, Text.assemble((one.severity, COLOURS[one.severity]), f": {one.check}{where}"))
        _print(console, Text(one.evidence), "  ")
        if one.advice:
            _print(console, Text(f"-> {one.advice}", style="dim"), "  ")
    for line in _ends(report):
        _print(console, Text(line))
    if fix and not report.fixed and not report.not_fixed:
        _print(console, Text("fixed: nothing; --fix mends leftovers, vocab.txt, a missing card, and repeated rows"))


def _print(console: Console, text: Text, indent: str = "") -> None:
    """Print a text in as many lines as it needs, without blanks at their ends."""
    for line in text.wrap(console, console.width - len(indent)):
        line.rstrip()
        console.print(Text(indent).append_text(line))


def _ends(report: Report) -> Iterator[str]:
    """What is said below the findings."""
    found = {one.check for one in report.findings}
    if silent := [name for name in report.checked if name not in found]:
        yield f"nothing found: {', '.join(silent)}"
    for name, why in report.skipped.items():
        if name not in report.checked:
            yield f"not checked: {name} ({why})"
    yield from (f"fixed: {what}" for what in report.fixed)
    yield from (f"not fixed: {what}" for what in report.not_fixed)


def brief(report: Report, advise: bool = True) -> list[str]:
    """A line for each finding that is more than a note, without its advice unless `advise`."""
    lines = []
    for one in report.sorted():
        if one.severity != "note":
            where, advice = f"{one.where}: " if one.where else "", f"; {one.advice}" if one.advice and advise else ""
            lines.append(f"{one.severity}: {where}{one.evidence}{advice}")
    return lines


def print_brief(
    examine: Callable[[], Report],
    advise: bool = True,
    quiet: bool = False,
    named: Callable[[str], str] = str,
    unharmed: str = "what was made is complete",
) -> list[str]:
    """Print the lines of `brief` on stderr, unless `quiet`, and return them; `named` rewrites each of them.

    An examination that fails costs a message, which ends in `unharmed`, never the run. Of the processes of a torchrun,
    the first one examines.
    """
    if os.environ.get("RANK", "0") != "0":
        return []
    try:
        lines = [named(line) for line in brief(examine(), advise)]
    except Exception as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        lines = [f"not examined ({reason}); {unharmed}"]
    if not quiet:
        for line in lines:
            print(line, file=sys.stderr)
    return lines
