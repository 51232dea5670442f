"""The cells of a study: pre-trainings, fine-tunings with one seed, and runs that need no training of an encoder.

A cell's folder is named by a hash of all that determines its outcome. So studies share the runs that they have in
common, and a study that was stopped, or copied to another machine, finds what is finished.

    CELLS/pretrain-3f9a.../    a run folder of pretraining/run.py (state/ is removed when it is finished)
    CELLS/concat-.../model/    two pre-trained models side by side
    CELLS/static-.../model/    word2vec vectors
    CELLS/finetune-.../        a run folder of finetuning/run.py (model/ is removed too, unless it is to be kept)
    CELLS/baseline-.../        the results of a baseline without an encoder
    CELLS/heldout-.../         the metrics of a model on a held-out set
    CELLS/*/cell.json          what the cell is for people, and its recipe
"""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ..checkpoint.weights import weight_files
from ..config import to_toml
from ..files import checksum, write_json
from ..finetuning.recipe import FinetuneConfig
from ..pretraining.recipe import PretrainConfig, StaticConfig
from ..reporting.run_files import METRICS, read_results
from ..tasks.base import Task
from ..training.identity import RunIdentity
from .baselines import BaselineConfig
from .engine import Cell, Grid
from .recipe import Column

REMOVE = "remove the folder to run the cell again"
MACHINE = {"machine?": dict}


@dataclass(frozen=True)
class InitialModel:
    """The model that a cell starts from: one that another cell makes, or a model folder of the user."""

    cell: "StudyCell | None" = None
    step: int | None = None  # of the cell's snapshot; None: the model at its end
    folder: Path = Path()  # of the user
    checksum: str = ""  # of the user's folder

    @property
    def key(self) -> str:
        """Hash of what determines the weights."""
        if self.cell is None:
            return self.checksum
        return self.cell.work.key if self.step is None else f"{self.cell.work.key}@{self.step}"

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return () if self.cell is None else (self.cell,)

    @property
    def name(self) -> Path:
        """Its folder, relative to the grid's; that of the user as it is."""
        if self.cell is None:
            return self.folder
        return Path(self.cell.name, *(() if self.step is None else ("snapshots", f"step-{self.step}")))

    def path(self, grid: Grid) -> Path:
        return grid.folder / self.name


@dataclass(frozen=True)
class Training:
    """A run that makes a model of a store: pre-training, or static word vectors by word2vec."""

    config: PretrainConfig | StaticConfig
    corpus: str  # the store's fingerprint
    needs: ClassVar[tuple[()]] = ()
    results: ClassVar[dict[str, Any]] = {"metrics": METRICS, "seconds": float, "steps": int, "tokens": float} | MACHINE

    @property
    def kind(self) -> str:
        return "static" if isinstance(self.config, StaticConfig) else "pretrain"

    @cached_property
    def key(self) -> str:
        return RunIdentity(self.config, (self.corpus,)).hash


@dataclass(frozen=True)
class Concatenation:
    """Two models side by side as one of twice the width."""

    left: InitialModel
    right: InitialModel
    config: ClassVar[None] = None
    kind: ClassVar[str] = "concat"
    results: ClassVar[dict[str, Any]] = {"seconds": float}

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return (*self.left.needs, *self.right.needs)

    @cached_property
    def key(self) -> str:
        return _hash(self.left.key, self.right.key)


@dataclass(frozen=True)
class HeldOut:
    """A model's metrics on a held-out set that a recipe of pre-training makes."""

    start: InitialModel
    config: PretrainConfig
    corpus: str  # the store's fingerprint
    kind: ClassVar[str] = "heldout"
    results: ClassVar[dict[str, Any]] = {"metrics": METRICS, "seconds": float} | MACHINE

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return self.start.needs

    @cached_property
    def key(self) -> str:
        return _hash(self.start.key, RunIdentity(self.config, (self.corpus,)).hash)


@dataclass(frozen=True)
class Tuning:
    """One run on a task's examples: a fine-tuning, or a baseline without an encoder."""

    task: Task
    column: Column  # where its rows are, and how many of them are used
    rows: str  # checksum of the files
    config: FinetuneConfig | BaselineConfig  # with its seed; a candidate's settings take the place of some of it
    start: InitialModel | None = None  # none of a baseline
    is_held_out: bool = False  # evaluated on training rows that are held out, to choose a setting
    candidates: "tuple[StudyCell, ...]" = ()  # runs with held-out training rows, of which the best setting is taken
    setting: str = ""  # of a candidate: the name of what it tries, such as "optim.lr = 0.001"
    results: ClassVar[dict[str, Any]] = {"metrics": METRICS, "seconds": float, "collapsed": bool} | MACHINE

    @property
    def kind(self) -> str:
        return "baseline" if self.start is None else "finetune"

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return () if self.start is None else self.start.needs

    @property
    def seed(self) -> int:
        return self.config.seed if isinstance(self.config, BaselineConfig) else self.config.loop.seed

    @cached_property
    def key(self) -> str:
        start = () if self.start is None else (self.start.key,)
        held_out = ("kept back",) if self.is_held_out else ()
        tried = [cell.name for cell in self.candidates]
        # without what does not determine the outcome: the task's defaults are in the recipe, its dataset on the card
        task = replace(self.task, defaults={}, dataset="")
        return RunIdentity(self.config, (*start, *self.reads, *held_out, *tried), (task,)).hash

    @property
    def reads(self) -> tuple[str, ...]:
        """The examples that it reads: of which files, how many, and whether they are drawn by its seed."""
        column = self.column
        drawn = ("drawn",) if column.draw and column.train_rows else ()
        return (self.rows, str(column.train_rows), str(column.dev_rows), *drawn)


StudyWork = Training | Concatenation | HeldOut | Tuning
StudyCell = Cell[StudyWork]


def study_cell(work: StudyWork, title: str) -> StudyCell:
    """A cell that is named by its key."""
    trials = work.candidates if isinstance(work, Tuning) else ()
    return Cell(f"{work.kind}-{work.key[:16]}", title, work, work.needs, trials)


def user_model(folder: Path) -> InitialModel:
    """A model folder of the user, identified by its bytes."""
    files = [folder / "config.json", *weight_files(folder), folder / "tokenizer.json"]
    return InitialModel(folder=folder.resolve(), checksum=_hash(*(checksum(file) for file in files if file.exists())))


def _hash(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


# ---- files in a cell's folder


def results_of(cell: StudyCell, grid: Grid) -> dict[str, Any] | None:
    """The results of a finished cell, else None. Raises InputError if they lack what a study reads."""
    return grid.results(cell, cell.work.results)


def describe(cell: StudyCell, grid: Grid, chosen: tuple[str, FinetuneConfig] | None = None) -> None:
    """Write cell.json, before the run begins. chosen: the setting that it is trained with, if one was chosen."""
    path, (setting, config) = grid.path(cell), chosen or ("", cell.work.config)
    path.mkdir(parents=True, exist_ok=True)
    facts = {
        "kind": cell.work.kind,
        "cell": cell.title,
        "key": cell.work.key,
        "recipe": to_toml(config) if config else "",
    }
    write_json(path / "cell.json", facts | ({"setting": setting} if setting else {}))


def setting_of(cell: StudyCell, grid: Grid) -> str:
    """The name of the setting that was chosen for the run when it began, "" if none was.

    The candidates may have other results by now, or none.
    """
    path = grid.path(cell) / "cell.json"
    found = read_results(path, {"setting?": str}, REMOVE) if cell.trials and path.exists() else {}
    return str(found.get("setting", ""))
