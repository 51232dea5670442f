"""The cells of a study: a pre-training, a fine-tuning with one seed, and the baselines.

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
import tomllib
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ..checkpoint.weights import weight_files
from ..config import SCHEMA, from_dict, to_toml
from ..files import InputError, checksum, write_json
from ..finetuning.recipe import FinetuneConfig
from ..pretraining.recipe import Phase, PretrainConfig, StaticConfig
from ..reporting.run_files import METRICS, read_results
from ..tasks.base import Task
from ..training.identity import RunIdentity, without_intervals
from .baselines import BaselineConfig
from .engine import Cell, Grid
from .recipe import Column

REMOVE = "remove the folder to run the cell again"


@dataclass(frozen=True)
class InitialModel:
    """The model that a cell starts from: one that another cell makes, or a model folder of the user."""

    cell: "StudyCell | None" = None
    step: int | None = None  # of the cell's snapshot; None: the model at its end
    folder: Path = Path()  # of the user
    checksum: str = ""  # of the user's folder

    @property
    def keys(self) -> tuple[str, ...]:
        """Hashes of what determines the weights: of the current schema of recipes, then of each older one."""
        if self.cell is None:
            return (self.checksum,) * SCHEMA
        return tuple(key if self.step is None else f"{key}@{self.step}" for key in self.cell.work.keys)

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return () if self.cell is None else (self.cell,)

    def name(self, grid: Grid) -> Path:
        """Its folder, relative to the grid's; that of the user as it is."""
        if self.cell is None:
            return self.folder
        return Path(grid.name(self.cell), *(() if self.step is None else ("snapshots", f"step-{self.step}")))

    def path(self, grid: Grid) -> Path:
        return grid.folder / self.name(grid)


@dataclass(frozen=True)
class Pretraining:
    """One pre-training run."""

    config: PretrainConfig
    corpus: str  # the store's fingerprint
    kind: ClassVar[str] = "pretrain"
    needs: ClassVar[tuple[()]] = ()
    results: ClassVar[dict[str, Any]] = {
        "metrics": METRICS,
        "seconds": float,
        "steps": int,
        "tokens": float,
        "machine?": dict,
    }

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return RunIdentity(self.config, (self.corpus,)).hashes


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
    def keys(self) -> tuple[str, ...]:
        return tuple(_hash(*pair) for pair in zip(self.left.keys, self.right.keys, strict=False))


@dataclass(frozen=True)
class StaticVectors:
    """Static word vectors, trained by word2vec."""

    config: StaticConfig
    corpus: str  # the store's fingerprint
    kind: ClassVar[str] = "static"
    needs: ClassVar[tuple[()]] = ()
    results: ClassVar[dict[str, Any]] = Pretraining.results

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return RunIdentity(self.config, (self.corpus,)).hashes


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
    def keys(self) -> tuple[str, ...]:
        found = RunIdentity(self.config, (self.corpus,)).hashes
        return tuple(_hash(*pair) for pair in zip(self.start.keys, found, strict=False))


@dataclass(frozen=True)
class Finetuning:
    """One fine-tuning run."""

    start: InitialModel
    task: Task
    column: Column  # where its rows are, and how many of them are used
    rows: str  # checksum of the files
    config: FinetuneConfig  # with its seed; where there are candidates, one of their settings takes its place
    kept_back: bool = False  # judged on training rows that are kept back, to choose a setting
    candidates: "tuple[StudyCell, ...]" = ()  # runs with kept-back rows, of which the best setting is taken
    setting: str = ""  # of a candidate: the name of what it tries, such as "optim.lr = 0.001"
    kind: ClassVar[str] = "finetune"
    results: ClassVar[dict[str, Any]] = {"metrics": METRICS, "seconds": float, "collapsed": bool, "machine?": dict}

    @property
    def needs(self) -> "tuple[StudyCell, ...]":
        return self.start.needs

    @cached_property
    def keys(self) -> tuple[str, ...]:
        found: list[str] = []
        task = _named(self.task)
        more = (*map(str, self._rows), *_reads(self.column, self.kept_back))
        tried = [[_folder(cell.work, key) for key in cell.work.keys] for cell in self.candidates]
        for number, (start, *names) in enumerate(zip(self.start.keys, *tried, strict=False)):
            hashes = RunIdentity(self.config, (start, *more, *names), (task,)).hashes
            found.extend(hashes[number : number + 1])  # of the same schema as the start's and the candidates'
        return tuple(found)

    @property
    def _rows(self) -> list[Any]:
        return [self.rows, self.column.train_rows, self.column.dev_rows]


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
    def keys(self) -> tuple[str, ...]:
        column, task = self.column, _named(self.task)
        reads = (self.rows, str(column.train_rows), str(column.dev_rows), *_reads(column))
        return RunIdentity(self.config, reads, (task,)).hashes


def _named(task: Task) -> Task:
    """The task without what is no part of a run's name: its defaults are in the recipe, its dataset on the card."""
    return replace(task, defaults={}, dataset="")


def _reads(column: Column, kept_back: bool = False) -> tuple[str, ...]:
    """What a run reads besides files and numbers of rows, if it reads anything else than the first rows."""
    marks = (("drawn", column.draw and column.train_rows), ("kept back", kept_back))
    return tuple(mark for mark, given in marks if given)


StudyWork = Pretraining | Concatenation | StaticVectors | HeldOut | Finetuning | Baseline
TRAINED = ("pretrain", "static")  # kinds of cells that make a model of a store
StudyCell = Cell[StudyWork]


def study_cell(work: StudyWork, title: str) -> StudyCell:
    """A cell that is named by its key. Folders with the names of older schemas are found too."""
    name, *older = (_folder(work, key) for key in (*work.keys, *older_keys(work)))
    return Cell(name, title, work, work.needs, tuple(older), work.candidates if isinstance(work, Finetuning) else ())


def _folder(work: StudyWork, key: str) -> str:
    return f"{work.kind}-{key[:16]}"


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
    facts = {"kind": cell.work.kind, "cell": cell.title, "key": cell.work.keys[0], "keep_models": keep_models}
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


# ---- cells of version 0.1.0


def older_keys(work: StudyWork) -> tuple[str, ...]:
    """The key of version 0.1.0, if that version had such runs."""
    if isinstance(work, StaticVectors | HeldOut | Baseline):
        return ()
    if isinstance(work, Finetuning) and (work.kept_back or work.candidates or work.column.draw):
        return ()
    return () if any(cell.work.kind == "static" for cell in work.needs) else (older_key(work),)


def older_key(work: Any) -> str:
    """The key of version 0.1.0, which hashed only what differed from the defaults. It finds the folders of that time.

    `check_older` compares their whole recipe, since the defaults may have changed.
    """
    if isinstance(work, Pretraining):
        return _hash(_differences(_intervals_of_that_time(work.config), PretrainConfig()), work.corpus)
    if isinstance(work, Concatenation):
        return _hash(_older_model_key(work.left), _older_model_key(work.right))
    name, settings = work.task.name, _differences(_intervals_of_that_time(work.config), FinetuneConfig())
    task = _differences(replace(work.task, dataset=""), Task(name))
    return _hash(_older_model_key(work.start), task, name, work._rows, settings)


def _intervals_of_that_time(config: Any) -> Any:
    config = without_intervals(config)
    return replace(config, loop=replace(config.loop, log_every=1))


def _older_model_key(model: InitialModel) -> str:
    if model.cell is None:
        return model.checksum
    key = older_key(model.cell.work)
    return key if model.step is None else f"{key}@{model.step}"


def _differences(value: Any, default: Any) -> Any:
    """What differs from the defaults, as nested tables; without fields that came later and have the earlier value."""
    if is_dataclass(value):
        pairs = ((f, getattr(value, f.name), getattr(default, f.name, None)) for f in fields(value))
        known = ((f.name, item, other) for f, item, other in pairs if not _came_later(f, item))
        return {name: _differences(item, other) for name, item, other in known if item != other}
    if isinstance(value, list | tuple):
        return [_differences(item, Phase() if isinstance(item, Phase) else None) for item in value]
    return {**value} if isinstance(value, dict) else value


def _came_later(field: Field[Any], value: Any) -> bool:
    """Whether a recipe got this field after schema 1, and has the value that runs had before."""
    return field.metadata.get("since", 0) > 1 and value == field.metadata["before"]


def check_older(cell: StudyCell, grid: Grid) -> None:
    """Raises InputError if a cell of version 0.1.0 has other settings: those of other defaults."""
    path, config = grid.path(cell) / "cell.json", cell.work.config
    if config is None or cell.trials or grid.name(cell) == cell.name or not path.exists():
        return
    try:
        table = tomllib.loads(read_results(path, {"recipe": str}, REMOVE)["recipe"])
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: recipe is not TOML ({error}); {REMOVE}") from None
    found = without_intervals(from_dict(type(config), table, str(path)))
    if found != without_intervals(config):
        raise InputError(
            f"{path.parent} ({cell.title}) was begun by a version of bertworks with other defaults; give another "
            f"--cells, or {REMOVE}"
        )
