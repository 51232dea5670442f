"""The settings of the demo. They are read without torch, so that the help of the verb is quick."""

from dataclasses import dataclass, field
from pathlib import Path

from ...config import load_recipe
from ...finetuning.recipe import FinetuneConfig
from ...pretraining.recipe import PretrainConfig
from .text import CollectConfig


@dataclass(frozen=True)
class TaskConfig:
    """Rows and runs of one task."""

    train: int  # labelled rows to fine-tune on
    dev: int  # labelled rows that select the learning rate
    test: int  # labelled rows to report on, at most
    epochs: float  # passes over the training rows
    seeds: tuple[int, ...]  # seeds of fine-tuning; the first selects the learning rate

    def __post_init__(self) -> None:
        if min(self.train, self.dev, self.test) < 1 or not self.epochs > 0 or not self.seeds:
            raise ValueError("expected one row or more of train, dev and test, epochs above 0, and a seed")


TAGS_DEFAULT = TaskConfig(400, 300, 1000, 4.0, (1, 2, 3, 4, 5, 6, 7, 8))
PACKAGES_DEFAULT = TaskConfig(200, 320, 1000, 20.0, (1, 2, 3))


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demo."""

    tokens: int = 3_000_000  # tokens of pre-training
    minutes: float = 45.0  # time limit of one call of the command; a rerun continues with as many again
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    held_out: float = 0.2  # share of the documents, by name of the definition, that are held out from pre-training
    tags: TaskConfig = TAGS_DEFAULT  # rows and runs of the tagging task
    packages: TaskConfig = PACKAGES_DEFAULT  # rows and runs of the packages task
    labels: int = 8  # number of classes of the packages task: those with the most documents
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)  # learning rates to try; each side is shown at its best
    workers: int = 0  # worker processes that read and tokenize; 0: one for each core

    def __post_init__(self) -> None:
        if not (self.tokens > 0 and self.minutes > 0 and self.rates and self.labels > 1 and 0 < self.held_out < 1):
            raise ValueError("expected tokens and minutes above 0, a rate, two labels or more, and held_out in (0, 1)")


def default_config() -> DemoConfig:
    """What demo.toml says."""
    return load_recipe(Path(__file__).with_name("demo.toml"), DemoConfig)
