"""The recipe of fine-tuning. The paper's settings are in its sections 3.2, 4.1 and A.3."""

import math
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..bounds import check_least, check_seed
from ..config import find_recipe, load_recipe, with_fields
from ..files import InputError, shorten
from ..model.config import NO_TOP, TopConfig
from ..tasks.base import LengthLimits, Task
from ..training.config import MAX_BATCH_SIZE, LoopConfig, OptimConfig, without_budget

OWN_TABLE_STEPS = 100  # `min_steps` for the user's own tables
LENGTHS = {"epochs", "loop.steps", "loop.tokens", "loop.hours"}  # fields that set the length of the training
MIN_STEPS_EVALUATIONS = 10  # evaluations of a run whose number of updates `min_steps` has set


@dataclass(frozen=True)
class FinetuneConfig(LengthLimits):
    """A fine-tuning recipe. The defaults are the original code's for GLUE."""

    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=5e-5, warmup=0.1))
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(eval_every=0, save_every=0))
    epochs: float = 3.0  # passes over the training examples; ignored if loop.steps, loop.tokens or loop.hours is given
    batch_size: int = 32  # examples per update, over all processes and micro-batches
    micro_batch_size: int = 0  # examples per forward pass; 0: the whole batch of the process
    dropout: float = 0.1  # dropout rate in encoder and classifier, in place of the model folder's
    length_window: int = 16  # examples are sorted by length within so many batches, to save padding; 1: not sorted
    random_init: bool = False  # start from random weights with the folder's architecture, to measure pre-training
    # weights to train: all; head: only the layers above the encoder (features, section 5.3); a number: that many top
    # layers of the encoder, and the head
    trained: Literal["all", "head"] | int = "all"
    top: TopConfig = NO_TOP  # what the head reads: encoder layers, an optional BiLSTM, the pooler
    # stop after so many evaluations without a new best of loop.keep_best; 0: no early stopping
    patience: int = 0
    # folder of a fine-tuned model to distil: train on its scores and the labels (classification, regression); empty: no
    # distillation
    teacher: str = ""
    # distillation: temperature of the softmax of both models' scores
    temperature: float = 2.0
    # distillation: weight of the teacher's scores in the loss, 0 to 1; the labels have the rest
    soft_share: float = 0.5
    # minimum number of updates, also if epochs gives fewer; 0: none. The default for your own table is 100, unless a
    # flag or recipe sets epochs, loop.steps, loop.tokens or loop.hours
    min_steps: int = 0
    seeds: tuple[int, ...] = ()  # one run per seed, with mean and standard deviation; none: one run with loop.seed

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size > MAX_BATCH_SIZE:
            raise ValueError(f"batch_size = {shorten(self.batch_size)}; expected at most {MAX_BATCH_SIZE:,} per update")
        check_least(self, ("batch_size", "length_window"), 1)
        check_least(self, ("patience", "min_steps"), 0)
        if not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs = {self.epochs}; expected a finite number above 0")
        if not 0 <= self.dropout < 1 or self.micro_batch_size < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError("expected dropout from 0 to below 1, micro_batch_size of 0 or more, seeds that differ")
        if isinstance(self.trained, int) and self.trained < 1:
            raise ValueError(f"trained = {self.trained}; expected all, head, or a whole number of layers from 1 on")
        check_seed(*self.seeds)
        if self.temperature <= 0 or not 0 <= self.soft_share <= 1:
            raise ValueError("expected a temperature above 0 and a soft_share from 0 to 1")

    def trained_layers(self, layers: int) -> int:
        """How many of so many layers are trained."""
        return self.trained if isinstance(self.trained, int) else {"all": layers, "head": 0}[self.trained]

    @classmethod
    def for_task(cls, task: Task) -> "FinetuneConfig":
        """The defaults, with what the task has different."""
        return with_fields(cls(), task.defaults)

    def resolved(self, examples: int, seed: int) -> "FinetuneConfig":
        """The recipe of one run: its seed and its number of steps."""
        loop, interval = self.loop, max(1, round(examples / self.batch_size))
        steps = loop.steps
        if not loop.budget:
            steps = self.steps_of(examples)
            if steps < self.min_steps:  # not every one of many tiny epochs is evaluated and saved
                steps, interval = self.min_steps, max(interval, self.min_steps // MIN_STEPS_EVALUATIONS)
        evals, saves = loop.eval_every or interval, loop.save_every or interval
        loop = replace(loop, seed=seed, steps=steps, eval_every=evals, save_every=saves)
        return replace(self, seeds=(), min_steps=0, loop=loop)

    def steps_of(self, examples: int) -> int:
        """Updates in `epochs` passes over so many rows, as run_classifier.py counts them."""
        return max(1, int(examples / self.batch_size * self.epochs))

    @property
    def whole_warmup(self) -> OptimConfig:
        """`optim` with a warm-up of whole updates, int(steps * warmup) as in run_classifier.py; below one it is none.

        The first update of a warm-up has the rate 0, there too: a run of few updates must not begin with one.
        """
        steps = self.loop.steps
        if not steps or self.loop.tokens or self.loop.hours:
            return self.optim
        return replace(self.optim, warmup=int(steps * self.optim.warmup) / steps)


# ---- the recipe of a command or of a call in Python


def starting_recipe(
    recipe: FinetuneConfig | Path | str | None, task: Task | None, given: Collection[str]
) -> FinetuneConfig:
    """The recipe that the `given` flags are put on: the task's defaults, then the recipe of this name or file.

    Own tables (no task) get at least OWN_TABLE_STEPS updates, unless the recipe or a flag says how long to train.
    """
    if isinstance(recipe, FinetuneConfig):
        return without_budget(recipe, given)
    base, named = FinetuneConfig.for_task(task) if task else FinetuneConfig(), set()
    if recipe:
        path = find_recipe(str(recipe), "finetune")
        base, table = load_recipe(path, FinetuneConfig, base), tomllib.loads(path.read_text(encoding="utf-8-sig"))
        named = {*table, *(f"loop.{key}" for key in table.get("loop", {}))}
    long_enough = named & {*LENGTHS, "min_steps"} or {f"--{name}" for name in LENGTHS} & {*given}
    return without_budget(base if task or long_enough else replace(base, min_steps=OWN_TABLE_STEPS), given)


Idle = tuple[object, set[str], str]
"""Whether flags are idle, which ones, and what to use instead."""


def idle_fields(config: FinetuneConfig) -> list[Idle]:
    """The flags that would change nothing beside others."""
    budget = config.loop.budget
    return [
        (config.seeds, {"--loop.seed"}, "seeds has the seeds of all runs; leave one out"),
        (budget, {"--epochs", "--min-steps"}, "loop.steps, loop.tokens or loop.hours is the budget; leave one out"),
        (not config.teacher, {"--temperature", "--soft-share"}, "there is no teacher; give its folder as teacher"),
    ]


def refuse_idle(conditions: Iterable[Idle], given: Collection[str]) -> None:
    """Raises InputError for a given flag that would change nothing, and says what to use instead."""
    for applies, flags, instead in conditions:
        if applies and (idle := sorted(flags & {*given})):
            names = ", ".join(flag.removeprefix("--").replace("-", "_") for flag in idle)
            raise InputError(f"{names} would have no effect: {instead}")
