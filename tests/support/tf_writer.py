"""Writes TensorFlow checkpoints (format V2) for tests of what reads them: the format said a second time, forwards."""

import struct
from pathlib import Path

import numpy as np

from bertworks.checkpoint.convert.tensorflow_files import masked_crc32c

from .protobuf import field, varint

NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}
NUMBERS["uint16"] = 14  # numpy has no bfloat16: its bits
MAGIC = bytes.fromhex("57fb808b247547db")


def header(shards: int, endianness: int = 0) -> bytes:
    return field(1, shards) + (field(2, endianness) if endianness else b"") + field(3, field(1, 1))


def entry(array: np.ndarray, shard: int, offset: int, **changes: int) -> bytes:
    """A BundleEntryProto; `changes` are fields that shall say something else."""
    data = array.tobytes()
    says = {"dtype": NUMBERS[array.dtype.name], "shard": shard, "offset": offset, "size": len(data)} | changes
    shape = b"".join(field(2, field(1, n)) for n in array.shape)
    out = field(1, says["dtype"]) + field(2, shape)
    out += b"".join(field(i, says[key]) for i, key in ((3, "shard"), (4, "offset"), (5, "size")) if says[key])
    return out + varint(6 << 3 | 5) + struct.pack("<I", says.get("checksum", masked_crc32c(data)))


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A block's contents: keys share what they can with the one before."""
    out, last = b"", b""
    for key, value in pairs:
        shared = next((i for i, (a, b) in enumerate(zip(key, last, strict=False)) if a != b), min(len(key), len(last)))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return out + struct.pack("<II", 0, 1)


def table(pairs: list[tuple[bytes, bytes]], size: int = 40, compression: int = 0) -> bytes:
    """An index file with `size` entries a block."""
    out, places = b"", []

    def put(contents: bytes) -> bytes:
        nonlocal out
        place = varint(len(out)) + varint(len(contents))
        whole = contents + bytes([compression])
        out += whole + struct.pack("<I", masked_crc32c(whole))
        return place

    for i in range(0, len(pairs), size):
        places.append((pairs[i : i + size][-1][0], put(block(pairs[i : i + size]))))
    footer = put(block([])) + put(block(places))
    return out + footer.ljust(40, b"\0") + MAGIC


def write_bundle(prefix: Path, arrays: dict[str, np.ndarray], shards: int = 1) -> None:
    """A whole checkpoint, tensors spread over the shards in turn."""
    rows, data = [(b"", header(shards))], [b""] * shards
    for i, (name, array) in enumerate(sorted(arrays.items())):
        shard = i % shards
        rows.append((name.encode(), entry(array, shard, len(data[shard]))))
        data[shard] += array.tobytes()
    prefix.with_name(prefix.name + ".index").write_bytes(table(rows))
    for i, part in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{i:05}-of-{shards:05}").write_bytes(part)
