"""Tiny SentencePiece models, written field by field."""

import numpy as np

from .protobuf import field


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
