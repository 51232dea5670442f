"""The state of a run: everything that the next step depends on, in one safetensors file.

Weights, moments and progress are in the same file, which replaces its predecessor by a rename; whatever moment a
process is killed at, a whole state is in place. Nothing is pickled. Training waits for a copy in memory only; a thread
writes the copy to disk.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from .._version import __version__
from ..files import InputError, NotWritten, OtherRun, atomic_write, check_version
from ..tensors import CHECKSUM, check_checksum, write_tensors
from .distributed import World
from .identity import FORMAT, RunIdentity
from .optim import Optimizer
from .progress import TrainerState

STATE_FOLDER, STATE = "state", "state.safetensors"  # below the run folder


@dataclass(frozen=True)
class Snapshot:
    """A copy of all that a state file holds, in the memory of the machine: training does not change it."""

    tensors: dict[str, Tensor]
    header: dict[str, str]


def snapshot(model: nn.Module, optimizer: Optimizer, progress: TrainerState, recipe: str) -> Snapshot:
    """A copy of the state of now; `recipe` is the run's hash (identity.py)."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()} | optimizer.state()
    header = {"progress": json.dumps(asdict(progress)), "recipe": recipe}
    header |= {"format": str(FORMAT), "bertworks": __version__}
    copies = {}
    for name, value in tensors.items():
        copies[name] = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
        copies[name].copy_(value.detach(), non_blocking=True)  # from a GPU all copies are under way at once
    if any(value.is_cuda for value in tensors.values()):
        torch.cuda.synchronize()
    return Snapshot(copies, header)


def write_state(folder: Path, state: Snapshot) -> None:
    """Write the state atomically. Raises NotWritten if the disk is full or may not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / STATE) as file:
            write_tensors(file, state.tensors, state.header)
    except OSError as error:
        saved = (folder / STATE).exists()
        start = "resume from the last saved state" if saved else "start again: no state was saved before"
        raise NotWritten(
            f"{folder / STATE}: could not be written ({error.strerror}); make room and rerun the command to {start}"
        ) from None


def saved_step(folder: Path) -> int | None:
    """The step of the state in `folder`, of whatever run and version; None if there is none.

    Only the header is read: this says nothing about the tensors. Raises InputError if the header is damaged.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            return int(json.loads((file.metadata() or {})["progress"])["step"])
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise damaged(path, error) from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that a run has written. Raises InputError if it is missing or damaged."""
    try:
        with safe_open(path, "pt") as file:
            header: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if CHECKSUM in header:  # earlier versions wrote none
            check_checksum(tensors, header)
    except (SafetensorError, ValueError, OSError) as error:
        raise damaged(path, error) from None
    return tensors, header


def load_state(folder: Path, model: nn.Module, optimizer: Optimizer, identity: RunIdentity) -> TrainerState | None:
    """Put a saved state back into model and optimizer; None if there is none yet.

    Raises InputError if the file is damaged, belongs to another run, or was written by a version of bertworks whose
    runs this one does not continue; then nothing is changed.
    """
    path = folder / STATE
    if not path.exists():
        return None
    tensors, header = read_tensors(path)
    _check_versions(path, header.get("format", "1"), header.get("bertworks", ""))
    try:
        recorded, progress = header["recipe"], TrainerState.parse(header["progress"])
    except (InputError, KeyError) as error:
        raise damaged(path, error) from None
    if recorded != identity.hash:
        raise OtherRun(
            f"{path} belongs to a run with other settings, data or model. {identity.difference(folder.parent)}"
            "Rerun the command that began it to resume it, or give another output folder"
        )
    weights = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    moments = {n: t for n, t in tensors.items() if not n.startswith("model.")}
    check_tensors(path, weights, model.state_dict())
    if progress.updates:
        check_tensors(path, moments, optimizer.expected())
        optimizer.load(moments, progress.updates)
    model.load_state_dict(weights)
    return progress


def _check_versions(path: Path, version: str, writer: str) -> None:
    """Raises InputError for a state that this bertworks does not continue: docs/reliability.md has the policy."""
    number = int(version) if version.isdecimal() else version
    check_version(number, range(FORMAT, FORMAT + 1), str(path), "remove the run folder to start again")
    minor = ".".join(writer.split(".")[:2])
    if minor != ".".join(__version__.split(".")[:2]):
        raise InputError(
            f"{path}: an unfinished run of bertworks {writer}; this is {__version__}, and an unfinished run continues "
            f"under the same minor version only. Finish it with bertworks {minor}, or remove the run folder to start "
            "again"
        )


def damaged(path: Path, why: object) -> InputError:
    """The error for a state file that cannot be used."""
    return InputError(f"{path}: not a whole state ({why}); remove the run folder and start again")


def check_tensors(path: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raises InputError if names, shapes or types in a file are not those of the model."""
    if unlike := sorted(found.keys() ^ expected.keys()):
        raise damaged(path, f"{unlike[0]} is {'too much' if unlike[0] in found else 'missing'}")
    for name, tensor in found.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            raise damaged(path, f"{name} is {tensor.dtype} of shape {list(tensor.shape)}")


def resume(folder: Path, model: nn.Module, optimizer: Optimizer, identity: RunIdentity, world: World) -> TrainerState:
    """Continue from the state in `folder`, or begin. The first process reads it; all get what it has read.

    So the processes need no common disk. Raises InputError like `load_state`, and if their recipes differ.
    """
    world.check_equal(recipe=identity.hash)
    progress = world.from_rank0(lambda: load_state(folder, model, optimizer, identity))
    if progress is None:
        return TrainerState()
    if progress.updates and not world.main:
        optimizer.load({name: torch.zeros_like(t) for name, t in optimizer.expected().items()}, progress.updates)
    world.broadcast([*model.state_dict().values(), *optimizer.state().values()])
    world.check_equal(step=progress.step)
    return progress
