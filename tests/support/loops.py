"""A loop without text: batches from a list, and what a test wants to see of a run."""

import contextlib

import pytest
import torch

from bertworks.training.config import LoopConfig, OptimConfig
from bertworks.training.distributed import World
from bertworks.training.identity import RunIdentity
from bertworks.training.loop import TrainingLoop
from bertworks.training.objectives import PretrainingObjective
from bertworks.training.optim import Optimizer
from bertworks.training.progress import TrainerState
from bertworks.training.state import load_state
from bertworks.training.trainer import AccumulationBatch, Trainer

ALONE = World(0, 1, torch.device("cpu"))


def identity_of(name):
    """The identity of a run that reads something of this name."""
    return RunIdentity(OptimConfig(), (name,))


IDENTITY = identity_of("tests")


class Feed:
    """Groups of micro-batches from a list, one a step; micro-batches of a list are rows of one batch."""

    def __init__(self, groups):
        self.groups, self.shares = groups, []

    def __call__(self, progress: TrainerState, share: float) -> AccumulationBatch:
        self.shares.append(share)
        group = self.groups[progress.step % len(self.groups)]
        made, row = [], 0
        for batch in group if isinstance(group, list) else [group]:
            made.append((batch, row))
            row += len(batch["input_ids"])
        return AccumulationBatch(made, (0, 0, progress.step + 1))


def loop_of(model, groups, folder, optim=None, objective=None, evaluate=None, world=ALONE, resumed=False, **config):
    """A TrainingLoop over `groups`, in float32, silent, with a record a step; `resumed`: from the state in `folder`."""
    settings = {"precision": "float32", "log_every": 1, "eval_every": 0, "save_every": 0, "seed": 3} | config
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = Optimizer(model, optim or OptimConfig())
    feed = groups if callable(groups) else Feed(groups)
    trainer = Trainer(model, objective or PretrainingObjective(), feed, optimizer, world, LoopConfig(**settings))
    if resumed:
        trainer.start_at(load_state(folder / "state", model, optimizer, IDENTITY))
    evaluate_now = evaluate and (lambda progress: evaluate())
    return TrainingLoop(trainer, folder, IDENTITY.hash, evaluate=evaluate_now, quiet=True)


def stopped_before(step, groups):
    """A feed that raises KeyboardInterrupt instead of giving the group of this step."""

    def feed(progress, share):
        if progress.step == step:
            raise KeyboardInterrupt
        return Feed(groups)(progress, share)

    return feed


@contextlib.contextmanager
def killed_at(step, feed):
    """A run of the block is killed when its feed, of the class `feed`, is asked for the group of this step."""
    give = feed.__call__

    def killed(self, progress, share):
        if progress.step == step:
            raise KeyboardInterrupt
        return give(self, progress, share)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(feed, "__call__", killed)
        yield
