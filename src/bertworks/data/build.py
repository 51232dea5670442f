"""Inputs + tokenizer -> corpus store: parallel, in constant memory, continued after a kill (contract 1 of the design).

1. One process reads documents and deals them out in batches; the workers write each as a part file under STORE/.parts.
2. A document's place follows from its hash: the lowest are held out, the rest fall into equal ranges, one a shard.
   Parts are in hash order, so a shard is gathered from one run of each part, without duplicates and in hash order: the
   documents are shuffled once and for all, and the result depends on neither workers nor interruptions.

Every file appears whole or not at all, manifest.json last. What exists is not made again, hence "type the line again".
"""

import dataclasses
import errno
import multiprocessing as mp
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, read_json, write_json
from ..tokenizer import Tokenizer
from .corpus import InputOptions, Reader
from .encode import Part, PartWriter
from .merge import ShardPlan, plan_shards, save_array, write_shard
from .progress import Progress
from .sentences import check_documents
from .store import (
    FORMAT,
    MANIFEST,
    PARTS,
    SPLITS,
    TOKENIZER,
    UNIGRAMS,
    VERSION,
    file_entries,
    read_manifest,
    token_dtype,
)

KINDS = ("documents", "sentences", "tokens")
BATCH_CHARS = 2_000_000  # text of a part; several wait in the queue of every worker, so memory follows from it


@dataclass(frozen=True)
class BuildConfig:
    """How a corpus becomes a store."""

    input: InputOptions = field(default_factory=InputOptions)
    """how files become documents"""
    language: str = "en"
    """of the text, for finding sentences (ISO code: en, ko, de, ...)"""
    validation_share: float = 0.005
    """share of the documents held out, chosen by their hash; 0 holds out none"""
    min_validation_documents: int = 2
    """hold out at least so many (a random next sentence needs a second document)"""
    max_sentence_tokens: int = 1024
    """longer sentences (tables, text without full stops) are cut into pieces of this size"""
    shard_tokens: int = 1 << 26
    """tokens of a shard, about; a shard is held in memory once while it is written"""
    workers: int = 0
    """processes; 0 is one for every core that this process may use. The result does not depend on it"""

    def __post_init__(self) -> None:
        if not 0 <= self.validation_share < 1:
            raise InputError(f"validation_share {self.validation_share}; expected at least 0 and less than 1")
        for name in ("max_sentence_tokens", "shard_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)}; expected at least 1")


def build(
    inputs: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: Path | str,
    config: BuildConfig | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Build the store `out` from `inputs` and return its manifest; continues where a killed build stopped.

    `progress` prints rate and time left. Raises InputError for input that cannot be read, an `out` that holds anything
    else, and a full disk; what was done until then stays and is used when the same build is started again.
    """
    config = config or BuildConfig()
    out = Path(out)
    job = _Job(inputs, tokenizer, out, config, Progress(progress))
    if (out / MANIFEST).exists():
        return job.finished()
    try:
        job.prepare()
        job.make_parts()
        return job.make_store()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"{out}: the disk is full; free some space and type the same line again, it continues"
        ) from None
    except BrokenProcessPool:
        advice = "type the same line again, it continues; with fewer workers if memory ran out"
        raise InputError(f"{out}: a worker process was killed; {advice}") from None


class _Job:
    """One build: its identity, and the steps in order."""

    def __init__(
        self, inputs: Sequence[str | Path], tokenizer: Tokenizer, out: Path, config: BuildConfig, progress: Progress
    ) -> None:
        self.inputs, self.tokenizer, self.out, self.config, self.progress = inputs, tokenizer, out, config, progress
        self.parts = out / PARTS
        self.dtype = np.dtype(token_dtype(tokenizer.vocab_size))
        self.reader = Reader(inputs, config.input)
        settings = {key: value for key, value in dataclasses.asdict(config).items() if key != "workers"}
        files = [[str(path), path.stat().st_size] for path in self.reader.files]
        self.identity = {"version": VERSION, "tokenizer": tokenizer.fingerprint, "inputs": files, "settings": settings}

    def finished(self) -> dict[str, Any]:
        """The manifest of the store that is there already, if it is the one asked for."""
        manifest = read_manifest(self.out)
        theirs = {
            "version": manifest["version"],
            "tokenizer": manifest["tokenizer"]["fingerprint"],
            "inputs": manifest["source"]["inputs"],
            "settings": manifest["settings"],
        }
        self._refuse(theirs, self.identity, "is a finished store")
        shutil.rmtree(self.parts, ignore_errors=True)  # a kill may have come after the manifest, before this
        self.progress.say(f"{self.out}: this store is already built")
        return manifest

    def prepare(self) -> None:
        """Make sure that `out` is ours, note what is being built, and warn of documents that look wrong."""
        path = self.parts / "build.json"
        if not path.exists() and self.out.is_dir() and any(item != self.parts for item in self.out.iterdir()):
            raise InputError(f"{self.out}: this folder is not empty; expected a new one, or one that a build began")
        times = [path.stat().st_mtime_ns for path in self.reader.files]
        identity = {**self.identity, "times": times}
        if path.exists():
            self._refuse(read_json(path), identity, "holds an unfinished build")
        else:
            self._warn()
            self.parts.mkdir(parents=True, exist_ok=True)
            write_json(path, identity)
        for folder in (self.out, self.parts):
            for left in folder.glob(".*.tmp"):
                left.unlink()
        self.tokenizer.save(self.out / TOKENIZER)

    def _refuse(self, theirs: dict[str, Any], ours: dict[str, Any], what: str) -> None:
        different = [_difference(key, theirs.get(key), ours[key]) for key in ours if theirs.get(key) != ours[key]]
        if different:
            advice = "choose another --out, or delete this folder first"
            raise InputError(f"{self.out}: {what} of something else ({'; '.join(different)}); {advice}")

    def _warn(self) -> None:
        documents = Reader(self.inputs, self.config.input)
        first = next(iter(documents), None)
        if first is None:
            raise InputError(
                f"{_names(self.inputs)}: no document in it ({_counts(documents.counts)}); nothing to build"
            )
        for warning in check_documents(Reader(self.inputs, self.config.input), self.config.language):
            self.progress.say(f"warning: {warning}")

    def make_parts(self) -> None:
        """Pass 1. Afterwards .parts/read.json says how many parts there are and what was left out."""
        done = self.parts / "read.json"
        if done.exists():
            return
        number = -1
        with self.progress.stage("reading", self.reader.size, "B"), _Workers(self) as workers:
            for number, texts in enumerate(self._batches()):
                if not (path := part_path(self.parts, number)).exists():
                    workers.submit(path, texts)
                self.progress.at(self.reader.position)
            workers.finish()
        write_json(done, {"parts": number + 1, "counts": self.reader.counts})

    def _batches(self) -> Iterator[list[str]]:
        texts: list[str] = []
        size = 0
        for document in self.reader:
            texts.append(document.text)
            size += len(document.text)
            if size >= BATCH_CHARS:
                yield texts
                texts, size = [], 0
        if texts:
            yield texts

    def make_store(self) -> dict[str, Any]:
        """Pass 2: shards, unigram counts, manifest; then the parts go."""
        read = read_json(self.parts / "read.json")
        parts = [Part(part_path(self.parts, i), self.dtype) for i in range(read["parts"])]
        plan = plan_shards(
            parts, self.config.validation_share, self.config.min_validation_documents, self.config.shard_tokens
        )
        if not any(shard.name.startswith("train") for shard in plan):
            found = f"{sum(part.documents for part in parts):,} documents with text"
            advice = "separate documents (documents, format), add text, or set validation_share to 0"
            raise InputError(f"{_names(self.inputs)}: {found}, too few to train on after holding some out; {advice}")
        entries = []
        with self.progress.stage("writing", len(plan), "shards"):
            for shard in plan:
                entries.append(self._shard(shard, parts))
                self.progress.at(len(entries))
        save_array(self.out / UNIGRAMS, self._unigrams(entries))
        manifest = self._manifest(entries, Counter(read["counts"]), parts)
        write_json(self.out / MANIFEST, manifest)
        shutil.rmtree(self.parts)
        return manifest

    def _shard(self, shard: ShardPlan, parts: list[Part]) -> dict[str, Any]:
        """Write one shard unless a former run has, and return what the manifest says of it."""
        done = self.parts / f"{shard.name}.json"
        if not done.exists():
            unigrams, entry = write_shard(shard, parts, self.out, self.tokenizer.vocab_size)
            save_array(self.parts / f"{shard.name}.unigrams.npy", unigrams)
            write_json(done, entry)
        entry = read_json(done)
        return entry

    def _unigrams(self, entries: list[dict[str, Any]]) -> NDArray[np.int64]:
        counts = np.zeros(self.tokenizer.vocab_size, np.int64)
        for entry in entries:
            if entry["name"].startswith("train"):
                counts += np.load(self.parts / f"{entry['name']}.unigrams.npy")
        return counts

    def _manifest(self, entries: list[dict[str, Any]], read: Counter[str], parts: list[Part]) -> dict[str, Any]:
        text = sum((Counter(part.counts()) for part in parts), Counter[str]())
        dropped = {reason: read[reason] for reason in ("empty", "short", "long")}
        dropped |= {"no tokens": text["no tokens"], "duplicate": sum(entry.pop("duplicates") for entry in entries)}
        shards: dict[str, Any] = {split: [e for e in entries if e["name"].startswith(split)] for split in SPLITS}
        kept = {split: {key: sum(e[key] for e in shards[split]) for key in KINDS} for split in SPLITS}
        files = {name: value for entry in entries for name, value in entry.pop("files").items()}
        files |= file_entries(
            self.out, [UNIGRAMS, *(f"{TOKENIZER}/{p.name}" for p in (self.out / TOKENIZER).iterdir())]
        )
        return {
            "format": FORMAT,
            "version": VERSION,
            "tokenizer": {"fingerprint": self.tokenizer.fingerprint, "vocab_size": self.tokenizer.vocab_size},
            "dtype": self.dtype.name,
            "settings": self.identity["settings"],
            "versions": {name: metadata.version(name) for name in ("bertworks", "sentencex", "tokenizers")},
            "source": {
                "inputs": self.identity["inputs"],
                "files": read["files"],
                **{key: text[key] for key in ("bytes", "characters", "words")},
            },
            "counts": {
                "documents": sum(read[reason] for reason in ("documents", "empty", "short", "long")),
                "dropped": dropped,
                "sentences cut": text["sentences cut"],
                **kept,
            },
            "shards": shards,
            "files": dict(sorted(files.items())),
        }


class _Workers:
    """Worker processes with a short queue. With one worker the work is done in this process."""

    def __init__(self, job: _Job) -> None:
        count = job.config.workers or _cores()
        self.arguments = (job.out / TOKENIZER, job.config.language, job.config.max_sentence_tokens)
        self.limit = 2 * count
        self.pending: set[Future[None]] = set()
        self.pool: ProcessPoolExecutor | None = None
        if count > 1:
            # Spawned, not forked: a fork would leave locks of the caller's threads (torch's, say) held for ever.
            context = mp.get_context("spawn")
            self.pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=self.arguments)
        else:
            self.writer = PartWriter.of(*self.arguments)

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *error: object) -> None:
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def submit(self, path: Path, texts: list[str]) -> None:
        """Have the part written; waits while the queue is full, so that the reader cannot run away."""
        if not self.pool:
            self.writer.write(path, texts)
            return
        self.pending.add(self.pool.submit(_write, path, texts))
        if len(self.pending) >= self.limit:
            self._collect(FIRST_COMPLETED)

    def finish(self) -> None:
        """Wait for everything submitted; raises what a worker raised."""
        self._collect(ALL_COMPLETED)

    def _collect(self, until: str) -> None:
        done, self.pending = wait(self.pending, return_when=until)
        for future in done:
            future.result()


_worker: dict[str, PartWriter] = {}  # in a worker process: what it writes with, since a task cannot carry it


def _begin(tokenizer: Path, language: str, max_sentence_tokens: int) -> None:
    """Set up a worker process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process a core already
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker["writer"] = PartWriter.of(tokenizer, language, max_sentence_tokens)


def _end_with_parent() -> None:
    """A pool's workers wait for ever for work from a parent that was killed with SIGKILL; so watch it."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write(path: Path, texts: list[str]) -> None:
    _worker["writer"].write(path, texts)


def _cores() -> int:
    """Cores that this process may use; not every system can say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def part_path(folder: Path, number: int) -> Path:
    """Where part `number` lies."""
    return folder / f"{number:07d}.part"


def _difference(key: str, theirs: Any, ours: Any) -> str:
    """What differs, in words, from nested dictionaries and values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return ", ".join(_difference(k, theirs.get(k), ours[k]) for k in ours if theirs.get(k) != ours[k])
    if key == "inputs":
        return f"inputs of {len(theirs or [])} files, now {len(ours)}, or other names or sizes"
    return "input files changed since" if key == "times" else f"{key} {theirs}, now {ours}"


def _names(inputs: Sequence[str | Path]) -> str:
    return ", ".join(map(str, inputs[:3])) + (", ..." if len(inputs) > 3 else "")


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "no files"
