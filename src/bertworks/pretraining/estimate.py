"""What a pre-training recipe will cost, from a few steps of each of its phases.

On a CPU a phase with large updates is measured on two small ones: a whole update of BERT-BASE takes minutes there, and
more memory than many machines have. The time of an update and the memory of a forward pass are linear in their tokens.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..reporting.run_files import read_log
from ..training.machine import World, joined_world
from .recipe import Phase, PretrainConfig
from .run import pretrain

CPU_TOKENS = 4096  # of the updates that are measured on a CPU, about; of larger ones two are, half of it and all


class Update(NamedTuple):
    """The updates of one size."""

    rows: int  # instances of an update, over all processes
    held: int  # tokens of a forward pass, padding included
    tokens: float  # of an update
    seconds: float  # that it takes
    memory: float  # bytes, at the peak


def estimate(config: PretrainConfig, corpus: Path, steps: int = 8, init: Path | None = None) -> dict[str, float]:
    """How long the recipe takes and how much memory it needs, from a few steps of each phase in scratch folders.

    Returns `tokens_per_second`, `memory` (bytes), `hours`, `tokens`, and of several phases the rate and hours of each.
    Of processes that train together only the first one gets them; the others get {}.
    """
    config.loop.check()
    updates, growth = [], -1.0
    with joined_world() as world:  # once for all phases
        for phase in config.phases:
            sizes = _sizes(phase, world)
            found = [_measure(config, phase, rows, corpus, steps // len(sizes), init, world) for rows in sizes]
            pair = [one for one in found if one]
            if len(pair) == 2 and growth < 0:  # the peak of a process never falls: only its first pair shows the growth
                growth = _slope(pair[0].held, pair[0].memory, pair[1].held, pair[1].memory)
            updates += [_whole(phase, pair, growth, world)] if len(pair) == 2 else pair
    if len(updates) < len(config.phases):
        return {}
    rates = [update.tokens / update.seconds for update in updates]
    seconds = [phase.share * _seconds(config, update) for phase, update in zip(config.phases, updates, strict=True)]
    tokens = sum(spent * rate for spent, rate in zip(seconds, rates, strict=True))
    costs = {
        "tokens_per_second": tokens / sum(seconds),
        "memory": max(update.memory for update in updates),
        "hours": sum(seconds) / 3600,
        "tokens": tokens,
    }
    for number, (phase, rate, spent) in enumerate(zip(config.phases, rates, seconds, strict=True), 1):
        if len(updates) > 1:
            name = f"phase_{number}_length_{phase.length}"
            costs |= {f"{name}_tokens_per_second": rate, f"{name}_hours": spent / 3600}
    return costs


def _sizes(phase: Phase, world: World) -> tuple[int, ...]:
    """The batch sizes to measure: the phase's own, or two smaller ones."""
    fits = max(CPU_TOKENS // phase.length, 2 * world.size)
    if world.device.type != "cpu" or phase.batch_size <= 2 * fits:
        return (phase.batch_size,)
    return (fits // 2, fits)


def _held(phase: Phase, rows: int, world: World) -> int:
    """Tokens of a forward pass of updates of so many rows."""
    mine = len(world.share(rows))
    return phase.length * min(mine, phase.micro_batch_size or mine)


def _measure(
    config: PretrainConfig, phase: Phase, rows: int, corpus: Path, steps: int, init: Path | None, world: World
) -> Update | None:
    """A run of one phase alone, in updates of so many rows; None in a process that writes no log."""
    loop = replace(
        config.loop, steps=steps, tokens=0, hours=0.0, log_every=max(1, steps // 2), eval_every=0, save_every=0,
        keep_best="",
    )  # fmt: skip
    alone = replace(phase, share=1.0, batch_size=rows)
    short = replace(config, loop=loop, phases=(alone,), snapshots=(), eval_batches=1)
    with tempfile.TemporaryDirectory() as scratch:
        if pretrain(short, corpus, Path(scratch), init, quiet=True) is None:
            raise KeyboardInterrupt
        if not (Path(scratch) / "log.jsonl").exists():
            return None
        last = [record for record in read_log(scratch) if record["kind"] == "train"][-1]
    tokens = last["tokens"] / last["step"]
    return Update(rows, _held(phase, rows, world), tokens, tokens / last["tokens_per_second"], last["memory"])


def _whole(phase: Phase, pair: list[Update], growth: float, world: World) -> Update:
    """An update of the phase's own size, from two smaller ones; growth: bytes for each further token held."""
    small, large = pair
    rows, held = phase.batch_size, _held(phase, phase.batch_size, world)
    each = min(_slope(small.rows, small.seconds, large.rows, large.seconds), large.seconds / large.rows)
    seconds = large.seconds + each * (rows - large.rows)
    memory = large.memory + growth * max(held - large.held, 0)
    return Update(rows, held, large.tokens * rows / large.rows, seconds, memory)


def _slope(x: float, y: float, larger_x: float, larger_y: float) -> float:
    """How much y grows with x; 0 if it falls."""
    return max(larger_y - y, 0.0) / (larger_x - x) if larger_x > x else 0.0


def _seconds(config: PretrainConfig, update: Update) -> float:
    """How long the whole budget lasts at the pace of these updates, until the first of its limits is reached."""
    loop, rate = config.loop, update.tokens / update.seconds
    limits = [loop.steps * update.seconds, loop.tokens / rate, loop.hours * 3600]
    return min(limit for limit in limits if limit)
