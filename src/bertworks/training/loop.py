"""A training run: train, log, evaluate and keep the best weights, save, and stop, in this order after each step."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from ..batch import Batch, to_device
from ..files import atomic_write
from ..reporting.log import Reporter
from ..tensors import check_checksum, write_tensors
from .distributed import World
from .heap import Heap
from .machine import peak_memory
from .objectives import Objective
from .process import Stop, caught_signals
from .progress import TrainerState
from .state import STATE_FOLDER, StateWriter, check_tensors, damaged, on_cpu, snapshot
from .totals import Totals
from .trainer import Trainer

BEST = "best.safetensors"

Watch = Callable[[str, Mapping[str, Any]], bool]  # called with the kind (train, eval) and the values of a record


@dataclass(frozen=True)
class Peaks:
    """What the share of the peak in a log is computed from; 0 where it is not known or not wanted."""

    flops_per_token: float = 0.0  # useful operations, forward and backward
    matmul: float = 0.0  # operations a second that the machine can do at best
    data_sheet: float = 0.0  # the same after the data sheet of the GPU

    def shares(self, tokens_per_second: float) -> dict[str, float]:
        """The shares of those peaks that are known."""
        peaks = {"share_of_peak": self.matmul, "share_of_data_sheet": self.data_sheet}
        return {name: tokens_per_second * self.flops_per_token / peak for name, peak in peaks.items() if peak}


NO_PEAKS = Peaks()


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
    peaks: Peaks = NO_PEAKS
    quiet: bool = False
    metrics: dict[str, float] = field(init=False, default_factory=dict)  # of the last weights, when the run has ended
    has_reloaded: bool = field(init=False, default=False)  # whether it has ended with weights of an earlier evaluation

    @property
    def progress(self) -> TrainerState:
        """How far the run has come."""
        return self.trainer.progress

    def run(self) -> bool:
        """Train until the budget is used; False if a signal or `watch` has stopped the run, which is saved then."""
        trainer = self.trainer
        is_over = trainer.budget_used >= 1 or self.stopped_early
        reporter = Reporter(self.folder, self.progress.step, self.quiet, trainer.world.main, is_over)
        with contextlib.ExitStack() as ending:
            ending.callback(self.at_end or (lambda: None))
            checkpoints = ending.enter_context(Checkpoints(trainer, self.folder, self.recipe))
            ending.callback(reporter.close)
            stop = ending.enter_context(caught_signals())
            return self._run(stop, Log(trainer, reporter, self.watch, self.peaks), checkpoints)

    def _run(self, stop: Stop, log: "Log", checkpoints: "Checkpoints") -> bool:
        trainer = self.trainer
        best = BestWeights(trainer, self.folder)
        for step in () if self.stopped_early else trainer.steps(stop):
            if self.after_step:
                self.after_step(step.number)
            log.show_progress(step.budget_used)
            # with patience this may be the last step, which is not known before the evaluation
            if step.logs or step.is_last or (step.evaluates and self.patience):
                log.train()
            if step.evaluates and not step.is_last:
                self.metrics = self._evaluate(log, best)
            stops = step.stop_requested
            if (step.logs or step.evaluates) and not (step.is_last or self.stopped_early):
                stops |= log.stop_requested
            checkpoints.check()
            is_over = stops or step.is_last or self.stopped_early
            if is_over or step.saves or checkpoints.is_due:
                checkpoints.save()
            if is_over:
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

    @property
    def stopped_early(self) -> bool:
        """Whether `patience` evaluations in a row have brought no new best, before the budget was used."""
        return 0 < self.patience <= self.progress.since_best and self.trainer.budget_used < 1

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

    def __init__(self, trainer: Trainer, reporter: Reporter, watch: Watch | None, peaks: Peaks):
        self.trainer, self.reporter, self.watch, self.peaks = trainer, reporter, watch, peaks
        self.heap, self.asked_to_stop = Heap(), False

    def show_progress(self, budget_used: float) -> None:
        """Move the bar on the terminal."""
        self.reporter.progress(budget_used, f"step {self.trainer.progress.step:,}")

    def train(self) -> None:
        """Record the means of the losses since the last such record."""
        trainer = self.trainer
        trainer.finish_update()
        progress, totals, world = trainer.progress, trainer.totals, trainer.world
        rate, used = totals.rate(), trainer.budget_used
        record: dict[str, Any] = {"step": progress.step, **totals.means(world)}
        record |= {"lr": totals.lr, "grad_norm": totals.grad_norm}
        record |= {"tokens": progress.tokens, "tokens_per_second": rate}
        if progress.step > progress.updates:
            record["skipped"] = progress.step - progress.updates  # updates not made, in the whole run
        record |= self.peaks.shares(rate / world.size) | world.used_by_others()
        left = progress.seconds * (1 - used) / used if used else 0.0
        record |= {"memory": peak_memory(world.device), "seconds": progress.seconds, "left": left}
        trainer.totals = Totals(lr=totals.lr)
        self.heap.give_back()
        self._record("train", record)

    def eval(self, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an evaluation, whose time does not count as training."""
        self.heap.give_back(0)
        self.trainer.totals.pause()
        progress = self.trainer.progress
        self._record("eval", {"step": progress.step, **metrics, "seconds": progress.seconds})

    def _record(self, kind: str, record: dict[str, Any]) -> None:
        if self.trainer.world.main:
            self.reporter.record(kind, record)
            self.asked_to_stop |= bool(self.watch and self.watch(kind, record))

    @property
    def stop_requested(self) -> bool:
        """Whether the caller's function has asked for an end, in any process."""
        return self.trainer.world.sum_numbers([float(self.asked_to_stop)])[0] > 0


class BestWeights:
    """The weights with the best score so far, in state/, where the recipe names the metric (`loop.keep_best`)."""

    def __init__(self, trainer: Trainer, folder: Path):
        self.trainer, self.path = trainer, folder / STATE_FOLDER / BEST
        self.metric, self.are_current = trainer.config.keep_best, False

    def update(self, metrics: Mapping[str, float]) -> None:
        """Keep the weights of now if their score is the best so far."""
        progress, model = self.trainer.progress, self.trainer.model
        self.are_current = bool(self.metric) and self._is_better(metrics[self.metric])
        progress.since_best = 0 if self.are_current else progress.since_best + 1
        if self.are_current:
            progress.best = metrics[self.metric]
            if self.trainer.world.main:
                self.path.parent.mkdir(exist_ok=True)
                with atomic_write(self.path) as file:
                    write_tensors(file, on_cpu(model.state_dict()), {})

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
        try:
            with safe_open(self.path, "pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                check_checksum(weights, file.metadata() or {})
        except (SafetensorError, ValueError, OSError) as error:
            raise damaged(self.path, error) from None
        check_tensors(self.path, weights, self.trainer.model.state_dict())
        self.trainer.model.load_state_dict(weights)


class Checkpoints:
    """The saving of states: a copy in memory is taken, and a thread writes it while training continues."""

    def __init__(self, trainer: Trainer, folder: Path, recipe: str):
        self.trainer, self.folder, self.recipe = trainer, folder / STATE_FOLDER, recipe
        self.writer, self.saved_at = StateWriter(), trainer.progress.seconds

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    @property
    def is_due(self) -> bool:
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
            take = partial(snapshot, trainer.model, trainer.optimizer, progress, self.recipe)
            self.writer.begin(self.folder, take)
        self.saved_at = progress.seconds
        trainer.totals.start += time.perf_counter() - start

    def check(self) -> None:
        """Raises NotWritten if it is known by now that the last state could not be written."""
        self.writer.check()

    def wait(self) -> None:
        """Return in every process when the state is on disk. Raises NotWritten if it could not be written."""
        self.writer.wait()
        self.trainer.world.barrier()


@torch.no_grad()
def evaluate(model: nn.Module, objective: Objective, batches: Iterable[Batch], world: World) -> dict[str, float]:
    """Mean loss of each term, accuracy of those with hits, batches divided among the processes: {mlm_loss, ...}."""
    model.eval()
    sums: dict[str, float] = {}
    for i, batch in enumerate(batches):
        mine = i % world.size == world.rank
        counts = objective.counts(batch)
        terms = objective(model, to_device(objective.prepare(batch), world.device)) if mine else {}  # type: ignore[arg-type]
        for name, count in counts.items():
            loss, hits = (terms[name].loss, terms[name].correct) if name in terms else (0.0, 0)
            for key, value in (("loss", loss), ("correct", hits), ("count", count if mine else 0)):
                sums[f"{name} {key}"] = sums.get(f"{name} {key}", 0.0) + (math.nan if value is None else float(value))
    values = world.sum(torch.tensor(list(sums.values()), dtype=torch.float64, device=world.device))
    total = dict(zip(sums, values.tolist(), strict=True))
    metrics: dict[str, float] = {}
    for name in {key.split()[0]: None for key in sums}:
        count = max(total[f"{name} count"], 1.0)
        metrics |= {f"{name}_loss": total[f"{name} loss"] / count, f"{name}_accuracy": total[f"{name} correct"] / count}
    return {name: value for name, value in metrics.items() if not (name.endswith("_accuracy") and math.isnan(value))}
