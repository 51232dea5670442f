"""Inputs + tokenizer -> corpus store: parallel, in constant memory, continued after a kill (contract 1 of the design).

1. This process reads the input and hands batches of documents to workers, which write them as part files (parts.py)
   under STORE/.parts. A part is named by a hash of its texts, so that parts which exist are not made again.
2. A document's hash decides where it goes: the lowest are held out, the rest fall into equal ranges, one a shard. Parts
   are in hash order, so a shard is gathered from one slice of each part (shards.py). The documents are shuffled once
   and for all, and the result depends on neither workers nor interruptions. Each worker gathers shards of its own.

The workers are processes of this machine, or those of a dask scheduler (workers/), with the same tasks (worker.py).
Every file appears whole or not at all, manifest.json last. A rerun of the command makes only what is missing.
"""

import contextlib
import dataclasses
import errno
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..files import InputError, NotWritten, read_json, remove_temporaries, try_lock, write_json
from ..reporting.progress import Progress
from ..tokenizer import Tokenizer, unknown_fraction
from ..workers.cluster import open_pool
from ..workers.local import Pool, WorkersLost
from .config import BuildConfig as BuildConfig
from .corpus import Reader
from .identity import decides_parts, differences, identity_in, identity_of
from .manifest import FORMAT, KINDS, MANIFEST, PARTS, SPLITS, VERSION, read_manifest
from .near_duplicates import NEAR, comparisons
from .parts import Part, is_written, part_name, save_array
from .sentences import check_documents, document_batches
from .shards import plan_shards, unigrams_of
from .store import TOKENIZER, UNIGRAMS, file_entries, token_dtype
from .vocabulary import MAX_UNKNOWN, refuse_unknown
from .worker import READ, BuildWorker, open_parts

BUILD = "build.json"  # in the working folder: the identity of the build
SAMPLE_CHARS = 10_000  # characters of a document that are tokenized before a build, to see whether the vocabulary fits
SAMPLE_DOCUMENTS = 500  # documents looked at before a build, or fewer with BATCH_CHARS characters
BATCH_CHARS = 2_000_000  # characters of a part; each worker's queue holds two, which decides its memory


def build(
    inputs: Sequence[str | Path],
    tokenizer: Tokenizer,
    out: Path | str,
    config: BuildConfig | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Build the store `out` from `inputs` and return its manifest; continues where a killed build stopped.

    `progress` prints rate and time left. Raises InputError for input that cannot be read and an `out` that holds
    something else, NotWritten for a full disk. Finished parts stay for the next start.
    """
    config = config or BuildConfig()
    out = Path(out)
    job = _Build(inputs, tokenizer, out, config, Progress(progress))
    if (out / MANIFEST).exists():
        return job.reuse()
    try:
        job.check()
        with job.locked():
            if (out / MANIFEST).exists():  # another process may have ended between the first look and the lock
                return job.reuse()
            job.prepare()
            with job.workers() as pool:
                job.make_parts(pool)
                manifest = job.make_store(pool)
        job.clean_up()
        return manifest
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NotWritten(f"{out}: the disk is full; free some space and rerun the command to continue") from None
    except WorkersLost as error:
        advice = "rerun the command to continue, with fewer workers if memory ran out"
        raise InputError(f"{out}: {error}; {advice}") from None


build_store = build  # the name in the package, which has a file `build`


class _Build:
    """One build: its identity, and its steps in order."""

    def __init__(
        self, inputs: Sequence[str | Path], tokenizer: Tokenizer, out: Path, config: BuildConfig, progress: Progress
    ) -> None:
        self.inputs, self.tokenizer, self.out, self.config, self.progress = inputs, tokenizer, out, config, progress
        self.parts = out / PARTS
        self.dtype = np.dtype(token_dtype(tokenizer.vocab_size))
        self.reader = Reader(inputs, config.input)
        self.identity = identity_of(dataclasses.asdict(config), tokenizer, self.reader.files)

    def reuse(self) -> dict[str, Any]:
        """The manifest of the finished store in `out`. Raises InputError if that was built from something else."""
        manifest = read_manifest(self.out)
        self._refuse(identity_in(manifest), self.identity, "is a finished store")
        self.clean_up()  # the first build may have been killed between the manifest and this
        self.progress.say(f"{self.out}: this store is already built and is used as it is")
        return manifest

    def clean_up(self) -> None:
        """Remove the temporary files of a finished store, and the lock."""
        shutil.rmtree(self.parts, ignore_errors=True)
        for folder in (self.out, self.out / TOKENIZER):
            remove_temporaries(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder until the block ends. Raises InputError if another process does."""
        self.parts.mkdir(parents=True, exist_ok=True)
        with try_lock(self.parts / ".lock") as mine:
            if not mine:
                raise InputError(f"{self.out}: another process builds this store; wait for it, or give another --out")
            yield

    def check(self) -> None:
        """Check that `out` is new or holds this build, and warn of documents that look wrong. Writes nothing."""
        previous = self._unfinished()
        if previous is None and self.out.is_dir() and any(item != self.parts for item in self.out.iterdir()):
            raise InputError(f"{self.out}: this folder is not empty; expected a new one, or one that a build began")
        if previous != self.identity_with_times():
            self._check_beginning()

    def identity_with_times(self) -> dict[str, Any]:
        """What is built, with the input files' times of change."""
        return {**self.identity, "times": [file.stat().st_mtime_ns for file in self.reader.files]}

    def _unfinished(self) -> dict[str, Any] | None:
        """The identity of the unfinished build in `out`. Raises InputError if this build cannot use its parts."""
        path = self.parts / BUILD
        if not path.exists():
            return None
        previous: dict[str, Any] = read_json(path)
        self._refuse(decides_parts(previous), decides_parts(self.identity), "holds an unfinished build")
        return previous

    def prepare(self) -> None:
        """Write the identity of the build, and remove files of an earlier start that cannot be reused."""
        path = self.parts / BUILD
        previous, identity = self._unfinished(), self.identity_with_times()
        if previous != identity:
            for done in [*self.parts.glob("*.json"), *self.parts.glob(f"{NEAR}*.npy"), *self.out.glob("*.npy")]:
                if done != path:  # that file marks the folder as a build's at every moment
                    done.unlink()
            write_json(path, identity)
        if previous:
            changed = "; input or settings changed, so only parts that did not change are reused"
            self.progress.say(f"{self.out}: continues an unfinished build{changed if previous != identity else ''}")
        for folder in (self.out, self.parts, self.out / TOKENIZER):
            remove_temporaries(folder)
        self.tokenizer.save(self.out / TOKENIZER)

    def _refuse(self, previous: dict[str, Any], requested: dict[str, Any], what: str) -> None:
        if difference := differences(previous, requested):
            advice = "choose another --out, or delete this folder first"
            raise InputError(f"{self.out}: {what} of something else ({difference}); {advice}")

    def _check_beginning(self) -> None:
        reader = Reader(self.inputs, self.config.input)
        documents = next(document_batches(itertools.islice(reader, SAMPLE_DOCUMENTS), BATCH_CHARS), [])
        if not documents:
            left_out = ", ".join(f"{count:,} {name}" for name, count in sorted(reader.counts.items()))
            raise InputError(f"{_names(self.inputs)}: no document in it ({left_out}); nothing to build")
        if not self.config.allow_unknown:
            ids = self.tokenizer.ids_of([document.text[:SAMPLE_CHARS] for document in documents])
            counts = np.bincount([i for own in ids for i in own] or [0], minlength=self.tokenizer.vocab_size)
            refuse_unknown(unknown_fraction(self.tokenizer, counts), f"{_names(self.inputs)}, its beginning")
        for warning in check_documents(documents, self.config.language, self.config.splitter):
            self.progress.say(f"warning: {warning}")

    def workers(self) -> Pool:
        """The processes that write parts and shards."""
        out = self.out.absolute() if self.config.scheduler else self.out
        return open_pool(self.config.scheduler, self.config.workers, BuildWorker.of, out, self.config)

    def make_parts(self, pool: Pool) -> None:
        """Pass 1: write the parts, and read.json, which names them and counts what was left out."""
        near = bool(self.config.near_duplicates)
        if (self.parts / READ).exists():
            names = read_json(self.parts / READ)["parts"]
            if all(is_written(self.parts / name, near) for name in names):
                return
        names = []

        def missing() -> Iterator[tuple[str, list[str]]]:
            for documents in document_batches(self.reader, BATCH_CHARS):
                texts = [document.text for document in documents]
                names.append(part_name(texts))
                if not is_written(self.parts / names[-1], near):
                    yield names[-1], texts
                self.progress.at(self.reader.position)

        with self.progress.stage("reading", self.reader.size, "B"):
            for _ in pool.run(BuildWorker.write_part, missing()):
                pass
        write_json(self.parts / READ, {"parts": names, "counts": self.reader.counts})

    def make_store(self, pool: Pool) -> dict[str, Any]:
        """Pass 2: write shards, unigram counts and manifest. Returns the manifest."""
        config, parts = self.config, open_parts(self.parts)
        plan = plan_shards(parts, config.validation_share, config.min_validation_documents, config.shard_tokens)
        if config.near_duplicates:
            tasks = comparisons(sum(part.documents for part in parts), config.near_duplicates)
            self._run("comparing", "task", BuildWorker.compare, {task.name: task for task in tasks}, pool)
        self._run("writing", "shard", BuildWorker.write_shard, {f"{shard.name}.json": shard for shard in plan}, pool)
        entries = [read_json(self.parts / f"{shard.name}.json") for shard in plan]
        for name in [name for entry in entries if not entry["documents"] for name in entry["files"]]:
            (self.out / name).unlink(missing_ok=True)  # of a shard that held nothing but near-duplicates
        train = [entry["name"] for entry in entries if entry["documents"] and entry["name"].startswith("train")]
        if not train:
            count = f"documents with text: {sum(part.documents for part in parts):,}"
            advice = (
                "give a file for each document, or tell `bertworks corpus build` how they are separated "
                "(--input.documents blank-line or line), or hold nothing out (--validation-share 0)"
            )
            raise InputError(f"{_names(self.inputs)}: {count}, too few to train on after holding some out; {advice}")
        unigrams = unigrams_of([self.out / f"{name}.tokens.npy" for name in train], self.tokenizer.vocab_size)
        fraction = unknown_fraction(self.tokenizer, unigrams)
        self.progress.say(f"{self.out}: {fraction:.2%} of the tokens are [UNK]")
        if not config.allow_unknown:
            refuse_unknown(fraction, str(self.out))
        save_array(self.out / UNIGRAMS, unigrams, self.parts)
        manifest = self._manifest(entries, parts)
        if fraction > MAX_UNKNOWN:
            manifest["unknown allowed"] = True
        write_json(self.out / MANIFEST, manifest)
        return manifest

    def _run(self, stage: str, unit: str, task: Callable[..., None], given: dict[str, Any], pool: Pool) -> None:
        """Have `task` run for each value of `given`, unless the working folder has the file that its key names."""
        missing = [(value,) for name, value in given.items() if not (self.parts / name).exists()]
        with self.progress.stage(stage, len(given), unit):
            for done, _ in enumerate(pool.run(task, missing), len(given) - len(missing) + 1):
                self.progress.at(done)

    def _manifest(self, entries: list[dict[str, Any]], parts: list[Part]) -> dict[str, Any]:
        read = Counter(read_json(self.parts / READ)["counts"])
        text = sum((Counter(part.counts()) for part in parts), Counter[str]())
        dropped = {reason: read[reason] for reason in ("empty", "short", "long")}
        dropped |= {"no tokens": text["no tokens"], "duplicate": sum(entry.pop("duplicates") for entry in entries)}
        near, libraries = sum(entry.pop("near-duplicates") for entry in entries), ["tokenizers"]
        if str(self.identity["splitter"]).startswith("sentencex"):  # the splitter names the other libraries itself
            libraries.insert(0, "sentencex")
        if self.config.near_duplicates:
            dropped["near-duplicate"] = near
            libraries.append("datasketch")
        entries = [entry for entry in entries if entry["documents"]]
        shards: dict[str, Any] = {split: [e for e in entries if e["name"].startswith(split)] for split in SPLITS}
        sizes = {split: {key: sum(e[key] for e in shards[split]) for key in KINDS} for split in SPLITS}
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
            "splitter": self.identity["splitter"],
            "versions": {
                "bertworks": __version__,  # the package's metadata may be those of an older installation
                **{name: metadata.version(name) for name in libraries},
            },
            "source": {
                "inputs": self.identity["inputs"],
                "files": read["files"],
                **{key: text[key] for key in ("bytes", "characters", "words")},
            },
            "counts": {
                "documents": sum(read[reason] for reason in ("documents", "empty", "short", "long")),
                "dropped": dropped,
                "sentences cut": text["sentences cut"],
                **sizes,
            },
            "shards": shards,
            "files": dict(sorted(files.items())),
        }


def _names(inputs: Sequence[str | Path]) -> str:
    return ", ".join(map(str, inputs[:3])) + (", ..." if len(inputs) > 3 else "")
