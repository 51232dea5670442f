"""Saving while training continues: what is on disk is the state of one step, and nothing about it is lost."""

import errno
import os
import threading
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bertworks.data.instances import StreamPosition
from bertworks.files import Diverged, NotWritten
from bertworks.model.build import build_model
from bertworks.model.config import ModelConfig
from bertworks.training import loop as loop_module
from bertworks.training import state
from bertworks.training import trainer as trainer_module
from bertworks.training.config import OptimConfig, TrainerState
from bertworks.training.optim import Optimizer
from bertworks.training.state import copy_of_state, load_state
from support.loops import IDENTITY, loop_of

OPTIM = OptimConfig()


def model_of():
    config = ModelConfig(100, 16, 1, 2, 32, max_position_embeddings=40)
    return build_model(config, seed=1)


def batches(tiny_store):
    return [tiny_store.data(24).take(StreamPosition(0, 4 * number), 4)[0] for number in range(6)]


@pytest.fixture
def slow_disk(monkeypatch):
    """Writing waits until `free` is set; `begun` counts the states whose writing has begun."""
    write, disk = state.write_state, SimpleNamespace(free=threading.Event(), begun=[])

    def slowly(folder, what):
        disk.begun.append(what[1]["progress"])
        assert disk.free.wait(60)
        write(folder, what)

    monkeypatch.setattr(loop_module, "write_state", slowly)
    return disk


def weights_of(path):
    return {name: value for name, value in load_file(path).items() if name.startswith("model.")}


@pytest.fixture
def checkpoints(monkeypatch):
    """The checkpoints of the loops that a test runs."""
    made, init = [], loop_module.Checkpoints.__init__
    monkeypatch.setattr(
        loop_module.Checkpoints, "__init__", lambda self, *given: (made.append(self), init(self, *given))[1]
    )
    return made


def test_training_continues_while_a_state_is_written(tiny_store, tmp_path, slow_disk, checkpoints):
    """Two more steps are made meanwhile, and the file has the weights of its own step."""
    loop, seen = loop_of(model_of(), batches(tiny_store), tmp_path, steps=4, save_every=2), {}

    def after(step):
        seen[step] = {name: value.clone() for name, value in loop.trainer.model.state_dict().items()}
        if step == 3:
            assert len(slow_disk.begun) == 1 and not (tmp_path / "state" / "state.safetensors").exists()
            slow_disk.free.set()
            checkpoints[0].check(wait=True)
            found = weights_of(tmp_path / "state" / "state.safetensors")
            assert all(torch.equal(value, found[f"model.{name}"]) for name, value in seen[2].items())
            assert not all(torch.equal(value, seen[3][name]) for name, value in seen[2].items())

    loop.after_step = after
    assert loop.train()
    assert (
        load_state(tmp_path / "state", loop.trainer.model, loop.trainer.optimizer, IDENTITY).step == 4
    )  # the end waits


def test_a_snapshot_shares_no_memory_with_training():
    model = torch.nn.Linear(3, 2)
    optimizer = Optimizer(model, OPTIM)
    taken, _ = copy_of_state(model, optimizer, TrainerState(step=1), "abc")
    before = {name: value.clone() for name, value in taken.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in taken.items())


def test_one_state_is_written_at_a_time(tiny_store, tmp_path, slow_disk, monkeypatch):
    """The next copy is made when the one before is on disk."""
    copies, copy = [], loop_module.copy_of_state

    def note(*given):
        copies.append((tmp_path / "state" / "state.safetensors").exists())
        return copy(*given)

    monkeypatch.setattr(loop_module, "copy_of_state", note)
    threading.Timer(0.5, slow_disk.free.set).start()
    assert loop_of(model_of(), batches(tiny_store), tmp_path, steps=3, save_every=1).train()
    assert copies == [False, True, True] and len(slow_disk.begun) == 3


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said_at_the_next_step_and_harms_nothing(tiny_store, tmp_path, monkeypatch, checkpoints):
    """Not at the next save, which may be far away."""
    loop, steps = loop_of(model_of(), batches(tiny_store), tmp_path, steps=50, save_every=2), []

    def after(step):
        steps.append(step)
        if step == 4:
            checkpoints[0].check(wait=True)
            monkeypatch.setattr(os, "fsync", full)
        if step == 5:
            checkpoints[0].writing.exception()  # when the thread has found out

    loop.after_step = after
    with pytest.raises(NotWritten, match=r"state\.safetensors: could not be written \(No space left on device\)"):
        loop.train()
    assert steps == [1, 2, 3, 4, 5]
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["state.safetensors"]
    assert load_state(tmp_path / "state", loop.trainer.model, loop.trainer.optimizer, IDENTITY).step == 2


def test_a_run_that_diverges_leaves_the_state_that_was_being_written(tiny_store, tmp_path, slow_disk):
    loop = loop_of(model_of(), batches(tiny_store), tmp_path, steps=9, save_every=2)

    def after(step):
        if step == 3:
            threading.Timer(0.05, slow_disk.free.set).start()
            raise Diverged("as it happens")

    loop.after_step = after
    with pytest.raises(Diverged):
        loop.train()
    assert load_state(tmp_path / "state", loop.trainer.model, loop.trainer.optimizer, IDENTITY).step == 2


def test_saving_by_minutes(tiny_store, tmp_path, monkeypatch):
    """Every step takes 40 seconds by this clock, and a save is due after two minutes of training."""
    saved = []
    monkeypatch.setattr(trainer_module.Trainer, "_seconds_since", lambda self, start, is_training_time: 40.0)
    loop = loop_of(model_of(), batches(tiny_store), tmp_path, steps=8, save_minutes=2.0)
    save = loop_module.Checkpoints.save
    noted = lambda checkpoints, wait: (saved.append(loop.progress.step), save(checkpoints, wait))  # noqa: E731
    monkeypatch.setattr(loop_module.Checkpoints, "save", noted)
    assert loop.train()
    assert saved == [3, 6, 8]


def test_the_file_is_one_that_safetensors_reads(tmp_path):
    """Types of every width, no axis, no element; the header is there too."""
    tensors = {
        "half": torch.arange(3).bfloat16(), "one": torch.tensor(7), "none": torch.zeros(0, 4),
        "flag": torch.ones(3) > 0,
        "wide": torch.rand(2, 3, dtype=torch.float64), "plain": torch.rand(5, 2), "byte": torch.tensor([1, 255]).byte(),
    }  # fmt: skip
    state.write_state(tmp_path, (tensors, {"progress": '"\u00e9"', "recipe": "abc"}))
    with safe_open(tmp_path / "state.safetensors", "pt") as file:
        assert file.metadata().items() >= {"progress": '"\u00e9"', "recipe": "abc"}.items()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert found.keys() == tensors.keys()
    assert all(found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in tensors.items())
