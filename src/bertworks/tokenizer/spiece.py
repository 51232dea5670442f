"""SentencePiece `.model` files read without the sentencepiece package: a ModelProto in Protocol Buffers' wire format.

Only what decides ids is read: pieces with their scores and types, some fields of trainer_spec, and normalizer_spec with
its compiled character map. Every length is held against the bytes that are there. The character map is a trie that the
`tokenizers` library follows without looking, so all of it that can be reached is checked first.

Source of the field numbers: sentencepiece_model.proto (google/sentencepiece); of the trie: the same project's
normalizer.cc and Darts-clone.
"""

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, read_bytes

MAX_BYTES, MAX_PIECES = 1 << 26, 1 << 22  # of a file; the largest published ones have some 20 MB, 500,000 pieces
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
MODELS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass(frozen=True)
class SentencePieceModel:
    """The content of a .model file."""

    pieces: list[tuple[str, float]]  # with their scores, in the order of their ids
    types: list[int]  # NORMAL, UNKNOWN, ...
    charsmap: bytes  # the compiled character map; empty: text is left as it is
    byte_fallback: bool  # unknown characters become their bytes

    @property
    def unk_id(self) -> int:
        """The id of the unknown piece."""
        return self.types.index(UNKNOWN)

    @property
    def controls(self) -> list[str]:
        """The pieces that no text becomes."""
        return [self.pieces[i][0] for i, kind in enumerate(self.types) if kind in (UNKNOWN, CONTROL)]


def read_model(path: Path) -> SentencePieceModel:
    """Read a Unigram .model. Raises InputError naming file and byte if it is damaged, or what is not supported."""
    data = read_bytes(path, "a SentencePiece model", MAX_BYTES)
    try:
        return _model(data)
    except _Damage as damage:
        found, offset = damage.args
        raise InputError(f"{path}: byte {offset}: {found}; not a whole SentencePiece model") from None
    except _Unsupported as reason:
        raise InputError(f"{path}: {reason}; only Unigram models of SentencePiece's usual kind are supported") from None


class _Damage(Exception):
    """What is wrong with the file, and at which byte."""


class _Unsupported(Exception):
    """What a whole file has that cannot be used here."""


class _Field(NamedTuple):
    number: int
    wire: int  # 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes
    value: int  # of a varint
    start: int  # offset of its bytes
    stop: int


def _model(data: bytes) -> SentencePieceModel:
    pieces: list[tuple[str, float]] = []
    types: list[int] = []
    settings: dict[tuple[int, int], int] = {}
    parts = set()
    charsmap = _Field(0, 2, 0, 0, 0)
    for field in _fields(data, 0, len(data)):
        parts.add(field.number)
        if field.number == 1:
            text, score, kind = _piece(data, *_message(field))
            pieces.append((text, score))
            types.append(kind)
            if len(pieces) > MAX_PIECES:
                raise _Unsupported(f"more than {MAX_PIECES:,} pieces")
        elif field.number in (2, 3):
            for inner in _fields(data, *_message(field)):
                if (field.number, inner.number) == (3, 2):
                    charsmap = inner
                elif inner.wire == 0:
                    settings[field.number, inner.number] = inner.value
    if not {1, 2, 3} <= parts:  # a file may be cut just between two pieces
        raise _Damage("the file ends before its trainer_spec and normalizer_spec", len(data))
    _check_settings(settings)
    _check_pieces(pieces, types, len(data))
    charmap = data[slice(*_message(charsmap))]
    if charmap:
        check_charsmap(charmap, lambda message: _Damage(f"character map: {message}", charsmap.start))
    return SentencePieceModel(pieces, types, charmap, bool(settings.get((2, 35))))


def _piece(data: bytes, begin: int, end: int) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, NORMAL
    for field in _fields(data, begin, end):
        if field.number == 1:
            start, stop = _message(field)
            try:
                text = data[start:stop].decode("utf-8")
            except UnicodeDecodeError as error:
                raise _Damage("a piece that is not UTF-8", start + error.start) from None
        elif field.number == 2 and field.wire == 5:
            (score,) = struct.unpack_from("<f", data, field.start)
            if not math.isfinite(score):
                raise _Damage(f"the score {score}", field.start)
        elif field.number == 3 and field.wire == 0:
            kind = field.value
    if not text or not NORMAL <= kind <= BYTE:
        raise _Damage(f"the piece {text!r} of type {kind}" if text else "a piece without text", begin)
    return text, score, kind


def _check_pieces(pieces: list[tuple[str, float]], types: list[int], end: int) -> None:
    """`end`: size of the file, for errors."""
    if types.count(UNKNOWN) != 1:
        raise _Damage(f"{len(pieces):,} pieces, {types.count(UNKNOWN)} of them for the unknown; expected one", end)
    seen: dict[str, int] = {}
    for number, ((piece, _), kind) in enumerate(zip(pieces, types, strict=True)):
        if seen.setdefault(piece, number) != number:
            raise _Damage(f"piece {number} repeats piece {seen[piece]} ({piece!r})", end)
        if kind == UNUSED:
            raise _Unsupported(f"piece {number} ({piece!r}) is switched off (type UNUSED)")
        if kind == NORMAL and "\u2581" in piece[1:] and piece.strip("\u2581"):
            raise _Unsupported(f"the piece {piece!r} continues over a space (split_by_whitespace is false)")


def _message(field: _Field) -> tuple[int, int]:
    """Where the bytes of a field with a length begin and end."""
    if field.wire != 2:
        raise _Damage(f"field {field.number} of wire type {field.wire}, expected bytes", field.start)
    return field.start, field.stop


def _fields(data: bytes, start: int, stop: int) -> Iterator[_Field]:
    """The fields between two bytes."""
    offset = start
    while offset < stop:
        key, offset = _varint(data, offset, stop)
        number, wire = key >> 3, key & 7
        value, begin = 0, offset
        if wire == 0:
            value, offset = _varint(data, offset, stop)
        elif wire == 2:
            length, begin = _varint(data, offset, stop)
            offset = begin + length
        elif wire in (1, 5):
            offset += 8 if wire == 1 else 4
        else:
            raise _Damage(f"wire type {wire}", begin)
        if offset > stop or not number:
            raise _Damage(f"field {number} ends at byte {offset}, its message at byte {stop}", begin)
        yield _Field(number, wire, value, begin, offset)


def _varint(data: bytes, offset: int, stop: int) -> tuple[int, int]:
    """A number of seven bits a byte, at most ten bytes, and where it ends."""
    value = 0
    for i, byte in enumerate(data[offset : min(offset + 10, stop)]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, offset + i + 1
    if stop - offset < 10:
        raise _Damage("the file ends inside a number", stop)
    raise _Damage("a number of more than ten bytes", offset)


def _check_settings(settings: dict[tuple[int, int], int]) -> None:
    """`settings`: numbers of trainer_spec (2) and normalizer_spec (3) by the numbers of their fields."""
    model = settings.get((2, 3), 1)
    if model != 1:
        raise _Unsupported(f"its model_type is {MODELS.get(model, model)}")
    if not settings.get((3, 3), 1) or not settings.get((3, 5), 1):
        raise _Unsupported("add_dummy_prefix or escape_whitespaces is false")
    if settings.get((2, 24)):
        raise _Unsupported("treat_whitespace_as_suffix is true")


# ---- the character map


def check_charsmap(data: bytes, damage: Callable[[str], Exception]) -> None:
    """Raise damage(what) unless every step through the trie stays inside it and ends at a text.

    The map is the length of the trie, the trie, and texts that end with a zero byte. The trie has 32-bit units. The
    label of a unit is the byte that leads to it. Its offset, XORed with the next byte, leads on. A leaf has the offset
    of a text.
    """
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 1024 or not 0 < size <= len(data) - 4:
        raise damage(f"{len(data):,} bytes, {size:,} of them trie; expected blocks of 1024 bytes")
    units = np.frombuffer(data, "<u4", size // 4, 4)
    texts = data[4 + size :]
    try:
        texts.decode("utf-8")
    except UnicodeDecodeError as error:
        raise damage(f"its texts are not UTF-8 ({error.reason})") from None
    offsets = _leaves(units, damage)
    inside = np.append(np.frombuffer(texts, np.uint8), 0)
    if texts[-1:] != b"\0" or (offsets >= len(texts)).any() or ((inside[offsets] & 0xC0) == 0x80).any():
        raise damage("a leaf points beside the texts")


def _leaves(units: NDArray[Any], damage: Callable[[str], Exception]) -> NDArray[np.int64]:
    """The text offsets in the leaves of all units that can be reached."""
    seen = np.zeros(len(units), bool)
    level, found = np.zeros(1, np.int64), [np.empty(0, np.int64)]
    letters = np.arange(1, 256)
    while len(level):
        seen[level] = True
        unit = units[level].astype(np.int64)
        base = level ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6))
        if (base >= len(units)).any():  # the units come in whole blocks of 256, so all 256 ways from one stay inside
            raise damage("a step leads out of the trie")
        found.append(units[base[(unit & 256) != 0]].astype(np.int64) & 0x7FFFFFFF)
        next_level = []
        for part in np.array_split(base, 1 + len(base) // 4096):
            child = part[:, None] ^ letters
            next_level.append(child[(units[child] & 0x800000FF) == letters])
        level = np.unique(np.concatenate(next_level))
        level = level[~seen[level]]
    return np.concatenate(found)
