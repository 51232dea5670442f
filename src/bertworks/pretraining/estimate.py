"""What a pre-training recipe will cost, from a few steps of each of its phases."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..reporting.run_files import read_log
from ..training.machine import joined_world
from .recipe import Phase, PretrainConfig
from .run import pretrain


def estimate(config: PretrainConfig, corpus: Path, steps: int = 8, init: Path | None = None) -> dict[str, float]:
    """Train a few steps of each phase in scratch folders; say how long the recipe takes and how much memory it needs.

    Returns `tokens_per_second`, `memory` (bytes), `hours`, `tokens`, and of several phases the rate and hours of each.
    Of processes that train together only the first one gets them; the others get {}.
    """
    config.loop.check()
    with joined_world():  # once for all phases
        records = [_measure(config, phase, corpus, steps, init) for phase in config.phases]
    last = [record for record in records if record]
    if len(last) < len(records):
        return {}
    rates = [record["tokens_per_second"] for record in last]
    seconds = [phase.share * _seconds(config, record) for phase, record in zip(config.phases, last, strict=True)]
    tokens = sum(spent * rate for spent, rate in zip(seconds, rates, strict=True))
    found = {
        "tokens_per_second": tokens / sum(seconds),
        "memory": max(record["memory"] for record in last),
        "hours": sum(seconds) / 3600,
        "tokens": tokens,
    }
    for number, (phase, rate, spent) in enumerate(zip(config.phases, rates, seconds, strict=True), 1):
        if len(last) > 1:
            name = f"phase_{number}_length_{phase.length}"
            found |= {f"{name}_tokens_per_second": rate, f"{name}_hours": spent / 3600}
    return found


def _measure(
    config: PretrainConfig, phase: Phase, corpus: Path, steps: int, init: Path | None
) -> dict[str, Any] | None:
    """The last log record of a run of one phase alone; None in a process that writes no log."""
    loop = replace(
        config.loop, steps=steps, tokens=0, hours=0.0, log_every=max(1, steps // 2), eval_every=0, save_every=0,
        keep_best="",
    )  # fmt: skip
    short = replace(config, loop=loop, phases=(replace(phase, share=1.0),), snapshots=(), eval_batches=1)
    with tempfile.TemporaryDirectory() as scratch:
        if pretrain(short, corpus, Path(scratch), init, quiet=True) is None:
            raise KeyboardInterrupt
        if not (Path(scratch) / "log.jsonl").exists():
            return None
        return [record for record in read_log(scratch) if record["kind"] == "train"][-1]


def _seconds(config: PretrainConfig, record: dict[str, Any]) -> float:
    """How long the whole budget lasts at the pace of this record, until the first of its limits is reached."""
    loop, rate = config.loop, record["tokens_per_second"]
    tokens_per_step = record["tokens"] / record["step"]
    limits = [loop.steps * tokens_per_step / rate, loop.tokens / rate, loop.hours * 3600]
    return min(limit for limit in limits if limit)
