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

from ..files import checksum

TOKENIZER = "tokenizer"
UNIGRAMS = "unigrams.npy"
ARRAYS = ("tokens", "sentences", "documents")


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
    """An opened store. Make one with `open_store` (opening.py), which checks it."""

    folder: Path
    manifest: dict[str, Any]

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


def token_dtype(vocab_size: int) -> str:
    """The smallest unsigned type that holds every id."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def file_entries(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Size in bytes and checksum of each named file of a store, sorted by name, as the manifest has them."""
    paths = {name: folder / name for name in sorted(names)}
    return {name: {"bytes": path.stat().st_size, "checksum": checksum(path)} for name, path in paths.items()}
