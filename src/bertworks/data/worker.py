"""What a worker process of a build does: it writes parts, compares documents and gathers shards.

A build hands these tasks to a pool (workers/), in this process, in others, or on other machines. All of them read and
write the working folder of the build, and what they have written is the answer. So the builder looks for files, and a
task that was killed is run again.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..files import InputError, atomic_write, read_json, to_json
from ..tokenizer import Tokenizer
from .config import BuildConfig
from .manifest import PARTS
from .near_duplicates import NEAR, Comparison, Sketcher, similar
from .parts import Part, PartWriter, save_array
from .shards import ShardPlan, write_shard
from .store import TOKENIZER

READ = "read.json"  # in the working folder: the parts in reading order, and counts of what the reader left out


@dataclass(frozen=True)
class BuildWorker:
    """The tasks of a build, and what they share. Every worker process makes one."""

    folder: Path  # the working folder of the build
    writer: PartWriter

    @classmethod
    def of(cls, out: Path, config: BuildConfig) -> "BuildWorker":
        """A worker with the tokenizer in the store `out`. Raises InputError if this machine does not see the store."""
        folder = out / PARTS
        if not folder.is_dir():
            advice = "expected the disk of the process that builds; give an --out that all workers see by this name"
            raise InputError(f"{out}: not a folder on {platform.node()}, where a worker runs; {advice}")
        tokenizer = Tokenizer.load(out / TOKENIZER)
        sketcher = Sketcher(config.near_duplicates) if config.near_duplicates else None
        return cls(
            folder, PartWriter(tokenizer, config.language, config.splitter, config.max_sentence_tokens, sketcher)
        )

    def write_part(self, name: str, texts: Sequence[str]) -> None:
        """Write the part `name` of these texts."""
        self.writer.write(self.folder / name, texts)

    @cached_property
    def parts(self) -> list[Part]:
        """The parts of the build in reading order, once all are written."""
        return open_parts(self.folder)

    def compare(self, task: Comparison) -> None:
        """Find near-duplicates in a range of a band; their hashes go to the working folder."""
        assert self.writer.sketcher is not None
        sketches = [part.array("sketches") for part in self.parts]
        hashes = [np.array(part.array("digests")) for part in self.parts]
        save_array(self.folder / task.name, similar(sketches, hashes, task, self.writer.sketcher), self.folder)

    def write_shard(self, shard: ShardPlan) -> None:
        """Gather a shard from the parts; its entry in the manifest goes to the working folder."""
        near = sorted(self.folder.glob(f"{NEAR}*.npy")) if self.writer.sketcher else []
        entry = write_shard(shard, self.parts, self.folder.parent, near)
        with atomic_write(self.folder / f"{shard.name}.json", "w", self.folder) as file:
            file.write(to_json(entry, indent=1) + "\n")


def open_parts(folder: Path) -> list[Part]:
    """All parts of a build in reading order."""
    return [Part(folder / name) for name in read_json(folder / READ)["parts"]]
