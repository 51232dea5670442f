"""A training run: after each step log, evaluate and keep the best weights, save, and stop, in this order.

When the budget is used, the state is saved before the last weights are evaluated, so that a kill during the evaluation
loses nothing.
"""

import contextlib
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..batch import Batch, to_device
from ..files import atomic_write
from ..reporting.log import Reporter
from ..tensors import write_tensors
from .config import TrainerState
from .distributed import World
from .identity import RunIdentity
from .machine import Stop, caught_signals, peak_memory, return_free_memory, used_by_others
from .objectives import Objective
from .state import STATE_FOLDER, load_weights, read_tensors, snapshot, write_state
from .trainer import Trainer

BEST = "best.safetensors"
TRIM_SECONDS = 60  # of training, after which free memory is returned to the system

RecordCallback = Callable[[Mapping[str, Any]], Any]
"""Called with each record of a run's log; when it returns True, the run is saved and stops."""


@dataclass(frozen=True)
class Run:
    """A run of this process: its folder, what it is, and who takes part."""

    out: Path
    identity: RunIdentity
    world: World
    quiet: bool = False
    on_record: RecordCallback | None = None

    def say(self, text: str) -> None:
        """Print a line to stderr, once for all processes."""
        if not self.quiet and self.world.main:
            print(text, file=sys.stderr)


@dataclass
class TrainingLoop:
    """A trainer in its run folder. `train()` trains until the budget is used or a signal comes.

    A signal after the last update, when all is saved, raises KeyboardInterrupt.
    """

    trainer: Trainer
    run: Run
    evaluate: Callable[[TrainerState], dict[str, float]] | None = None  # metrics on held-out data
    after_step: Callable[[int], None] | None = None  # called with the number of each finished step
    at_end: Callable[[], None] | None = None  # called when `train()` ends, however it does
    patience: int = 0  # the run ends after so many evaluations in a row that bring no new best; 0: it does not
    metrics: dict[str, float] = field(init=False, default_factory=dict)  # when the run has ended, of the weights it has

    @property
    def progress(self) -> TrainerState:
        """How far the run has come."""
        return self.trainer.progress

    @property
    def stopped_early(self) -> bool:
        """Whether `patience` evaluations in a row have brought no new best, before the budget was used."""
        return 0 < self.patience <= self.progress.since_best and self.trainer.budget_used < 1

    def train(self) -> bool:
        """Train until the budget is used; False if a signal or `on_record` has stopped the run, which is saved then."""
        trainer, run = self.trainer, self.run
        is_over = trainer.budget_used >= 1 or self.stopped_early
        reporter = Reporter(run.out, self.progress.step, run.quiet, run.world.main, is_over)
        with contextlib.ExitStack() as stack:
            stack.callback(self.at_end or (lambda: None))
            thread = stack.enter_context(ThreadPoolExecutor(1, "state"))
            stack.callback(reporter.close)
            stop = stack.enter_context(caught_signals())
            log = Log(trainer, reporter, run.on_record)
            is_complete = self._train(stop, log, Checkpoints(trainer, run, thread))
        if not is_complete:
            run.say(f"stopped at step {self.progress.step:,}, saved; rerun the command to resume")
        return is_complete

    def _train(self, stop: Stop, log: "Log", checkpoints: "Checkpoints") -> bool:
        best = BestWeights(self.trainer, self.run.out)
        for step in () if self.stopped_early else self.trainer.steps(stop):
            if self.after_step:
                self.after_step(self.progress.step)
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
                checkpoints.save(wait=is_over or stops)
            if stops:
                return False
            if is_over:
                break
        stop.at_once()  # all is saved: a signal need not wait for the last evaluation
        if not (self.stopped_early and self.metrics):  # the last weights are evaluated, unless the run was resumed here
            self.metrics = self._evaluate(log, best)
        if best.restore() and self.evaluate:
            self.metrics = self.evaluate(self.progress)
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

    def __init__(self, trainer: Trainer, reporter: Reporter, on_record: RecordCallback | None):
        self.trainer, self.reporter, self.on_record = trainer, reporter, on_record
        self.callback_stops, self.trimmed = False, time.perf_counter()
        self.tokens, self.seconds = trainer.timed_tokens, trainer.progress.seconds  # at the last record

    def show_progress(self, budget_used: float) -> None:
        """Move the bar on the terminal."""
        self.reporter.progress(budget_used, f"step {self.trainer.progress.step:,}")

    def train(self) -> None:
        """Record the means of the losses since the last such record; NaN if no update was made."""
        trainer = self.trainer
        trainer.finish_update()
        trainer.gather_losses()
        progress, world, used = trainer.progress, trainer.world, trainer.budget_used
        counts, seconds = progress.loss_counts, progress.seconds - self.seconds
        record: dict[str, Any] = {"step": progress.step}
        record |= {f"{n}_loss": loss / counts[n] if counts[n] else math.nan for n, loss in progress.loss_sums.items()}
        record |= {"lr": progress.lr, "grad_norm": trainer.grad_norm, "tokens": progress.tokens}
        record["tokens_per_second"] = (trainer.timed_tokens - self.tokens) / seconds if seconds else 0.0
        if progress.step > progress.updates:
            record["skipped"] = progress.step - progress.updates  # updates not made, in the whole run
        record |= used_by_others(world)
        left = progress.seconds * (1 - used) / used if used else 0.0
        record |= {"memory": peak_memory(world.device), "seconds": progress.seconds, "left": left}
        progress.loss_sums, progress.loss_counts = {}, {}
        self.tokens, self.seconds = trainer.timed_tokens, progress.seconds
        self._record("train", record)

    def eval(self, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an evaluation, whose time does not count as training."""
        progress = self.trainer.progress
        self._record("eval", {"step": progress.step, **metrics, "seconds": progress.seconds})

    def _record(self, kind: str, record: dict[str, Any]) -> None:
        if kind == "eval" or time.perf_counter() - self.trimmed >= TRIM_SECONDS:
            self.trimmed = time.perf_counter()
            return_free_memory()
        if self.trainer.world.main:
            self.reporter.record(kind, record)
            self.callback_stops |= self.on_record is not None and self.on_record({"kind": kind, **record}) is True

    def stop_requested(self) -> bool:
        """Whether the caller's function has requested an end, in any process; all processes call this together."""
        return self.trainer.world.sum_numbers([float(self.callback_stops)])[0] > 0


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
        load_weights(self.path, self.trainer.model, weights)


class Checkpoints:
    """The saving of states: training waits for a copy in memory only; a thread writes it to disk."""

    def __init__(self, trainer: Trainer, run: Run, thread: ThreadPoolExecutor):
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
        trainer.finish_update()
        trainer.gather_losses()
        if trainer.world.main:
            self.check(wait=True)  # memory never holds two copies
            state = snapshot(trainer.model, trainer.optimizer, trainer.progress, self.run.identity.hash)
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


@torch.no_grad()
def evaluate(model: nn.Module, objective: Objective, batches: Iterable[Batch], world: World) -> dict[str, float]:
    """Mean loss of each term, accuracy of those with hits, batches divided among the processes: {mlm_loss, ...}."""
    model.eval()
    sums = defaultdict[str, Tensor](lambda: torch.zeros(3, dtype=torch.float64))  # loss, hits or NaN, predictions
    for i, batch in enumerate(batches):
        counts, mine = objective.counts(batch), i % world.size == world.rank
        terms = objective(model, to_device(objective.prepare(batch), world.device)) if mine else {}  # type: ignore[arg-type]
        for name, count in counts.items():
            sums[name] += 0.0  # in every process
            if mine:
                hits = terms[name].correct
                values = [float(terms[name].loss), math.nan if hits is None else float(hits), count]
                sums[name] += torch.tensor(values, dtype=torch.float64)
    metrics: dict[str, float] = {}
    for name in sums:
        loss, hits, count = world.sum(sums[name].to(world.device)).tolist()
        metrics[f"{name}_loss"] = loss / max(count, 1.0)
        if not math.isnan(hits):
            metrics[f"{name}_accuracy"] = hits / max(count, 1.0)
    return metrics
