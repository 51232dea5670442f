"""The log of a run: what is recorded of its training and its evaluations."""

import math
import time
from collections.abc import Mapping
from typing import Any

from ..reporting.log import Reporter
from ..workers import openmp
from .identity import Run
from .machine import peak_memory, return_free_memory
from .trainer import Trainer

TRIM_SECONDS = 60  # of training, after which free memory is returned to the system


class Log:
    """The records of a run: log.jsonl, the terminal, and the caller's function, which may ask the run to stop."""

    def __init__(self, trainer: Trainer, run: Run, is_over: bool):
        """is_over: only the final evaluation is left."""
        self.trainer, self.on_record = trainer, run.on_record
        self.reporter = Reporter(run.out, trainer.progress.step, run.quiet, run.world.is_main, is_over)
        self.callback_stops, self.trimmed = False, time.perf_counter()
        self.tokens, self.seconds = trainer.timed_tokens, trainer.progress.seconds  # at the last record

    def show_progress(self, budget_used: float) -> None:
        """Move the bar on the terminal."""
        self.reporter.progress(budget_used, f"step {self.trainer.progress.step:,}")

    def record_training(self) -> None:
        """Record the means of the losses since the last such record; NaN if no update was made."""
        trainer = self.trainer
        trainer.gather_losses()
        progress, world, used = trainer.progress, trainer.world, trainer.budget_used
        counts, seconds = progress.loss_counts, progress.seconds - self.seconds
        record: dict[str, Any] = {"step": progress.step}
        record |= {f"{n}_loss": loss / counts[n] if counts[n] else math.nan for n, loss in progress.loss_sums.items()}
        record |= {"lr": progress.lr, "grad_norm": trainer.grad_norm, "tokens": progress.tokens}
        record["tokens_per_second"] = (trainer.timed_tokens - self.tokens) / seconds if seconds else 0.0
        if progress.step > progress.updates:
            record["skipped"] = progress.step - progress.updates  # skipped updates in the whole run
        if world.size == 1:
            record |= openmp.others()  # cores that other programs use
        left = progress.seconds * (1 - used) / used if used else 0.0
        record |= {"memory": peak_memory(world.device), "seconds": progress.seconds, "left": left}
        progress.loss_sums, progress.loss_counts = {}, {}
        self.tokens, self.seconds = trainer.timed_tokens, progress.seconds
        self._record("train", record)

    def record_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an evaluation, whose time does not count as training."""
        progress = self.trainer.progress
        self._record("eval", {"step": progress.step, **metrics, "seconds": progress.seconds})

    def _record(self, kind: str, record: dict[str, Any]) -> None:
        if kind == "eval" or time.perf_counter() - self.trimmed >= TRIM_SECONDS:
            self.trimmed = time.perf_counter()
            return_free_memory()
        if self.trainer.world.is_main:
            self.reporter.record(kind, record)
            self.callback_stops |= self.on_record is not None and self.on_record({"kind": kind, **record}) is True

    def stop_requested(self) -> bool:
        """Whether the caller's function has requested an end, in any process; all processes call this together."""
        return self.trainer.world.sum_numbers([float(self.callback_stops)])[0] > 0
