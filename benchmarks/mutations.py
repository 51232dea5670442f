"""Mutations of valid files for hostile.py: of bytes, of text, of trees (JSON, TOML), and of formats with checksums.

Every function takes a `random.Random` and changes nothing else: the same generator state gives the same bytes.
"""

import csv
import io
import json
import random
import struct
import tomllib
from collections.abc import Callable
from typing import Any

import tomli_w

HUGE = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
NUMBERS: list[Any] = [
    *(0, 1, -1, 2, 3, 7, 255, 65_536, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), -(10**9)),
    *(0.0, -0.0, 0.5, 1e-300, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
]
STRINGS = [
    *("", " ", "\n", "0", "-1", "NaN", "null", "../../escaped", "/etc/passwd", "escaped\x00name", "a/b", ".", ".."),
    *("\ud800", "\x00", "\x1b[31m", "\u202e", "\ufeff", "<script>alert(1)</script>", "{0}", "%s", "[bold]", "$x^2$"),
    *("x" * 5_000, "é" * 3_000, "e\u0301\u0327" * 2_000, "\U0001f469\u200d" * 500, "한국어", "\U000e0001", "\uffff"),
]
ODD_TEXT = [
    *(b"\xff\xfe", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\x1a", b"\r", b"\x0c"),
    *("\u2028".encode(), "\ufeff".encode(), "\u0301".encode() * 3_000, "\u0301\u0327".encode() * 20_000, b'"', b'""'),
    *(b"\t" * 300, b"," * 300, b"\n" * 5_000, b"[MASK]", b"[UNK][SEP]", b"a" * 200_000, "가".encode() * 20_000, b"NaN"),
    *(b"\\", b"{", b"}" * 20, b"<doc id=1>", b"</doc>", b"# ", b"9" * 5_000, b"1e999", b"-DOCSTART- -X- O O\n", b" "),
]
MAGIC = [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1", b"\x93NUMPY"]
DEEP = "\uf8ffdeep\uf8ff"  # replaced after serialisation: no serialiser nests 100,000 levels
LONG = "\uf8fflong\uf8ff"  # the same for an integer of 5,000 digits


def mutate_bytes(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """One to three changes of the bytes of a file; `other` is what may be spliced in."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = rng.choice(_BYTES)(rng, data, other)
    return data


def _flip(rng: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _i in range(rng.choice((1, 1, 4, 30)) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.choice((0, 1, 8, len(data) - 1, rng.randrange(len(data) + 1)))]


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 4, 8, 64, 1000)))


def _double(rng: random.Random, data: bytes, _: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 2, 50)) + data[end:]


def _drop(rng: random.Random, data: bytes, _: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:begin] + data[end:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    begin, end = _range(rng, other or data)
    at = rng.randrange(len(data) + 1)
    return data[:at] + (other or data)[begin:end] + data[at:]


def _number(rng: random.Random, data: bytes, _: bytes) -> bytes:
    value, size = rng.choice(HUGE), rng.choice((1, 2, 4, 8))
    what = (value % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big")))
    if rng.random() < 0.2:
        what = b"\xff" * 9 + b"\x01"  # the longest varint
    at = rng.choice((0, 8, rng.randrange(len(data) + 1)))
    return data[:at] + what + data[at + len(what) * rng.randint(0, 1) :]


def _noise(rng: random.Random, data: bytes, _: bytes) -> bytes:
    begin, end = _range(rng, data)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def _magic(rng: random.Random, data: bytes, _: bytes) -> bytes:
    magic = rng.choice(MAGIC)
    return magic + data[len(magic) * rng.randint(0, 1) :]


_BYTES: list[Callable[[random.Random, bytes, bytes], bytes]] = [
    _flip, _flip, _cut, _double, _drop, _splice, _number, _number, _noise, _magic
]  # fmt: skip


def mutate_text(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """Changes of a text file: lines dropped, doubled, swapped; odd characters; now and then of plain bytes."""
    if rng.random() < 0.15:
        return mutate_bytes(rng, data, other)
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = data.split(b"\n")
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        how = rng.randrange(7)
        if how == 0:
            del lines[i]
        elif how == 1:
            lines.insert(j, lines[i])
        elif how == 2:
            lines[i], lines[j] = lines[j], lines[i]
        elif how == 3:
            lines[i] = b""
        else:
            at = rng.randrange(len(lines[i]) + 1)
            lines[i] = lines[i][:at] + rng.choice(ODD_TEXT) + lines[i][at:]
        data = rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(lines)
    return data


def mutate_tree(rng: random.Random, tree: Any, times: int = 0) -> Any:
    """Change nodes of nested dicts and lists: types swapped, keys dropped, renamed, doubled; values out of range."""
    root = [tree]
    for _ in range(times or rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(root))
        holder, key = rng.choice(places)
        how = rng.randrange(8)
        if how == 0 and holder is not root:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[rng.choice([*STRINGS, f"{key}x", "extra"])] = holder.pop(key)
        elif how == 2:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name]))
        elif how == 3:
            holder[key] = [holder[key]] * rng.choice((0, 1, 2, 50))
        elif how == 4 and isinstance(holder[key], int | float):
            holder[key] = rng.choice((-1, 2, 0.5, 1000)) * holder[key] + rng.choice((0, 1, -1))
        else:
            holder[key] = _value(rng)
    return root[0]


def _places(holder: Any) -> Any:
    """(container, key) of every node."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


def _value(rng: random.Random) -> Any:
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(STRINGS)
    return rng.choice([None, True, False, [], {}, [[]], {"a": 1}, [None], ["a"], [1, "a"], DEEP, LONG])


def mutate_json(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """A JSON file with its tree changed, or its bytes."""
    if rng.random() < 0.2:
        return mutate_text(rng, data, other)
    return dump_json(rng, mutate_tree(rng, json.loads(data)))


def dump_json(rng: random.Random, tree: Any) -> bytes:
    """JSON, also of what a serialiser would not write: nesting of 100,000 levels, integers of 5,000 digits."""
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5)
    depth = rng.choice((100, 2_000, 100_000))
    for shown in (json.dumps(DEEP), f'"{DEEP}"'):
        text = text.replace(shown, "[" * depth + "]" * depth)
    for shown in (json.dumps(LONG), f'"{LONG}"'):
        text = text.replace(shown, "9" * 5_000)
    return text.encode("utf-8", "surrogatepass")


def mutate_jsonl(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """JSON lines: the tree of one line, or of several."""
    if rng.random() < 0.3:
        return mutate_text(rng, data, other)
    lines = data.rstrip(b"\n").split(b"\n")
    for _ in range(rng.choice((1, 1, 3))):
        i = rng.randrange(len(lines))
        try:
            lines[i] = dump_json(rng, mutate_tree(rng, json.loads(lines[i])))
        except (ValueError, RecursionError):  # changed before
            lines[i] = mutate_bytes(rng, lines[i])
    return b"\n".join(lines) + b"\n"


def mutate_toml(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """A recipe with its tree changed, or its text."""
    if rng.random() < 0.3:
        return mutate_text(rng, data, other)
    tree = mutate_tree(rng, tomllib.loads(data.decode()))
    try:
        return tomli_w.dumps(tree).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError):  # TOML has no null, and a table at the top
        return mutate_text(rng, data, other)


def mutate_csv(rng: random.Random, data: bytes, other: bytes = b"", delimiter: str = ",") -> bytes:
    """Cells of a table changed, dropped, added; or its text."""
    if rng.random() < 0.5:
        return mutate_text(rng, data, other)
    rows = list(csv.reader(io.StringIO(data.decode()), delimiter=delimiter))
    for _ in range(rng.choice((1, 1, 3, 10))):
        row = rng.choice(rows)
        i = rng.randrange(len(row) + 1)
        value = str(_value(rng)).encode("utf-8", "replace").decode().replace(LONG, "9" * 5_000)
        if i == len(row) or rng.random() < 0.1:
            row.insert(i, value)
        elif rng.random() < 0.1:
            del row[i]
        else:
            row[i] = value
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue().encode()


def mutate_tsv(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """The same with tabs between the cells."""
    return mutate_csv(rng, data, other, "\t")


def mutate_safetensors(rng: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """The header's tree, its length, the numbers behind it, or bytes anywhere."""
    size = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + size], data[8 + size :]
    how = rng.randrange(4)
    if how == 0:
        return mutate_bytes(rng, data, other)
    if how == 1:
        header = dump_json(rng, mutate_tree(rng, json.loads(header)))
    elif how == 2:
        return struct.pack("<Q", rng.choice([*HUGE, size + 1, size - 1])) + header + body
    else:
        bad = struct.pack("<f", rng.choice((float("nan"), float("inf"), 1e38, -1e38, 1e-40)))
        at = rng.randrange(len(body) // 4) * 4
        count = rng.choice((1, 1, 100, len(body) // 4))
        body = (body[:at] + bad * count)[: len(body)] + body[at + 4 * count :]
    return struct.pack("<Q", len(header)) + header + body


MUTATORS: dict[str, Callable[[random.Random, bytes, bytes], bytes]] = {
    ".json": mutate_json,
    ".jsonl": mutate_jsonl,
    ".toml": mutate_toml,
    ".csv": mutate_csv,
    ".tsv": mutate_tsv,
    ".safetensors": mutate_safetensors,
    ".txt": mutate_text,
    ".md": mutate_text,
}


def mutate(rng: random.Random, name: str, data: bytes, other: bytes = b"") -> bytes:
    """`data` changed as fits the ending of `name`; plain bytes if that says nothing."""
    ending = name[name.rfind(".") :] if "." in name else ""
    return MUTATORS.get(ending, mutate_bytes)(rng, data, other)
