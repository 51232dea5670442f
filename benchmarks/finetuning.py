"""Fine-tuning, side by side with transformers: time of training for MRPC and SST-2.

    python benchmarks/finetuning.py [--data ../shared/data] [--rounds 3] [--tasks mrpc,sst2] [--smoke]

all-MiniLM-L6-v2 with the settings of finetuning_scores.py: an epoch of MRPC, 200 steps of SST-2 (its first 6,400 rows),
batch 32, dropout 0.1, bfloat16 autocast, all cores. Three sides, each in a fresh process, in turns: ours as `bertworks
finetune` trains; transformers' Trainer as run_glue does by default, every row padded to 128; and with dynamic padding
and batches of similar length. Reading, featurising and evaluation are not in the times; the scores on dev
are reported. Ours is the sum of all steps (fetching, forward, backward, clipping, update), theirs the time of
Trainer.train(), which also makes the optimizer and puts rows in order: a second or so.
Needs `pip install -e '.[test,bench]'`.
"""

import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

import common
import finetuning_scores
from bertworks.training import machine
from finetuning_settings import TASKS

SIDES = ("ours", "dynamic padding", "padded to 128")
ROWS = {"mrpc": None, "sst2": 6400}
SMOKE = {"tasks": ["mrpc"], "rounds": 1, "padded_rounds": 1}


def train(task: str, side: str, data: str, model: str) -> common.Result:
    """One training run: its seconds, steps, memory and scores."""
    settings = dataclasses.replace(
        TASKS[task],
        epochs=1,
        rows=ROWS[task],
        padding="max_length" if side == "padded to 128" else False,
        data=Path(data),
        model=Path(model),
    )
    result = finetuning_scores.train("ours" if side == "ours" else "transformers", task, 1, settings)
    memory = machine.peak_memory(torch.device("cpu"))
    kept = {key: result[key] for key in ("seconds", "steps", "metrics")}
    return kept | {"kernels": result.get("kernels", False), "memory": memory}


def compare(task: str, options: Any) -> common.Result:
    """All sides in turns; the slowest one fewer times."""
    runs: dict[str, list[common.Result]] = {side: [] for side in SIDES}
    for number in range(options.rounds):
        for side in SIDES:
            if side != SIDES[2] or number < options.padded_rounds:
                given = {"task": task, "side": side, "data": options.data, "model": options.model}
                runs[side].append(common.fresh(train, given, options.smoke))
    seconds = {side: statistics.median(r["seconds"] for r in done) for side, done in runs.items() if done}
    pairs = zip(runs["ours"], runs["dynamic padding"], strict=True)
    return {
        "steps": runs["ours"][0]["steps"],
        "kernels": runs["ours"][0]["kernels"],
        "seconds": {side: [r["seconds"] for r in done] for side, done in runs.items()},
        "times_as_fast_as_dynamic_padding": seconds["dynamic padding"] / seconds["ours"],
        "by_round": [b["seconds"] / a["seconds"] for a, b in pairs],
        "times_as_fast_as_padded_to_128": seconds["padded to 128"] / seconds["ours"] if runs[SIDES[2]] else None,
        "metrics": {side: done[0]["metrics"] for side, done in runs.items() if done},
        "memory": {side: done[0]["memory"] for side, done in runs.items() if done},
    }


def main(argv: list[str] | None = None) -> None:
    """Parse the arguments, compare, write the JSON."""
    parser = common.parser(__doc__, "finetuning.json")
    parser.add_argument("--model", type=Path, default=common.minilm(), help="folder of the model both start from")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--padded-rounds", type=int, default=1)
    with common.parsed(parser, argv, SMOKE) as options:
        common.need(options.data, options.model)
        result: common.Result = {"what": (__doc__ or "").splitlines()[0]}
        for task in options.tasks:
            result[task] = compare(task, options)
        common.finish(options, {**result, "machine": common.machine_facts()})


if __name__ == "__main__":
    main(sys.argv[1:])
