"""Pre-training: a store and a recipe become a model folder (paper 3.1, A.2; its comparators, 5.1).

The run folder holds recipe.toml (resolved), log.jsonl, state/ (resume), model/ (the result), snapshots/ (models of
earlier steps, if asked for) and results.json. Rerunning the command resumes; a finished run is left as it is.
"""

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from ..checkpoint.folder import find_model, is_padded, read_config, save_folder
from ..checkpoint.start import initial_model
from ..checkpoint.weights import weights_checksum
from ..config import check_least, identities, to_toml
from ..data.batches import PretrainingData, Vocabulary
from ..data.instances import InstanceConfig, Position
from ..data.masking import MaskingConfig
from ..data.store import Store
from ..files import InputError, write_text
from ..model.config import ModelConfig
from ..model.heads import HeadName, Model, build_model
from ..model.prepare import compile_layers
from ..reporting.log import duration
from ..reporting.run_files import RESULTS
from ..tokenizer import Tokenizer
from ..training import machine
from ..training.identity import RECIPE, RunIdentity
from ..training.loop import Group, Loop, LoopConfig, evaluate
from ..training.objectives import LanguageModelObjective, Objective, PairName, PretrainingObjective
from ..training.optim import OptimConfig, Optimizer
from ..training.run import STATE_FOLDER, is_finished, opened_run, write_results
from ..training.state import Progress, resume


@dataclass(frozen=True)
class Phase:
    """A part of the run at one sequence length."""

    length: int = 128  # tokens of an instance, [CLS] and both [SEP] included
    share: float = 1.0  # of the budget
    batch_size: int = 256  # instances an update, over all processes and micro-batches
    micro_batch_size: int = 0  # instances a forward pass; 0: as many as the process has of the batch

    def __post_init__(self) -> None:
        check_least(self, ("share",), 0)
        check_least(self, ("batch_size",), 1)
        check_least(self, ("micro_batch_size",), 0, "as many as the process has of the batch")


SIDES = {"ltr": "left", "rtl": "right"}  # what the encoder of a language model sees


@dataclass(frozen=True)
class PretrainConfig:
    """A pre-training recipe."""

    objective: Literal["mlm+nsp", "mlm+sop", "mlm", "ltr", "rtl"] = "mlm+nsp"  # ltr, rtl: every token is a prediction
    model: ModelConfig = field(default_factory=ModelConfig)
    instances: InstanceConfig = field(default_factory=InstanceConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    phases: tuple[Phase, ...] = (Phase(),)
    eval_batches: int = 40  # held-out batches an evaluation
    snapshots: tuple[int, ...] = ()  # steps after which the model is kept as a folder: snapshots/step-N

    def __post_init__(self) -> None:
        check_least(self, ("eval_batches",), 1)
        side = SIDES.get(self.objective, "both")
        if self.model.direction != side:
            raise ValueError(
                f"objective = {self.objective!r} with model.direction = {self.model.direction!r}; expected {side!r}"
            )
        if self.pair and not self.instances.has_pairs:
            raise ValueError(
                f"objective = {self.objective!r} with instances.input_format = {self.instances.input_format!r}, which "
                "has no second segment; expected 'mlm', or a format of pairs"
            )
        if self.instances.sentence_order and self.pair != "sop":
            raise ValueError(f"instances.sentence_order with objective = {self.objective!r}; expected 'mlm+sop'")
        if abs(sum(p.share for p in self.phases) - 1) > 1e-6:
            raise ValueError(f"the phases' shares add up to {sum(p.share for p in self.phases)}; expected 1")
        if self.snapshots and not 0 < min(self.snapshots) <= max(self.snapshots) <= (self.loop.steps or 1 << 60):
            last = self.loop.steps or "its end"
            raise ValueError(
                f"snapshots = {list(self.snapshots)}; expected steps of the run, 1 to {last}; give --snapshots with "
                "steps of your own, or --snapshots without a number for none"
            )
        for phase in self.phases:
            if not 5 <= phase.length <= self.model.max_length:
                raise ValueError(
                    f"phase of length {phase.length}; expected 5 to {self.model.max_length}, the longest that the "
                    "model's positions allow"
                )

    @property
    def pair(self) -> PairName | None:
        """What is learned of pairs of segments."""
        return "nsp" if self.objective == "mlm+nsp" else "sop" if self.objective == "mlm+sop" else None

    @property
    def heads(self) -> tuple[HeadName, ...]:
        return ("mlm", self.pair) if self.pair else ("mlm",)

    @property
    def predicts(self) -> Objective:
        """The objective itself."""
        if self.objective in SIDES:
            return LanguageModelObjective("left" if self.objective == "ltr" else "right")
        return PretrainingObjective(self.pair)

    @property
    def metrics(self) -> list[str]:
        """What an evaluation measures."""
        terms = (self.objective,) if self.objective in SIDES else self.heads
        return [f"{term}_{what}" for term in terms for what in ("loss", "accuracy")]

    def data(self, store: Store, split: str, vocabulary: Vocabulary, length: int) -> PretrainingData:
        """The instances of one split at one length; without masks for a language model.

        Held-out text is always masked the paper's way, so that the losses of runs with other masks can be compared.
        """
        masking = self.masking if split == "train" else MaskingConfig()
        seed, lm = self.loop.seed, self.objective in SIDES
        instances = dataclasses.replace(self.instances, sentence_order=self.pair == "sop")
        return PretrainingData(store, split, vocabulary, length, instances, None if lm else masking, seed)

    def identity(self, store: Store, init: Path | None = None) -> RunIdentity:
        """What determines the outcome of a run: settings, store, weights to continue from."""
        begun = () if init is None else (weights_checksum(find_model(init)),)
        return run_identity(self, store.fingerprint, *begun)


def run_identity(config: Any, *reads: str) -> RunIdentity:
    """The identity of a run with this recipe, which reads what has these checksums."""
    rhythm = dataclasses.replace(config.loop, log_every=0, eval_every=0, save_every=0)
    fixed = dataclasses.replace(config, loop=rhythm, **({"snapshots": ()} if hasattr(config, "snapshots") else {}))
    return RunIdentity(config, reads, before_schemas="".join([identities(fixed).get(1, ""), *reads]))


class PretrainingFeed:
    """The batches of each phase in turn: a pure function of the run's progress."""

    def __init__(self, config: PretrainConfig, store: Store, vocabulary: Vocabulary, world: machine.World):
        self.phases, self.world = config.phases, world
        self.data = [config.data(store, "train", vocabulary, p.length) for p in config.phases]
        for p in config.phases:
            if p.batch_size % world.size:
                raise InputError(f"batch_size {p.batch_size} is not divisible by the {world.size} processes")

    def __call__(self, progress: Progress, share: float) -> Group:
        """The next group; a new phase begins at the start of its own stream."""
        phase = self.phase_at(share)
        position = Position(progress.window, progress.offset) if phase == progress.phase else Position()
        size, micro = self.phases[phase].batch_size, self.phases[phase].micro_batch_size
        mine = size // self.world.size
        first, micro = mine * self.world.rank, micro or mine
        made = []
        for start in range(first, first + mine, micro):
            rows = range(start, min(start + micro, first + mine))
            batch, after = self.data[phase].take(position, size, rows)
            made.append((batch, start))
        return Group(made, (phase, after.group, after.offset))

    def phase_at(self, share: float) -> int:
        """The phase that is on when `share` of the budget is used."""
        end = 0.0
        for i, phase in enumerate(self.phases):
            end += phase.share
            if share < end - 1e-9:
                return i
        return len(self.phases) - 1


def useful_flops(config: PretrainConfig) -> float:
    """Operations a real token, both ways: 6 for each weight of the layers, and of the LM head for each prediction.

    Shared layers count as often as they are used.
    """
    model, D, E = config.model, config.model.hidden_size, config.model.embedding_width
    with torch.device("meta"):
        unshared = build_model(dataclasses.replace(model, shared_layers="none"), ("mlm",))
        layers = sum(p.numel() for p in unshared.encoder.layers.parameters())
    predicted = 1.0 if config.objective in SIDES else config.masking.masked_lm_prob
    return 6.0 * (layers + predicted * (model.vocab_size * E + D * E))


def pretrain(
    config: PretrainConfig, corpus: Path, out: Path, init: Path | None = None, quiet: bool = False
) -> dict[str, Any] | None:
    """Train or resume, and write the run folder; returns its results, or None if stopped before the end."""
    config.loop.check(config.metrics)
    machine.prepare_process()
    store = Store.open(corpus, verify=not is_finished(out))
    store.check_unknown()
    tokenizer = store.load_tokenizer()
    padded = init is not None and is_padded(config.model.vocab_size, store.vocab_size)  # its table is as it is
    if config.model.vocab_size != store.vocab_size and not padded:
        raise InputError(
            f"the recipe's model.vocab_size is {config.model.vocab_size}, the corpus was built with a vocabulary of "
            f"{store.vocab_size}; give --model.vocab-size {store.vocab_size} or build the corpus with the other "
            "tokenizer"
        )
    if init is None or config.model.family == "roberta":  # what others trained may name another one
        check_padding(config.model, tokenizer.pad_id)
    identity = config.identity(store, init)
    with machine.joined_world() as world, opened_run(out, identity, world) as results:
        run = Run(config, store, tokenizer, out, world, identity, quiet)
        if results is not None:
            return left_alone(run, results)
        loop = prepare(run, start_model(config, init), config.predicts)
        return finish(run, loop, summary("pretrain", run, loop)) if train(run, loop) else None


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


@dataclass(frozen=True)
class Run:
    """What a run over a store is made of, beside its model and what that learns."""

    config: PretrainConfig
    store: Store
    tokenizer: Tokenizer
    out: Path
    world: machine.World
    identity: RunIdentity
    quiet: bool = False


def prepare(run: Run, model: Model, objective: Objective, resolved: Any = None) -> Loop:
    """The loop of this run, at the step where an earlier segment left it.

    resolved: the recipe as it is written to recipe.toml, if it is another one than `run.config`.
    """
    config, world, out = run.config, run.world, run.out
    optimizer = Optimizer(model.to(world.device), config.optim)
    world.agree(corpus=run.store.fingerprint)
    progress = resume(out / STATE_FOLDER, model, optimizer, run.identity, world)
    if world.main:
        write_text(out / RECIPE, to_toml(config if resolved is None else resolved))
    if machine.should_compile(config.loop.compile, world.device):
        compile_layers(model.encoder)
    vocabulary = Vocabulary.of(run.tokenizer)
    held_out = [config.data(run.store, "validation", vocabulary, phase.length) for phase in config.phases]

    def judge() -> dict[str, float]:
        """At the length that is trained now, since a model knows nothing of longer ones.

        At the end, and where scores are compared to keep the best, at the last phase's.
        """
        last = config.loop.keep_best or config.loop.share(loop.progress) >= 1
        data = held_out[-1 if last else loop.progress.phase]
        return evaluate(model, objective, data.batches(64, config.eval_batches), world)

    def keep(step: int) -> None:
        if step in config.snapshots and world.main:
            save_folder(out / "snapshots" / f"step-{step}", model, run.tokenizer, {"kind": "pretrain", "steps": step})

    dtype = machine.compute_dtype(config.loop.precision, world.device)
    loop = Loop(
        model,
        objective,
        PretrainingFeed(config, run.store, vocabulary, world),
        optimizer,
        world,
        config.loop,
        out,
        run.identity.hash,
        progress,
        evaluate=judge,
        after_step=keep,
        flops_per_token=useful_flops(config),
        matmul_peak=machine.matmul_peak(world.device, dtype),
        quiet=run.quiet,
    )
    return loop


def left_alone(run: Run, results: dict[str, Any]) -> dict[str, Any]:
    """The results of a finished run, which is reported."""
    _say(run, f"{run.out} is finished; see {run.out / RESULTS}")
    return results


def train(run: Run, loop: Loop) -> bool:
    """Say what is about to run, and run it; returns whether it came to its end."""
    if not run.quiet and run.world.main:
        for line in describe(run.config, run.store, loop):
            print(line, file=sys.stderr)
    ended = loop.run()
    if not ended:
        _say(run, f"stopped at step {loop.progress.step:,}, saved; rerun the command to resume")
    return ended


def start_model(config: PretrainConfig, init: Path | None) -> Model:
    """Fresh weights, or those of a model folder to continue from."""
    if init is None:
        return build_model(config.model, config.heads, seed=config.loop.seed)
    theirs = dataclasses.asdict(read_config(init)[0])
    if unlike := [f"{k}: {theirs[k]!r} there, {v!r} here" for k, v in vars(config.model).items() if theirs[k] != v]:
        raise InputError(
            f"{init} holds a model of another shape than the recipe's [model] ({'; '.join(unlike)}); make them equal"
        )
    start = initial_model(init, config.heads, labels=0, seed=config.loop.seed)
    if start.fresh:
        print(f"not in {init}, started anew: {', '.join(start.fresh)}", file=sys.stderr)
    if start.unused:
        print(f"in {init}, left out: {', '.join(start.unused)}", file=sys.stderr)
    return start.model


def describe(config: PretrainConfig, store: Store, loop: Loop) -> list[str]:
    """What is about to run, for a person to check before hours are spent."""
    parameters = sum(p.numel() for p in loop.model.parameters())
    tokens = sum(shard.n_tokens for shard in store.shards("train"))
    lines = [
        f"model: {config.model.num_hidden_layers} layers, width {config.model.hidden_size}, "
        f"{parameters:,} parameters; corpus: {tokens:,} tokens",
        f"device {loop.world.device}, {loop.world.size} process(es), "
        f"matrix products at {loop.matmul_peak / 1e9:,.0f} GFLOP/s at best",
        plateau(store.unigram_entropy(), 0.0 if config.objective in SIDES else config.masking.kept_share),
    ]
    if loop.progress.step:
        lines.append(f"resuming at step {loop.progress.step:,} after {duration(loop.progress.seconds)}")
    return lines


def plateau(entropy: float, kept: float) -> str:
    """The losses, in nats, at which a language model has learned nothing of contexts yet (docs/results.md)."""
    copies = f", near {entropy * (1 - kept):.2f} also copies of the tokens that masking kept" if 0 < kept < 1 else ""
    return f"unigram entropy of the corpus {entropy:.3f} nats: a loss near it has word frequencies only{copies}"


def summary(kind: str, run: Run, loop: Loop) -> dict[str, Any]:
    """What results.json says of a run over a store."""
    progress, final = loop.progress, loop.metrics
    if loop.config.keep_best and loop.evaluate:  # the kept weights are not the last ones
        final = loop.evaluate()
    return {
        "kind": kind,
        "metrics": final | {"unigram_entropy": run.store.unigram_entropy()},
        "steps": progress.step,
        "tokens": progress.tokens,
        "instances": progress.instances,
        "seconds": progress.seconds,
        "seed": run.config.loop.seed,
        "processes": run.world.size,
        "corpus": run.store.fingerprint,
        "recipe": loop.recipe,
        "machine": machine.facts(),
    }


def finish(run: Run, loop: Loop, results: dict[str, Any]) -> dict[str, Any]:
    """Write the model folder, then results.json, which marks the run as finished."""
    assert isinstance(loop.model, Model)
    if run.world.main:
        save_folder(run.out / "model", loop.model, run.tokenizer, results, None)
    return write_results(run.out, results, run.world)


def _say(run: Run, text: str) -> None:
    if not run.quiet and run.world.main:
        print(text, file=sys.stderr)
