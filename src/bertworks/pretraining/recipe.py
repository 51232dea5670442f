"""The recipe of pre-training (paper 3.1, A.2; its comparators, 5.1). Importing this file loads no torch."""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from ..bounds import check_least
from ..data.batches import PretrainingData, Vocabulary
from ..data.instances import InstanceConfig
from ..data.masking import MaskingConfig
from ..data.store import Store
from ..files import shorten
from ..model.config import HeadName, ModelConfig
from ..training.config import MAX_BATCH_SIZE, OBJECTIVES, LoopConfig, ObjectiveName, ObjectiveSpec, OptimConfig


@dataclass(frozen=True)
class Phase:
    """A part of the run at one sequence length."""

    length: int = 128  # tokens of an instance, [CLS] and both [SEP] included
    budget_fraction: float = 1.0  # fraction of the run's budget
    batch_size: int = 256  # instances (sequences) per update, over all processes and micro-batches
    micro_batch_size: int = 0  # instances per forward pass; 0: the whole batch of the process

    def __post_init__(self) -> None:
        check_least(self, ("budget_fraction",), 0)
        if self.batch_size > MAX_BATCH_SIZE:
            raise ValueError(f"batch_size = {shorten(self.batch_size)}; expected at most {MAX_BATCH_SIZE:,} per update")
        check_least(self, ("batch_size",), 1)
        check_least(self, ("micro_batch_size",), 0, "as many as the process has of the batch")

    def tokens_of_pass(self, processes: int) -> int:
        """The tokens of a forward pass, padding included, in the process that has most rows of a batch."""
        rows = -(-self.batch_size // processes)
        return self.length * min(self.micro_batch_size or rows, rows)


@dataclass(frozen=True)
class PretrainConfig:
    """A pre-training recipe."""

    # what is learned: masked tokens (mlm), next sentence (nsp), sentence order (sop), or every token from those before
    # (ltr) or after it (rtl)
    objective: ObjectiveName = "mlm+nsp"
    model: ModelConfig = field(default_factory=ModelConfig)
    instances: InstanceConfig = field(default_factory=InstanceConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    # initialization of the masked-LM head's bias: zero (BERT), or the logarithm of each token's frequency in the store
    output_bias: Literal["zero", "frequencies"] = "zero"
    phases: tuple[Phase, ...] = (Phase(),)
    eval_batches: int = 40  # held-out batches per evaluation
    snapshots: tuple[int, ...] = ()  # steps after which the model is also saved, as snapshots/step-N
    # processes that prepare batches in advance, per training process; 0: the training process does; -1: 2 on a GPU, 0
    # on a CPU
    workers: int = -1

    def __post_init__(self) -> None:
        check_least(self, ("eval_batches",), 1)
        check_least(self, ("workers",), -1, "2 on a GPU, 0 on a CPU")
        objective, spec = f"objective = {self.objective!r}", self.objective_spec
        if self.model.direction != spec.direction:
            found = f"{objective} with model.direction = {self.model.direction!r}"
            raise ValueError(f"{found}; expected {spec.direction!r}")
        if spec.pair and not self.instances.has_pairs:
            found = f"{objective} with instances.input_format = {self.instances.input_format!r}"
            raise ValueError(f"{found}, which has no second segment; expected 'mlm', or a format of pairs")
        if self.instances.sentence_order and spec.pair != "sop":
            raise ValueError(f"instances.sentence_order with {objective}; expected 'mlm+sop'")
        if abs((total := sum(p.budget_fraction for p in self.phases)) - 1) > 1e-6:
            raise ValueError(f"the phases' budget_fraction adds up to {total}; expected 1")
        if self.snapshots and not 0 < min(self.snapshots) <= max(self.snapshots) <= (self.loop.steps or 1 << 60):
            last = self.loop.steps or "the end"
            raise ValueError(f"snapshots = {list(self.snapshots)}; expected steps of the run, from 1 to {last}")
        for phase in self.phases:
            if not 5 <= phase.length <= self.model.max_length:
                expected = f"5 to {self.model.max_length}, the longest that the model's positions allow"
                raise ValueError(f"phase of length {phase.length}; expected {expected}")

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
