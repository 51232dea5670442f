"""A loop without text: batches from a list, and what a test wants to see of a run."""

import contextlib

import pytest
import torch

from bertworks.training.config import LoopConfig, OptimConfig, TrainerState
from bertworks.training.distributed import World
from bertworks.training.identity import Run, RunIdentity
from bertworks.training.loop import TrainingLoop
from bertworks.training.objectives import PretrainingObjective
from bertworks.training.optim import Optimizer
from bertworks.training.run import train
from bertworks.training.state import load_state
from bertworks.training.trainer import AccumulationBatch, Trainer

ALONE = World(0, 1, torch.device("cpu"))


def identity_of(name):
    """The identity of a run that reads something of this name."""
    return RunIdentity(OptimConfig(), (name,))


IDENTITY = identity_of("tests")


class Feed:
    """The batches of a list, one per step; a batch that is a list has its micro-batches."""

    def __init__(self, batches):
        self.batches, self.budgets_used = batches, []

    def __call__(self, progress: TrainerState, budget_used: float) -> AccumulationBatch:
        self.budgets_used.append(budget_used)
        batch = self.batches[progress.step % len(self.batches)]
        made, row = [], 0
        for micro in batch if isinstance(batch, list) else [batch]:
            made.append((micro, row))
            row += len(micro["input_ids"])
        return AccumulationBatch(made, (0, 0, progress.step + 1))


class Loop(TrainingLoop):
    """A loop that is trained with its log, as a run is."""

    def train(self, *given):
        return super().train(*given) if given else train(self)


def loop_of(model, batches, folder, optim=None, objective=None, evaluate=None, world=ALONE, resumed=False, **config):
    """A Loop over `batches`, in float32, with a record per step; `resumed`: from the state in `folder`."""
    settings = {"precision": "float32", "log_every": 1, "eval_every": 0, "save_every": 0, "seed": 3} | config
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = Optimizer(model, optim or OptimConfig())
    feed = batches if callable(batches) else Feed(batches)
    trainer = Trainer(model, objective or PretrainingObjective(), feed, optimizer, world, LoopConfig(**settings))
    if resumed:
        trainer.start_at(load_state(folder / "state", model, optimizer, IDENTITY))
    compute_metrics = evaluate and (lambda progress: evaluate())
    return Loop(trainer, Run(folder, IDENTITY, world, quiet=True), compute_metrics)


def stopped_before(step, batches):
    """A feed that raises KeyboardInterrupt instead of giving the batch of this step."""

    def feed(progress, budget_used):
        if progress.step == step:
            raise KeyboardInterrupt
        return Feed(batches)(progress, budget_used)

    return feed


@contextlib.contextmanager
def killed_at(step, feed):
    """A run of the block is killed when its feed, of the class `feed`, is called for the batch of this step."""
    give = feed.__call__

    def killed(self, progress, budget_used):
        if progress.step == step:
            raise KeyboardInterrupt
        return give(self, progress, budget_used)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(feed, "__call__", killed)
        yield
