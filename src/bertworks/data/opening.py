"""`open_store` opens a corpus store (store.py). Manifest, files, offsets and ids are checked before they are used."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, checksum, shorten
from .manifest import REBUILD, SPLITS, read_manifest
from .store import ARRAYS, UNIGRAMS, Shard, Store

CHUNK = 1 << 20  # values of an array that are checked at once


def open_store(folder: Path | str, verify: bool = True) -> Store:
    """Open the store in `folder`.

    With `verify`, this compares the checksum of every file with the manifest, and every offset and id with its bounds
    (about a second per gigabyte); without, only sizes, array headers and the arrays' ends. Raises InputError that names
    the file, what was found and what was expected.
    """
    store = Store(Path(folder), read_manifest(folder))
    for name, expected in store.manifest["files"].items():
        _check_file(store.folder / name, expected, verify)
    _check_header(store.folder / UNIGRAMS, store.vocab_size, "int64")
    for split in SPLITS:
        for shard in store.shards(split):
            for array in ARRAYS:
                dtype = store.manifest["dtype"] if array == "tokens" else "int64"
                _check_header(shard.path(array), shard.shape(array), dtype)
            _check_offsets(shard, "documents", shard.n_sentences, verify)
            _check_offsets(shard, "sentences", shard.n_tokens, verify)
            if verify:
                _check_ids(shard, store.vocab_size)
    counts = store.unigram_counts()
    if counts.min() < 0 or counts.sum() != store.manifest["counts"]["train"]["tokens"]:
        raise InputError(f"{store.folder / UNIGRAMS}: not counts of the training split's tokens; {REBUILD}")
    return store


def _check_file(path: Path, expected: dict[str, Any], verify: bool) -> None:
    if not path.is_file():
        raise InputError(f"{path}: missing; {REBUILD}")
    if (size := path.stat().st_size) != expected["bytes"]:
        raise InputError(
            f"{path}: {size:,} bytes; expected {expected['bytes']:,}: the file was cut or changed; {REBUILD}"
        )
    if verify and (digest := checksum(path)) != expected["checksum"]:
        raise InputError(f"{path}: checksum {digest}; expected {expected['checksum']}: the file was altered; {REBUILD}")


def _check_header(path: Path, length: int, dtype: str) -> None:
    """Raise InputError if `path` is not a whole .npy file of one row of `length` values of `dtype`."""
    expected = ((length,), np.dtype(dtype))
    try:
        values = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # NumPy raises errors of a dozen kinds for a bad header
        raise InputError(f"{path}: not a readable .npy file ({shorten(str(error))}); {REBUILD}") from None
    if (values.shape, values.dtype) != expected:
        form, expected_form = f"{values.dtype} {shorten(values.shape)}", f"{expected[1]} {expected[0]}"
        raise InputError(f"{path}: {form}; expected {expected_form} after the manifest; {REBUILD}")


def _check_offsets(shard: Shard, array: str, last: int, verify: bool) -> None:
    """Raise InputError if the offsets do not begin at 0 and end at `last`, or (with `verify`) do not rise."""
    values: NDArray[np.int64] = getattr(shard, array)
    if (values[0], values[-1]) != (0, last):
        edges = f"offsets from {values[0]:,} to {values[-1]:,}"
        raise InputError(f"{shard.path(array)}: {edges}; expected 0 to {last:,} after the manifest; {REBUILD}")
    for start in range(0, len(values) - 1, CHUNK) if verify else ():
        block = values[start : start + CHUNK + 1]
        rises = block[1:] > block[:-1]
        if not rises.all():
            offset = start + int(rises.argmin())
            raise InputError(f"{shard.path(array)}: offset {offset + 1:,} is not above the one before; {REBUILD}")


def _check_ids(shard: Shard, vocab_size: int) -> None:
    """Raise InputError if a token is not in the vocabulary."""
    for start in range(0, shard.n_tokens, CHUNK):
        if (largest := int(shard.tokens[start : start + CHUNK].max())) >= vocab_size:
            path = shard.path("tokens")
            raise InputError(f"{path}: token {largest}; expected less than {vocab_size}, the vocabulary; {REBUILD}")
