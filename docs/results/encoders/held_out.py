"""The held-out metrics of a bundled encoder at lengths 128 and 512, for its card and for docs/results.md.

    python docs/results/encoders/held_out.py RUN STORE

writes RUN/held-out.json. RUN: folder of the pre-training. STORE: the store that it was trained on.
"""

import sys
from dataclasses import replace
from pathlib import Path

from bertworks import load_model
from bertworks.config import load_recipe
from bertworks.files import write_json
from bertworks.pretraining.job import held_out_metrics
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.training.machine import facts

TOKENS, BATCHES = 4096, 100  # of a batch, padding included; at most


def main(run: Path, store: Path) -> None:
    """Measure, and write the file."""
    recipe, found = load_recipe(run / "recipe.toml", PretrainConfig), {}
    for length in (128, 512):
        phase = Phase(length=length, batch_size=TOKENS // length)
        found[str(length)] = held_out_metrics(replace(recipe, phases=(phase,), eval_batches=BATCHES), store, run)
    parameters = sum(p.numel() for p in load_model(run).parameters())
    write_json(run / "held-out.json", {**found, "batches": BATCHES, "parameters": parameters, "machine": facts()})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
