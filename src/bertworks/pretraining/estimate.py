"""What a pre-training recipe will cost, from a few steps of each of its phases."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ..reporting.run_files import read_log
from ..training.machine import joined_world
from .recipe import Phase, PretrainConfig
from .run import pretrain


@dataclass(frozen=True)
class Pace:
    """What a few steps of a phase took."""

    tokens_a_step: float
    tokens_a_second: float
    memory: int  # bytes: the most that the process has used so far


def estimate(config: PretrainConfig, corpus: Path, steps: int = 8, init: Path | None = None) -> dict[str, float]:
    """Train a few steps of each phase in scratch folders; say how long the recipe takes and how much memory it needs.

    Returns `tokens_per_second`, `memory` (bytes), `hours`, `tokens`, and of several phases the rate and hours of each.
    Of processes that train together only the first one gets them; the others get {}.
    """
    config.loop.check()
    with joined_world():  # once for all phases
        paces = [_measure(config, phase, corpus, steps, init) for phase in config.phases]
    measured = [pace for pace in paces if pace]
    if len(measured) < len(paces):
        return {}
    seconds = [phase.share * _seconds(config, pace) for phase, pace in zip(config.phases, measured, strict=True)]
    tokens = sum(spent * pace.tokens_a_second for spent, pace in zip(seconds, measured, strict=True))
    found = {
        "tokens_per_second": tokens / sum(seconds),
        "memory": max(pace.memory for pace in measured),
        "hours": sum(seconds) / 3600,
        "tokens": tokens,
    }
    for number, (phase, pace, spent) in enumerate(zip(config.phases, measured, seconds, strict=True), 1):
        if len(measured) > 1:
            name = f"phase_{number}_length_{phase.length}"
            found |= {f"{name}_tokens_per_second": pace.tokens_a_second, f"{name}_hours": spent / 3600}
    return found


def _measure(config: PretrainConfig, phase: Phase, corpus: Path, steps: int, init: Path | None) -> Pace | None:
    """A run of one phase alone; None in a process that writes no log."""
    loop = replace(
        config.loop, steps=steps, tokens=0, hours=0.0, log_every=max(1, steps // 2), eval_every=0, save_every=0,
        keep_best="",
    )  # fmt: skip
    short = replace(config, loop=loop, phases=(replace(phase, share=1.0),), snapshots=(), eval_batches=1)
    with tempfile.TemporaryDirectory() as scratch:
        results = pretrain(short, corpus, Path(scratch), init, quiet=True)
        if results is None:
            raise KeyboardInterrupt
        if not (Path(scratch) / "log.jsonl").exists():
            return None
        last = [record for record in read_log(scratch) if record["kind"] == "train"][-1]
    return Pace(last["tokens"] / last["step"], last["tokens_per_second"], last["memory"])


def _seconds(config: PretrainConfig, pace: Pace) -> float:
    """How long the whole budget would last at this pace: until the first of its limits is reached."""
    loop = config.loop
    limits = [
        loop.steps * pace.tokens_a_step / pace.tokens_a_second,
        loop.tokens / pace.tokens_a_second,
        loop.hours * 3600,
    ]
    return min(limit for limit in limits if limit)
