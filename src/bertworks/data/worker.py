"""What a worker process of a build does: it reads files, writes parts and gathers shards.

A build hands these tasks to a pool (workers/), in this process, in others, or on other machines. All of them read and
write the working folder of the build, and what they have written is the answer. So the builder looks for files, and a
task that was killed is run again.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..files import InputError, atomic_write, read_json, to_json
from ..tokenizer import Tokenizer
from ..typed import check_fields
from .config import BuildConfig
from .manifest import COUNT, PARTS
from .near import NEAR, Comparison, Sketches, similar
from .parts import Part, PartWriter, is_written, part_name
from .pieces import Piece
from .sentences import document_batches
from .shards import ShardPlan, save_array, write_shard
from .sketches import Sketcher
from .store import TOKENIZER

READ = "read.json"  # in the working folder: the parts in reading order, and counts of what the reader left out


@dataclass(frozen=True)
class WorkerSettings:
    """What all tasks of a build need to know."""

    out: Path  # the store; the parts are in its working folder
    config: BuildConfig
    batch_chars: int  # characters of a part


@dataclass(frozen=True)
class BuildWorker:
    """The tasks of a build, and what they share. Every worker process makes one."""

    settings: WorkerSettings
    writer: PartWriter

    @classmethod
    def of(cls, settings: WorkerSettings) -> "BuildWorker":
        """A worker with the tokenizer in the store. Raises InputError if this machine does not see the store."""
        if not (settings.out / PARTS).is_dir():
            advice = "expected the disk of the process that builds; give an --out that all workers see by this name"
            raise InputError(f"{settings.out}: not a folder on {platform.node()}, where a worker runs; {advice}")
        config, tokenizer = settings.config, Tokenizer.load(settings.out / TOKENIZER)
        sketcher = Sketcher(config.near_duplicates) if config.near_duplicates else None
        text = (config.language, config.splitter, config.max_sentence_tokens)
        return cls(settings, PartWriter(tokenizer, *text, sketcher))

    @property
    def folder(self) -> Path:
        """The working folder of the build."""
        return self.settings.out / PARTS

    def read(self, piece: Piece) -> int:
        """Read the documents of a piece and write their parts, then its note. Returns its bytes on disk."""
        reader = piece.reader(self.settings.config.input)
        names = []
        for documents in document_batches(reader, self.settings.batch_chars):
            texts = [document.text for document in documents]
            names.append(part_name(texts))
            self.write_part(names[-1], texts)
        _write_note(self.folder / piece.note, {"parts": names, "counts": reader.counts})
        return piece.size

    def write_part(self, name: str, texts: Sequence[str]) -> int:
        """Write the part `name` of these texts, unless it exists. Returns 0: the bytes are counted by who read them."""
        if not is_written(self.folder / name, self.writer.sketcher):
            self.writer.write(self.folder / name, texts)
        return 0

    @cached_property
    def parts(self) -> list[Part]:
        """The parts of the build in reading order, once all are written."""
        return open_parts(self.folder, self.writer.dtype)

    @cached_property
    def sketches(self) -> list[Sketches]:
        """Those of every part."""
        sketcher = self.writer.sketcher
        assert sketcher is not None
        return [Sketches(sketcher.path(part.path), part, sketcher.bands[0]) for part in self.parts]

    def compare(self, task: Comparison) -> None:
        """Find near-duplicates in a range of a band; their hashes go to the working folder."""
        found = similar(self.sketches, task, self.settings.config.near_duplicates)
        save_array(self.folder / task.name, found, self.folder)

    @cached_property
    def similar(self) -> list[Path]:
        """The files with the hashes of near-duplicates, once all are written."""
        return sorted(self.folder.glob(f"{NEAR}*.npy")) if self.writer.sketcher else []

    def write_shard(self, shard: ShardPlan) -> None:
        """Gather a shard from the parts; its counts and its entry in the manifest go to the working folder."""
        vocab_size = self.writer.tokenizer.vocab_size
        unigrams, entry = write_shard(shard, self.parts, self.settings.out, vocab_size, self.similar)
        save_array(unigrams_of(self.folder, shard.name), unigrams, self.folder)
        _write_note(self.folder / f"{shard.name}.json", entry)


def unigrams_of(folder: Path, shard: str) -> Path:
    """The file of a shard's token counts, (V,)."""
    return folder / f"{shard}.unigrams.npy"


def _write_note(path: Path, value: dict[str, Any]) -> None:
    with atomic_write(path, "w", path.parent) as file:
        file.write(to_json(value, indent=1) + "\n")


def read_note(path: Path, form: dict[str, Any]) -> Any:
    """A JSON file that an earlier task or start wrote in the working folder. Raises InputError if it is damaged."""
    value = read_json(path)
    check_fields(value, form, str(path), f"delete {path.parent.parent} and start the build again")
    return value


def read_result(folder: Path, name: str = READ) -> dict[str, Any]:
    """What reading has left: names of parts in reading order, and counts. `name`: of one piece's note, or of all."""
    found: dict[str, Any] = read_note(folder / name, {"parts": [str], "counts": {str: COUNT}})
    return found


def open_parts(folder: Path, dtype: Any) -> list[Part]:
    """All parts of a build in reading order."""
    return [Part(folder / name, dtype) for name in read_result(folder)["parts"]]
