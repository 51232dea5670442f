"""The recipe of distillation (Sanh et al. 2019). Importing this file loads no torch."""

from dataclasses import dataclass, field
from typing import Literal

from ..bounds import check_least
from ..data.instances import InstanceConfig
from ..data.masking import MaskingConfig
from ..files import InputError
from ..model.config import ModelConfig
from ..training.config import LoopConfig, OptimConfig
from .recipe import Phase, PretrainConfig


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
            found = f"temperature = {self.temperature}, weights {', '.join(map(str, weights))}"
            raise ValueError(f"{found}; expected a temperature above 0 and weights of 0 or more, not all of them 0")

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
