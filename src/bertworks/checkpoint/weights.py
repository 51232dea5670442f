"""The files of a folder that hold its weights: model.safetensors, or several that an index names."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..files import InputError, checksum, clip, read_json_object
from ..tensors import CHECKSUM, check_checksum
from .names import listed

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
CERTIFICATE = "certificate.json"  # of an exported folder
_FOREIGN = (PICKLE, "*.bin", "*.pt", "*.pth", "*.ckpt", "*.ckpt.index", "tf_model.h5", "*.msgpack")


def is_export(folder: Path) -> bool:
    """Whether `bertworks export` wrote the folder: it has a graph in place of weights."""
    return (folder / CERTIFICATE).is_file()


def refuse_export(folder: Path) -> None:
    """Raises InputError if the folder is an export; called wherever weights are needed."""
    if is_export(folder):
        raise InputError(f"{folder} is an export, which has no weights; use the model folder that it was made from")


def read_weights(path: Path, allow_pickle: bool = False) -> dict[str, Tensor]:
    """The tensors of a folder, from one file or from those that an index names.

    allow_pickle: read pytorch_model.bin where there is no safetensors file, by torch's restricted loader.
    Raises InputError if the folder is an export, a file is missing or damaged, or an index names other tensors.
    """
    refuse_export(path)
    name = weights_name(path)
    if not name or (name == PICKLE and not allow_pickle):
        foreign = next((p.name for pattern in _FOREIGN for p in sorted(path.glob(pattern))), "no weights")
        raise InputError(
            f"{path}: no {WEIGHTS}, only {foreign}; bertworks convert reads a pytorch_model.bin (--allow-pickle) and "
            "TensorFlow checkpoints; for others use save_pretrained of transformers"
        )
    if name in (WEIGHTS, PICKLE):
        return (read_pickle if name == PICKLE else _read_safetensors)(path / name)
    tensors: dict[str, Tensor] = {}
    for file, names in _shards(path).items():
        shard = _read_safetensors(file)
        if wrong := sorted(shard.keys() ^ names):
            raise InputError(f"{file}: it and {INDEX} do not agree on {clip(wrong[0])}; copy or download both again")
        tensors |= shard
    return tensors


def weights_name(path: Path) -> str | None:
    """The file of a folder that holds its weights, or the index of several; None without weights."""
    return next((name for name in (WEIGHTS, INDEX, PICKLE) if (path / name).exists()), None)


def _shards(path: Path) -> dict[Path, set[str]]:
    """The files that an index names, and the tensors that each should have."""
    files = read_json_object(path / INDEX).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise InputError(f"{path / INDEX}: no weight_map from tensors to files; copy or download it again")
    shards: dict[Path, set[str]] = {}
    here = {file.name for file in path.iterdir()}  # names with a path in them are none of these
    for tensor, name in sorted(files.items(), key=lambda pair: pair[1]):
        if name not in here:
            raise InputError(
                f"{path / INDEX}: names {clip(name)}, which is no file of this folder; copy or download it"
            )
        shards.setdefault(path / name, set()).add(tensor)
    return shards


def weight_files(path: Path) -> list[Path]:
    """The files that hold a folder's weights, in order; none if they are not there."""
    name = weights_name(path)
    return [path / WEIGHTS] if name == WEIGHTS else [*_shards(path)] if name == INDEX else []


def weights_checksum(path: Path) -> str:
    """A checksum of a folder's weights; empty if it has none."""
    return "".join(map(checksum, weight_files(path)))


def check_finite(tensors: Mapping[str, Tensor], where: Path | str) -> None:
    """Raises InputError that names the tensors with NaN or infinity in float32; reads each once and needs no memory."""
    edges = {name: torch.stack(tensor.aminmax()).float() for name, tensor in tensors.items() if tensor.numel()}
    if bad := sorted(name for name, edge in edges.items() if not edge.isfinite().all()):
        raise InputError(f"{where}: NaN or infinity in {listed(bad, 4)}; a training that diverged, or a damaged file?")


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a file, compared with the checksum that `save_folder` writes; other programs write none."""
    try:
        with safetensors.safe_open(file, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            facts = opened.metadata() or {}
        if CHECKSUM in facts:
            check_checksum(tensors, facts)
        return tensors
    except (safetensors.SafetensorError, ValueError, KeyError, OSError) as error:
        why = clip(str(error), 200)
        raise InputError(f"{file}: damaged or not a safetensors file ({why}); copy or download it again") from None


def read_pickle(file: Path) -> dict[str, Tensor]:
    """The tensors of a file that torch.save wrote; nothing but tensors is read, and no code runs."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the loader raise anything: IndexError, struct.error, ...
        why = clip(str(error).splitlines()[0], 200) if str(error) else type(error).__name__
        raise InputError(f"{file}: not tensors alone, or damaged; nothing in it was executed ({why})") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{file}: found a {type(state).__name__}; expected tensors by their names (a state dict)")
    return {str(name): tensor for name, tensor in state.items()}


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """Modules built in this context have shapes but no values, which load_state_dict(..., assign=True) adds."""
    with torch.device("meta"), _Unfilled():
        yield


class _Unfilled(TorchFunctionMode):
    """Does not draw embeddings, which on the device "meta" would import torch's compiler (more than a second)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.init.normal_:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))
