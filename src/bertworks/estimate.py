"""What a pre-training recipe will cost, from a few steps of it."""

import dataclasses
import tempfile
from pathlib import Path

from .pretrain import PretrainConfig, pretrain
from .run_files import read_log


def estimate(config: PretrainConfig, corpus: Path, steps: int = 8) -> dict[str, float]:
    """Train a few steps in a scratch folder and say how long the recipe will take, and how much memory it needs."""
    short = dataclasses.replace(
        config,
        loop=dataclasses.replace(
            config.loop, steps=steps, tokens=0, hours=0, log_every=steps // 2, eval_every=0, save_every=0
        ),
        eval_batches=1,
    )
    with tempfile.TemporaryDirectory() as scratch:
        pretrain(short, corpus, Path(scratch), quiet=True)
        last = [r for r in read_log(scratch) if r["kind"] == "train"][-1]
    rate = last["tokens_per_second"]
    tokens_a_step = last["tokens"] / last["step"]
    total = config.loop.tokens or config.loop.steps * tokens_a_step
    hours = config.loop.hours or total / rate / 3600
    return {"tokens_per_second": rate, "memory": last["memory"], "hours": hours, "tokens": total or hours * 3600 * rate}
