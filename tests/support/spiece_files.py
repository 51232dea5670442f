"""Tiny SentencePiece models, written field by field."""

import struct

import numpy as np


def field(number: int, content: bytes | int | float) -> bytes:
    """One field in Protocol Buffers' wire format."""
    if isinstance(content, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", content)
    key = bytes([number << 3 & 0x7F | (2 if isinstance(content, bytes) else 0)])
    if number > 15:
        key = bytes([key[0] | 0x80, number >> 4])
    return key + (varint(len(content)) + content if isinstance(content, bytes) else varint(content))


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def charsmap() -> bytes:
    """A character map of one entry: A becomes b."""
    units = np.zeros(256, "<u4")
    units[0] = 1 << 10  # on to 1 ^ letter
    units[1 ^ 65] = 65 | 1 << 8 | 3 << 10  # A, with a leaf 3 further on
    units[1 ^ 65 ^ 3] = 1 << 31  # the text at 0
    return len(units.tobytes()).to_bytes(4, "little") + units.tobytes() + b"b\0"


def model_bytes(pieces: dict[str, int], trainer: bytes = b"", charmap: bytes = b"") -> bytes:
    out = b""
    for i, (piece, kind) in enumerate(pieces.items()):
        out += field(1, field(1, piece.encode()) + field(2, -float(i)) + field(3, kind))
    return out + field(2, trainer) + field(3, field(1, b"own") + (field(2, charmap) if charmap else b""))


PIECES = {"<pad>": 3, "<unk>": 2, "[CLS]": 3, "[SEP]": 3, "[MASK]": 3, "▁": 1, "▁a": 1, "b": 1, "(": 4, "ab": 1}
