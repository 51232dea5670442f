"""What saving the state costs training: the seconds that BERT-BASE's steps lose while a state is copied and written.

    python benchmarks/saving.py [--data ../shared/data] [--blocks 6] [--steps 10] [--out FILE] [--smoke]

One run of BERT-BASE (110 million parameters, a state of 1.3 GB with both moments of Adam) with the project's loop, in
blocks of as many steps. Every second block begins with a save, which is written while the steps go on. `stall` is the
time for which the loop itself waits, to copy the state. `lost` is how much longer a block with a save takes than the
block before it, the stall included. `share` is that of ten minutes, the default between two saves.
"""

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import tiny
from bertworks.data.store import Store
from bertworks.model.presets import PRESETS
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.pretraining.run import StoreTraining, start_model
from bertworks.tokenizer import Tokenizer
from bertworks.training import machine
from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.run import Run, prepare_loop

BETWEEN = 600.0  # seconds between two saves: loop.save_minutes is 10
SMOKE = {"blocks": 1, "steps": 1, "megabytes": 0.05, "batch": 2}


def one_run(store: str, blocks: int, steps: int, batch: int, small: bool) -> common.Result:
    """Train in this process: seconds of each block without a save and with one, and of each stall."""
    machine.prepare_process()
    read = Store.open(store, verify=False)
    config = PretrainConfig(
        model=dataclasses.replace(tiny.SHAPE if small else PRESETS["base"], vocab_size=read.vocab_size),
        optim=OptimConfig(lr=1e-4, warmup=0.0),
        loop=LoopConfig(steps=(2 * blocks + 1) * steps, eval_every=0, save_every=0, save_minutes=0, log_every=10**9),
        phases=(Phase(128, 1.0, batch),),
    )
    found: common.Result = {"without": [], "with": [], "stall": []}
    with tempfile.TemporaryDirectory() as out:
        run = Run(Path(out), config.identity(read), machine.join_world(), quiet=True)
        training = StoreTraining(config, read, Tokenizer.load(read.tokenizer_folder))
        loop = training.loop(run, start_model(config, None), config.learns)
        begun = 0.0

        def count(step: int) -> None:
            nonlocal begun
            block, rest = divmod(step, steps)  # a block ends here; the first, number 1, is not counted
            if rest:
                return
            now = time.perf_counter()
            if block > 1:
                found["with" if block % 2 else "without"].append(now - begun)
            begun = now
            if block % 2 == 0 and block <= 2 * blocks:
                loop.save()
                found["stall"].append(time.perf_counter() - now)

        loop.evaluate, loop.after_step = None, count
        prepare_loop(run, loop)
        loop.run()
        size = sum(path.stat().st_size for path in (Path(out) / "state").iterdir())
    return {**found, "state_gb": size / 1e9}


def main(argv: list[str] | None = None) -> None:
    """Measure, write the JSON."""
    if common.answer(one_run, argv):
        return
    parser = common.parser(__doc__, "saving.json")
    parser.add_argument("--blocks", type=int, default=6, help="blocks with a save, and as many without")
    parser.add_argument("--steps", type=int, default=10, help="steps of a block, which must take longer than a write")
    parser.add_argument("--batch", type=int, default=8, help="sequences of 128 tokens in a step")
    parser.add_argument("--megabytes", type=float, default=5.0, help="of text")
    with common.parsed(parser, argv, SMOKE) as options, tempfile.TemporaryDirectory() as work:
        store = common.make_store(options.data, options.megabytes, Path(work))
        given: dict[str, Any] = {"store": str(store), "small": options.smoke}
        given |= {name: getattr(options, name) for name in ("blocks", "steps", "batch")}
        found = common.fresh(one_run, given, options.smoke)
        lost = [b - a for a, b in zip(found["without"], found["with"], strict=True)]
        stall = statistics.median(found["stall"])
        common.finish(
            options,
            {
                "what": "seconds that training loses while a state is saved, BERT-BASE, one process",
                **found,
                "median_stall": stall,
                "lost": lost,
                "median_lost": statistics.median(lost),
                "share": {"stall": stall / BETWEEN, "lost": statistics.median(lost) / BETWEEN},
                "machine": common.machine_facts(),
            },
        )


if __name__ == "__main__":
    main()
