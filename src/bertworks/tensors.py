"""A checksum of named tensors, which files of weights and states carry: one flipped bit is noticed."""

import json
import zlib
from collections.abc import Mapping

import torch
from torch import Tensor

CHECKSUM = "checksum"  # in the metadata of a .safetensors file


def tensors_checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """CRC-32 of names, types, shapes and bytes of CPU tensors, and of the file's other metadata, as hex."""
    others = {name: value for name, value in facts.items() if name != CHECKSUM}
    crc = zlib.crc32(json.dumps(others, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def check_checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Raises ValueError if the checksum among a file's metadata is missing or not that of its tensors and metadata."""
    if facts.get(CHECKSUM) != tensors_checksum(tensors, facts):
        raise ValueError("its bytes do not have the checksum that was written with them")
