"""A training run: after each step log, evaluate and keep the best weights, save, and stop, in this order.

When the budget is used, the state is saved before the last weights are evaluated, so that a kill during the evaluation
loses nothing.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..batch import Batch, to_device
from ..files import atomic_write
from ..reporting.log import Reporter
from ..tensors import write_tensors
from .distributed import World
from .machine import peak_memory
from .objectives import Objective
from .process import Stop, caught_signals, return_free_memory
from .progress import TrainerState
from .state import STATE_FOLDER, check_tensors, read_tensors, snapshot, write_state
from .totals import Totals
from .trainer import Trainer

BEST = "best.safetensors"
TIDY_SECONDS = 60  # of training, after which free memory is returned to the system

Watch = Callable[[str, Mapping[str, Any]], bool]  # called with the kind (train, eval) and the values of a record


@dataclass
class TrainingLoop:
    """A trainer in its run folder. `run()` trains until the budget is used or a signal comes.

    A signal after the last update, when all is saved, raises KeyboardInterrupt.
    """

    trainer: Trainer
    folder: Path  # of the run
    recipe: str  # hash of the run's identity, which the state records
    evaluate: Callable[[TrainerState], dict[str, float]] | None = None  # metrics on held-out data
    after_step: Callable[[int], None] | None = None  # called with the number of each finished step
    at_end: Callable[[], None] | None = None  # called when `run()` ends, however it does
    watch: Watch | None = None  # called with each record of the log; when it returns True, the run is saved and stops
    patience: int = 0  # the run ends after so many evaluations in a row that bring no new best; 0: it does not
    quiet: bool = False
    metrics: dict[str, float] = field(init=False, default_factory=dict)  # of the last weights, when the run has ended
    has_reloaded: bool = field(init=False, default=False)  # whether it has ended with weights of an earlier evaluation

    @property
    def progress(self) -> TrainerState:
        """How far the run has come."""
        return self.trainer.progress

    @property
    def stopped_early(self) -> bool:
        """Whether `patience` evaluations in a row have brought no new best, before the budget was used."""
        return 0 < self.patience <= self.progress.since_best and self.trainer.budget_used < 1

    def run(self) -> bool:
        """Train until the budget is used; False if a signal or `watch` has stopped the run, which is saved then."""
        trainer = self.trainer
        is_over = trainer.budget_used >= 1 or self.stopped_early
        reporter = Reporter(self.folder, self.progress.step, self.quiet, trainer.world.main, is_over)
        with contextlib.ExitStack() as ending:
            ending.callback(self.at_end or (lambda: None))
            thread = ending.enter_context(ThreadPoolExecutor(1, "state"))
            ending.callback(reporter.close)
            stop = ending.enter_context(caught_signals())
            checkpoints = Checkpoints(trainer, self.folder / STATE_FOLDER, self.recipe, thread)
            return self._run(stop, Log(trainer, reporter, self.watch), checkpoints)

    def _run(self, stop: Stop, log: "Log", checkpoints: "Checkpoints") -> bool:
        best = BestWeights(self.trainer, self.folder)
        for step in () if self.stopped_early else self.trainer.steps(stop):
            if self.after_step:
                self.after_step(step.number)
            log.show_progress(step.budget_used)
            # with patience this may be the last step, which is not known before the evaluation
            if step.logs or step.is_last or (step.evaluates and self.patience):
                log.train()
            if step.evaluates and not step.is_last:
                self.metrics = self._evaluate(log, best)
            is_over = step.is_last or self.stopped_early
            stops = step.stop_requested or ((step.logs or step.evaluates) and not is_over and log.stop_requested())
            checkpoints.check()
            if is_over or stops or step.saves or checkpoints.are_due:
                checkpoints.save()
            if is_over or stops:
                checkpoints.wait()
            if stops:
                return False
            if is_over:
                break
        stop.at_once()  # all is saved: nobody has to wait for the last evaluation
        if not (self.stopped_early and self.metrics):  # the last weights are evaluated, unless the run was resumed here
            self.metrics = self._evaluate(log, best)
        self.has_reloaded = best.restore()
        return True

    def _evaluate(self, log: "Log", best: "BestWeights") -> dict[str, float]:
        """Evaluate in float32, whatever training uses, so that the scores are those of the model that is kept."""
        if not self.evaluate:
            return {}
        metrics = self.evaluate(self.progress)
        self.trainer.model.train()
        log.eval(metrics)
        self.trainer.config.check([*metrics])
        best.update(metrics)
        return metrics


class Log:
    """The records of a run: log.jsonl, the terminal, and the caller's function, which may ask the run to stop."""

    def __init__(self, trainer: Trainer, reporter: Reporter, watch: Watch | None):
        self.trainer, self.reporter, self.watch = trainer, reporter, watch
        self.asked_to_stop, self.tidied = False, time.perf_counter()

    def show_progress(self, budget_used: float) -> None:
        """Move the bar on the terminal."""
        self.reporter.progress(budget_used, f"step {self.trainer.progress.step:,}")

    def train(self) -> None:
        """Record the means of the losses since the last such record."""
        trainer = self.trainer
        trainer.finish_update()
        progress, totals, world, used = trainer.progress, trainer.totals, trainer.world, trainer.budget_used
        record: dict[str, Any] = {"step": progress.step, **totals.means(world)}
        record |= {"lr": totals.lr, "grad_norm": totals.grad_norm}
        record |= {"tokens": progress.tokens, "tokens_per_second": totals.rate()}
        if progress.step > progress.updates:
            record["skipped"] = progress.step - progress.updates  # updates not made, in the whole run
        record |= world.used_by_others()
        left = progress.seconds * (1 - used) / used if used else 0.0
        record |= {"memory": peak_memory(world.device), "seconds": progress.seconds, "left": left}
        trainer.totals = Totals(lr=totals.lr)
        self._record("train", record)

    def eval(self, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an evaluation, whose time does not count as training."""
        self.trainer.totals.pause()
        progress = self.trainer.progress
        self._record("eval", {"step": progress.step, **metrics, "seconds": progress.seconds})

    def _record(self, kind: str, record: dict[str, Any]) -> None:
        if kind == "eval" or time.perf_counter() - self.tidied >= TIDY_SECONDS:
            self.tidied = time.perf_counter()
            return_free_memory()
        if self.trainer.world.main:
            self.reporter.record(kind, record)
            self.asked_to_stop |= bool(self.watch and self.watch(kind, record))

    def stop_requested(self) -> bool:
        """Whether the caller's function has asked for an end, in any process; all processes call this together."""
        return self.trainer.world.sum_numbers([float(self.asked_to_stop)])[0] > 0


class BestWeights:
    """The weights with the best score so far, in state/, where the recipe names the metric (`loop.keep_best`)."""

    def __init__(self, trainer: Trainer, folder: Path):
        self.trainer, self.path = trainer, folder / STATE_FOLDER / BEST
        self.metric, self.are_current = trainer.config.keep_best, False

    def update(self, metrics: Mapping[str, float]) -> None:
        """Keep the weights of now if their score is the best so far."""
        progress = self.trainer.progress
        self.are_current = bool(self.metric) and self._is_better(metrics[self.metric])
        progress.since_best = 0 if self.are_current else progress.since_best + 1
        if self.are_current:
            progress.best = metrics[self.metric]
            if self.trainer.world.main:
                self.path.parent.mkdir(exist_ok=True)
                with atomic_write(self.path) as file:
                    write_tensors(file, {n: t.cpu() for n, t in self.trainer.model.state_dict().items()}, {})

    def _is_better(self, score: float) -> bool:
        """Whether a score, lower for losses, is the best so far; one that is not finite never is."""
        best = self.trainer.progress.best
        if not math.isfinite(score) or best is None:
            return math.isfinite(score)
        return score < best if self.metric.endswith("loss") else score > best

    def restore(self) -> bool:
        """Put the best weights into the model, in all processes; returns whether they are not those of now.

        Raises InputError if their file is missing or damaged.
        """
        trainer = self.trainer
        if not self.metric or trainer.progress.best is None:
            return False
        trainer.world.from_rank0(self._load)
        trainer.world.broadcast(trainer.model.state_dict().values())
        return not self.are_current

    def _load(self) -> None:
        weights, _ = read_tensors(self.path)
        check_tensors(self.path, weights, self.trainer.model.state_dict())
        self.trainer.model.load_state_dict(weights)


@dataclass
class Checkpoints:
    """The saving of states: training waits for a copy in memory only; a thread writes it to disk."""

    trainer: Trainer
    folder: Path  # of the states
    recipe: str
    thread: ThreadPoolExecutor
    writing: Future[None] | None = None
    saved_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.saved_at = self.trainer.progress.seconds

    @property
    def are_due(self) -> bool:
        """Whether `save_minutes` of training have passed since the last one; the same in all processes."""
        minutes = self.trainer.config.save_minutes
        return minutes > 0 and self.trainer.progress.seconds - self.saved_at >= 60 * minutes

    def save(self) -> None:
        """Begin to save the state, in the first process. Raises NotWritten if the one before could not be written."""
        trainer = self.trainer
        trainer.finish_update()
        start, progress = time.perf_counter(), trainer.progress
        trainer.totals.store(progress, trainer.world)
        if trainer.world.main:
            self.check(wait=True)  # memory never holds two copies
            state = snapshot(trainer.model, trainer.optimizer, progress, self.recipe)
            self.writing = self.thread.submit(write_state, self.folder, state)
        self.saved_at = progress.seconds
        trainer.totals.start += time.perf_counter() - start

    def check(self, wait: bool = False) -> None:
        """Raises NotWritten if the last state could not be written, as far as that is known without waiting."""
        writing = self.writing
        if writing and (wait or writing.done()):
            self.writing = None
            writing.result()

    def wait(self) -> None:
        """Return in every process when the state is on disk. Raises NotWritten if it could not be written."""
        self.check(wait=True)
        self.trainer.world.barrier()


@torch.no_grad()
def evaluate(model: nn.Module, objective: Objective, batches: Iterable[Batch], world: World) -> dict[str, float]:
    """Mean loss of each term, accuracy of those with hits, batches divided among the processes: {mlm_loss, ...}."""
    model.eval()
    sums: dict[str, torch.Tensor] = {}  # of each term: loss, hits (NaN where they are not counted), predictions
    for i, batch in enumerate(batches):
        mine = i % world.size == world.rank
        terms = objective(model, to_device(objective.prepare(batch), world.device)) if mine else {}  # type: ignore[arg-type]
        for name, count in objective.counts(batch).items():
            found = [0.0, 0.0, 0.0]
            if mine:
                hits = terms[name].correct
                found = [float(terms[name].loss), math.nan if hits is None else float(hits), count]
            sums[name] = sums.get(name, torch.zeros(3, dtype=torch.float64)) + torch.tensor(found, dtype=torch.float64)
    metrics: dict[str, float] = {}
    for name, own in sums.items():
        loss, hits, count = world.sum(own.to(world.device)).tolist()
        metrics[f"{name}_loss"] = loss / max(count, 1.0)
        if not math.isnan(hits):
            metrics[f"{name}_accuracy"] = hits / max(count, 1.0)
    return metrics
