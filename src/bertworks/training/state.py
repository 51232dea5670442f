"""The state of a run: everything that the next step depends on, in one safetensors file.

Weights, moments and progress are in the same file, which replaces its predecessor by a rename; whatever moment a
process is killed at, a whole state is in place. Nothing is pickled. Training waits for a copy in memory only; a thread
writes the copy to disk.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from .._version import __version__
from ..files import InputError, NotWritten, OtherRun, atomic_write
from ..tensors import check_checksum, write_tensors
from .config import TrainerState
from .distributed import World
from .optim import Optimizer

if TYPE_CHECKING:
    from .identity import RunIdentity

STATE_FOLDER, STATE = "state", "state.safetensors"  # below the run folder

StateCopy = tuple[dict[str, Tensor], dict[str, str]]
"""A copy of the tensors and the metadata of a state file, in the memory of the machine: training does not change it."""


def copy_of_state(model: nn.Module, optimizer: Optimizer, progress: TrainerState, recipe_hash: str) -> StateCopy:
    """A copy of the state of now. recipe_hash: of the run (identity.py)."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()} | optimizer.state()
    copies = {n: torch.empty(t.shape, dtype=t.dtype, pin_memory=t.is_cuda) for n, t in tensors.items()}
    for name, value in tensors.items():
        copies[name].copy_(value.detach(), non_blocking=True)  # from a GPU all copies are under way at once
    if any(value.is_cuda for value in tensors.values()):
        torch.cuda.synchronize()
    return copies, {"progress": json.dumps(asdict(progress)), "recipe": recipe_hash, "bertworks": __version__}


def write_state(folder: Path, state: StateCopy, name: str = STATE) -> None:
    """Write tensors and metadata atomically. Raises NotWritten if the disk is full or may not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / name) as file:
            write_tensors(file, *state)
    except OSError as error:
        raise NotWritten(
            f"{folder / name}: could not be written ({error.strerror}); free some space and rerun the command, which "
            "resumes from the last saved state, if there is one"
        ) from None


def saved_step(folder: Path) -> int | None:
    """The step of the state in `folder`, of any run and version; None without a state.

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
        check_checksum(tensors, header)
    except (SafetensorError, ValueError, OSError) as error:
        raise damaged(path, error) from None
    return tensors, header


def load_weights(path: Path, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put the weights of a file into the model. Raises InputError if names or shapes are not those of the model."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise damaged(path, error) from None


def load_state(folder: Path, model: nn.Module, optimizer: Optimizer, identity: "RunIdentity") -> TrainerState | None:
    """Load the saved state into model and optimizer; returns None without a state.

    Raises InputError if the file is damaged, belongs to another run, or was written by another minor version of
    bertworks (docs/reliability.md).
    """
    path = folder / STATE
    if not path.exists():
        return None
    tensors, header = read_tensors(path)
    writer = header.get("bertworks", "")
    minor = ".".join(writer.split(".")[:2])
    if minor != ".".join(__version__.split(".")[:2]):
        raise InputError(
            f"{path}: an unfinished run of bertworks {writer}; this is {__version__}, and an unfinished run continues "
            f"under the same minor version only. Finish it with bertworks {minor}, or remove the run folder to start "
            "again"
        )
    if header.get("recipe") != identity.hash:
        raise OtherRun(
            f"{path} belongs to a run with other settings, data or model. {identity.difference(folder.parent)}"
            "Rerun the command that began it to resume it, or give another output folder"
        )
    load_weights(path, model, {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
    try:
        progress = TrainerState(**json.loads(header["progress"]))
        if progress.updates:
            optimizer.load(tensors, progress.updates)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from None
    return progress


def damaged(path: Path, why: object) -> InputError:
    """The error for a state file that cannot be used."""
    return InputError(f"{path}: not a whole state ({why}); remove the run folder and start again")


def resume(folder: Path, model: nn.Module, optimizer: Optimizer, identity: "RunIdentity", world: World) -> TrainerState:
    """Continue from the state in `folder`, or begin. The first process reads it; all get what it has read.

    So the processes need no common disk. Raises InputError like `load_state`.
    """
    progress = world.from_rank0(lambda: load_state(folder, model, optimizer, identity))
    if progress is None:
        return TrainerState()
    if progress.updates and not world.is_main:
        optimizer.load(None, progress.updates)
    world.broadcast([*model.state_dict().values(), *optimizer.state().values()])
    return progress
