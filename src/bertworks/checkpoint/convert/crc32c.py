"""CRC-32C (Castagnoli, RFC 3720, B.4), the checksum of TensorFlow's files, with NumPy alone.

A CRC is linear: the CRC of some bytes is the exclusive or of the CRCs of their parts, each advanced by the zero bytes
that follow it. So a chunk is cut into many lanes. All lanes advance together, one word at a time, and are then joined
two by two.
"""

import functools

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

CHUNK = 1 << 20  # bytes that are cut into lanes at once


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C as TensorFlow and LevelDB store it: rotated by 15 bits, plus a constant."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C of `data`: 0xE3069283 of b"123456789"."""
    state, view = 0xFFFFFFFF, memoryview(data).cast("B")
    for start in range(0, len(view), CHUNK):
        state = _advance_chunk(state, view[start : start + CHUNK])
    return state ^ 0xFFFFFFFF


def _advance_chunk(state: int, chunk: memoryview) -> int:
    """The state after `chunk`, which is not empty. Leading zeros change nothing, so they fill up the first lanes."""
    length = 256 if len(chunk) > 1 << 14 else 16  # bytes of a lane
    lanes = 1 << (-(-len(chunk) // length) - 1).bit_length()
    room = np.zeros(lanes * length + 4, np.uint8)  # four more: the state may be longer than the chunk
    start = lanes * length - len(chunk)
    room[start : start + len(chunk)] = np.frombuffer(chunk, np.uint8)
    room[start : start + 4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    beyond = int.from_bytes(room[-4:].tobytes(), "little")
    states = np.zeros(lanes, np.uint32)
    for word in np.ascontiguousarray(room[:-4].view("<u4").reshape(lanes, -1).T):
        states = _advance(states ^ word, _steps(4))
    while len(states) > 1:
        states = _advance(states[0::2], _steps(length)) ^ states[1::2]
        length *= 2
    return int(states[0]) ^ beyond


def _advance(states: Words, tables: Words) -> Words:
    """States after as many zero bytes as `tables` (2, 65536) are made for: one table for each half of a state."""
    return tables[0][states & 0xFFFF] ^ tables[1][states >> 16]


@functools.cache
def _steps(length: int) -> Words:
    """(2, 65536) tables that advance a state by `length` zero bytes, a power of two."""
    halves = np.arange(1 << 16, dtype=np.uint32) << np.array([[0], [16]], np.uint32)
    if length > 1:
        return _advance(_advance(halves, _steps(length // 2)), _steps(length // 2))
    for _ in range(8):  # a bit at a time; the polynomial with its bits reversed
        halves = np.where(halves & 1, (halves >> 1) ^ np.uint32(0x82F63B78), halves >> 1)
    return halves
