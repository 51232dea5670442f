"""What several processes must agree on: weights, steps, settings, which updates are made."""

import contextlib
import dataclasses
import math
import sys
import time

import pytest
import torch

from bertworks.config import load_recipe
from bertworks.files import Diverged, InputError
from bertworks.pretraining.job import pretrain
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.pretraining.run import PretrainingFeed
from bertworks.training import distributed, state
from bertworks.training.objectives import Objective
from bertworks.training.vocabulary_loss import Term
from support.loops import killed_at, loop_of
from support.processes import together
from support.segments import records, tensors, write_recipe

pytestmark = pytest.mark.heavy


class Pull(Objective):
    """A loss whose gradient is 1 everywhere."""

    def __init__(self, sick=False):
        self.sick = sick  # the loss is infinite, its gradient is not

    def counts(self, batch):
        return {"task": 1}

    def terms(self, model, batch, dropout=None):
        return {"task": Term(model.weight.sum() + (math.inf if self.sick else 0.0), None)}


def batch():
    return {"attention_mask": torch.ones(1, 2, dtype=torch.bool), "input_ids": torch.ones(1, 2, dtype=torch.long)}


def linear():
    torch.manual_seed(1)
    return torch.nn.Linear(3, 1, bias=False)


def train_with_a_slow_disk(rank, folder):
    """The first process takes its time to write the best weights, which are the last ones."""
    write = state.atomic_write

    def slow(path):
        time.sleep(0.3)
        return write(path)

    state.atomic_write = slow
    scores = iter([0.1, 0.2, 0.3])
    with distributed.joined_world() as world:
        model = linear()
        loop = loop_of(
            model, [batch()], folder, objective=Pull(), steps=3, eval_every=1, keep_best="accuracy",
            evaluate=lambda: {"accuracy": next(scores)}, world=world,
        )  # fmt: skip
        assert loop.train()
        return model.weight.tolist()


def test_the_best_weights_are_equal_in_all_processes(tmp_path):
    one, other = together(train_with_a_slow_disk, tmp_path)
    assert one == other


def lose_one_update(rank, folder):
    with distributed.joined_world() as world:
        model = linear()
        loop = loop_of(model, [batch()], folder, objective=Pull(sick=rank == 1), steps=9, max_skipped=2, world=world)
        with pytest.raises(Diverged):
            loop.train()
        return loop.progress.step, loop.progress.updates, torch.equal(model.weight, linear().weight)


def test_an_infinite_loss_in_one_process_skips_the_update_in_all(tmp_path):
    assert together(lose_one_update, tmp_path) == [(2, 0, True)] * 2


def resume_on_own_disk(rank, config, store, folder):
    """Each process has a run folder of its own; only the first one's has a state."""
    results = pretrain(config, store, folder / str(rank), quiet=True)
    return results["steps"], results["tokens"], results["metrics"]


def test_processes_without_a_common_disk_go_on_from_the_first_ones_state(tiny_store, tmp_path, monkeypatch):
    config = load_recipe(write_recipe(tmp_path, steps=6, micro=5), PretrainConfig)
    config = dataclasses.replace(config, loop=dataclasses.replace(config.loop, eval_every=0))
    whole = pretrain(config, tiny_store.path, tmp_path / "whole", quiet=True)
    with killed_at(4, PretrainingFeed):
        pretrain(config, tiny_store.path, tmp_path / "0", quiet=True)
    one, other = together(resume_on_own_disk, config, tiny_store.path, tmp_path)
    assert one == other and one[:2] == (6, whole["tokens"])
    assert one[2] == pytest.approx(whole["metrics"], rel=1e-5)
    assert not (tmp_path / "1").exists()


def train_until(rank, config, store, out, stop):
    """Train, or resume, in one of several processes that are killed before step `stop`; None: to the end."""
    with killed_at(stop, PretrainingFeed) if stop else contextlib.nullcontext():
        pretrain(config, store, out, quiet=True)


def uneven_recipe(folder):
    """Batches of 47 and 35 sequences."""
    recipe = write_recipe(folder, steps=10, micro=5)
    text = recipe.read_text().replace("batch_size = 48\n", "batch_size = 47\n")
    recipe.write_text(text.replace("\nbatch_size = 36\n", "\nbatch_size = 35\n"))
    config = load_recipe(recipe, PretrainConfig)
    assert [phase.batch_size for phase in config.phases] == [47, 35]
    return config


def test_two_then_one_then_three_processes_equal_one(tiny_store, tmp_path, monkeypatch):
    """The batches are of a size that none but one process divides evenly; the dropout masks are the same."""
    config = uneven_recipe(tmp_path)
    pretrain(config, tiny_store.path, tmp_path / "whole", quiet=True)
    for size, stop in ((2, 4), (1, 7), (3, None)):
        together(train_until, config, tiny_store.path, tmp_path / "parts", stop, size=size)
    one, other = tensors(tmp_path / "whole"), tensors(tmp_path / "parts")
    assert (one - other).norm() < 1e-6 * one.norm()
    for a, b in zip(records(tmp_path / "whole"), records(tmp_path / "parts"), strict=True):
        assert a.pop("kind") == b.pop("kind") and a == pytest.approx(b, rel=2e-6)


def be_killed_without_other_threads(rank, config, store, out):
    """No thread of gloo gets the interpreter unless this one waits for something."""
    sys.setswitchinterval(60)
    train_until(rank, config, store, out, 4)
    return "killed"


def test_processes_that_are_killed_do_not_wait_for_their_own_threads(tiny_store, tmp_path):
    config = uneven_recipe(tmp_path)
    for i in range(5):
        found = together(be_killed_without_other_threads, config, tiny_store.path, tmp_path / str(i), timeout=30)
        assert found == ["killed"] * 2


def begin_with_own_settings(rank, config, store, folder):
    rate = dataclasses.replace(config.optim, lr=1e-3 * (1 + rank))
    try:
        pretrain(dataclasses.replace(config, optim=rate), store, folder / "run", quiet=True)
    except InputError as error:
        return str(error)


def test_processes_with_different_settings_are_refused(tiny_store, tmp_path):
    config = load_recipe(write_recipe(tmp_path, steps=2), PretrainConfig)
    for said in together(begin_with_own_settings, config, tiny_store.path, tmp_path):
        assert "the processes of this job have different values of recipe" in said
    assert not (tmp_path / "run").exists()


def ask(rank, kind):
    def question():
        raise kind("no such folder here")

    with distributed.joined_world() as world:
        try:
            world.from_rank0(question if world.is_main else lambda: "not asked")
        except kind as error:
            return str(error)


@pytest.mark.parametrize("kind", [InputError, PermissionError])
def test_an_error_of_the_first_process_is_raised_in_all(kind):
    assert together(ask, kind) == ["no such folder here"] * 2
