"""Files of named tensors, weights and states, with a checksum: one flipped bit is noticed."""

import json
import zlib
from collections.abc import Mapping
from typing import IO

import torch
from torch import Tensor

from .files import safetensors_header

CHECKSUM = "checksum"  # in the metadata of a .safetensors file
_TYPES = {  # as .safetensors names them
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


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


def write_tensors(file: IO[bytes], tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Write a .safetensors file with metadata, one tensor at a time: equal content gives equal bytes.

    The library would copy all tensors once more, and write its metadata in any order.
    """
    parts = [(name, t.detach().contiguous().reshape(-1).view(torch.uint8).numpy(), t) for name, t in tensors.items()]
    parts.sort(key=lambda part: -part[2].element_size())
    sizes = [(name, _TYPES[tensor.dtype], tensor.shape, data.nbytes) for name, data, tensor in parts]
    file.write(safetensors_header({**facts, CHECKSUM: tensors_checksum(tensors, facts)}, sizes))
    for _, data, _ in parts:
        file.write(data.data)
