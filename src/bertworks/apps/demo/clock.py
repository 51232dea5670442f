"""How long the demo takes: estimated before it begins and at every stage, and limited.

The limit stops the demo, and a rerun of the command continues it. No number that is measured depends on the time: a
busy machine reads the same files, trains on as many tokens and makes as many updates as a free one.
"""

import time
from collections.abc import Callable

from ...reporting.log import duration

# Seconds of each stage but pre-training on two cores that nobody else uses, with the settings of demo.toml.
EXPECTED = {"reading": 30.0, "store": 10.0, "pre-training": 0.0, "evaluation": 6.0, "tags": 100.0, "packages": 90.0}
TOKENS_A_SECOND = 13_000.0  # of pre-training there


class Clock:
    """The time of one call of the demo."""

    def __init__(self, minutes: float, tokens: int, now: Callable[[], float] = time.monotonic):
        self.limit, self.now = 60 * minutes, now
        self.expected = EXPECTED | {"pre-training": tokens / TOKENS_A_SECOND}
        self.stage, self.started, self.began = "", now(), now()
        self.took: dict[str, float] = {}  # of finished stages

    def begin(self, stage: str) -> None:
        """The stage before ends, this one begins."""
        now = self.now()
        if self.stage:
            self.took[self.stage] = now - self.began
        self.stage, self.began = stage, now

    def over(self) -> bool:
        """Whether the limit is used up."""
        return self.now() - self.started > self.limit

    def left(self) -> float:
        """About how many seconds the present stage and all later ones will take, by the speed of the earlier ones."""
        stages = list(self.expected)
        rest = stages[stages.index(self.stage) :] if self.stage else stages
        known = [name for name, seconds in self.took.items() if seconds > 0.1 * self.expected[name]]  # not skipped
        slow = sum(self.took[name] for name in known) / sum(self.expected[name] for name in known) if known else 1.0
        return max(1.0, slow) * sum(self.expected[name] for name in rest)

    def plan(self) -> str:
        """How long the whole demo will take and how to go on with it, in two lines."""
        return (
            f"about {duration(self.left())} on two free cores, {duration(self.expected['pre-training'])} of them for "
            f"pre-training\nCtrl-C or the limit of {self.limit / 60:g} min stops it; rerun the command to continue"
        )
