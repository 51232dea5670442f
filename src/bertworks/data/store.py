"""The on-disk token store: every token of the corpus once, with sentence and document offsets.

    STORE/manifest.json                    what this is, how it was built, counts, sizes and checksums; written last
    STORE/tokenizer/                       the tokenizer that made the ids, so that a store needs nothing beside it
    STORE/unigrams.npy                     (V,) int64, how often each token occurs in the training split
    STORE/train-00000.tokens.npy           (T,) uint16, or uint32 beyond 65,536 entries: all tokens, none special
    STORE/train-00000.sentences.npy        (S + 1,) int64: sentence i is tokens[sentences[i]:sentences[i + 1]]
    STORE/train-00000.documents.npy        (D + 1,) int64: document j is documents[j] to documents[j + 1] - 1
    STORE/validation-00000.*.npy           the same for held-out documents

The arrays are plain .npy files: `numpy.load(path, mmap_mode="r")` reads them anywhere. There is no mask, no padding and
no copy in a store; training instances are computed from the offsets. A folder without manifest.json is not a store yet.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, checksum, shorten
from .manifest import REBUILD, SPLITS, read_manifest

TOKENIZER = "tokenizer"
UNIGRAMS = "unigrams.npy"
ARRAYS = ("tokens", "sentences", "documents")
CHUNK = 1 << 20  # values of an array that are checked at once


@dataclass(frozen=True)
class Shard:
    """One shard of a split. The arrays are read-only memory maps, opened at first use; pickling copies no data."""

    folder: Path
    name: str  # "train-00000"
    n_documents: int
    n_sentences: int
    n_tokens: int

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """Token ids, (n_tokens,), uint16 or uint32."""
        return self._array("tokens")

    @cached_property
    def sentences(self) -> NDArray[np.int64]:
        """Offsets into `tokens`, (n_sentences + 1,)."""
        return self._array("sentences")

    @cached_property
    def documents(self) -> NDArray[np.int64]:
        """Sentence numbers, (n_documents + 1,): document j has sentences documents[j] to documents[j + 1] - 1."""
        return self._array("documents")

    def shape(self, array: str) -> int:
        """The length that `array` ("tokens", "sentences" or "documents") must have."""
        return {"tokens": self.n_tokens, "sentences": self.n_sentences + 1, "documents": self.n_documents + 1}[array]

    def path(self, array: str) -> Path:
        """The file of `array`."""
        return self.folder / f"{self.name}.{array}.npy"

    def _array(self, array: str) -> NDArray[Any]:
        return np.load(self.path(array), mmap_mode="r", allow_pickle=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # A memory map would be pickled as a copy of its whole content; the other process opens its own instead.
        return Shard, (self.folder, self.name, self.n_documents, self.n_sentences, self.n_tokens)


@dataclass(frozen=True)
class Store:
    """An opened store. Make one with `Store.open`."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str, verify: bool = True) -> "Store":
        """Open the store in `folder`.

        With `verify`, this compares the checksum of every file with the manifest, and every offset and id with its
        bounds (about a second per gigabyte); without, only sizes, array headers and the arrays' ends. Raises InputError
        that names the file, what was found and what was expected.
        """
        store = cls(Path(folder), read_manifest(folder))
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

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what determines the data (tokenizer, shards, checksums): equal data, equal fingerprint."""
        files = {name: entry for name, entry in self.manifest["files"].items() if name.endswith(".npy")}
        keys = {key: self.manifest[key] for key in ("format", "version", "dtype", "tokenizer", "shards")}
        text = json.dumps([keys, files], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def tokenizer_folder(self) -> Path:
        """The tokenizer that made the ids."""
        return self.folder / TOKENIZER

    @property
    def vocab_size(self) -> int:
        """Number of entries of the vocabulary; every id in the store is below it."""
        return int(self.manifest["tokenizer"]["vocab_size"])

    def shards(self, split: str) -> list[Shard]:
        """The shards of "train" or "validation", in order; none if a store was built without held-out documents."""
        if split not in SPLITS:
            raise ValueError(f"split {split!r}; a store has {' and '.join(SPLITS)}")
        return [
            Shard(self.folder, entry["name"], entry["documents"], entry["sentences"], entry["tokens"])
            for entry in self.manifest["shards"][split]
        ]

    def unigram_counts(self) -> NDArray[np.int64]:
        """How often each token occurs in the training split, (V,)."""
        return np.load(self.folder / UNIGRAMS, allow_pickle=False)  # type: ignore[no-any-return]

    def unigram_entropy(self) -> float:
        """Entropy of the token frequencies, in nats: the masked-LM loss of a model that does not use context."""
        counts = self.unigram_counts()
        p = counts[counts > 0] / counts.sum()
        return float(-(p * np.log(p)).sum())


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


def token_dtype(vocab_size: int) -> str:
    """The smallest unsigned type that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def file_entries(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size in bytes and checksum of each named file of a store, sorted by name, as the manifest has them."""
    paths = {name: folder / name for name in sorted(names)}
    return {name: {"bytes": path.stat().st_size, "checksum": checksum(path)} for name, path in paths.items()}
