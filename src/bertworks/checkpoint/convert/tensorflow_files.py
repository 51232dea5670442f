"""TensorFlow's checkpoint files (format V2), read without TensorFlow: an index and shards of raw tensors.

    bert_model.ckpt.index                   names, types, shapes, offsets, checksums
    bert_model.ckpt.data-00000-of-00001     little-endian values, one tensor after another

The index is a sorted table as LevelDB writes it (blocks, each with a checksum), its values are protocol buffers:
BundleHeaderProto under the empty name, a BundleEntryProto under each other one (tensor_bundle.proto). Every block and
every tensor is compared with its checksum, so a damaged file raises one InputError that names it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...files import InputError

Fields = Mapping[int, list[int | bytes]]  # the values of a message by the numbers of its fields
MAGIC = 0xDB4775248B80FB57
FOOTER, TRAILER = 48, 5  # bytes at the end of the file; behind each block: how it is compressed, and its checksum
DTYPES = {  # the numbers of types.proto that are read
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C as TensorFlow and LevelDB store it: rotated by 15 bits, plus a constant.

    Raises InputError if google-crc32c is not installed.
    """
    try:
        import google_crc32c
    except ImportError:
        raise InputError(
            "TensorFlow checkpoints are checked with the package google-crc32c, which is not installed; install it: "
            "pip install 'bertworks[tensorflow]'"
        ) from None
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass(frozen=True)
class Variable:
    """An entry of the index: where a tensor is stored, and its type, shape and checksum."""

    dtype: int  # number in types.proto: 1 float32, 9 int64, 14 bfloat16, 19 float16
    shape: tuple[int, ...]
    shard: int
    offset: int  # bytes from the beginning of its shard
    size: int  # bytes
    checksum: int  # masked CRC-32C of these bytes


@dataclass(frozen=True)
class Bundle:
    """A checkpoint whose index has been read."""

    prefix: Path  # the path without .index
    shards: tuple[Path, ...]
    variables: Mapping[str, Variable]

    def read(self, name: str) -> Tensor:
        """A tensor of the type it is stored in. Raises InputError if it is damaged or of a type without numbers."""
        variable = self.variables[name]
        shard = self.shards[variable.shard]
        if variable.dtype not in DTYPES:
            raise InputError(f"{self.prefix}: {name} has type {variable.dtype} of types.proto, which is not read")
        with open(shard, "rb") as file:
            file.seek(variable.offset)
            data = file.read(variable.size)
        if len(data) != variable.size or masked_crc32c(data) != variable.checksum:
            raise InputError(
                f"{shard}: damaged: the bytes of {name} do not have the checksum that the index states; copy it again"
            )
        dtype = DTYPES[variable.dtype]
        flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.reshape(variable.shape)


def find_prefix(path: Path | str) -> Path:
    """The prefix of the checkpoint that `path` means: a prefix, one of its files, or a folder with one checkpoint.

    Raises InputError that says which checkpoints there are, if no or several checkpoints match.
    """
    path = Path(path)
    prefix = path.with_name(path.name.removesuffix(".index").partition(".data-")[0])
    if not path.is_dir() and prefix.with_name(prefix.name + ".index").exists():
        return prefix
    folder = path if path.is_dir() else path.parent
    checkpoints = prefixes(folder)
    if path.is_dir() and len(checkpoints) == 1:
        return checkpoints[0]
    names = ", ".join(prefix.name for prefix in checkpoints)
    there = f"give one of {names}" if names else "there is no .index file"
    what = f"{path}: no single" if path.is_dir() else f"{path}: no"
    raise InputError(f"{what} checkpoint of TensorFlow's format V2 (index and data files); {there}")


def prefixes(folder: Path) -> list[Path]:
    """The checkpoints in a folder; none without the folder."""
    return [file.with_suffix("") for file in sorted(folder.glob("*.index"))]


def open_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint. Raises InputError if it or a shard is missing, damaged, or of another format."""
    index = prefix.with_name(prefix.name + ".index")
    try:
        rows = _entries(index.read_bytes())
        count = _header(rows.pop(b"", b""))
        variables = {name.decode(): _variable(value, name.decode()) for name, value in rows.items()}
    except ValueError as error:
        raise InputError(f"{index}: damaged, or no index of a TensorFlow checkpoint: {error}") from None
    shards = tuple(prefix.with_name(f"{prefix.name}.data-{i:05}-of-{count:05}") for i in range(count))
    for shard in shards:
        if not shard.exists():
            raise InputError(f"{shard}: missing; {index.name} says that there are {count} of them")
    return Bundle(prefix, shards, variables)


# ---- the table


def _entries(data: bytes) -> dict[bytes, bytes]:
    """All keys and values of a table."""
    footer = data[-FOOTER:]
    if int.from_bytes(footer[-8:], "little") != MAGIC:
        raise ValueError("its last eight bytes are not those of a table; was it cut?")
    body = data[:-FOOTER]
    _, at = _handle(footer, 0)  # of the block of metadata
    top, _ = _handle(footer, at)
    rows: dict[bytes, bytes] = {}
    for _, value in _pairs(_block(body, top)):
        rows |= _pairs(_block(body, _handle(value, 0)[0]))
    return rows


def _block(body: bytes, handle: tuple[int, int]) -> bytes:
    """The contents of a block, checked."""
    start, size = handle
    end = start + size + TRAILER
    if int.from_bytes(body[end - 4 : end], "little") != masked_crc32c(body[start : end - 4]):
        raise ValueError(f"the block at byte {start:,} does not have its checksum")
    if body[start + size]:
        raise ValueError(f"the block at byte {start:,} is compressed (snappy), which is not read")
    return body[start : start + size]


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block: each key states how many bytes it shares with the one before."""
    restarts = int.from_bytes(block[-4:], "little")
    at, key = 0, b""
    while at < len(block) - 4 * (restarts + 1):
        shared, at = varint(block, at)
        added, at = varint(block, at)
        size, at = varint(block, at)
        key = key[:shared] + block[at : at + added]
        yield key, block[at + added : at + added + size]
        at += added + size


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    start, at = varint(data, at)
    size, at = varint(data, at)
    return (start, size), at


# ---- the protocol buffers


def varint(data: bytes, start: int) -> tuple[int, int]:
    """A number of at most 64 bits, seven bits per byte, and where it ends."""
    value = 0
    for i, byte in enumerate(data[start : start + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value & (2**64 - 1), start + i + 1
    raise ValueError(f"the number at byte {start} does not end")


def fields_of(message: int | bytes) -> Fields:
    """The fields of a message."""
    if isinstance(message, int):
        raise ValueError("a number in place of a message")
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == 0:
            value, at = varint(message, at)
        else:
            # the wire types 1 and 5 have fixed lengths
            size, at = varint(message, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, len(message)), at)
            value, at = message[at : at + size], at + size
            if at > len(message):
                raise ValueError(f"its field {number} (wire type {wire}) reaches beyond its end")
        fields.setdefault(number, []).append(value)
    return fields


def number_in(fields: Fields, field: int, default: int = 0) -> int:
    """The value of a field that is a number from 0."""
    value = fields.get(field, [default])[-1]
    if not isinstance(value, int) or value >= 2**63:
        raise ValueError(f"field {field} is no number from 0")
    return value


def bytes_in(fields: Fields, field: int) -> list[bytes]:
    """All values of a field that is text, bytes or a message."""
    items = fields.get(field, [])
    values = [value for value in items if isinstance(value, bytes)]
    if len(values) < len(items):
        raise ValueError(f"field {field} is a number")
    return values


def _header(message: bytes) -> int:
    """The number of shards."""
    fields = fields_of(message)
    count = number_in(fields, 1)
    if number_in(fields, 2):
        raise ValueError("written on a big-endian machine, which is not read")
    if count < 1:
        raise ValueError("no data file")
    return count


def _variable(message: bytes, name: str) -> Variable:
    fields = fields_of(message)
    if 7 in fields:
        raise ValueError(f"{name} is stored in slices (a partitioned variable), which is not read")
    sizes = [fields_of(dim) for shape in bytes_in(fields, 2)[-1:] for dim in bytes_in(fields_of(shape), 2)]
    return Variable(
        dtype=number_in(fields, 1),
        shape=tuple(number_in(dim, 1) for dim in sizes),
        shard=number_in(fields, 3),
        offset=number_in(fields, 4),
        size=number_in(fields, 5),
        checksum=int.from_bytes((bytes_in(fields, 6) or [b""])[-1], "little"),
    )
