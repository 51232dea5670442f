"""What the demo shows while it works: on a terminal a live list of its steps, elsewhere a line now and then.

A step that is under way has a bar with its rate and the time left; pre-training has the curve of its loss too.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...reporting.log import duration
from .curve import bar, curve, sparkline

EVERY = 30.0  # seconds between two lines about the same step where there is no terminal
BAR = 16  # characters of a bar
WIDTH, HEIGHT = 36, 5  # characters and lines of the curve
LEAST_RATE = 2.0  # seconds of work before a rate is shown


@dataclass
class Step:
    """One step of the list."""

    name: str
    about: str  # what it does
    notes: list[str] = field(default_factory=list)  # what it gave
    seconds: float | None = None  # that it took; None: not finished


@dataclass
class Screen:
    """The list of steps, and the bar and the curve of the one under way."""

    title: str  # how long it takes
    steps: list[Step]
    console: Console
    now: Callable[[], float] = time.monotonic
    number: int = 0  # of the step under way, counted from 1; 0: none yet
    losses: list[tuple[float, float]] = field(default_factory=list)  # tokens, loss
    entropy: float = 0.0  # loss that word frequencies alone reach
    _done: float = 0.0
    _total: float = 0.0
    _unit: str = ""
    _first: tuple[float, float] | None = None  # when the first progress came, and what was done by then
    _began: float = 0.0
    _printed: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it is drawn anew all the time: on a terminal that has the characters."""
        return self.console.is_terminal and not self.console.quiet and self.console.encoding.startswith("utf")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it until the block ends; what was finished stays on the terminal."""
        if not self.live:
            self.console.print(self.title, highlight=False, markup=False, soft_wrap=True)
            yield
            return
        with Live(get_renderable=self.render, console=self.console, refresh_per_second=4):
            yield

    @property
    def current(self) -> Step:
        return self.steps[self.number - 1]

    def begin(self, left: float) -> None:
        """The next step begins; `left`: seconds that it and the later ones will take."""
        self.number += 1
        self._done = self._total = 0.0
        self._unit, self._first = "", None
        self._began = self._printed = self.now()
        if not self.live:
            about = f"[{self.number}/{len(self.steps)}] {self.current.about} (about {duration(left)} to go)"
            self.console.print(about, highlight=False, markup=False, soft_wrap=True)

    def at(self, done: float, total: float, unit: str = "") -> None:
        """So much of the step's total is done."""
        self._done, self._total, self._unit = done, total, unit
        if self._first is None:
            self._first = self.now(), done
        if not self.live and self.now() - self._printed > EVERY:
            self._printed = self.now()
            loss = f", loss {self.losses[-1][1]:.2f}" if self.losses and unit == "tokens" else ""
            self.console.print(f"      {self._progress()}{loss}", highlight=False, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A result of the step."""
        self.current.notes.append(text)
        if not self.live:
            self.console.print(f"      {text}", highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None:
        """The step is finished."""
        self.current.seconds = self.now() - self._began

    def _progress(self) -> str:
        """How much is done, the rate and the time left."""
        share = self._done / self._total if self._total else 0.0
        when, before = self._first or (self.now(), self._done)
        spent, work = self.now() - when, self._done - before
        if spent < LEAST_RATE or work <= 0:
            return f"{share:4.0%}"
        rate, left = work / spent, (self._total - self._done) * spent / work
        shown = f"{rate:,.0f} {self._unit}/s  " if self._unit else ""
        return f"{share:4.0%}  {shown}{duration(left)} left"

    # ---- on a terminal

    def render(self) -> RenderableType:
        """The whole list."""
        table = Table.grid(padding=(0, 1), expand=False)
        for width in (1, 9, 56, 10):
            table.add_column(width=width, justify="right" if width == 10 else "left", no_wrap=width != 56)
        for number, step in enumerate(self.steps, 1):
            table.add_row(*self._row(number, step))
        return Group(Text("bertworks demo", style="bold"), Text(self.title, style="dim"), Text(), table)

    def _row(self, number: int, step: Step) -> Sequence[RenderableType]:
        if step.seconds is not None:
            body = Text("\n".join(step.notes))
            if step.name == "pre-train" and len(self.losses) > 1:
                body.append(f"\nloss {self.losses[0][1]:.2f} ", style="dim")
                body.append(sparkline([y for _, y in self.losses], 32), style="cyan")
                body.append(f" {self.losses[-1][1]:.2f}", style="bold")
            return Text("✓", style="green"), Text(step.name), body, Text(duration(step.seconds), style="dim")
        if number == self.number:
            spent = duration(self.now() - self._began)
            return Text("●", style="cyan"), Text(step.name, style="bold"), self._body(step), Text(spent, style="dim")
        return Text("○", style="dim"), Text(step.name, style="dim"), Text(step.about, style="dim"), Text()

    def _body(self, step: Step) -> RenderableType:
        lines: list[RenderableType] = [Text(step.about)]
        if self._total:
            share = min(1.0, self._done / self._total)
            filled = round(BAR * share)
            drawn = Text("━" * filled, style="cyan").append("━" * (BAR - filled), style="bright_black")
            lines.append(drawn.append(f" {self._progress()}", style="default"))
        if step.name == "pre-train" and len(self.losses) > 1:
            lines.append(self._curve())
        return Group(*lines, *(Text(note) for note in step.notes))

    def _curve(self) -> Text:
        """The loss so far, and beside it the highest, the last and what guessing reaches."""
        values = [y for _, y in self.losses]
        text = Text()
        for number, line in enumerate(curve(self.losses, WIDTH, HEIGHT, self._total)):
            end = "\n" if number < HEIGHT - 1 else ""
            label = {0: f"{max(values):.2f}", HEIGHT - 1: f"{min(values):.2f}"}.get(number, "")
            text.append(f"{label:>5} ", style="dim").append(line, style="cyan")
            if number == 0:
                text.append(f" loss {values[-1]:.2f}", style="bold")
            if number == 1 and self.entropy:
                text.append(f" guess {self.entropy:.2f}", style="dim")
            text.append(end)
        return text


def score_table(title: str, header: str, rows: Sequence[tuple[str, float, float | None, str]]) -> Table:
    """A table of scores with their standard deviation over seeds, and a bar each; it fits 80 columns."""
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", padding=(0, 1))
    table.add_column("", overflow="fold")
    table.add_column(f"{header} (%)", justify="right", no_wrap=True)
    table.add_column("sd", justify="right", no_wrap=True)
    table.add_column("", width=20, no_wrap=True)
    for number, (what, score, sd, _) in enumerate(rows):
        drawn = Text(bar(score, 20), style="cyan" if number == 0 else "bright_black")
        table.add_row(Text(what), f"{100 * score:.1f}", "" if sd is None else f"{100 * sd:.1f}", drawn)
    return table
