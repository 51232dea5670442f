"""The state file: all there, or refused with one clear message."""

import pytest
import safetensors
import safetensors.torch
import torch

from bertworks import __version__
from bertworks.files import InputError
from bertworks.tensors import CHECKSUM, tensors_checksum
from bertworks.training.config import OptimConfig, TrainerState
from bertworks.training.optim import Optimizer
from bertworks.training.state import copy_of_state, load_state, write_state
from support.loops import identity_of

ABC = identity_of("abc")


def trained(steps=3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    optimizer = Optimizer(model, OptimConfig())
    for step in range(steps):
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.clip_grad_norm()
        optimizer.step(step, 0.1)
    return model, optimizer


def test_everything_comes_back(tmp_path):
    model, optimizer = trained()
    sums = {"loss_sums": {"mlm": 0.1}, "loss_counts": {"mlm": 7}, "lr": 1e-3}
    where = dict(step=5, updates=3, phase=1, group=7, offset=11, tokens=99)
    progress = TrainerState(**where, seconds=1.5, skipped=2, best=0.25, **sums)
    write_state(tmp_path / "state", copy_of_state(model, optimizer, progress, ABC.hash))
    other, fresh = trained(0)
    assert load_state(tmp_path / "state", other, fresh, ABC) == progress
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert fresh.state().keys() == optimizer.state().keys()
    assert all(torch.equal(value, fresh.state()[name]) for name, value in optimizer.state().items())
    assert all(int(fresh.main.state[p]["step"]) == 3 for p in fresh.parameters.values())
    assert load_state(tmp_path / "none", other, fresh, ABC) is None


def test_a_state_before_the_first_update_comes_back_too(tmp_path):
    model, optimizer = trained(0)
    write_state(tmp_path, copy_of_state(model, optimizer, TrainerState(step=1, skipped=1), ABC.hash))
    assert load_state(tmp_path, *trained(0), ABC) == TrainerState(step=1, skipped=1)


@pytest.mark.parametrize("kept", [0, 5, 8, 200, -1])
def test_a_cut_state_is_refused(tmp_path, kept):
    model, optimizer = trained()
    write_state(tmp_path, copy_of_state(model, optimizer, TrainerState(step=3, updates=3), ABC.hash))
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(InputError, match=r"state\.safetensors: not a whole state .*remove the run folder"):
        load_state(tmp_path, model, optimizer, ABC)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_another_file_is_not_a_state(tmp_path):
    path = tmp_path / "state.safetensors"
    for header in (None, {"recipe": ABC.hash, "bertworks": __version__}):
        safetensors.torch.save_file({"model.x": torch.zeros(2)}, path, header)
        with pytest.raises(InputError, match="remove the run folder"):
            load_state(tmp_path, *trained(0), ABC)


def test_a_state_of_another_recipe_is_refused(tmp_path):
    write_state(tmp_path / "state", copy_of_state(*trained(), TrainerState(), ABC.hash))
    with pytest.raises(InputError, match=r"other settings, data or model\. Rerun the command .*or give another"):
        load_state(tmp_path / "state", *trained(0), identity_of("abd"))


def test_every_flipped_bit_is_noticed(tmp_path):
    """In weights, moments, progress and the file's own description of its tensors."""
    write_state(tmp_path, copy_of_state(*trained(), TrainerState(step=3, updates=3, seconds=1.5), ABC.hash))
    path = tmp_path / "state.safetensors"
    whole = path.read_bytes()
    for bit in range(3, 8 * len(whole), 41):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(InputError):
            load_state(tmp_path, *trained(0), ABC)
    path.write_bytes(whole)
    assert load_state(tmp_path, *trained(0), ABC).step == 3


@pytest.mark.parametrize("other", ["0.0.9", "0.2.0", "1.1.0"])
def test_an_unfinished_run_continues_under_the_same_minor_version(tmp_path, monkeypatch, other):
    monkeypatch.setattr("bertworks.training.state.__version__", "0.1.7")
    write_state(tmp_path, copy_of_state(*trained(), TrainerState(step=3, updates=3), ABC.hash))
    for same in ("0.1.0", "0.1.8.dev3+g1234567"):
        monkeypatch.setattr("bertworks.training.state.__version__", same)
        assert load_state(tmp_path, *trained(0), ABC).step == 3
    monkeypatch.setattr("bertworks.training.state.__version__", other)
    refused = rf"an unfinished run of bertworks 0\.1\.7; this is {other}.*Finish it with bertworks 0\.1, or remove"
    with pytest.raises(InputError, match=refused):
        load_state(tmp_path, *trained(0), ABC)


@pytest.mark.parametrize("change", ["[]", '{"step": "3"', '{"unknown": 1}', "model.0.weight", "exp_avg.0.weight"])
def test_a_header_that_is_no_progress_or_a_missing_tensor_is_refused(tmp_path, change):
    write_state(tmp_path, copy_of_state(*trained(), TrainerState(step=3, updates=3), ABC.hash))
    path = tmp_path / "state.safetensors"
    with safetensors.safe_open(path, "pt") as file:
        tensors, header = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    if tensors.pop(change, None) is None:
        header["progress"] = change
    safetensors.torch.save_file(tensors, path, header | {CHECKSUM: tensors_checksum(tensors, header)})
    with pytest.raises(InputError, match=r"state\.safetensors: not a whole state"):
        load_state(tmp_path, *trained(1), ABC)
