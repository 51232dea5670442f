"""Progress of a long job: a bar with rate and time left on a terminal, otherwise a plain line every ten seconds."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from .tables import counted

EVERY = 10.0  # seconds between plain lines


def is_first_process() -> bool:
    """Whether this is the process of a torchrun that prints, draws and tracks."""
    return os.environ.get("RANK", "0") == "0"


class Progress:
    """`with progress.stage("reading", total, "B"): ... progress.at(done)`. Writes to stderr; silent unless `show`."""

    def __init__(self, show: bool = True) -> None:
        self.show = show
        self.at: Callable[[float], None] = lambda done: None  # reports the finished part of the stage's total

    def say(self, text: str) -> None:
        """Print a line."""
        if self.show:
            print(text, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def stage(self, name: str, total: float, unit: str) -> Iterator[None]:
        """A stage of `total` units, each a noun ("shard"); or "B", shown in MB, or in kB below ten of them."""
        scale = 1.0
        if unit == "B":
            scale, unit = (1e6, "MB") if total >= 1e7 else (1e3, "kB")
        else:
            unit = counted(round(total), unit).split()[1]
        if not self.show:
            yield
        elif sys.stderr.isatty():
            with self._rich(name, total / scale, scale, unit):
                yield
        else:
            self.say(f"{name}: {total / scale:,.0f} {unit}")
            self.at = _plain_lines(name, total / scale, scale, unit)
            yield
        self.at = lambda done: None

    @contextlib.contextmanager
    def _rich(self, name: str, total: float, scale: float, unit: str) -> Iterator[None]:
        from rich import progress
        from rich.console import Console

        counts = "{task.completed:,.0f}/{task.total:,.0f} " + unit + "  {task.speed:,.1f} " + unit + "/s"
        columns = ("{task.description}", progress.BarColumn(), progress.TextColumn(counts))
        with progress.Progress(*columns, progress.TimeRemainingColumn(), console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=total)
            self.at = lambda done: bar.update(task, completed=done / scale)
            yield


def _plain_lines(name: str, total: float, scale: float, unit: str) -> Callable[[float], None]:
    """A function of what is done, which prints a line every ten seconds."""
    started = last = time.monotonic()

    def update(done: float) -> None:
        nonlocal last
        now, done = time.monotonic(), done / scale
        if now - last < EVERY or not done:
            return
        last, rate = now, done / (now - started)
        left = (total - done) / rate
        text = f"{name}: {done:,.0f} of {total:,.0f} {unit}, {rate:,.1f} {unit}/s, {left:,.0f} s left"
        print(text, file=sys.stderr, flush=True)

    return update
