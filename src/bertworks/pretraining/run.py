"""Pre-training: a store and a recipe become a model folder (paper 3.1, A.2; its comparators, 5.1).

The run folder holds recipe.toml (resolved), log.jsonl, state/ (resume), model/ (the result), snapshots/ (models of
earlier steps, if asked for) and results.json. Rerunning the command resumes; a finished run is left as it is.
"""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoint.card import origin_in_card
from ..checkpoint.folder import find_model, is_padded, read_config, save_folder
from ..checkpoint.start import initial_model
from ..data.ahead import Asked, BatchesAhead
from ..data.batches import Vocabulary, as_tensors
from ..data.instances import Position
from ..data.store import Store
from ..files import InputError
from ..model.config import ModelConfig
from ..model.heads import Model, build_model
from ..reporting.tables import counted
from ..tokenizer import Tokenizer
from ..training.distributed import World, is_first, is_first_of_node, joined_world
from ..training.loop import TrainingLoop, Watch, evaluate
from ..training.machine import check_memory
from ..training.objectives import PRETRAINING, Objective
from ..training.optim import Optimizer
from ..training.process import prepared_process
from ..training.progress import TrainerState
from ..training.run import (
    Run,
    is_finished,
    open_run,
    refuse_other_folder,
    resume_run,
    run_facts,
    train,
    write_results,
)
from ..training.trainer import AccumulationBatch, Trainer
from .recipe import Phase, PretrainConfig

GPU_WORKERS = 2  # processes that make batches where a GPU leaves the processor idle


def pretrain(
    config: PretrainConfig,
    corpus: Path,
    out: Path,
    init: Path | None = None,
    quiet: bool = False,
    watch: Watch | None = None,
) -> dict[str, Any] | None:
    """Train or resume, and write the run folder; returns its results, or None if stopped before the end.

    init: a model folder whose weights to continue from. quiet: print nothing. watch: called with the kind and the
    values of each record of the log; when it returns True, the run is saved and stops.
    Raises InputError if recipe, store and `init` do not fit together, or if `out` belongs to another run.
    """
    config.loop.check(config.metrics)
    refuse_other_folder(out)
    source = StoreTraining.open(config, corpus, is_finished(out))
    source.check_vocabulary(init)
    begun: dict[str, Any] = {} if init is None else {"continued": True}
    origin = {} if init is None else origin_in_card(find_model(init))
    with prepared_process(), joined_world() as world:
        run = Run(out, config.identity(source.store, init), world, quiet, watch)
        with open_run(run) as results:
            if results is not None:
                return results
            loop = source.loop(run, start_model(config, init, quiet), PRETRAINING[config.objective])
            if not train(run, loop, source.describe(loop)):
                return None
            results = source.save(run, loop, source.results("pretrain", run, loop) | begun, origin)
            return write_results(out, results, world)


def held_out_metrics(config: PretrainConfig, corpus: Path, model: Path) -> dict[str, float]:
    """The metrics of a model on the held-out set that a recipe makes of a store, at its last phase's length.

    Models of several recipes are compared on it. Raises InputError if the model lacks a head of the recipe's objective.
    """
    source = StoreTraining.open(config, corpus, finished=True)
    loaded = initial_model(model, config.heads, labels=0, seed=config.loop.seed)
    if loaded.fresh:
        raise InputError(f"{model} has no {', '.join(loaded.fresh)}, which objective = {config.objective!r} reads; "
                         "evaluate it by another objective")  # fmt: skip
    data = config.data(source.store, "validation", Vocabulary.of(source.tokenizer), config.phases[-1].length)
    with prepared_process(), joined_world() as world:
        loaded.model.to(world.device)
        return evaluate(loaded.model, PRETRAINING[config.objective], data.batches(64, config.eval_batches), world)


@dataclass(frozen=True)
class StoreTraining:
    """Training on a store: all that it needs besides the run folder, the model and the objective."""

    config: PretrainConfig
    store: Store
    tokenizer: Tokenizer

    @classmethod
    def open(cls, config: PretrainConfig, corpus: Path, finished: bool) -> "StoreTraining":
        """finished: the run is, so the store needs no check. The first process of a node checks it for all of them.

        Raises InputError for a damaged store.
        """
        store = Store.open(corpus, verify=not finished and is_first_of_node())
        tokenizer = store.load_tokenizer()
        store.check_unknown(tokenizer)
        return cls(config, store, tokenizer)

    def check_vocabulary(self, init: Path | None) -> None:
        """Raises InputError if the recipe's model has another vocabulary, or another padding, than the store."""
        rows, tokens = self.config.model.vocab_size, self.store.vocab_size
        padded = init is not None and is_padded(rows, tokens)  # the table of that model stays as it is
        if rows != tokens and not padded:
            has = f"the recipe's model.vocab_size is {rows}"
            advice = f"give --model.vocab-size {tokens} or build the corpus with the other tokenizer"
            if init is not None:  # a flag would give it another shape
                has = f"{init} has a vocabulary of {rows} tokens"
                advice = f"build the corpus with its tokenizer: bertworks corpus build ... --tokenizer {init}"
            raise InputError(f"{has}, the corpus was built with one of {tokens}; {advice}")
        if init is None or self.config.model.family == "roberta":  # other models of others may name another padding
            check_padding(self.config.model, self.tokenizer.pad_id)

    def loop(
        self, run: Run, model: Model, objective: Objective, weights: Mapping[str, float] | None = None
    ) -> TrainingLoop:
        """The run's loop, new or resumed; `weights` are those of the terms in the loss."""
        config, world = self.config, run.world
        vocabulary = Vocabulary.of(self.tokenizer)
        held_out = [config.data(self.store, "validation", vocabulary, phase.length) for phase in config.phases]

        def evaluate_now(progress: TrainerState) -> dict[str, float]:
            """During training at the current phase's length, because the model has not yet been trained on longer ones.

            At the end, and where scores are compared to keep the best weights, at the last phase's.
            """
            over = config.loop.budget_used(progress) >= 1
            if over:
                run.say(f"evaluating on at most {config.eval_batches} held-out batches")
            data = held_out[-1 if over or config.loop.keep_best else progress.phase]
            return evaluate(model, objective, data.batches(64, config.eval_batches), world)

        def save_snapshot(step: int) -> None:
            if step in config.snapshots and world.main:
                folder, facts = run.out / "snapshots" / f"step-{step}", {"kind": "pretrain", "steps": step}
                save_folder(folder, model, self.tokenizer, facts)

        for phase in config.phases:
            mine = -(-phase.batch_size // world.size)
            check_memory(model.config, min(phase.micro_batch_size or mine, mine), phase.length, world.device)
        feed = PretrainingFeed(config, self.store, vocabulary, world)
        optimizer = Optimizer(model.to(world.device), config.optim)
        loop = TrainingLoop(
            Trainer(model, objective, feed, optimizer, world, config.loop, weights or {}),
            run.out,
            run.identity.hash,
            evaluate=evaluate_now,
            after_step=save_snapshot,
            at_end=feed.close,
            watch=run.watch,
            quiet=run.quiet,
        )
        resume_run(run, loop)
        return loop

    def describe(self, loop: TrainingLoop) -> list[str]:
        """What is about to run, for a person to check before hours are spent."""
        config = self.config
        parameters = sum(p.numel() for p in loop.trainer.model.parameters())
        tokens = sum(shard.n_tokens for shard in self.store.shards("train"))
        kept = config.masking.kept_share if config.objective_spec.masked else 0.0
        return [
            f"model: {counted(config.model.num_hidden_layers, 'layer')}, width {config.model.hidden_size}, "
            f"{parameters:,} parameters; corpus: {tokens:,} tokens",
            f"device {loop.trainer.world.device}, {counted(loop.trainer.world.size, 'process')}, "
            f"matrix products in {loop.trainer.dtype}".replace("torch.", "")
            + (", compiled kernels" if loop.progress.kernels else ""),
            plateau(self.store.unigram_entropy(), kept),
            f"budget: {config.loop.budget()}; the lines of training say the time left",
        ]

    def results(self, kind: str, run: Run, loop: TrainingLoop) -> dict[str, Any]:
        """What results.json has."""
        final = loop.metrics
        if loop.has_reloaded and loop.evaluate:
            final = loop.evaluate(loop.progress)
        facts = run_facts(run, loop)
        found = {"kind": kind, "metrics": final | {"unigram_entropy": self.store.unigram_entropy()}}
        return found | facts | {"instances": loop.progress.instances, "corpus": self.store.fingerprint}

    def save(
        self, run: Run, loop: TrainingLoop, results: dict[str, Any], origin: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Write the model folder, with the results and its `origin` in its card; returns the results."""
        model = loop.trainer.model
        assert isinstance(model, Model)
        if run.world.main:
            save_folder(run.out / "model", model, self.tokenizer, results | (origin or {}), None)
        return results


class PretrainingFeed:
    """The batches of each phase in turn: a pure function of the run's progress, whoever makes them."""

    def __init__(self, config: PretrainConfig, store: Store, vocabulary: Vocabulary, world: World):
        self.phases, self.world = config.phases, world
        smallest = min(p.batch_size for p in config.phases)
        if smallest < world.size:
            raise InputError(f"batch_size {smallest} is less than the {world.size} processes; give each of them a row")
        self.pinned = world.device.type == "cuda"  # a GPU copies from pinned memory while it computes
        workers = config.workers if config.workers >= 0 else GPU_WORKERS if self.pinned else 0
        self.source = BatchesAhead([config.data(store, "train", vocabulary, p.length) for p in config.phases], workers)

    def __call__(self, progress: TrainerState, budget_used: float) -> AccumulationBatch:
        """The next batch; a new phase begins at the start of its own stream."""
        phase = self.phase_at(budget_used)
        position = Position(progress.group, progress.offset) if phase == progress.phase else Position()
        rows = self.micro_batches(self.phases[phase])
        made, after = self.source.take(Asked(phase, position, self.phases[phase].batch_size, rows))
        batches = [as_tensors(batch, self.pinned) for batch in made]
        starts = [part.start for part in rows]
        return AccumulationBatch([*zip(batches, starts, strict=True)], (phase, after.group, after.offset))

    def micro_batches(self, phase: Phase) -> tuple[range, ...]:
        """The rows of the batch that each micro-batch of this process has."""
        mine, micro = self.world.local_range(phase.batch_size), phase.micro_batch_size or phase.batch_size
        return tuple(range(start, min(start + micro, mine.stop)) for start in mine[::micro])

    def phase_at(self, budget_used: float) -> int:
        """The phase that is on when this fraction of the budget is used."""
        end = 0.0
        for i, phase in enumerate(self.phases):
            end += phase.share
            if budget_used < end - 1e-9:
                return i
        return len(self.phases) - 1

    def close(self) -> None:
        """End the processes that make batches."""
        self.source.close()


def check_padding(model: ModelConfig, pad: int) -> None:
    """Raises InputError if config.json would name another padding than the tokenizer's."""
    if model.pad_token_id == pad:
        return
    flags, reason = f"--model.pad-token-id {pad}", ""
    if model.family == "roberta":
        longest = model.max_length + pad + 1
        flags += f" --model.position-offset {pad + 1} --model.max-position-embeddings {longest}"
        reason = "RoBERTa's positions begin behind it, so "
    raise InputError(
        f"the recipe's model.pad_token_id is {model.pad_token_id}, the corpus's tokenizer pads with {pad}; "
        f"{reason}give {flags}"
    )


def start_model(config: PretrainConfig, init: Path | None, quiet: bool = False) -> Model:
    """Fresh weights, or those of a model folder to continue from. quiet: do not print what else is fresh or unused."""
    if init is None:
        return build_model(config.model, config.heads, seed=config.loop.seed)
    theirs = dataclasses.asdict(read_config(init)[0])
    if unlike := [f"{k}: {theirs[k]!r} there, {v!r} here" for k, v in vars(config.model).items() if theirs[k] != v]:
        raise InputError(
            f"{init} holds a model of another shape ({'; '.join(unlike)}); leave these out, since the run takes the "
            "shape of the model that it starts from"
        )
    start = initial_model(init, config.heads, labels=0, seed=config.loop.seed)
    if is_first() and not quiet:
        if start.fresh:
            print(f"heads that {init} lacks begin with fresh weights: {', '.join(start.fresh)}", file=sys.stderr)
        if start.unused:
            print(f"in {init}, not used: {', '.join(start.unused)}", file=sys.stderr)
    return start.model


def plateau(entropy: float, kept: float) -> str:
    """The losses, in nats, at which a language model has learned nothing of contexts yet (docs/results.md)."""
    copies = f", near {entropy * (1 - kept):.2f} also copies of the tokens that masking kept" if 0 < kept < 1 else ""
    return f"unigram entropy of the corpus {entropy:.3f} nats: a loss near it has word frequencies only{copies}"
