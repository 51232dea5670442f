"""The settings of the demo. Importing this file loads no torch, so that `--help` is quick."""

from dataclasses import dataclass, field
from pathlib import Path

from ...config import load_recipe
from ...files import InputError
from ...pretraining.recipe import PretrainConfig


def demo_recipe() -> PretrainConfig:
    """The recipe of the small BERT."""
    return load_recipe(Path(__file__).with_name("pretrain.toml"), PretrainConfig)


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demo."""

    model: str = "mini"  # encoder to fine-tune: a model folder or name
    # time limit: pre-training gets what fine-tuning leaves, and slow machines fine-tune with fewer seeds
    minutes: float = 8.0
    recipe: PretrainConfig = field(default_factory=demo_recipe)  # of the small BERT, whose budget is set by `minutes`
    rates: tuple[float, ...] = (2e-4, 1e-3)  # learning rates of fine-tuning; the best one on dev is used
    seeds: tuple[int, ...] = (1, 2, 3)  # of fine-tuning; the first one selects the learning rate
    train: int = 300  # labelled examples
    dev: int = 200  # examples that select the learning rate
    test: int = 500  # examples for the reported scores, at most
    epochs: float = 12.0  # of fine-tuning
    held_out: float = 0.2  # fraction of the documents whose text is labelled data and not for pre-training
    max_files: int = 9_000  # source files to read, sampled evenly
    workers: int = 0  # processes that read and tokenize; 0: one for each core

    def __post_init__(self) -> None:
        if not (self.minutes > 0 and self.rates and self.seeds and min(self.train, self.dev, self.test) > 0):
            raise InputError(f"minutes = {self.minutes}; expected more than 0, and examples, rates and seeds")
