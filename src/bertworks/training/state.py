"""The state of a run: everything that the next step depends on, in one safetensors file.

Weights, moments and progress stand in the same file, which replaces its predecessor by a rename; whatever moment a
process is killed at, a whole state is in place. Nothing is pickled.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..files import InputError, NotWritten, atomic_write
from .optim import Optimizer

STATE = "state.safetensors"


@dataclass
class Progress:
    """Where a run stands. `phase`, `window` and `offset` say which training instance comes next."""

    step: int = 0  # updates tried
    updates: int = 0  # updates made: fewer than steps if some were skipped as not finite
    phase: int = 0
    window: int = 0
    offset: int = 0
    tokens: int = 0  # real tokens read
    instances: int = 0
    seconds: float = 0.0  # of training, over all sittings
    skipped: int = 0  # updates skipped in a row
    best: float | None = None  # best score so far, where a run keeps its best weights


def save_state(folder: Path, model: nn.Module, optimizer: Optimizer, progress: Progress, recipe: str) -> None:
    """Write the state atomically; `recipe` is a hash of what must not change between sittings."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()} | optimizer.state()
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    header = {"progress": json.dumps(asdict(progress)), "recipe": recipe}
    try:
        with atomic_write(folder / STATE) as file:
            file.write(save(plain, header))
    except OSError as error:
        raise NotWritten(
            f"{folder / STATE}: could not be written ({error.strerror}); the state before it is whole. "
            "Make room and type the same line again to go on from there"
        ) from None


def load_state(folder: Path, model: nn.Module, optimizer: Optimizer, recipe: str) -> Progress | None:
    """Put a saved state back into model and optimizer; None if there is none yet.

    Raises InputError if the file is damaged or belongs to a run with other settings.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        progress = Progress(**json.loads(header["progress"]))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a whole state ({error}); remove the run folder and start again") from None
    if header["recipe"] != recipe:
        raise InputError(
            f"{path} belongs to a run with other settings (see {folder.parent / 'recipe.toml'}). "
            "Type the line with which it began to resume it, or give another --out"
        )
    model.load_state_dict({n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
    if progress.updates:
        optimizer.load({n: t for n, t in tensors.items() if not n.startswith("model.")}, progress.updates)
    return progress
