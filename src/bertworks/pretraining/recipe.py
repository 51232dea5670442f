"""Recipes of pre-training (paper 3.1, A.2; its comparators, 5.1), distillation (Sanh et al. 2019), and word2vec."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..config import check_least
from ..data.batches import PretrainingData, Vocabulary
from ..data.instances import InstanceConfig
from ..data.masking import MaskingConfig
from ..data.store import Store
from ..files import InputError, shorten
from ..model.config import HeadName, ModelConfig
from ..training.config import MAX_BATCH_SIZE, OBJECTIVES, LoopConfig, ObjectiveName, ObjectiveSpec, OptimConfig
from ..training.identity import RunIdentity


@dataclass(frozen=True)
class Phase:
    """A part of the run at one sequence length."""

    length: int = 128  # tokens of an instance, [CLS] and both [SEP] included
    budget_fraction: float = 1.0  # fraction of the run's budget
    batch_size: int = 256  # instances per update, over all processes and micro-batches
    micro_batch_size: int = 0  # instances per forward pass; 0: all of the batch that the process has

    def __post_init__(self) -> None:
        check_least(self, ("budget_fraction",), 0)
        if self.batch_size > MAX_BATCH_SIZE:
            raise ValueError(f"batch_size = {shorten(self.batch_size)}; expected at most {MAX_BATCH_SIZE:,} per update")
        check_least(self, ("batch_size",), 1)
        check_least(self, ("micro_batch_size",), 0, "as many as the process has of the batch")


@dataclass(frozen=True)
class PretrainConfig:
    """A pre-training recipe."""

    objective: ObjectiveName = "mlm+nsp"  # ltr, rtl: every token is a prediction
    model: ModelConfig = field(default_factory=ModelConfig)
    instances: InstanceConfig = field(default_factory=InstanceConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    # initialization of the masked-LM head's bias: zero (BERT), or the logarithm of each token's frequency in the store
    output_bias: Literal["zero", "frequencies"] = "zero"
    phases: tuple[Phase, ...] = (Phase(),)
    eval_batches: int = 40  # held-out batches per evaluation
    snapshots: tuple[int, ...] = ()  # steps after which the model is kept as a folder: snapshots/step-N
    # processes that make batches ahead of training, for each training process; 0: it makes them itself; -1: 2 on a GPU,
    # 0 on a CPU
    workers: int = -1

    def __post_init__(self) -> None:
        check_least(self, ("eval_batches",), 1)
        check_least(self, ("workers",), -1, "2 on a GPU, 0 on a CPU")
        direction = self.objective_spec.direction
        if self.model.direction != direction:
            raise ValueError(
                f"objective = {self.objective!r} with model.direction = {self.model.direction!r}; expected "
                f"{direction!r}"
            )
        if self.objective_spec.pair and not self.instances.has_pairs:
            raise ValueError(
                f"objective = {self.objective!r} with instances.input_format = {self.instances.input_format!r}, which "
                "has no second segment; expected 'mlm', or a format of pairs"
            )
        if self.instances.sentence_order and self.objective_spec.pair != "sop":
            raise ValueError(f"instances.sentence_order with objective = {self.objective!r}; expected 'mlm+sop'")
        if abs((total := sum(p.budget_fraction for p in self.phases)) - 1) > 1e-6:
            raise ValueError(f"the phases' budget_fraction adds up to {total}; expected 1")
        if self.snapshots and not 0 < min(self.snapshots) <= max(self.snapshots) <= (self.loop.steps or 1 << 60):
            last = self.loop.steps or "the end"
            raise ValueError(f"snapshots = {list(self.snapshots)}; expected steps of the run, from 1 to {last}")
        for phase in self.phases:
            if not 5 <= phase.length <= self.model.max_length:
                raise ValueError(
                    f"phase of length {phase.length}; expected 5 to {self.model.max_length}, the longest that the "
                    "model's positions allow"
                )

    def of_shape(self, init: Path) -> "PretrainConfig":
        """This recipe for the model of a model folder or run folder, with its shape and dropout.

        Raises InputError if the folder is incomplete, or has too few positions for a phase.
        """
        from ..checkpoint.folder import find_model, read_config

        folder = find_model(init)
        try:
            return dataclasses.replace(self, model=read_config(folder)[0])
        except ValueError as error:
            raise InputError(f"{folder}: {error}; take a recipe with shorter phases") from None

    @property
    def objective_spec(self) -> ObjectiveSpec:
        """What the objective needs of model and batches."""
        return OBJECTIVES[self.objective]

    @property
    def heads(self) -> tuple[HeadName, ...]:
        return self.objective_spec.heads

    @property
    def metrics(self) -> list[str]:
        """What an evaluation measures."""
        return [f"{term}_{measure}" for term in self.objective_spec.terms for measure in ("loss", "accuracy")]

    def data(self, store: Store, split: str, vocabulary: Vocabulary, length: int) -> PretrainingData:
        """The instances of one split at one length; without masks for a language model.

        Held-out text is always masked the paper's way, so that the losses of runs with other masks can be compared.
        """
        masking: MaskingConfig | None = self.masking if split == "train" else MaskingConfig()
        if not self.objective_spec.masked:
            masking = None
        instances = dataclasses.replace(self.instances, sentence_order=self.objective_spec.pair == "sop")
        return PretrainingData(store, split, vocabulary, length, instances, masking, self.loop.seed)

    def identity(self, store: Store, init: Path | None = None) -> RunIdentity:
        """What determines the outcome of a run: settings, store, weights to continue from."""
        from ..checkpoint.locate import find_model
        from ..checkpoint.weights import weights_checksum

        initial = () if init is None else (weights_checksum(find_model(init)),)
        return RunIdentity(self, (store.fingerprint, *initial))


@dataclass(frozen=True)
class DistillConfig:
    """A recipe of distillation. The defaults are DistilBERT's."""

    # the teacher's layers, from 0, whose weights the student starts with; none: every second one
    layers: tuple[int, ...] = ()
    temperature: float = 2.0  # temperature of both softmaxes in the loss against the teacher's distribution
    # tokens at which the student learns the teacher's distribution: only the masked tokens, or all tokens
    soft_targets: Literal["masked", "all"] = "masked"
    soft_weight: float = 5.0  # weight in the loss of the divergence from the teacher's distribution
    mlm_weight: float = 2.0  # weight in the loss of the masked LM
    cosine_weight: float = 1.0  # weight in the loss of 1 - cosine of the two last layers' vectors, over all tokens
    instances: InstanceConfig = field(default_factory=lambda: InstanceConfig(0.0, 0, "full-sentences"))
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            5e-4, "adamw", (0.9, 0.98), weight_decay=0.0, max_grad_norm=5.0, warmup=0.05, schedule="hf"
        )
    )
    loop: LoopConfig = field(default_factory=LoopConfig)
    phases: tuple[Phase, ...] = (Phase(),)
    eval_batches: int = 40  # held-out batches per evaluation
    # processes that make batches ahead of training, for each training process; 0: it makes them itself; -1: 2 on a GPU,
    # 0 on a CPU
    workers: int = -1

    def __post_init__(self) -> None:
        weights = self.weights.values()
        check_least(self, ("workers",), -1, "2 on a GPU, 0 on a CPU")
        if self.temperature <= 0 or min(weights) < 0 or not any(weights):
            raise ValueError(
                f"temperature = {self.temperature}, weights {', '.join(map(str, weights))}; expected a temperature "
                "above 0 and weights of 0 or more, not all of them 0"
            )

    @property
    def weights(self) -> dict[str, float]:
        """Of the terms of the loss."""
        return {"soft": self.soft_weight, "mlm": self.mlm_weight, "cosine": self.cosine_weight}

    def pretraining(self, student: ModelConfig) -> PretrainConfig:
        """The run as one of pre-training. Raises InputError if the recipe does not fit the student."""
        same = ("instances", "masking", "optim", "loop", "phases", "eval_batches", "workers")
        try:
            return PretrainConfig("mlm", student, **{name: getattr(self, name) for name in same})
        except ValueError as error:
            raise InputError(str(error)) from None


@dataclass(frozen=True)
class StaticConfig:
    """How word2vec is trained; the defaults are gensim's, but for width and the direction of prediction."""

    width: int = 256  # width of a vector
    window: int = 5  # number of tokens on each side that a token predicts
    negative: int = 5  # number of negative samples for each prediction
    epochs: int = 5  # passes over the corpus store
    min_count: int = 5  # tokens that occur less often get no vector
    seed: int = 1  # random seed; only one thread gives the same vectors again
    threads: int = 1  # number of training threads

    def __post_init__(self) -> None:
        check_least(self, ("width", "window", "negative", "epochs", "min_count", "threads"), 1)
        check_least(self, ("seed",), 0)
