"""How long the demo takes: estimated before it begins and at every step, and limited.

Pre-training has its minutes. Every other stage has a limit that follows from these minutes alone, so that a machine
that is busy with other work cannot turn a minute into an hour. On a machine that is not busy, no stage comes near its
limit: the demo reads the same files and runs the same updates each time.
"""

import time
from collections.abc import Callable
from pathlib import Path

from ..files import write_json
from ..reporting.log import duration
from ..reporting.run_files import read_results

# Seconds of each stage but pre-training on one core that nobody else uses, with the settings of demo.toml.
EXPECTED = {"reading": 25.0, "store": 20.0, "pre-training": 0.0, "evaluation": 12.0, "fine-tuning": 100.0}
FEWEST_STEPS = 10  # of a fine-tuning run, however slow the machine
LEAST = 60.0  # seconds that any stage may take, of however short a demo


class Clock:
    """The time of a demo of so many minutes. What was cut short is noted in `folder`/cut.json."""

    def __init__(self, minutes: float, folder: Path, now: Callable[[], float] = time.monotonic):
        self.limit = max(60 * minutes, LEAST)  # seconds a stage
        self.expected = EXPECTED | {"pre-training": 60 * minutes}
        # How much of fine-tuning's epochs fits into half its limit at the expected speed: decided here, not by time.
        self.share_of_epochs = min(1.0, self.limit / 2 / EXPECTED["fine-tuning"])
        self.expected["fine-tuning"] *= self.share_of_epochs
        self.file, self.now = folder / "cut.json", now
        self.stage, self.began = "", now()
        self.took: dict[str, float] = {}  # of finished stages that were not skipped

    def begin(self, stage: str) -> None:
        """The stage before ends, this one begins."""
        now = self.now()
        if self.stage:
            self.took[self.stage] = now - self.began
        self.stage, self.began = stage, now

    def over(self, share: float = 1.0) -> bool:
        """Whether the present stage has used up its limit, or this share of it."""
        return self.now() - self.began > share * self.limit

    def fitting(self, planned: int, step: float, rest: float, runs: int) -> int:
        """How many updates of the planned ones each of `runs` can have within a stage's limit; FEWEST_STEPS at least.

        step, rest: seconds of an update, and of a run beside its updates.
        """
        fit = (self.limit / runs - rest) / step if step > 0 else planned
        return min(planned, max(FEWEST_STEPS, int(fit)))

    def left(self) -> str:
        """About how long the present stage and all later ones will take, in words."""
        stages = list(self.expected)
        rest = stages[stages.index(self.stage) :] if self.stage else stages
        known = [name for name in self.took if name != "pre-training" and self.took[name] > 1]  # not skipped
        expected = sum(self.expected[name] for name in known)
        slow = max(1.0, sum(self.took[name] for name in known) / expected) if known else 1.0
        seconds = (s if name == "pre-training" else min(self.limit, slow * s) for name, s in self.expected.items())
        whole = dict(zip(self.expected, seconds, strict=True))
        return duration(sum(whole[name] for name in rest))

    def plan(self) -> str:
        """How long the whole demo will take, in one line."""
        return (
            f"about {self.left()} in all, {duration(self.expected['pre-training'])} of them pre-training; on a busy "
            f"machine more, but every stage is cut short after {duration(self.limit)}"
        )

    def cut(self, what: str) -> None:
        """Note that the limit has cut something short; once is enough."""
        if what not in (found := self.cuts()):
            write_json(self.file, [*found, what])

    def cuts(self) -> list[str]:
        """All that was cut short, in this run segment or before."""
        found: list[str] = read_results(self.file, [str]) if self.file.exists() else []
        return found
