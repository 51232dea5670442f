"""What the demo's encoder is good for: held-out documents, filled masks, and fine-tuning with and without pre-training.

Each of the two sides, pre-trained and random weights, is fine-tuned with every learning rate and one seed, then with
its best rate on dev and the other seeds. The runs are cells of the engine (experiments/engine.py).
"""

import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..batch import IGNORED, Batch
from ..checkpoint.folder import load_model
from ..data.batches import PretrainingData, Vocabulary
from ..data.store import Store
from ..experiments.engine import Cell, Engine, Grid
from ..files import InputError, write_json
from ..finetuning.recipe import FinetuneConfig
from ..finetuning.run import finetune
from ..inference.evaluation import evaluate as evaluate_finetuned
from ..inference.predictor import Predictor
from ..pretraining.recipe import PretrainConfig
from ..reporting.run_files import read_results
from ..tasks.base import Data, Example, Task
from ..tokenizer import Tokenizer
from ..training import machine
from ..training.loop import evaluate
from ..training.objectives import PretrainingObjective
from .clock import Clock
from .report import interval_of
from .text import read_rows

SENTENCES = (
    "Return the [MASK] of the array along the given axis.",
    "Raises an error if the [MASK] does not exist.",
    "If True, the result is a [MASK] of the input.",
    "Compute the shortest path between two [MASK] of the graph.",
)
FEWEST_BATCHES = 4  # of held-out text, however slow the machine
TIMED_STEPS = 8  # updates by which the time of one is measured
SIDES = {"pre-trained": False, "random": True}  # whether the weights are random
RUN = {"metrics": {"accuracy": float}, "seconds": float}  # of a run's results.json, what is compared


def evaluate_heldout(out: Path, config: PretrainConfig, clock: Clock, batches: int = 40) -> dict[str, float]:
    """Loss and accuracy of both objectives on held-out documents, and those of guessing on the same ones."""
    store, seen = Store.open(out / "heldout"), Store.open(out / "store")
    vocabulary = Vocabulary.of(Tokenizer.load(store.tokenizer_folder))
    length, seed = config.phases[-1].length, config.loop.seed
    data = PretrainingData(store, "train", vocabulary, length, config.instances, config.masking, seed)
    rows: list[Batch] = []

    def within_limit() -> Iterator[Batch]:
        for batch in data.batches(64, batches):
            if len(rows) >= FEWEST_BATCHES and clock.over():
                clock.cut(f"evaluation, after {len(rows)} of {batches} batches")
                return
            rows.append(batch)
            yield batch

    world = machine.World(0, 1, machine.this_device())
    model = load_model(out / "pretrain" / "model").to(world.device)
    metrics = evaluate(model, PretrainingObjective(), within_limit(), world)
    masked = [int(n) for batch in rows for n in batch["masked_labels"].tolist() if n != IGNORED]
    pairs = Counter(int(n) for batch in rows for n in batch["pair_labels"].tolist())
    frequent = int(seen.unigram_counts().argmax())
    guesses = {"mlm_guess": masked.count(frequent) / len(masked), "nsp_guess": max(pairs.values()) / pairs.total()}
    return (
        metrics | guesses | {"unigram_entropy": seen.unigram_entropy(), "masked": len(masked), "pairs": pairs.total()}
    )


def fill_masks(folder: Path) -> dict[str, list[str]]:
    """The three likeliest words for the mask of each sentence, with their probabilities."""
    predictor = Predictor(folder)
    found = zip(SENTENCES, predictor.fill_mask(SENTENCES, top_k=3), strict=True)
    return {sentence: [f"{c['token']} {c['score']:.0%}" for c in masks[0]] for sentence, masks in found}


# ---- fine-tuning from pre-trained and from random weights


class Run(NamedTuple):
    """One fine-tuning run."""

    side: str  # of SIDES
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.side}/lr-{self.rate:g}/seed-{self.seed}"

    @property
    def cell(self) -> "Cell[Run]":
        return Cell(self.name, f"{self.side} weights, learning rate {self.rate:g}, seed {self.seed}", self)


def read_task(folder: Path) -> tuple[Task, dict[str, list[Example]]]:
    """The task of telling packages apart, and its rows."""
    documents = {name: read_rows(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
    rows = {name: [Example(d.text, None, d.label) for d in found] for name, found in documents.items()}
    return Task("packages", ("text",), "label", labels=tuple(sorted({d.label for d in documents["train"]}))), rows


@dataclass(frozen=True)
class Comparison:
    """Fine-tuning from the pre-trained and from random weights, on the same rows with the same number of updates."""

    recipe: FinetuneConfig
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    out: Path  # of the demo
    task: Task
    rows: dict[str, list[Example]]  # train, dev and test
    clock: Clock

    @property
    def grid(self) -> Grid:
        return Grid(self.out / "finetune")

    def run(self, say: Callable[[str], object]) -> dict[str, Any] | None:
        """Run what is missing; returns the comparison, None if it was stopped. `say` gets a line for each side."""
        steps, sides = self.steps(), {}
        for side in SIDES:
            cells = [Run(side, rate, self.seeds[0]).cell for rate in self.rates]
            if (accuracies := self._accuracies(cells, steps)) is None:
                return None
            dev = dict(zip(self.rates, accuracies, strict=True))
            best = max(dev, key=lambda rate: dev[rate])
            cells = [Run(side, best, seed).cell for seed in self.seeds]
            if self._accuracies(cells, steps) is None:
                return None
            folders = (self.grid.path(cell) for cell in cells)
            test = [evaluate_finetuned(f, self.task, self.rows["test"])["metrics"]["accuracy"] for f in folders]
            sides[side] = {
                "rate": best,
                "dev": {f"{rate:g}": accuracy for rate, accuracy in dev.items()},
                "test": test,
                "mean": statistics.fmean(test),
                "sd": statistics.stdev(test) if len(test) > 1 else 0.0,
            }
            say(f"{side}: {sides[side]['mean']:.1%} on {len(self.rows['test'])} held-out documents")
        return self._results(sides, steps)

    def _results(self, sides: dict[str, Any], steps: int) -> dict[str, Any]:
        test = self.rows["test"]
        return {
            "labels": list(self.task.labels),
            "examples": {name: len(rows) for name, rows in self.rows.items()},
            "majority": max(Counter(example.label for example in test).values()) / len(test),
            "sides": sides,
            "steps": steps,
            "gain": sides["pre-trained"]["mean"] - sides["random"]["mean"],
            "gain_interval": interval_of(sides),
        }

    def _accuracies(self, cells: list[Cell[Run]], steps: int) -> list[float] | None:
        """Accuracy on dev of each run, after running what is missing; None if stopped.

        Raises InputError if a run failed.
        """
        grid = self.grid

        def run(cell: Cell[Run]) -> dict[str, Any] | None:
            return self.finetune(cell.work, steps, grid.path(cell))

        grid.retry(cells)
        engine = Engine(cells, grid, run, run, quiet=True)
        if not engine.work() or engine.others_work():
            return None
        if failed := grid.failures(cells):
            raise InputError(f"{failed[0]['what']} failed: {failed[0]['message']}")
        found = [grid.results(cell, RUN) for cell in cells]
        return [results["metrics"]["accuracy"] for results in found if results]

    def finetune(self, run: Run, steps: int, out: Path) -> dict[str, Any] | None:
        """One run of `steps` updates, or its results if it is finished; None if it was stopped."""
        # Evaluated once, at the end: the last epoch is as good as any with a rate that decays to zero.
        loop = replace(self.recipe.loop, seed=run.seed, eval_every=10**9, save_every=10**9, steps=steps)
        optim = replace(self.recipe.optim, lr=run.rate)
        recipe = replace(self._short_recipe, random_init=SIDES[run.side], loop=loop, optim=optim)
        data = Data(self.rows["train"], self.rows["dev"], "docstrings")
        return finetune(recipe, self.task, data, self.out / "pretrain", out, quiet=True)

    @property
    def _short_recipe(self) -> FinetuneConfig:
        """The recipe with the epochs of so short a demo."""
        return replace(self.recipe, epochs=self.recipe.epochs * self.clock.share_of_epochs)

    def steps(self) -> int:
        """Updates of every run: those of the recipe, or fewer if a slow machine would exceed the limit.

        The time of an update is measured once, before the first run. The number is recorded, and a rerun reads it: it
        is the same for both sides, and nothing in a run depends on the clock.
        """
        planned = self.recipe.loop.steps or self._short_recipe.steps_of(len(self.rows["train"]))
        path = self.grid.folder / "steps.json"
        found: dict[str, Any] = read_results(path, {"steps": int, "planned": int}) if path.exists() else {}
        if found.get("planned") != planned:
            found = {"planned": planned, "steps": self._fitting(planned)}
            write_json(path, found)
        steps: int = found["steps"]
        if steps < planned:
            self.clock.cut(f"fine-tuning, to {steps} of {planned} updates in every run of both sides")
        return steps

    def _fitting(self, planned: int) -> int:
        """How many of the planned updates fit into the limit, by the time of a short run."""
        trial = self.grid.folder / "trial"
        shutil.rmtree(trial, ignore_errors=True)  # of a demo that was killed here
        began = self.clock.now()
        results = self.finetune(Run("random", self.rates[0], self.seeds[0]), TIMED_STEPS, trial)
        if results is None:
            raise KeyboardInterrupt
        rest = self.clock.now() - began - results["seconds"]  # reading, evaluating and writing
        shutil.rmtree(trial)
        runs = len(SIDES) * (len(self.rates) + len(self.seeds) - 1)
        return self.clock.fitting(planned, results["seconds"] / TIMED_STEPS, rest, runs)
