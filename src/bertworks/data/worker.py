"""What a worker process of a build does: it writes parts and gathers shards.

A build hands these tasks to a pool (workers/), in this process, in others, or on other machines. All of them read and
write the working folder of the build, and what they have written is the answer. So the builder looks for files, and a
task that was killed is run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..files import check_fields, read_json, write_json
from .manifest import COUNT, PARTS
from .parts import Part, PartWriter
from .shards import ShardPlan, save_array, write_shard
from .store import TOKENIZER

READ = "read.json"  # in the working folder: the parts in reading order, and counts of what the reader left out


@dataclass(frozen=True)
class BuildWorker:
    """The tasks of a build, and what they share. A worker process makes one of it."""

    out: Path  # the store; the parts are in its working folder
    writer: PartWriter

    @classmethod
    def of(cls, out: Path, language: str, max_sentence_tokens: int) -> "BuildWorker":
        """A worker for the store `out`, with the tokenizer in it. For the settings see `BuildConfig`."""
        return cls(out, PartWriter.of(out / TOKENIZER, language, max_sentence_tokens))

    @property
    def folder(self) -> Path:
        """The working folder of the build."""
        return self.out / PARTS

    def write_part(self, name: str, texts: Sequence[str]) -> None:
        """Write the part `name` of these texts, unless it exists."""
        if not (self.folder / name).exists():
            self.writer.write(self.folder / name, texts)

    @cached_property
    def parts(self) -> list[Part]:
        """The parts of the build in reading order, once all are written."""
        return open_parts(self.folder, self.writer.dtype)

    def write_shard(self, shard: ShardPlan) -> None:
        """Gather a shard from the parts; its counts and its entry in the manifest go to the working folder."""
        unigrams, entry = write_shard(shard, self.parts, self.out, self.writer.tokenizer.vocab_size)
        save_array(unigrams_of(self.folder, shard.name), unigrams)
        write_json(self.folder / f"{shard.name}.json", entry)


def unigrams_of(folder: Path, shard: str) -> Path:
    """The file of a shard's token counts, (V,)."""
    return folder / f"{shard}.unigrams.npy"


def read_note(path: Path, form: dict[str, Any]) -> Any:
    """A JSON file that an earlier task or start wrote in the working folder. Raises InputError if it is damaged."""
    value = read_json(path)
    check_fields(value, form, str(path), f"delete {path.parent.parent} and start the build again")
    return value


def read_result(folder: Path) -> dict[str, Any]:
    """What the first pass has left: the names of the parts in reading order, and the reader's counts."""
    found: dict[str, Any] = read_note(folder / READ, {"parts": [str], "counts": {str: COUNT}})
    return found


def open_parts(folder: Path, dtype: Any) -> list[Part]:
    """All parts of a build in reading order."""
    return [Part(folder / name, dtype) for name in read_result(folder)["parts"]]
