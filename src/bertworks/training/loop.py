"""A training run: after each step log, evaluate and keep the best weights, save, and stop, in this order.

When the budget is used, the state is saved before the last weights are evaluated, so that a kill during the evaluation
loses nothing.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..batch import Batch, to_device
from .config import TrainerState
from .distributed import World
from .objectives import Objective
from .state import STATE_FOLDER, copy_of_state, load_weights, read_tensors, write_state
from .trainer import Trainer

if TYPE_CHECKING:  # what the run folder brings with it (run.py)
    from .identity import Run
    from .log import Log
    from .machine import Stop

BEST = "best.safetensors"


@torch.no_grad()
def evaluate(model: nn.Module, objective: Objective, batches: Iterable[Batch], world: World) -> dict[str, float]:
    """Mean loss of each term, accuracy of those with hits, batches divided among the processes: {mlm_loss, ...}."""
    model.eval()
    sums = defaultdict[str, Tensor](lambda: torch.zeros(3, dtype=torch.float64))  # loss, hits or NaN, predictions
    for i, batch in enumerate(batches):
        mine = i % world.size == world.rank
        terms = objective.terms(model, to_device(objective.prepare(batch), world.device)) if mine else {}  # type: ignore[arg-type]
        for name, count in objective.counts(batch).items():
            loss, hits = (terms[name].loss, terms[name].correct) if mine else (0.0, 0.0)
            values = [float(loss), math.nan if hits is None else float(hits), count * mine]
            sums[name] += torch.tensor(values, dtype=torch.float64)
    metrics: dict[str, float] = {}
    for name in sums:
        total, correct, count = world.sum(sums[name].to(world.device)).tolist()
        metrics[f"{name}_loss"] = total / max(count, 1.0)
        if not math.isnan(correct):
            metrics[f"{name}_accuracy"] = correct / max(count, 1.0)
    return metrics


class BestWeights:
    """The weights with the best score so far, in state/, where the recipe names the metric (`loop.keep_best`)."""

    def __init__(self, trainer: Trainer, folder: Path):
        self.trainer, self.path = trainer, folder / STATE_FOLDER / BEST
        self.metric, self.are_current = trainer.config.keep_best, False

    def update(self, metrics: Mapping[str, float]) -> None:
        """Save the current weights if their score is the best so far."""
        progress = self.trainer.progress
        self.are_current = bool(self.metric) and self._is_better(metrics[self.metric])
        progress.since_best = 0 if self.are_current else progress.since_best + 1
        if self.are_current:
            progress.best = metrics[self.metric]
            if self.trainer.world.is_main:
                weights = {name: value.cpu() for name, value in self.trainer.model.state_dict().items()}
                write_state(self.path.parent, (weights, {}), BEST)

    def _is_better(self, score: float) -> bool:
        """Whether a score, lower for losses, is the best so far; one that is not finite never is."""
        best, sign = self.trainer.progress.best, -1 if self.metric.endswith("loss") else 1
        return math.isfinite(score) and (best is None or sign * score > sign * best)

    def restore(self) -> bool:
        """Put the best weights into the model, in all processes; returns True if this changed the model's weights.

        Raises InputError if their file is missing or damaged.
        """
        trainer = self.trainer
        if not self.metric or trainer.progress.best is None:
            return False
        trainer.world.from_rank0(lambda: load_weights(self.path, trainer.model, read_tensors(self.path)[0]))
        trainer.world.broadcast(trainer.model.state_dict().values())
        return not self.are_current


class Checkpoints:
    """Saves states: training waits for a copy in memory only; a thread writes it to disk."""

    def __init__(self, trainer: Trainer, run: "Run", thread: ThreadPoolExecutor):
        self.trainer, self.run, self.thread = trainer, run, thread
        self.writing: Future[None] | None = None
        self.saved_at = trainer.progress.seconds

    @property
    def are_due(self) -> bool:
        """Whether `save_minutes` of training have passed since the last one; the same in all processes."""
        minutes = self.trainer.config.save_minutes
        return minutes > 0 and self.trainer.progress.seconds - self.saved_at >= 60 * minutes

    def save(self, wait: bool) -> None:
        """Begin to save the state, in the first process. wait: return in every process when it is on disk.

        Raises NotWritten if it, or the one before, could not be written.
        """
        trainer = self.trainer
        trainer.gather_losses()
        if trainer.world.is_main:
            self.check(wait=True)  # memory never holds two copies
            state = copy_of_state(trainer.model, trainer.optimizer, trainer.progress, self.run.identity.hash)
            self.writing = self.thread.submit(write_state, self.run.out / STATE_FOLDER, state)
        self.saved_at = trainer.progress.seconds
        if wait:
            self.check(wait=True)
            trainer.world.barrier()

    def check(self, wait: bool = False) -> None:
        """Raises NotWritten if the last state could not be written, as far as that is known without waiting."""
        if self.writing and (wait or self.writing.done()):
            writing, self.writing = self.writing, None
            writing.result()


@dataclass
class TrainingLoop:
    """A trainer in its run folder."""

    trainer: Trainer
    run: "Run"
    compute_metrics: Callable[[TrainerState], dict[str, float]] | None = None  # on held-out data, now
    after_step: Callable[[int], None] | None = None  # called with the number of each finished step
    patience: int = 0  # the run ends after so many evaluations in a row that bring no new best; 0: it does not
    metrics: dict[str, float] = field(init=False, default_factory=dict)  # of the final weights, when the run has ended

    @property
    def progress(self) -> TrainerState:
        """The progress of the run."""
        return self.trainer.progress

    @property
    def stopped_early(self) -> bool:
        """Whether `patience` evaluations in a row have brought no new best, before the budget was used."""
        return 0 < self.patience <= self.progress.since_best and self.trainer.budget_used < 1

    def train(self, log: "Log", stop: "Stop") -> bool:
        """Train until the budget is used; False if the run was stopped, which is saved then.

        What stops it is a signal, or the caller's function that gets each record of the log (`Run.on_record`).
        """
        best = BestWeights(self.trainer, self.run.out)
        with ThreadPoolExecutor(1, "state") as thread:
            checkpoints = Checkpoints(self.trainer, self.run, thread)
            for step in () if self.stopped_early else self.trainer.steps(stop):
                if self.after_step:
                    self.after_step(self.progress.step)
                log.show_progress(step.budget_used)
                # with patience this may be the last step, which is not known before the evaluation
                if step.logs or step.is_last or (step.evaluates and self.patience):
                    log.record_training()
                if step.evaluates and not step.is_last:
                    self.metrics = self._evaluate_and_log(log, best)
                is_over = step.is_last or self.stopped_early
                callback_stops = (step.logs or step.evaluates) and not is_over and log.stop_requested()
                stops = step.stop_requested or callback_stops
                checkpoints.check()
                if is_over or stops or step.saves or checkpoints.are_due:
                    checkpoints.save(wait=is_over or stops)
                if stops:
                    return False
                if is_over:
                    break
        stop.at_once()  # all is saved: a signal need not wait for the last evaluation
        if not (self.stopped_early and self.metrics):  # after an early stop they have been evaluated just before
            self.metrics = self._evaluate_and_log(log, best)
        if best.restore() and self.compute_metrics:
            self.metrics = self.compute_metrics(self.progress)
        return True

    def _evaluate_and_log(self, log: "Log", best: BestWeights) -> dict[str, float]:
        """Evaluate in float32, whatever training uses, so that the scores are those of the model that is kept."""
        if not self.compute_metrics:
            return {}
        metrics = self.compute_metrics(self.progress)
        self.trainer.model.train()
        log.record_evaluation(metrics)
        self.trainer.config.check([*metrics])
        best.update(metrics)
        return metrics
