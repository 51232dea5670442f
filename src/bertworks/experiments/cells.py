"""Cells: the runs that a study is made of. A cell's folder is named by what determines its outcome, so that studies
which need the same run share it, and a study that was stopped, or carried to another machine, goes on.

    CELLS/pretrain-3f9a.../    a run folder of pretraining/run.py (its state/ goes when it is finished)
    CELLS/concat-.../model/    two pre-trained models side by side
    CELLS/finetune-.../        a run folder of finetuning/run.py for one seed (its model/ goes too, unless kept)
    CELLS/*/cell.json          what the cell is for a person, and its recipe
    CELLS/*/failed.json        that it diverged, or could not run, and why
    CELLS/locks/*.lock         held by the process that works on a cell; the lock dies with its process
"""

import contextlib
import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..checkpoint.weights import weight_files
from ..config import from_dict, to_toml
from ..files import InputError, checksum, held, write_json
from ..finetuning.job import FinetuneConfig
from ..pretraining.run import Phase, PretrainConfig
from ..reporting.run_files import METRICS, read_results
from ..tasks.base import Task
from .recipe import Column

State = Literal["done", "failed", "part", "missing"]
READ: dict[str, dict[str, Any]] = {  # of a finished cell's results.json, by kind
    "pretrain": {"metrics": METRICS, "seconds": float, "steps": int, "tokens": float, "machine?": dict},
    "concat": {"seconds": float},
    "finetune": {"metrics": METRICS, "seconds": float, "collapsed": bool, "machine?": dict},
}


@dataclass(frozen=True)
class Start:
    """A model folder that fine-tuning starts from, perhaps one that is still to be made."""

    key: str  # what the model is
    folder: Path  # relative to CELLS, or a folder of the user's own
    needs: tuple["Cell", ...] = ()  # cells that make it


@dataclass(frozen=True)
class Finetuning:
    """All of one fine-tuning run."""

    start: Start
    task: Task
    column: Column  # where its rows are, and how many of them are taken
    rows: str  # checksum of its files
    config: FinetuneConfig  # with its seed


@dataclass(frozen=True)
class Cell:
    """One run: its work, and the cells whose models it starts from."""

    kind: Literal["pretrain", "concat", "finetune"]
    key: str
    told: str  # what it is, in words
    work: PretrainConfig | tuple[Start, Start] | Finetuning
    needs: tuple["Cell", ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.key[:16]}"

    @property
    def before(self) -> list["Cell"]:
        """All that must be there before it can run, and what that needs in turn."""
        return [one for cell in self.needs for one in (*cell.before, cell)]

    @property
    def config(self) -> PretrainConfig | FinetuneConfig | None:
        """Its recipe; two models side by side have none."""
        if isinstance(self.work, Finetuning):
            return self.work.config
        return self.work if isinstance(self.work, PretrainConfig) else None


def pretrain_cell(config: PretrainConfig, corpus: str, told: str) -> Cell:
    """corpus: the store's fingerprint."""
    return Cell("pretrain", _key(spoken(_without_rhythm(config), PretrainConfig()), corpus), told, config)


def concat_cell(left: Start, right: Start, told: str) -> Cell:
    return Cell("concat", _key(left.key, right.key), told, (left, right), (*left.needs, *right.needs))


def finetune_cell(work: Finetuning, told: str) -> Cell:
    column, config = work.column, _without_rhythm(work.config)
    rows = [work.rows, column.train_rows, column.dev_rows]
    settings = spoken(config, FinetuneConfig())
    key = _key(work.start.key, spoken(work.task, Task(work.task.name)), work.task.name, rows, settings)
    return Cell("finetune", key, told, work, work.start.needs)


def folder_start(folder: Path) -> Start:
    """A model folder of the user's own, known by its bytes."""
    files = [folder / "config.json", *weight_files(folder), folder / "tokenizer.json"]
    return Start(_key(*(checksum(file) for file in files if file.exists())), folder.resolve())


def spoken(value: Any, default: Any) -> Any:
    """What differs from the defaults: a field that the project gets later, off by default, changes no cell's name."""
    if is_dataclass(value):
        pairs = ((f.name, getattr(value, f.name), getattr(default, f.name, None)) for f in fields(value))
        return {name: spoken(item, other) for name, item, other in pairs if item != other}
    if isinstance(value, list | tuple):
        return [spoken(item, Phase() if isinstance(item, Phase) else None) for item in value]
    return {**value} if isinstance(value, dict) else value


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _without_rhythm(config: Any) -> Any:
    """How often a run logs, saves and is judged does not change its outcome, nor do its snapshots."""
    judged = config.loop.eval_every if config.loop.keep_best else 0
    config = replace(config, loop=replace(config.loop, log_every=1, save_every=0, eval_every=judged))
    return replace(config, snapshots=()) if isinstance(config, PretrainConfig) else config


@dataclass(frozen=True)
class Cells:
    """The folder of all cells."""

    folder: Path

    def place(self, cell: Cell) -> Path:
        return self.folder / cell.name

    def state(self, cell: Cell) -> State:
        place = self.place(cell)
        if (place / "results.json").exists():
            return "done"
        if (place / "failed.json").exists():
            return "failed"
        return "part" if (place / "state").exists() else "missing"

    def failure(self, cell: Cell) -> dict[str, str]:
        """Why there are no results, `outcome` and `message` of the cell or of one that it needs; {} if there may be."""
        for one in cell.needs:
            if failure := self.failure(one):
                return failure
        path = self.place(cell) / "failed.json"
        if self.state(cell) != "failed":
            return {}
        try:
            return dict(read_results(path, {"outcome": str, "message": str}, "remove the file to try again"))
        except InputError:
            if path.exists():
                raise
            return {}  # another process lets it be tried again

    def results(self, cell: Cell) -> dict[str, Any] | None:
        """What a finished cell came to. Raises InputError if its file lacks what a study reads of it."""
        path = self.place(cell) / "results.json"
        if not path.exists():
            return None
        repair = f"these are the results of {cell.told!r}: remove the folder to run it again"
        found: dict[str, Any] = read_results(path, READ[cell.kind], repair)
        return found

    @contextlib.contextmanager
    def claimed(self, cell: Cell) -> Iterator[bool]:
        """Whether this process may work on the cell; held until the end of the block, or of the process."""
        self._lock(cell).parent.mkdir(parents=True, exist_ok=True)
        with held(self._lock(cell)) as mine:
            yield mine

    def busy(self, cell: Cell) -> bool:
        """Whether a process works on it at this moment.

        Of two processes that ask at the same instant one may get True. The other gets False and goes on to take it.
        """
        if not self._lock(cell).exists():
            return False
        with held(self._lock(cell)) as free:
            return not free

    def _lock(self, cell: Cell) -> Path:
        return self.folder / "locks" / f"{cell.name}.lock"

    def describe(self, cell: Cell, keep_models: bool = False) -> None:
        """Write cell.json, before its run begins; `keep_models`: whether the run's model is to stay."""
        place = self.place(cell)
        place.mkdir(parents=True, exist_ok=True)
        recipe = to_toml(cell.config) if cell.config else ""
        facts = {"kind": cell.kind, "cell": cell.told, "key": cell.key, "keep_models": keep_models, "recipe": recipe}
        write_json(place / "cell.json", facts)

    def keeps_model(self, cell: Cell) -> bool:
        """Whether the cell's model is to stay; also if that is not known, from before it was written down."""
        path = self.place(cell) / "cell.json"
        return not path.exists() or bool(
            read_results(path, {}, "remove the folder to run it again").get("keep_models", True)
        )

    def fail(self, cell: Cell, message: str, outcome: Literal["diverged", "failed"]) -> None:
        """Mark the cell as one that will give no results."""
        write_json(self.place(cell) / "failed.json", {"outcome": outcome, "message": message})

    def retry(self, cell: Cell) -> None:
        """Let a failed cell be tried again."""
        (self.place(cell) / "failed.json").unlink(missing_ok=True)

    def check(self, cell: Cell) -> None:
        """Raises InputError if a cell that was begun had other settings: those of another version of the program."""
        place = self.place(cell)
        if cell.config is None or not (place / "cell.json").exists():
            return
        path = place / "cell.json"
        written = read_results(path, {"recipe": str}, "remove the folder to run it again")["recipe"]
        try:
            table = tomllib.loads(written)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: recipe is not TOML ({error}); remove the folder to run it again") from None
        found = _without_rhythm(from_dict(type(cell.config), table, str(path)))
        if found != _without_rhythm(cell.config):
            raise InputError(
                f"{place} ({cell.told}) was begun by a version of bertworks with other defaults; give another --cells, "
                "or remove the folder to run it again"
            )
