"""Pre-training on a store of tokens (paper 3.1, A.2; its comparators, 5.1).

What comes from the tokenizer, from model folders and from other processes is passed in (job.py, which writes the run
folder): ids, initial weights, a function that saves a model, and one that makes batches ahead of training.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.batches import BatchRequest, BatchSource, PretrainingData, Vocabulary, as_tensors
from ..data.instances import StreamPosition
from ..data.store import Store
from ..files import InputError
from ..model.heads import Model
from ..training.config import TrainerState
from ..training.distributed import World
from ..training.loop import TrainingLoop, evaluate
from ..training.objectives import Objective
from ..training.optim import Optimizer
from ..training.trainer import AccumulationBatch, Trainer
from .recipe import Phase, PretrainConfig

if TYPE_CHECKING:
    from ..training.identity import Run

GPU_WORKERS = 2  # processes that make batches where a GPU leaves the processor idle

SaveModel = Callable[[Path, Model, Mapping[str, Any]], None]
"""Writes a model folder, with facts about the model for its card."""
Prefetch = Callable[[Sequence[PretrainingData], int], BatchSource]
"""Starts a number of processes that make the batches of all phases ahead of training."""


class PretrainingFeed:
    """The batches of each phase in turn, in the paper 90 % of the steps at length 128 and the rest at 512 (A.2).

    A pure function of the run's progress.
    """

    def __init__(self, config: PretrainConfig, store: Store, vocabulary: Vocabulary, world: World, prefetch: Prefetch):
        self.phases, self.world = config.phases, world
        if (smallest := min(p.batch_size for p in config.phases)) < world.size:
            raise InputError(f"batch_size {smallest} is less than the {world.size} processes; give each of them a row")
        automatic = GPU_WORKERS if world.device.type == "cuda" else 0
        workers = automatic if config.workers < 0 else config.workers
        data = [config.data(store, "train", vocabulary, phase.length) for phase in config.phases]
        self.source = prefetch(data, workers) if workers else BatchSource(data)

    def __call__(self, progress: TrainerState, budget_used: float) -> AccumulationBatch:
        """The next batch; a new phase begins at the start of its own stream."""
        phase = self.phase_at(budget_used)
        position = StreamPosition(progress.group, progress.offset) if phase == progress.phase else StreamPosition()
        ranges = self.micro_batches(self.phases[phase])
        arrays, after = self.source.take(BatchRequest(phase, position, self.phases[phase].batch_size, ranges))
        micro_batches = [(as_tensors(batch), rows.start) for batch, rows in zip(arrays, ranges, strict=True)]
        return AccumulationBatch(micro_batches, (phase, after.group, after.offset))

    def micro_batches(self, phase: Phase) -> tuple[range, ...]:
        """The rows of the batch that each micro-batch of this process has."""
        mine, micro = self.world.local_range(phase.batch_size), phase.micro_batch_size or phase.batch_size
        return tuple(range(start, min(start + micro, mine.stop)) for start in mine[::micro])

    def phase_at(self, budget_used: float) -> int:
        """The phase that is on when this fraction of the budget is used."""
        ends = itertools.accumulate(phase.budget_fraction for phase in self.phases)
        return next((i for i, end in enumerate(ends) if budget_used < end - 1e-9), len(self.phases) - 1)


@dataclass(frozen=True)
class StoreTraining:
    """Training on a store: all that it needs besides the run folder, the model and the objective."""

    config: PretrainConfig
    store: Store
    vocabulary: Vocabulary
    save_model: SaveModel
    prefetch: Prefetch

    def build_loop(
        self, run: "Run", model: Model, objective: Objective, loss_weights: Mapping[str, float] | None = None
    ) -> TrainingLoop:
        """A new loop. loss_weights: of the terms in the loss; 1 for those not named."""
        config, world = self.config, run.world

        def compute_metrics(progress: TrainerState) -> dict[str, float]:
            """During training at the current phase's length, because the model has not yet been trained on longer ones.

            At the end, and where scores are compared to keep the best weights, at the last phase's.
            """
            is_over = config.loop.budget_used(progress) >= 1
            if is_over:
                run.say(f"evaluating on at most {config.eval_batches} held-out batches")
            return self.evaluate(model, objective, world, -1 if is_over or config.loop.keep_best else progress.phase)

        def save_snapshot(step: int) -> None:
            if step in config.snapshots and world.is_main:
                self.save_model(run.out / "snapshots" / f"step-{step}", model, {"kind": "pretrain", "steps": step})

        feed = PretrainingFeed(config, self.store, self.vocabulary, world, self.prefetch)
        optimizer = Optimizer(model, config.optim)
        trainer = Trainer(model, objective, feed, optimizer, world, config.loop, loss_weights or {})
        return TrainingLoop(trainer, run, compute_metrics, after_step=save_snapshot)

    def evaluate(self, model: Model, objective: Objective, world: World, phase: int = -1) -> dict[str, float]:
        """The metrics on held-out text, cut into instances of one phase's length; phase: its index, -1: the last."""
        data = self.config.data(self.store, "validation", self.vocabulary, self.config.phases[phase].length)
        return evaluate(model, objective, data.batches(64, self.config.eval_batches), world)
