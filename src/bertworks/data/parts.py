"""A batch of documents -> one part of a build: arrays of sentences, token ids and hashes. The workers write parts."""

import array
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import atomic_write
from ..tokenizer import Tokenizer, normalize
from .near_duplicates import Sketcher, shingles
from .sentences import Splitter, split_sentences
from .store import token_dtype

COUNTS = ("characters", "words", "bytes", "no tokens", "sentences cut")  # of the texts of a part


@dataclass(frozen=True)
class PartWriter:
    """Turns batches of texts into part files; for its settings see `BuildConfig`."""

    tokenizer: Tokenizer
    language: str
    splitter: Splitter
    max_sentence_tokens: int
    sketcher: Sketcher | None = None  # writes what near-duplicates are found by, if they are looked for

    def write(self, path: Path, texts: Sequence[str]) -> None:
        """Write the arrays of the part `path` of `texts`, with the documents in the order of their hashes."""
        sentences = [split_sentences(text, self.language, self.splitter) for text in texts]
        encoded = iter(self._encode([text for own in sentences for text in self._in_context(own)]))
        counts: Counter[str] = Counter()
        rows = []
        for text, own in zip(texts, sentences, strict=True):
            words = text.split()
            counts.update(characters=len(text), words=len(words), bytes=len(text.encode()))
            pieces = self._cut([item for item in itertools.islice(encoded, len(own)) if item], counts)
            if pieces:
                rows.append((_digest(words), pieces))
            else:
                counts["no tokens"] += 1
        rows.sort(key=lambda row: row[0])  # stable: of equal texts the one read first stays first
        size = self.dtype.itemsize
        documents = [np.frombuffer(b"".join(pieces), self.dtype) for _, pieces in rows]
        lengths = (len(sentence) // size for _, pieces in rows for sentence in pieces)
        arrays: dict[str, NDArray[Any]] = {
            "counts": np.array([counts[name] for name in COUNTS]),
            "digests": np.frombuffer(b"".join(digest for digest, _ in rows), ">u8").astype(np.uint64).reshape(-1, 2),
            "documents": np.cumsum([0, *(len(pieces) for _, pieces in rows)], dtype=np.int64),
            "sentences": np.cumsum([0, *lengths], dtype=np.int64),
        }
        if self.sketcher:
            arrays["sketches"] = self.sketcher.sketches(map(shingles, documents))
        arrays["tokens"] = np.concatenate([np.empty(0, self.dtype), *documents])  # last: then all are there
        for name, values in arrays.items():
            save_array(_file(path, name), values, path.parent)

    def _in_context(self, sentences: list[str]) -> Iterator[str]:
        """A document's sentences as they have to be tokenized.

        All but the first have a space before them, as if the whole document were tokenized at once. So in byte-level
        BPE a word has the same subwords at the beginning of a sentence as inside one.
        """
        yield from sentences[:1]
        yield from map(self.tokenizer.inside, sentences[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a token on disk."""
        return np.dtype(token_dtype(self.tokenizer.vocab_size))

    def _encode(self, sentences: list[str]) -> list[bytes]:
        """The ids of each sentence, as bytes on disk."""
        code = self.dtype.char  # the same letters in `array` and in NumPy
        return [array.array(code, ids).tobytes() for ids in self.tokenizer.ids_of(sentences)]

    def _cut(self, sentences: list[bytes], counts: Counter[str]) -> list[bytes]:
        """The sentences, longer ones than allowed (tables, code, text without full stops) cut, so that all is used."""
        width = self.max_sentence_tokens * self.dtype.itemsize
        if all(len(sentence) <= width for sentence in sentences):
            return sentences
        counts["sentences cut"] += sum(len(sentence) > width for sentence in sentences)
        return [sentence[i : i + width] for sentence in sentences for i in range(0, len(sentence), width)]


def _file(part: Path, array: str) -> Path:
    return part.with_name(f"{part.name}.{array}.npy")


def save_array(path: Path, values: NDArray[Any], working: Path) -> None:
    """Write a .npy file, atomically; the temporary file is in the folder `working`."""
    with atomic_write(path, shared=working) as file:
        np.save(file, values)


def is_written(part: Path, near_duplicates: bool) -> bool:
    """Whether a part exists, with its sketches if near-duplicates are looked for."""
    return _file(part, "tokens").exists() and (not near_duplicates or _file(part, "sketches").exists())


def _digest(words: list[str]) -> bytes:
    """A document's hash: of its words without regard to case, white space and Unicode's spelling of accents."""
    text = normalize("NFC", " ".join(words).casefold())
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"bertworks").digest()


def part_name(texts: list[str]) -> str:
    """The name of the part of `texts`: a hash of them, so a part that exists has the right content."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Part:
    """Reads a part. Documents are in hash order, so a shard takes one slice of each array."""

    path: Path

    def array(self, name: str) -> NDArray[Any]:
        """A memory map of "tokens", "sentences", "documents" (offsets, as in a store), "digests" or "sketches".

        Digests are hashes of documents as pairs of numbers that sort as the hashes do, (D, 2). A map is not kept open:
        a build may have thousands of parts.
        """
        values: NDArray[Any] = np.load(_file(self.path, name), mmap_mode="r")
        return values

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self.array("documents")) - 1

    def counts(self) -> dict[str, int]:
        """COUNTS of the part."""
        return dict(zip(COUNTS, self.array("counts").tolist(), strict=True))
