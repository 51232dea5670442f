"""Parts in hash order -> shards, each from one range of hashes, without duplicates: the second pass of a build."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import atomic_write
from .manifest import PARTS
from .near_duplicates import are_similar
from .parts import Part, save_array
from .store import ARRAYS, file_entries

HASHES = 1 << 64  # the first half of a document's hash, as a number, is what orders and divides documents
CHUNK = 1 << 20  # tokens written and counted at a time


@dataclass(frozen=True)
class ShardPlan:
    """Which documents make a shard: of part i the documents first[i] to last[i] - 1."""

    name: str
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def plan_shards(parts: Sequence[Part], fraction: float, min_held_out: int, shard_tokens: int) -> list[ShardPlan]:
    """Divide the documents by hash: those below an edge are held out; each split has equal ranges, one per shard."""
    edge = _held_out_edge(parts, fraction, min_held_out)
    tokens = np.zeros(2, np.int64)
    for part in parts:
        below = _tokens_before(part, int(_documents_below(part, [edge])[0]))
        tokens += (below, _tokens_before(part, part.documents) - below)
    counts = [max(1, -(-int(count) // shard_tokens)) for count in tokens]
    edges = [edge * i // counts[0] for i in range(counts[0])]
    edges += [edge + (HASHES - edge) * i // counts[1] for i in range(counts[1] + 1)]
    bounds = np.stack([_documents_below(part, edges) for part in parts], axis=1)
    names = ["validation"] * counts[0] + ["train"] * counts[1]
    plans: dict[str, list[ShardPlan]] = {"train": [], "validation": []}
    for name, first, last in zip(names, bounds[:-1], bounds[1:], strict=True):
        if (last > first).any():
            plans[name].append(ShardPlan(f"{name}-{len(plans[name]):05d}", first, last))
    return [*plans["train"], *plans["validation"]]


def _held_out_edge(parts: Sequence[Part], fraction: float, min_held_out: int) -> int:
    """Documents whose hash is below this number are held out: `fraction` on average, at least `min_held_out`."""
    if fraction == 0:
        return 0
    lowest: NDArray[np.uint64] = np.empty(0, np.uint64)
    for part in parts:
        keys = np.unique(part.array("digests")[:, 0])
        lowest = np.unique(np.concatenate([lowest, keys[: min_held_out + 1]]))[: min_held_out + 1]
    if len(lowest) < 2:
        return HASHES  # nothing to divide: no document is left to train on, and the build refuses that
    needed = min(min_held_out, len(lowest) - 1)
    return max(int(fraction * HASHES), int(lowest[needed - 1]) + 1 if needed else 0)


def _documents_below(part: Part, edges: list[int]) -> NDArray[np.int64]:
    """How many documents of a part have a hash below each edge."""
    keys = part.array("digests")[:, 0]
    return np.array([len(keys) if edge >= HASHES else np.searchsorted(keys, np.uint64(edge)) for edge in edges])


def _tokens_before(part: Part, document: int) -> int:
    return int(part.array("sentences")[part.array("documents")[document]])


def write_shard(shard: ShardPlan, parts: Sequence[Part], out: Path, similar: Sequence[Path] = ()) -> dict[str, Any]:
    """Gather and write one shard. Returns its entry in the manifest.

    similar: files with the hashes of the near-duplicates that are to be left out (near_duplicates.py).
    """
    digests, sentences_per, tokens_per, lengths, tokens = _gather(shard, parts)
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of duplicates the one that was read first is kept
    order = order[np.append(True, (np.diff(digests[order], axis=0) != 0).any(axis=1))]
    different = len(order)
    if similar:
        order = order[~are_similar(digests[order], similar)]
    documents = _offsets(sentences_per[order])
    lengths = lengths[_ranges(_starts(sentences_per)[order], sentences_per[order])]
    sentences = _offsets(lengths)
    save_array(out / f"{shard.name}.sentences.npy", sentences, out / PARTS)
    save_array(out / f"{shard.name}.documents.npy", documents, out / PARTS)
    starts = _starts(tokens_per)
    header = {**np.lib.format.header_data_from_array_1_0(tokens), "shape": (int(sentences[-1]),)}
    with atomic_write(out / f"{shard.name}.tokens.npy", shared=out / PARTS) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for some in np.array_split(order, 1 + len(tokens) // CHUNK):
            file.write(tokens[_ranges(starts[some], tokens_per[some])].data)
    return {
        "name": shard.name,
        "documents": len(order),
        "sentences": len(lengths),
        "tokens": int(sentences[-1]),
        "duplicates": len(sentences_per) - different,
        "near-duplicates": different - len(order),
        "files": file_entries(out, [f"{shard.name}.{array}.npy" for array in ARRAYS]),
    }


def unigrams_of(shards: Sequence[Path], vocab_size: int) -> NDArray[np.int64]:
    """How often each token occurs in some files of tokens, (V,)."""
    counts = np.zeros(vocab_size, np.int64)
    for path in shards:
        tokens = np.load(path, mmap_mode="r")
        for start in range(0, len(tokens), CHUNK):
            counts += np.bincount(tokens[start : start + CHUNK], minlength=vocab_size)
    return counts


def _gather(shard: ShardPlan, parts: Sequence[Part]) -> list[NDArray[Any]]:
    """The documents of a shard in reading order: hashes, sentences and tokens of each, tokens of each sentence; tokens.

    The tokens of all documents are one array, in memory once.
    """
    rows, spans = [], []
    for part, first, last in zip(parts, shard.first.tolist(), shard.last.tolist(), strict=True):
        if first < last:
            documents = part.array("documents")[first : last + 1]
            sentences = part.array("sentences")[documents[0] : documents[-1] + 1]
            tokens_per = np.diff(sentences[documents - documents[0]])
            rows.append(
                (np.array(part.array("digests")[first:last]), np.diff(documents), tokens_per, np.diff(sentences))
            )
            spans.append((part, int(sentences[0]), int(sentences[-1])))
    tokens = np.empty(sum(last - first for _, first, last in spans), spans[0][0].array("tokens").dtype)
    start = 0
    for part, first, last in spans:
        tokens[start : start + last - first] = part.array("tokens")[first:last]
        start += last - first
    return [*(np.concatenate(arrays) for arrays in zip(*rows, strict=True)), tokens]


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(lengths) - lengths


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, ... (length of them) for each pair, joined."""
    return np.repeat(starts - _starts(lengths), lengths) + np.arange(lengths.sum())
