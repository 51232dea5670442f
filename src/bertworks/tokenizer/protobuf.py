"""Protocol Buffers' wire format: messages of SentencePiece's .model files and of TensorFlow's checkpoints.

Every length is compared with the bytes that are there. All functions raise ValueError for damaged bytes.
"""

from collections.abc import Mapping

Fields = Mapping[int, list[int | bytes]]  # the values of a message by the numbers of its fields
SIZES = {1: 8, 5: 4}  # bytes of the wire types of fixed length


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
            size, at = varint(message, at) if wire == 2 else (SIZES.get(wire, len(message)), at)
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
    found = fields.get(field, [])
    values = [value for value in found if isinstance(value, bytes)]
    if len(values) < len(found):
        raise ValueError(f"field {field} is a number")
    return values
