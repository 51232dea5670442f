"""A batch of documents -> one part file of a build: sentences, token ids and hashes. The workers write parts."""

import array
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, atomic_write
from ..tokenizer import Tokenizer, normalize
from .near_duplicates import Sketcher, save_sketches, sketches_of
from .sentences import Splitter, split_sentences
from .store import token_dtype

HEAD = 4  # int64 at the head of a part: documents, sentences, tokens, bytes of the counts


@dataclass(frozen=True)
class PartWriter:
    """Turns batches of texts into part files; for its settings see `BuildConfig`."""

    tokenizer: Tokenizer
    language: str
    splitter: Splitter
    max_sentence_tokens: int
    sketcher: Sketcher | None = None  # writes what near-duplicates are found by, if they are looked for

    def write(self, path: Path, texts: Sequence[str]) -> None:
        """Write the part of `texts` to `path`, atomically, with the documents in the order of their hashes."""
        sentences = [split_sentences(text, self.language, self.splitter) for text in texts]
        encoded = iter(self._encode([text for own in sentences for text in self._in_context(own)]))
        counts: Counter[str] = Counter()
        rows = []
        for text, own in zip(texts, sentences, strict=True):
            words = text.split()
            counts.update(characters=len(text), words=len(words), bytes=len(text.encode()))
            found = self._cut([item for item in itertools.islice(encoded, len(own)) if item], counts)
            if found:
                rows.append((_digest(words), found))
            else:
                counts["no tokens"] += 1
        rows.sort(key=lambda row: row[0])  # stable: of equal texts the one read first stays first
        if self.sketcher:
            save_sketches(path, (np.frombuffer(b"".join(found), self.dtype) for _, found in rows), self.sketcher)
        self._save(path, rows, counts)

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

    def _save(self, path: Path, rows: list[tuple[bytes, list[bytes]]], counts: Counter[str]) -> None:
        size = self.dtype.itemsize
        documents = np.cumsum([0, *(len(found) for _, found in rows)], dtype=np.int64)
        lengths = (len(sentence) // size for _, found in rows for sentence in found)
        sentences = np.cumsum([0, *lengths], dtype=np.int64)
        text = json.dumps(counts, sort_keys=True).encode()
        head = np.array([len(rows), len(sentences) - 1, sentences[-1], len(text)], dtype=np.int64)
        with atomic_write(path, shared=path.parent) as file:
            file.write(head.tobytes() + text)
            file.write(b"".join(digest for digest, _ in rows))
            file.write(documents.tobytes() + sentences.tobytes())
            file.writelines(sentence for _, found in rows for sentence in found)


def is_written(part: Path, near_duplicates: bool) -> bool:
    """Whether a part exists, with its sketches if near-duplicates are looked for."""
    return part.exists() and (not near_duplicates or sketches_of(part).exists())


def _digest(words: list[str]) -> bytes:
    """A document's hash: of its words without regard to case, white space and Unicode's spelling of accents."""
    text = normalize("NFC", " ".join(words).casefold())
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"bertworks").digest()


def part_name(texts: list[str]) -> str:
    """The file name of the part of `texts`: a hash of them, so a part that exists has the right content."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode() + b"\0")
    return f"{digest.hexdigest()}.part"


class Part:
    """Reads slices of a part file. Documents are in hash order, so a shard takes one slice of each array."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = path, dtype
        head = np.fromfile(path, np.int64, HEAD)
        size = path.stat().st_size
        self.documents, self.sentences, self.tokens, self._counts = map(int, head)
        sizes = {
            "counts": self._counts,
            "digests": 16 * self.documents,
            "documents": 8 * (self.documents + 1),
            "sentences": 8 * (self.sentences + 1),
            "tokens": dtype.itemsize * self.tokens,
        }
        *starts, end = itertools.accumulate(sizes.values(), initial=8 * HEAD)
        self._starts = dict(zip(sizes, starts, strict=True))  # offset of each array in the file, in bytes
        if size != end:
            raise InputError(f"{path}: {size:,} bytes; not a whole part of a build; delete it and rerun the command")

    def _read(self, array: str, dtype: Any, first: int, last: int) -> NDArray[Any]:
        """Entries `first` to `last` - 1 of `array`."""
        start = self._starts[array] + np.dtype(dtype).itemsize * first
        return np.fromfile(self.path, dtype, last - first, offset=start)

    def counts(self) -> dict[str, int]:
        """Counts of the part: characters, words and bytes of the texts, "no tokens" and "sentences cut"."""
        counts: dict[str, int] = json.loads(self._read("counts", np.uint8, 0, self._counts).tobytes())
        return counts

    def digests(self, first: int, last: int) -> NDArray[np.uint64]:
        """The hashes of documents `first` to `last` - 1 as pairs of numbers that sort as the hashes do, (n, 2)."""
        return self._read("digests", ">u8", 2 * first, 2 * last).astype(np.uint64).reshape(-1, 2)

    def offsets(self, array: str, first: int, last: int) -> NDArray[np.int64]:
        """Entries `first` to `last`, both included, of "documents" or "sentences"."""
        return self._read(array, np.int64, first, last + 1)

    def token_ids(self, first: int, last: int) -> NDArray[Any]:
        """Tokens `first` to `last` - 1."""
        return self._read("tokens", self.dtype, first, last)
