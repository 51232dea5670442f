"""Fine-tuning with and without pre-training, on the same rows with the same number of updates.

Each of the two sides, pre-trained and random weights, is fine-tuned with every learning rate and one seed, then with
its best rate on dev and the other seeds. The scheduler of studies computes the runs (experiments/scheduler.py).
"""

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ...experiments.baselines import fit_baseline
from ...experiments.scheduler import Run, RunFolder, Scheduler
from ...files import InputError
from ...finetuning.recipe import FinetuneConfig
from ...finetuning.run import finetune
from ...inference.evaluation import evaluate as evaluate_finetuned
from ...tasks.base import Data
from .clock import Clock
from .report import interval_of
from .tasks import Rows

WEIGHTS = {"pre-trained": False, "random": True}  # whether they are random
RUN = {"metrics": {str: float}, "seconds": float}  # of a run's results.json, what is compared


class Tuning(NamedTuple):
    """One fine-tuning run."""

    weights: str  # of WEIGHTS
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.weights}/lr-{self.rate:g}/seed-{self.seed}"

    @property
    def run(self) -> "Run[Tuning]":
        title = f"{self.weights} weights, learning rate {self.rate:g}, seed {self.seed}"
        return Run(self.name, title, self, schema=RUN)


@dataclass(frozen=True)
class Comparison:
    """The runs of one task."""

    recipe: FinetuneConfig
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    out: Path  # of the demo
    found: Rows
    clock: Clock
    after: Callable[[str], object] = lambda name: None  # called with the name of each run that is finished

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.out / "finetune" / self.found.task.name)

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(WEIGHTS) * (len(self.rates) + len(self.seeds) - 1)

    def run(self) -> dict[str, Any] | None:
        """Run what is missing; returns the comparison, None if it was stopped."""
        sides = {}
        for weights in WEIGHTS:
            runs = [Tuning(weights, rate, self.seeds[0]).run for rate in self.rates]
            if (scores := self._scores(runs)) is None:
                return None
            dev = dict(zip(self.rates, scores, strict=True))
            best = max(dev, key=lambda rate: dev[rate])
            runs = [Tuning(weights, best, seed).run for seed in self.seeds]
            if self._scores(runs) is None:
                return None
            test = [self._test(self.folder.path(run)) for run in runs]
            sides[weights] = {
                "rate": best,
                "dev": {f"{rate:g}": score for rate, score in dev.items()},
                "test": test,
                "mean": statistics.fmean(test),
                "sd": statistics.stdev(test) if len(test) > 1 else 0.0,
            }
        return self._results(sides)

    def _results(self, sides: dict[str, Any]) -> dict[str, Any]:
        task, rows = self.found
        majority = 0.0
        if task.kind == "single":
            majority = max(Counter(row.label for row in rows["test"]).values()) / len(rows["test"])
        return {
            "metric": task.metrics[0],
            "labels": list(task.labels),
            "examples": {name: len(found) for name, found in rows.items()},
            "majority": majority,
            "linear": self.linear(),
            "sides": sides,
            "seeds": list(self.seeds),
            "steps": self.recipe.loop.steps or self.recipe.steps_of(len(rows["train"])),
            "gain": sides["pre-trained"]["mean"] - sides["random"]["mean"],
            "gain_interval": interval_of(sides),
        }

    def linear(self) -> dict[str, Any]:
        """The score of a linear model on `test`, its `strength`, and the scores by which that was chosen."""
        rows = self.found.rows
        found = fit_baseline(self.found.task, Data(rows["train"], rows["test"], "docstrings"))
        return {"test": found["metrics"][self.metric], "strength": found["strength"], "kept_back": found["kept_back"]}

    def _test(self, folder: Path) -> float:
        return float(evaluate_finetuned(folder, self.found.task, self.found.rows["test"])["metrics"][self.metric])

    @property
    def metric(self) -> str:
        return self.found.task.metrics[0]

    def _scores(self, runs: list[Run[Tuning]]) -> list[float] | None:
        """The metric on dev of each run, after running what is missing; None if stopped.

        Raises InputError if a run failed.
        """
        folder = self.folder

        def compute(run: Run[Tuning]) -> dict[str, Any] | None:
            return None if self.clock.over() else self.finetune(run.spec, folder.path(run))

        for run in runs:
            if folder.state(run) == "done":  # it needs no time; one with other settings is refused
                self.finetune(run.spec, folder.path(run))
                self.after(run.name)
        folder.retry(runs)
        if not Scheduler(runs, folder, compute, lambda run: self.after(run.name), quiet=True).work():
            return None
        if failed := folder.failures(runs):
            raise InputError(f"{failed[0]['what']} failed: {failed[0]['message']}")
        return [results["metrics"][self.metric] for run in runs if (results := folder.results(run))]

    def finetune(self, run: Tuning, out: Path) -> dict[str, Any] | None:
        """One run, or its results if it is finished; None if it was stopped."""
        # Evaluated once, at the end: the last epoch is as good as any with a rate that decays to zero.
        loop = replace(self.recipe.loop, seed=run.seed, eval_every=10**9, save_every=10**9)
        optim = replace(self.recipe.optim, lr=run.rate)
        recipe = replace(self.recipe, random_init=WEIGHTS[run.weights], loop=loop, optim=optim)
        rows = self.found.rows
        data = Data(rows["train"], rows["dev"], "docstrings")
        return finetune(recipe, self.found.task, data, self.out / "pretrain", out, quiet=True)
