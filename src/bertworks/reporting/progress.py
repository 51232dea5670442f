"""Progress of a long job: a bar with rate and time left on a terminal, otherwise a plain line every ten seconds."""

import contextlib
import sys
import time
from collections.abc import Iterator

EVERY = 10.0  # seconds between plain lines


class Progress:
    """`with progress.stage("reading", total, "B"): ... progress.at(done)`. Writes to stderr; silent unless `show`."""

    def __init__(self, show: bool = True) -> None:
        self.show = show
        self.bar = sys.stderr.isatty()
        self._update = lambda done: None

    def say(self, text: str) -> None:
        """Print a line."""
        if self.show:
            shown = text.encode("utf-8", "backslashreplace").decode()  # names of files need not be UTF-8
            print(shown, file=sys.stderr, flush=True)

    def at(self, done: float) -> None:
        """Report that `done` of the stage's total is done."""
        self._update(done)

    @contextlib.contextmanager
    def stage(self, name: str, total: float, unit: str) -> Iterator[None]:
        """A stage of `total` units; "B" is shown in MB."""
        scale, unit = (1e6, "MB") if unit == "B" else (1.0, unit)
        if not self.show:
            yield
        elif self.bar:
            with self._rich(name, total / scale, scale, unit):
                yield
        else:
            self._update = _Lines(name, total / scale, scale, unit).update
            yield
        self._update = lambda done: None

    @contextlib.contextmanager
    def _rich(self, name: str, total: float, scale: float, unit: str) -> Iterator[None]:
        from rich import progress as rich_progress
        from rich.console import Console

        columns = (
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.TextColumn(
                "{task.completed:,.0f}/{task.total:,.0f} " + unit + "  {task.speed:,.1f} " + unit + "/s"
            ),
            rich_progress.TimeRemainingColumn(),
        )
        with rich_progress.Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=total)
            self._update = lambda done: bar.update(task, completed=done / scale)
            yield


class _Lines:
    def __init__(self, name: str, total: float, scale: float, unit: str) -> None:
        self.name, self.total, self.scale, self.unit = name, total, scale, unit
        self.begun = self.last = time.monotonic()

    def update(self, done: float) -> None:
        now, done = time.monotonic(), done / self.scale
        if now - self.last < EVERY or not done:
            return
        self.last, rate = now, done / (now - self.begun)
        left = (self.total - done) / rate
        text = (
            f"{self.name}: {done:,.0f} of {self.total:,.0f} {self.unit}, {rate:,.1f} {self.unit}/s, {left:,.0f} s left"
        )
        print(text, file=sys.stderr, flush=True)
