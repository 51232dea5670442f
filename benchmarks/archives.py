"""Archives and compressed files that no honest program writes, for hostile.py: bombs, odd members, false sizes."""

import bz2
import functools
import gzip
import io
import lzma
import random
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable

import zstandard

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1, mtime=0),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: zstandard.ZstdCompressor(1).compress(data),
}
PIECE = 4 << 20  # bytes of a bomb's member; members one behind the other make gigabytes of kilobytes
NAMES = [
    *("a.txt", "deep/b.txt", "../../escaped.txt", "/tmp/bertworks-escaped.txt", "./c.txt", "a.txt", "é.txt", "x" * 300),
    *("b\udcff.txt", "a.jsonl", "b.parquet", "c.md", "d.txt.gz", ".hidden", "con\n.txt", "a" * 90 + "/" + "b" * 90),
]


def bomb(rng: random.Random, kind: str) -> bytes:
    """Half a gigabyte to four of one byte, in some kilobytes, or 64 MB of lines: gigabytes of these are just work."""
    unit = rng.choice((b"\0", b"\n", b"a", b"word ", b"word word.\n\n", b'{"text": "a"}\n'))
    times = rng.choice((128, 1024)) if len(unit) < 6 else 16
    if kind == "zst" and rng.random() < 0.5:
        return zstd_runs(unit[0], 5_000)
    return _member(kind, unit) * (min(times, 128) if kind == "xz" else times)


@functools.cache
def _member(kind: str, unit: bytes) -> bytes:
    return COMPRESS[kind](unit * (PIECE // len(unit)))


def zstd_runs(byte: int, blocks: int) -> bytes:
    """A frame of run-length blocks: four bytes say 128 KB."""
    block = (1 << 1 | (128 << 10) << 3).to_bytes(3, "little") + bytes([byte])
    last = (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + bytes([byte])
    return b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x58" + block * blocks + last


def tar(rng: random.Random, text: bytes) -> bytes:
    """A tar archive with members of every kind, odd names, and headers that claim too much."""
    out = io.BytesIO()
    form = rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(fileobj=out, mode="w", format=form, errors="surrogateescape") as archive:
        for _ in range(rng.choice((1, 2, 5, 200))):
            member = tarfile.TarInfo(rng.choice(NAMES))
            if rng.random() < 0.6:
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
                continue
            member.type = rng.choice((b"1", b"2", b"3", b"4", b"5", b"6", b"?"))  # links, devices, folders, pipes
            member.linkname = rng.choice(("/etc/passwd", "a.txt", "../../../canary", member.name))
            archive.addfile(member)
    data = out.getvalue()
    if rng.random() < 0.3:  # a header of a size of its own: extended headers are read into memory whole
        claim = rng.choice((1 << 20, 1 << 30, 3 << 30, 1 << 40))
        data = claiming(rng.choice((b"x", b"g", b"L", b"K", b"0", b"S")), claim) + b"\0" * 10_240 + data
    return data


def claiming(kind: bytes, size: int) -> bytes:
    """A tar header for a member of `kind` that says it has `size` bytes."""
    member = tarfile.TarInfo("././@LongLink" if kind in b"LK" else "claims")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def long_header(kind: bytes, megabytes: int) -> bytes:
    """A compressed archive whose extended header really has so many megabytes, in kilobytes."""
    header, content = claiming(kind, megabytes << 20), gzip.compress(b"a" * (1 << 20), mtime=0)
    return gzip.compress(header, mtime=0) + content * megabytes


def zipped(rng: random.Random, text: bytes) -> bytes:
    """A zip archive; now and then with names that lead out of it, a bomb, or a wrong size."""
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(out, "w") as archive:  # names may be there twice
        for _ in range(rng.choice((1, 2, 5))):
            name = rng.choice(NAMES).encode("utf-8", "replace").decode()
            data = b"a" * (64 << 20) if rng.random() < 0.1 else text
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    data = out.getvalue()
    if rng.random() < 0.3:
        at = data.rfind(b"PK\x01\x02")
        data = data[: at + 20] + struct.pack("<II", rng.getrandbits(32), rng.getrandbits(32)) + data[at + 28 :]
    return data


def hostile_archive(rng: random.Random, text: bytes) -> tuple[str, bytes]:
    """A file name and its bytes."""
    how, kind = rng.randrange(7), rng.choice(list(COMPRESS))
    if how == 0:
        return f"bomb.txt.{kind}", bomb(rng, kind)
    if how == 1:
        return "a.tar", tar(rng, text)
    if how == 2:
        return "a.zip", zipped(rng, text)
    if how == 3:
        return "long.tar.gz", long_header(rng.choice((b"x", b"g", b"L", b"K")), rng.choice((1, 64, 1024)))
    if how == 4:
        data, name = text, "a.txt"
        for _ in range(rng.choice((2, 3, 12, 200))):
            kind = rng.choice(list(COMPRESS))
            data, name = COMPRESS[kind](data), f"{name}.{kind}"
        return name[:200], data
    inner = tar(rng, text) if how == 5 else zipped(rng, text)
    return f"a.tar.{kind}", COMPRESS[kind](inner)
