"""SentencePiece `.model` files, read without the sentencepiece package.

What decides ids is read: pieces with their scores and types, some settings, and the compiled character map. The
numbers of the fields are those of sentencepiece_model.proto (google/sentencepiece).
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from ..files import InputError, read_bytes
from .protobuf import bytes_in, fields_of, number_in

MAX_BYTES = 1 << 26  # of a file; the largest published ones have some 20 MB
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
UNIGRAM = 1  # among the types of models: 2 BPE, 3 words, 4 characters


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
    fields = fields_of(data)
    rows = [_piece(message) for message in bytes_in(fields, 1)]
    specs = [bytes_in(fields, number)[-1:] for number in (2, 3)]
    if not rows or not all(specs):  # a file may be cut just between two pieces
        raise ValueError("the file ends before its pieces, trainer_spec and normalizer_spec")
    trainer, normalizer = (fields_of(message) for [message] in specs)
    if (kind := number_in(trainer, 3, UNIGRAM)) != UNIGRAM:
        raise ValueError(f"its model_type is {kind}: BPE (2), words (3) or characters (4)")
    if not number_in(normalizer, 3, 1) or not number_in(normalizer, 5, 1) or number_in(trainer, 24):
        raise ValueError("add_dummy_prefix or escape_whitespaces is false, or treat_whitespace_as_suffix is true")
    if (unknown := sum(kind == UNKNOWN for _, _, kind in rows)) != 1:
        raise ValueError(f"{unknown} of its {len(rows):,} pieces stand for the unknown; expected one")
    for number, (piece, _, kind) in enumerate(rows):
        if kind == UNUSED or not NORMAL <= kind <= BYTE:
            raise ValueError(f"piece {number} ({piece!r}) has type {kind}: switched off (5, UNUSED) or unknown")
        if kind == NORMAL and "\u2581" in piece[1:] and piece.strip("\u2581"):
            raise ValueError(f"the piece {piece!r} continues over a space (split_by_whitespace is false)")
    charsmap = bytes_in(normalizer, 2) or [b""]
    pieces = [(piece, score) for piece, score, _ in rows]
    return SentencePieceModel(pieces, [kind for _, _, kind in rows], charsmap[-1], bool(number_in(trainer, 35)))


def _piece(message: bytes) -> tuple[str, float, int]:
    """Text, score and type of a piece."""
    fields = fields_of(message)
    [text], [score] = bytes_in(fields, 1)[-1:] or [b""], bytes_in(fields, 2)[-1:] or [bytes(4)]
    number = struct.unpack("<f", score)[0] if len(score) == 4 else math.nan
    if not text or not math.isfinite(number):
        raise ValueError(f"a piece with the text {text!r} and the score {score!r}")
    return text.decode("utf-8"), number, number_in(fields, 3, NORMAL)
