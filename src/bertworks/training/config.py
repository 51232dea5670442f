"""The training settings of every recipe (paper, A.2), the objectives of pre-training by name, a run's progress.

Importing this file loads no torch.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from ..bounds import check_least, check_seed
from ..files import InputError
from ..model.config import HeadName

T = TypeVar("T", bound=Any)  # a recipe, with a `loop`
MAX_BATCH_SIZE = 1 << 20  # all rows of an update are drawn at once


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning rate."""

    lr: float = 1e-4  # peak learning rate
    # optimizer. bert_adam: the original code's, AdamW without bias correction; adamw: with it; albert_lamb: LAMB, also
    # without it; muon: Muon for the layers' matrices except query and key, AdamW for the rest
    rule: Literal["bert_adam", "adamw", "albert_lamb", "muon"] = "bert_adam"
    betas: tuple[float, float] = (0.9, 0.999)  # decay rates of Adam's first and second moment
    eps: float = 1e-6  # Adam's epsilon, added to the denominator
    weight_decay: float = 0.01  # weight decay of matrices and embeddings; biases and LayerNorm have none
    max_grad_norm: float = 1.0  # gradients are clipped to this global norm; 0: no clipping
    warmup: float = 0.01  # warm-up as a fraction of the run (the paper: 10,000 of 1,000,000 steps)
    # learning rate after the warm-up. google: the original code's linear decay, counted from step 0; hf: linear decay
    # from the end of the warm-up, as Hugging Face; trapezoid: constant, then linear decay; constant: no decay
    schedule: Literal["google", "hf", "trapezoid", "constant"] = "google"
    layer_decay: float | None = None  # factor of the learning rate from each layer to the one below it; none: 1
    muon_lr: float = 2e-3  # peak learning rate of the matrices that Muon updates
    warmup_updates: int = 0  # minimum number of updates in the warm-up
    decay: float = 0.4  # trapezoid: fraction of the run, at its end, in which the learning rate decays
    # with model.start = position-heads: number of first updates in which query and key have a tenth of the learning
    # rate, and word embeddings no gradient in the position subspace (docs/plateau.md)
    protected_updates: int = 0

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.muon_lr <= 0 or not 0 <= self.warmup < 1:
            found = f"lr = {self.lr}, muon_lr = {self.muon_lr}, warmup = {self.warmup}"
            raise ValueError(f"{found}; expected learning rates above 0, and 0 <= warmup < 1")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas = {list(self.betas)}; expected numbers from 0 to below 1")
        for name in ("decay", "layer_decay"):
            if (value := getattr(self, name)) is not None and not 0 < value <= 1:
                raise ValueError(f"{name} = {value}; expected above 0 and at most 1")
        numbers = ("eps", "weight_decay", "max_grad_norm", "warmup_updates", "protected_updates")
        check_least(self, numbers, 0, of="optim")


@dataclass(frozen=True)
class LoopConfig:
    """Training budget, intervals and precision of a run."""

    # training budget in optimizer steps; 0: no limit in steps. A flag or an argument in Python that sets steps, tokens
    # or hours replaces all three of the recipe
    steps: int = 0
    tokens: int = 0  # training budget in tokens, padding not counted; 0: no limit in tokens
    # training budget in hours; resumed runs continue to count, compilation does not; 0: no limit in hours
    hours: float = 0.0
    seed: int = 12345  # random seed of initial weights, order of the data, masks and dropout; 0 to 2^63 - 1
    # number type of matrix products in training; weights and evaluation are always float32
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    # code that computes the layers; auto: packed on a CPU, graph on a GPU; packed: without padding, by C kernels on a
    # CPU (Linux, gcc), by torch.compile on a GPU; static: pre-training pads all batches of a phase to one shape, by
    # torch.compile on a GPU; graph: as static, and a CUDA graph repeats each pass; eager: plain PyTorch; reference:
    # model/bert.py as it is written (docs/heart.md)
    compute: Literal["auto", "packed", "static", "graph", "eager", "reference"] = "auto"
    log_every: int = 50  # write a record to log.jsonl every so many steps; 0: only at the end
    # evaluate every so many steps; 0: at the end, in fine-tuning after each epoch
    eval_every: int = 500
    # save a checkpoint every so many steps; 0: at the end and when stopped, in fine-tuning after each epoch
    save_every: int = 500
    # also save a checkpoint after so many minutes of training; 0: only by save_every
    save_minutes: float = 10.0
    max_skipped: int = 10  # stop after more consecutive updates than this with a loss or gradient that is not finite
    keep_best: str = ""  # save the weights with the best value of this evaluation metric; empty: the last weights

    def __post_init__(self) -> None:
        check_seed(self.seed)
        numbers = ("steps", "tokens", "hours", "log_every", "eval_every", "save_every", "save_minutes", "max_skipped")
        check_least(self, numbers, 0, of="loop")

    @property
    def budget(self) -> str:
        """The limits, in words; empty if there is none."""
        amounts = {"steps": f"{self.steps:,}", "tokens": f"{self.tokens:,}", "hours": f"{self.hours:.5g}"}
        limits = [f"{amount} {unit}" for unit, amount in amounts.items() if getattr(self, unit)]
        return " or ".join(limits) + ", whichever comes first" * (len(limits) > 1)

    def budget_used(self, progress: "TrainerState") -> float:
        """The fraction of the budget that is used, 0 to 1."""
        used = (progress.step, self.steps), (progress.tokens, self.tokens), (progress.seconds, 3600 * self.hours)
        return min(1.0, max(amount / budget if budget else 0.0 for amount, budget in used))

    def check(self, metrics: Sequence[str] = ()) -> None:
        """Raises InputError if the run would never end, or if `keep_best` is none of the `metrics`, where given."""
        if not self.budget:
            raise InputError("no budget: give one of loop.steps, loop.tokens, loop.hours")
        if self.keep_best and metrics and self.keep_best not in metrics:
            raise InputError(f"loop.keep_best = {self.keep_best!r}; expected one of {', '.join(metrics)}")


def without_budget(recipe: T, given: Collection[str]) -> T:
    """The recipe, without its budget if one of the `given` flags sets steps, tokens or hours, which replace it."""
    is_replaced = {"--loop.steps", "--loop.tokens", "--loop.hours"} & {*given}
    return replace(recipe, loop=replace(recipe.loop, steps=0, tokens=0, hours=0.0)) if is_replaced else recipe


# ---- objectives of pre-training by name; objectives.py computes the losses

ObjectiveName = Literal["mlm+nsp", "mlm+sop", "mlm", "ltr", "rtl"]
PairName = Literal["nsp", "sop"]


@dataclass(frozen=True)
class ObjectiveSpec:
    """What an objective requires of the rest of a recipe."""

    heads: tuple[HeadName, ...]  # of the model
    terms: tuple[str, ...]  # of the loss
    pair: PairName | None = None  # what is predicted about the two segments
    direction: Literal["both", "left", "right"] = "both"  # the context of a token
    masked: bool = True  # whether the batches are masked


OBJECTIVES: dict[ObjectiveName, ObjectiveSpec] = {
    "mlm+nsp": ObjectiveSpec(("mlm", "nsp"), ("mlm", "nsp"), pair="nsp"),
    "mlm+sop": ObjectiveSpec(("mlm", "sop"), ("mlm", "sop"), pair="sop"),
    "mlm": ObjectiveSpec(("mlm",), ("mlm",)),
    "ltr": ObjectiveSpec(("mlm",), ("ltr",), direction="left", masked=False),
    "rtl": ObjectiveSpec(("mlm",), ("rtl",), direction="right", masked=False),
}


# ---- progress


@dataclass
class TrainerState:
    """The progress of a run. `phase`, `group` and `offset` are the position of the next training instance.

    Where the next step begins another phase, that begins at its own position 0 (pretraining/run.py).
    """

    step: int = 0  # updates tried
    updates: int = 0  # updates made: fewer than steps if some were skipped as not finite
    phase: int = 0
    group: int = 0  # number of the block group, counted over all epochs
    offset: int = 0
    tokens: int = 0  # tokens read, without padding
    instances: int = 0
    seconds: float = 0.0  # of training, over all run segments
    skipped: int = 0  # updates skipped in a row
    best: float | None = None  # best score so far, where a run keeps its best weights
    since_best: int = 0  # evaluations since then
    # loss and predictions of each term since the last record of the log; the losses are those of this process
    loss_sums: dict[str, float] = field(default_factory=dict)
    loss_counts: dict[str, float] = field(default_factory=dict)
    lr: float = 0.0  # of the last update
    kernels: str = ""  # name of the compiled kernels that the last update used; empty: none
