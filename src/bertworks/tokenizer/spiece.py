"""SentencePiece `.model` files, read without the sentencepiece package: a message in Protocol Buffers' wire format.

Only what decides ids is read: pieces with their scores and types, some fields of trainer_spec and normalizer_spec, and
its compiled character map. Every length is compared with the bytes that are there.

Source of the field numbers: sentencepiece_model.proto (google/sentencepiece).
"""

import math
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..files import InputError, read_bytes

MAX_BYTES, MAX_PIECES = 1 << 26, 1 << 22  # of a file; the largest published ones have some 20 MB, 500,000 pieces
MAX_GROWTH = 100  # characters that a normalizer makes of one; Unicode's own normalization makes 18 at most
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
MODELS: dict[int | bytes, str] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass(frozen=True)
class SentencePieceModel:
    """The content of a .model file."""

    pieces: list[tuple[str, float]]  # with their scores, in the order of their ids
    types: list[int]  # NORMAL, UNKNOWN, ...
    charsmap: bytes  # the compiled character map; empty: text is left as it is
    byte_fallback: bool  # unknown characters become their bytes

    @property
    def controls(self) -> list[str]:
        """The pieces that no text becomes."""
        return [self.pieces[i][0] for i, kind in enumerate(self.types) if kind in (UNKNOWN, CONTROL)]


def read_model(path: Path) -> SentencePieceModel:
    """Read a Unigram .model. Raises InputError if it is damaged, or of a kind that is not supported."""
    data = read_bytes(path, "a SentencePiece model", MAX_BYTES)
    try:
        return _model(data)
    except ValueError as error:
        raise InputError(f"{path}: {error}; expected a whole Unigram model of SentencePiece") from None


def _model(data: bytes) -> SentencePieceModel:
    pieces: list[tuple[str, float]] = []
    types: list[int] = []
    specs: dict[int, dict[int, int | bytes]] = {}  # of the trainer (2) and the normalizer (3): values by field
    for number, value in _fields(data):
        if number == 1:
            text, score, kind = _piece(value)
            pieces.append((text, score))
            types.append(kind)
            if len(pieces) > MAX_PIECES:
                raise ValueError(f"more than {MAX_PIECES:,} pieces")
        elif number in (2, 3):
            specs[number] = dict(_fields(value))
    if not pieces or len(specs) < 2:  # a file may be cut just between two pieces
        raise ValueError("the file ends before its pieces, trainer_spec and normalizer_spec")
    trainer, normalizer = specs[2], specs[3]
    _check_specs(trainer, normalizer)
    _check_pieces([text for text, _ in pieces], types)
    charsmap = normalizer.get(2, b"")
    if not isinstance(charsmap, bytes):
        raise ValueError("its character map is a number")
    if charsmap:
        check_charsmap(charsmap)
    return SentencePieceModel(pieces, types, charsmap, bool(trainer.get(35)))


def _piece(message: int | bytes) -> tuple[str, float, int]:
    """Text, score and type of a piece."""
    fields = dict(_fields(message))
    text, score, kind = fields.get(1, b""), fields.get(2, bytes(4)), fields.get(3, NORMAL)
    if not text or not isinstance(text, bytes) or not isinstance(score, bytes) or kind not in range(NORMAL, BYTE + 1):
        raise ValueError(f"a piece with the text {text!r}, the score {score!r} and the type {kind!r}")
    (number,) = struct.unpack("<f", score) if len(score) == 4 else (math.nan,)
    if not math.isfinite(number):
        raise ValueError(f"a piece with the score {number}")
    return text.decode("utf-8"), number, int(kind)  # an error of decoding is a ValueError


def _check_specs(trainer: dict[int, int | bytes], normalizer: dict[int, int | bytes]) -> None:
    """Raise ValueError for settings that are not computed here."""
    model = trainer.get(3, 1)
    if model != 1:
        raise ValueError(f"its model_type is {MODELS.get(model, model)}")
    if not normalizer.get(3, 1) or not normalizer.get(5, 1):
        raise ValueError("add_dummy_prefix or escape_whitespaces is false")
    if trainer.get(24):
        raise ValueError("treat_whitespace_as_suffix is true")


def _check_pieces(pieces: list[str], types: list[int]) -> None:
    """Raise ValueError for pieces that are not those of a Unigram model of the usual kind."""
    if types.count(UNKNOWN) != 1:
        raise ValueError(f"{types.count(UNKNOWN)} of its {len(pieces):,} pieces stand for the unknown; expected one")
    [(repeated, count)] = Counter(pieces).most_common(1)
    if count > 1:
        raise ValueError(f"the piece {repeated!r} is there {count} times")
    for number, (piece, kind) in enumerate(zip(pieces, types, strict=True)):
        if kind == UNUSED:
            raise ValueError(f"piece {number} ({piece!r}) is switched off (type UNUSED)")
        if kind == NORMAL and "\u2581" in piece[1:] and piece.strip("\u2581"):
            raise ValueError(f"the piece {piece!r} continues over a space (split_by_whitespace is false)")


def _fields(message: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: a whole number, or bytes."""
    if isinstance(message, int):
        raise ValueError("a number in place of a message")
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, offset = _varint(message, offset)
            yield number, value
            continue
        size, offset = _varint(message, offset) if wire == 2 else ({1: 8, 5: 4}.get(wire, len(message)), offset)
        if offset + size > len(message):
            raise ValueError(f"its field {number} (wire type {wire}) goes beyond its end")
        yield number, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    """A number of seven bits a byte, at most ten bytes, and where it ends."""
    value = 0
    for i, byte in enumerate(message[offset : offset + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, offset + i + 1
    raise ValueError(f"the number at byte {offset} does not end")


def check_charsmap(data: bytes) -> None:
    """Raise ValueError unless every step through a character map stays inside it and ends at a short text.

    The `tokenizers` library follows the map without looking. It is the size of a trie in bytes, the trie, and texts
    that end with a zero byte. The trie has 32-bit units (Darts-clone): a unit's offset, XORed with the next byte, leads
    to the next unit, and a leaf has the offset of a text.
    """
    size = int.from_bytes(data[:4], "little")
    if size % 1024 or not 0 < size <= len(data) - 4:
        raise ValueError(f"its character map has {len(data):,} bytes, and a trie of {size:,}; expected blocks of 1024")
    units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
    texts = data[4 + size :]
    inner = np.flatnonzero(units < 1 << 31)
    unit = units[inner]
    base = inner ^ (unit >> 10 << ((unit & 512) >> 6))
    if (base >= len(units)).any():  # the units come in whole blocks of 256, so all 256 ways from one stay inside
        raise ValueError("a step leads out of its character map")
    leaves = units[base[(unit & 256) != 0]] & 0x7FFFFFFF
    content = np.frombuffer(texts, np.uint8)
    if texts[-1:] != b"\0" or (leaves >= len(texts)).any() or ((content[leaves] & 0xC0) == 0x80).any():
        raise ValueError("a leaf of its character map points beside the texts")
    if (longest := max(map(len, texts.decode().split("\0")))) > MAX_GROWTH:
        raise ValueError(f"its character map has a text of {longest:,} characters; expected at most {MAX_GROWTH}")
