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


def fingerprint(recipe: Any, *inputs: Any) -> str:
    """The hash of a recipe and of all that its run reads: checksums and names, or further dataclasses."""
    settings = tuple(one for one in inputs if not isinstance(one, str))
    return RunIdentity(recipe, tuple(one for one in inputs if isinstance(one, str)), settings).hash


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
class Trained:
    """A run that makes a model of a store."""

    config: Any  # its recipe
    corpus: str  # the store's fingerprint
    needs: ClassVar[tuple[()]] = ()
    results: ClassVar[dict[str, Any]] = {
        "metrics": METRICS,
        "seconds": float,
        "steps": int,
        "tokens": float,
        "machine?": dict,
    }

    @cached_property
    def key(self) -> str:
        return fingerprint(self.config, self.corpus)


@dataclass(frozen=True)
class Pretraining(Trained):
    """One pre-training run."""

    config: PretrainConfig
    kind: ClassVar[str] = "pretrain"


@dataclass(frozen=True)
class StaticVectors(Trained):
    """Static word vectors, trained by word2vec."""

    config: StaticConfig
    kind: ClassVar[str] = "static"


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
    results: ClassVar[dict[str, Any]] = {"metrics": METRICS, "seconds": float, "machine?": dict}

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return self.start.needs

    @cached_property
    def key(self) -> str:
        return _hash(self.start.key, fingerprint(self.config, self.corpus))


@dataclass(frozen=True)
class Finetuning:
    """One fine-tuning run."""

    start: InitialModel
    task: Task
    column: Column  # where its rows are, and how many of them are used
    rows: str  # checksum of the files
    config: FinetuneConfig  # with its seed; where there are candidates, one of their settings takes its place
    kept_back: bool = False  # judged on training rows that are held out, to choose a setting
    candidates: "tuple[StudyCell, ...]" = ()  # runs with held-out training rows, of which the best setting is taken
    setting: str = ""  # of a candidate: the name of what it tries, such as "optim.lr = 0.001"
    kind: ClassVar[str] = "finetune"
    results: ClassVar[dict[str, Any]] = {"metrics": METRICS, "seconds": float, "collapsed": bool, "machine?": dict}

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return self.start.needs

    @cached_property
    def key(self) -> str:
        held_out = ("kept back",) if self.kept_back else ()
        tried = [cell.name for cell in self.candidates]
        reads = (self.start.key, *rows_read(self.rows, self.column), *held_out, *tried)
        return fingerprint(self.config, _named(self.task), *reads)


@dataclass(frozen=True)
class Baseline:
    """A baseline without an encoder."""

    task: Task
    column: Column  # where its rows are, and how many of them are used
    rows: str  # checksum of the files
    config: BaselineConfig  # with its seed
    kind: ClassVar[str] = "baseline"
    needs: ClassVar[tuple[()]] = ()
    results: ClassVar[dict[str, Any]] = Finetuning.results

    @cached_property
    def key(self) -> str:
        return fingerprint(self.config, _named(self.task), *rows_read(self.rows, self.column))


def _named(task: Task) -> Task:
    """The task without what is no part of a run's name: its defaults are in the recipe, its dataset on the card."""
    return replace(task, defaults={}, dataset="")


def rows_read(files: str, column: Column) -> tuple[str, ...]:
    """The rows that a run reads: of which files, how many, and whether they are drawn by its seed."""
    drawn = ("drawn",) if column.draw and column.train_rows else ()
    return (files, str(column.train_rows), str(column.dev_rows), *drawn)


StudyWork = Pretraining | Concatenation | StaticVectors | HeldOut | Finetuning | Baseline
StudyCell = Cell[StudyWork]


def study_cell(work: StudyWork, title: str) -> StudyCell:
    """A cell that is named by its key."""
    trials = work.candidates if isinstance(work, Finetuning) else ()
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


def describe(
    cell: StudyCell, grid: Grid, keep_models: bool = False, chosen: tuple[str, FinetuneConfig] | None = None
) -> None:
    """Write cell.json, before the run begins.

    keep_models: whether the run's model is to stay. chosen: the setting that it is trained with, if one was chosen.
    """
    path, (setting, config) = grid.path(cell), chosen or ("", cell.work.config)
    path.mkdir(parents=True, exist_ok=True)
    facts = {"kind": cell.work.kind, "cell": cell.title, "key": cell.work.key, "keep_models": keep_models}
    more = {"setting": setting} if setting else {}
    write_json(path / "cell.json", {**facts, **more, "recipe": to_toml(config) if config else ""})


def setting_of(cell: StudyCell, grid: Grid) -> tuple[str, ...]:
    """The name of the setting that was chosen for the run when it began; () if none was.

    The candidates may have other results by now, or none.
    """
    path = grid.path(cell) / "cell.json"
    found = read_results(path, {"setting?": str}, REMOVE) if cell.trials and path.exists() else {}
    return (found["setting"],) if "setting" in found else ()


def keeps_model(cell: StudyCell, grid: Grid) -> bool:
    """Whether the cell's model is to stay; true if cell.json does not say."""
    path = grid.path(cell) / "cell.json"
    return not path.exists() or bool(read_results(path, {}, REMOVE).get("keep_models", True))
