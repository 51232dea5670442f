"""What a pre-training recipe will cost, from a few steps of each of its phases.

On a CPU a phase with large updates is measured on two small ones: a whole update of BERT-BASE takes minutes there, and
more memory than many machines have. The time of an update and the memory of a forward pass are linear in their tokens.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..reporting.run_files import read_log
from ..training.distributed import joined_world
from .job import pretrain
from .recipe import Phase, PretrainConfig

CPU_TOKENS = 4096  # of the updates that are measured on a CPU, about; of larger ones two are, half of it and all


class Update(NamedTuple):
    """The updates of a phase, or smaller ones."""

    tokens: float  # of an update, without padding
    seconds: float  # that it takes
    memory: float  # bytes, at the peak


def estimate(config: PretrainConfig, corpus: Path, steps: int = 8, init: Path | None = None) -> dict[str, float]:
    """How long the recipe takes and how much memory it needs, from a few steps of each phase in scratch folders.

    Returns `tokens_per_second`, `memory` (bytes), `hours` and `tokens`. Of processes that train together only the first
    one gets them; the others get {}.
    """
    config.loop.check()
    hours = tokens = memory = growth = 0.0
    with joined_world() as world:  # once for all phases
        for phase in config.phases:
            fits = max(CPU_TOKENS // phase.length, 2 * world.size)
            is_large = world.device.type == "cpu" and phase.batch_size > 2 * fits
            sizes = (fits // 2, fits) if is_large else (phase.batch_size,)
            updates = [_measure(config, phase, rows, corpus, steps // len(sizes), init) for rows in sizes]
            if (update := updates[-1]) is None:
                continue
            if is_large and (half := updates[0]):
                phases = (replace(phase, batch_size=rows) for rows in (*sizes, phase.batch_size))
                held = [one.tokens_of_pass(world.size) for one in phases]
                # the peak of a process never falls: only its first pair shows how memory grows with the tokens held
                growth = growth or (update.memory - half.memory) / (held[1] - held[0] or 1)
                each = min(max(update.seconds - half.seconds, 0) / (fits - fits // 2), update.seconds / fits)
                update = Update(
                    update.tokens * phase.batch_size / fits,
                    update.seconds + each * (phase.batch_size - fits),
                    update.memory + growth * max(held[2] - held[1], 0),
                )
            seconds = phase.budget_fraction * _seconds(config, update)
            hours += seconds / 3600
            tokens += seconds * update.tokens / update.seconds
            memory = max(memory, update.memory)
    rate = tokens / hours / 3600 if hours else 0.0
    return {"tokens_per_second": rate, "memory": memory, "hours": hours, "tokens": tokens} if hours else {}


def _measure(
    config: PretrainConfig, phase: Phase, rows: int, corpus: Path, steps: int, init: Path | None
) -> Update | None:
    """A run of one phase alone, in updates of so many rows; None in a process that writes no log."""
    loop = replace(
        config.loop, steps=steps, tokens=0, hours=0.0, log_every=max(1, steps // 2), eval_every=0, save_every=0,
        keep_best="",
    )  # fmt: skip
    alone = replace(phase, budget_fraction=1.0, batch_size=rows)
    short = replace(config, loop=loop, phases=(alone,), snapshots=(), eval_batches=1)
    with tempfile.TemporaryDirectory() as scratch:
        if pretrain(short, corpus, Path(scratch), init, quiet=True) is None:
            raise KeyboardInterrupt
        if not (Path(scratch) / "log.jsonl").exists():
            return None
        last = [record for record in read_log(scratch) if record["kind"] == "train"][-1]
    tokens = last["tokens"] / last["step"]
    return Update(tokens, tokens / last["tokens_per_second"], last["memory"])


def _seconds(config: PretrainConfig, update: Update) -> float:
    """How long the whole budget lasts at the pace of these updates, until the first of its limits is reached."""
    loop, rate = config.loop, update.tokens / update.seconds
    limits = [loop.steps * update.seconds, loop.tokens / rate, loop.hours * 3600]
    return min(limit for limit in limits if limit)
