"""Pre-training on a store of tokens (paper 3.1, A.2; its comparators, 5.1).

The run folder holds recipe.toml (resolved), log.jsonl, state/ (resume), model/ (the result), snapshots/ (models of
earlier steps, if requested) and results.json. A rerun resumes; a finished run is left as it is. What comes from the
tokenizer, from model folders and from other processes is passed in (job.py): ids, initial weights, a function that
saves a model, and one that makes batches ahead of training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.batches import BatchRequest, BatchSource, PretrainingData, Vocabulary, as_tensors
from ..data.instances import Position
from ..data.store import Store
from ..files import InputError
from ..model.heads import Model
from ..training.config import TrainerState
from ..training.distributed import World
from ..training.loop import Run, TrainingLoop, evaluate
from ..training.machine import check_memory
from ..training.objectives import PRETRAINING, Objective
from ..training.optim import Optimizer
from ..training.run import open_run, resume_run, run_facts, write_results
from ..training.trainer import AccumulationBatch, Trainer
from .recipe import Phase, PretrainConfig

GPU_WORKERS = 2  # processes that make batches where a GPU leaves the processor idle

SaveModel = Callable[[Path, Model, Mapping[str, Any]], None]
"""Writes a model folder, with facts about the model for its card."""
Prefetch = Callable[[Sequence[PretrainingData], int], BatchSource]
"""Starts a number of processes that make the batches of these streams ahead of training."""


def train_on_store(
    source: "StoreTraining", run: Run, start: Callable[[], Model], origin: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """Train or resume, and write the run folder; returns its results, or None if stopped before the end.

    start: makes the initial model, on its device. origin: where it comes from, if it was trained before, for the card.
    """
    with open_run(run) as results:
        if results is not None:
            return results
        loop = source.loop(run, start(), PRETRAINING[source.config.objective])
        if not source.train(loop):
            return None
        facts = {} if origin is None else {"continued": True}
        return source.finish(loop, source.results(loop, "pretrain") | facts, origin)


@dataclass(frozen=True)
class StoreTraining:
    """Training on a store: all that it needs besides the run folder, the model and the objective."""

    config: PretrainConfig
    store: Store
    vocabulary: Vocabulary
    save_model: SaveModel
    prefetch: Prefetch

    def loop(
        self, run: Run, model: Model, objective: Objective, weights: Mapping[str, float] | None = None
    ) -> TrainingLoop:
        """The run's loop, new or resumed; `weights` are those of the terms in the loss."""
        config, world = self.config, run.world

        def evaluate_now(progress: TrainerState) -> dict[str, float]:
            """During training at the current phase's length, because the model has not yet been trained on longer ones.

            At the end, and where scores are compared to keep the best weights, at the last phase's.
            """
            is_over = config.loop.budget_used(progress) >= 1
            if is_over:
                run.say(f"evaluating on at most {config.eval_batches} held-out batches")
            return self.evaluate(model, objective, world, -1 if is_over or config.loop.keep_best else progress.phase)

        def save_snapshot(step: int) -> None:
            if step in config.snapshots and world.main:
                self.save_model(run.out / "snapshots" / f"step-{step}", model, {"kind": "pretrain", "steps": step})

        for phase in config.phases:
            rows = -(-phase.batch_size // world.size)
            tokens = phase.length * min(phase.micro_batch_size or rows, rows)
            check_memory(tokens, config.model.hidden_size, config.model.num_hidden_layers, world.device)
        feed = PretrainingFeed(config, self.store, self.vocabulary, world, self.prefetch)
        trainer = Trainer(model, objective, feed, Optimizer(model, config.optim), world, config.loop, weights or {})
        loop = TrainingLoop(trainer, run, evaluate_now, after_step=save_snapshot, at_end=feed.close)
        resume_run(loop)
        return loop

    def evaluate(self, model: Model, objective: Objective, world: World, phase: int = -1) -> dict[str, float]:
        """The metrics on held-out text, cut into instances of one phase's length."""
        data = self.config.data(self.store, "validation", self.vocabulary, self.config.phases[phase].length)
        return evaluate(model, objective, data.batches(64, self.config.eval_batches), world)

    def train(self, loop: TrainingLoop) -> bool:
        """Print what is about to run, for a person to check before hours are spent, and train."""
        config, layers = self.config, self.config.model.num_hidden_layers
        parameters = sum(p.numel() for p in loop.trainer.model.parameters())
        tokens = sum(shard.n_tokens for shard in self.store.shards("train"))
        retained = config.masking.unchanged_fraction if config.objective_spec.masked else 0.0
        loop.run.say(
            f"model: {layers} layer{'s' * (layers != 1)}, width {config.model.hidden_size}, {parameters:,} parameters; "
            f"corpus: {tokens:,} tokens; processes: {loop.run.world.size}"
        )
        loop.run.say(plateau(self.store.unigram_entropy(), retained))
        return loop.train()

    def results(self, loop: TrainingLoop, kind: str) -> dict[str, Any]:
        """What results.json has."""
        metrics = loop.metrics | {"unigram_entropy": self.store.unigram_entropy()}
        facts = {"instances": loop.progress.instances, "corpus": self.store.fingerprint}
        return {"kind": kind, "metrics": metrics, **run_facts(loop), **facts}

    def finish(
        self, loop: TrainingLoop, results: dict[str, Any], origin: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Write the model folder, with results and `origin` in its card, and the results, which are returned."""
        model, run = loop.trainer.model, loop.run
        assert isinstance(model, Model)
        if run.world.main:
            self.save_model(run.out / "model", model, {**results, **(origin or {})})
        return write_results(run.out, results, run.world)


class PretrainingFeed:
    """The batches of each phase in turn: a pure function of the run's progress, whoever makes them."""

    def __init__(self, config: PretrainConfig, store: Store, vocabulary: Vocabulary, world: World, prefetch: Prefetch):
        self.phases, self.world = config.phases, world
        smallest = min(p.batch_size for p in config.phases)
        if smallest < world.size:
            raise InputError(f"batch_size {smallest} is less than the {world.size} processes; give each of them a row")
        self.pinned = world.device.type == "cuda"  # a GPU copies from pinned memory while it computes
        workers = config.workers if config.workers >= 0 else GPU_WORKERS if self.pinned else 0
        data = [config.data(store, "train", vocabulary, phase.length) for phase in config.phases]
        self.source = prefetch(data, workers) if workers else BatchSource(data)

    def __call__(self, progress: TrainerState, budget_used: float) -> AccumulationBatch:
        """The next batch; a new phase begins at the start of its own stream."""
        phase = self.phase_at(budget_used)
        position = Position(progress.group, progress.offset) if phase == progress.phase else Position()
        rows = self.micro_batches(self.phases[phase])
        arrays, after = self.source.take(BatchRequest(phase, position, self.phases[phase].batch_size, rows))
        micro_batches = [(as_tensors(batch, self.pinned), part.start) for batch, part in zip(arrays, rows, strict=True)]
        return AccumulationBatch(micro_batches, (phase, after.group, after.offset))

    def micro_batches(self, phase: Phase) -> tuple[range, ...]:
        """The rows of the batch that each micro-batch of this process has."""
        mine, micro = self.world.local_range(phase.batch_size), phase.micro_batch_size or phase.batch_size
        return tuple(range(start, min(start + micro, mine.stop)) for start in mine[::micro])

    def phase_at(self, budget_used: float) -> int:
        """The phase that is on when this fraction of the budget is used."""
        end = 0.0
        for i, phase in enumerate(self.phases):
            end += phase.budget_fraction
            if budget_used < end - 1e-9:
                return i
        return len(self.phases) - 1

    def close(self) -> None:
        """End the processes that make batches."""
        self.source.close()


def plateau(entropy: float, retained: float) -> str:
    """The losses, in nats, at which a language model has learned nothing of contexts yet (docs/results.md)."""
    copies = (
        f", near {entropy * (1 - retained):.2f} also copies of the tokens that masking kept" if 0 < retained < 1 else ""
    )
    return f"unigram entropy of the corpus {entropy:.3f} nats: a loss near it has word frequencies only{copies}"
