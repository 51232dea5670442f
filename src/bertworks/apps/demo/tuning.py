"""Fine-tuning: encoders, their shapes with random initialization, and a linear model, on equal examples.

Each encoder is fine-tuned with every learning rate and the first seed. The rate that is best on dev is used for the
other seeds. Scores are those on test, which selects nothing.
"""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...api import evaluate, finetune
from ...checkpoint.locate import ModelLike
from ...experiments.baselines import fit_baseline
from ...reporting.progress import Progress
from ...reporting.results import RunResults
from ...tasks.base import Data
from ...tasks.kinds import read_rows
from .config import DemoConfig
from .tasks import TAGS

NEVER = 10**9  # interval of evaluations and checkpoints: a run of seconds has one at its end


@dataclass(frozen=True)
class Tuning:
    """The fine-tuning runs of a demo."""

    config: DemoConfig
    out: Path  # of the demo
    in_time: Callable[[], bool]  # whether there is time for another seed
    progress: Progress

    def file(self, split: str) -> Path:
        """The examples of a split."""
        return self.out / TAGS.name / f"{split}.jsonl"

    def size(self, split: str) -> int:
        """The number of examples of a split."""
        return len(read_rows(TAGS, self.file(split)))

    def finetune(self, model: ModelLike, name: str, lr: float, seed: int, random_init: bool) -> RunResults:
        """One run. Raises KeyboardInterrupt if Ctrl-C stopped it; the same call resumes it."""
        run = finetune(
            model,
            self.out / "finetune" / name / f"lr-{lr:g}" / f"seed-{seed}",
            train=self.file("train"),
            dev=self.file("dev"),
            kind="tagging",
            text=TAGS.text,
            label=TAGS.label,
            random_init=random_init,
            epochs=self.config.epochs,
            batch_size=16,
            max_seq_length=64,
            optim={"rule": "adamw", "lr": lr, "warmup": 0.1},
            loop={"seed": seed, "eval_every": NEVER, "save_every": NEVER},
            quiet=True,
        )
        if not run.finished:
            raise KeyboardInterrupt
        return run

    def score(self, run: RunResults) -> float:
        """F1 of a run on test."""
        return evaluate(run, self.file("test")).metrics["f1"]

    def compare(self, models: dict[str, tuple[ModelLike, bool]]) -> dict[str, dict[str, Any]]:
        """The test scores of each named model, which is pre-trained or (True) initialized randomly.

        `test` has one score per seed. All models have the same seeds, fewer than requested if time is short.
        """
        first, *others = self.config.seeds
        runs, scores = len(models) * (len(self.config.rates) + len(others)), dict[str, dict[str, Any]]()
        with self.progress.stage("fine-tuning", runs, "run"):
            done = itertools.count(1)
            for name, (model, random_init) in models.items():
                metrics = {}
                for lr in self.config.rates:
                    metrics[lr] = self.finetune(model, name, lr, first, random_init).metrics["f1"]
                    self.progress.at(next(done))
                best = max(metrics, key=lambda lr: metrics[lr])
                run = self.finetune(model, name, best, first, random_init)  # finished: its results are read
                scores[name] = {"lr": best, "run": str(run.folder), "test": [self.score(run)]}
            for seed in others:
                if not self.in_time():
                    break
                for name, (model, random_init) in models.items():
                    run = self.finetune(model, name, scores[name]["lr"], seed, random_init)
                    scores[name]["test"].append(self.score(run))
                    self.progress.at(next(done))
        for system in scores.values():
            system |= {"mean": statistics.fmean(system["test"]), "sd": _deviation(system["test"])}
        return scores

    def linear(self) -> float:
        """F1 on test of a logistic regression on words and their neighbours."""
        data = Data(read_rows(TAGS, self.file("train")), read_rows(TAGS, self.file("test")))
        return float(fit_baseline(TAGS, data)["metrics"]["f1"])


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
