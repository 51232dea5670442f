"""The runs of a study: pre-trainings, fine-tunings with one seed, and runs that need no training of an encoder.

Also its rows, which are made of such runs.

A run's folder is named by a hash of all that determines its outcome. So studies share the runs that they have in
common, and a study that was stopped, or copied to another machine, finds what is finished.

    ROOT/pretrain-3f9a.../    a run folder of pretraining/run.py (state/ is removed when it is finished)
    ROOT/concat-.../model/    two pre-trained models concatenated
    ROOT/static-.../model/    word2vec vectors
    ROOT/finetune-.../        a run folder of finetuning/run.py (model/ is removed too, unless it is to be kept)
    ROOT/baseline-.../        the results of a baseline without an encoder
    ROOT/heldout-.../         the metrics of a model on a held-out set
    ROOT/*/cell.json          what the run is, for people, and its recipe
"""

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ..checkpoint.folder import read_config
from ..checkpoint.weights import refuse_export, weight_files
from ..config import to_toml
from ..files import checksum, write_json
from ..finetuning.recipe import FinetuneConfig
from ..model.config import ModelConfig
from ..pretraining.recipe import PretrainConfig
from ..pretraining.static import StaticConfig
from ..reporting.run_files import read_results
from ..tasks.base import Task
from ..tasks.selection import DividedRows
from ..training.identity import RunIdentity
from .baselines import BaselineConfig
from .recipe import Column, Study
from .scheduler import Run, RunFolder


@dataclass(frozen=True)
class InitialModel:
    """The model that a run starts from: one that another run makes, or a model folder of the user."""

    key: str  # hash of what determines the weights
    path: Path  # relative to the root of the study's runs, or an absolute path of the user's
    shape: ModelConfig | None = None  # None: no model, of a baseline
    run: "Run | None" = None  # that makes it
    step: int | None = None  # of the run's snapshot; None: the model at its end

    def at_step(self, step: int) -> "InitialModel":
        """The run's snapshot at this step."""
        return replace(self, key=f"{self.key}@{step}", path=self.path / "snapshots" / f"step-{step}", step=step)

    def path_in(self, folder: RunFolder) -> Path:
        return folder.root / self.path


@dataclass(frozen=True)
class Training:
    """A run that makes a model of a store: pre-training, or static word vectors by word2vec."""

    config: PretrainConfig | StaticConfig
    corpus: str  # the store's fingerprint
    models: ClassVar[tuple[InitialModel, ...]] = ()

    @property
    def kind(self) -> str:
        return "static" if isinstance(self.config, StaticConfig) else "pretrain"

    @cached_property
    def key(self) -> str:
        return RunIdentity(self.config, (self.corpus,)).hash


@dataclass(frozen=True)
class Concatenation:
    """A left-to-right and a right-to-left model as one of twice the width."""

    models: tuple[InitialModel, ...]
    config: ClassVar[None] = None
    kind: ClassVar[str] = "concat"

    @cached_property
    def key(self) -> str:
        return _hash(*(model.key for model in self.models))


@dataclass(frozen=True)
class HeldOut:
    """A model's metrics on a held-out set that a recipe of pre-training makes."""

    models: tuple[InitialModel]
    config: PretrainConfig
    corpus: str  # the store's fingerprint
    kind: ClassVar[str] = "heldout"

    @cached_property
    def key(self) -> str:
        return _hash(self.models[0].key, RunIdentity(self.config, (self.corpus,)).hash)


@dataclass(frozen=True)
class Tuning:
    """One run on a task's examples: a fine-tuning, or a baseline without an encoder."""

    task: Task
    column: Column  # where its examples are, and how many of them are used
    rows: str  # checksum of the files
    config: FinetuneConfig | BaselineConfig  # with its seed; a candidate's settings take the place of some of it
    models: tuple[InitialModel, ...] = ()  # one; none of a baseline
    held_out: bool = False  # evaluated on training examples that are held out, to choose a setting
    candidates: "tuple[Run, ...]" = ()  # runs with held-out training examples, of which the best setting is taken
    setting: str = ""  # of a candidate: the name of what it tries, such as "optim.lr = 0.001"

    @property
    def kind(self) -> str:
        return "finetune" if self.models else "baseline"

    @property
    def seed(self) -> int:
        return self.config.seed if isinstance(self.config, BaselineConfig) else self.config.loop.seed

    @cached_property
    def key(self) -> str:
        models = (model.key for model in self.models)
        held_out = ("kept back",) if self.held_out else ()
        candidates = (run.name for run in self.candidates)
        # without what does not determine the outcome: the task's defaults are in the recipe, its dataset on the card
        task = replace(self.task, defaults={}, dataset="")
        return RunIdentity(self.config, (*models, *self.reads, *held_out, *candidates), (task,)).hash

    @property
    def reads(self) -> tuple[str, ...]:
        """The examples that it reads: of which files, how many, and whether they are drawn by its seed."""
        column = self.column
        drawn = ("drawn",) if column.draw and column.train_rows else ()
        return (self.rows, str(column.train_rows), str(column.dev_rows), *drawn)


StudySpec = Training | Concatenation | HeldOut | Tuning


def study_run(spec: StudySpec, title: str) -> Run:
    """A run that is named by the key of its specification."""
    needs = tuple(model.run for model in spec.models if model.run is not None)
    candidates = spec.candidates if isinstance(spec, Tuning) else ()
    return Run(f"{spec.kind}-{spec.key[:16]}", title, spec, needs, candidates)


def model_of(spec: StudySpec, title: str, shape: ModelConfig | None) -> InitialModel:
    """The model that a run makes."""
    run = study_run(spec, title)
    return InitialModel(spec.key, Path(run.name), shape, run)


def user_model(folder: Path) -> InitialModel:
    """A model folder of the user, identified by its bytes."""
    refuse_export(folder)
    files = [folder / "config.json", *weight_files(folder), folder / "tokenizer.json"]
    key = _hash(*(checksum(file) for file in files if file.exists()))
    return InitialModel(key, folder.resolve(), read_config(folder)[0])


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# ---- cell.json in a run's folder


def describe(run: Run, folder: RunFolder, chosen: tuple[str, FinetuneConfig] | None = None) -> None:
    """Write cell.json, before the run starts. chosen: the setting that it is trained with, if one was chosen."""
    path, (setting, config) = folder.path(run), chosen or ("", run.spec.config)
    path.mkdir(parents=True, exist_ok=True)
    recipe = to_toml(config) if config else ""
    facts = {"kind": run.spec.kind, "cell": run.title, "key": run.spec.key, "recipe": recipe}
    write_json(path / "cell.json", facts | ({"setting": setting} if setting else {}))


def setting_of(run: Run, folder: RunFolder) -> str:
    """The name of the setting that was chosen for the run when it started, "" if none was.

    The candidates may have other results by now, or none.
    """
    path = folder.path(run) / "cell.json"
    if not run.candidates or not path.exists():
        return ""
    return str(read_results(path, {"setting?": str}, "remove the folder to repeat the run").get("setting", ""))


# ---- the rows of a study: what its file becomes (plan.py), and what its report reads


@dataclass(frozen=True)
class StudyInputs:
    """What a study is made from."""

    recipe: Path  # the study's file
    corpus: Path | None = None  # store to pre-train on
    data: Path | None = None  # folder that has the columns' folders
    model: Path | None = None  # model folder instead of the pre-training of all variants that do not differ in it
    minute: bool = False  # tiny models and few examples
    study: Study | None = None  # of a command that has no study's file: a sweep, with one column
    task: Task | None = None  # of the sweep, with its labels
    rows: DividedRows | None = None  # the sweep's examples

    def for_workers(self) -> "StudyInputs":
        """The same for processes with another working directory."""
        rows = self.rows and replace(self.rows, **_absolute(self.rows, "data", "train", "dev"))
        return replace(self, rows=rows, **_absolute(self, "corpus", "data", "model"))


def _absolute(inputs: Any, *names: str) -> dict[str, Any]:
    """Those of these paths that are given."""
    return {name: path.absolute() for name in names if (path := getattr(inputs, name))}


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant, or a snapshot of one."""

    name: str
    line: str  # the curve that it is a point of
    x: float | None
    start: InitialModel
    tuned: dict[str, tuple[Run, ...]] = field(default_factory=dict)  # by column, a run for each seed
    seed: int | None = None  # of pre-training, if the study names several
    others: tuple["Row", ...] = ()  # the same variant with the other seeds of pre-training

    @property
    def replicates(self) -> tuple["Row", ...]:
        """One for each seed of pre-training."""
        return (self, *self.others)

    @property
    def ancestors(self) -> list[Run]:
        """The runs that make its model, in the order of work."""
        return [*self.start.run.ancestors, self.start.run] if self.start.run else []

    @property
    def trained(self) -> tuple[Run, ...]:
        """The pre-training that it is made of."""
        runs = {run.name: run for run in self.ancestors if isinstance(run.spec, Training)}
        return tuple(runs.values())

    @property
    def random(self) -> bool:
        """Whether all its fine-tuning begins with random weights: its start gives the shape alone."""
        configs = [run.spec.config for runs in self.tuned.values() for run in runs]
        tuned = [config for config in configs if isinstance(config, FinetuneConfig)]
        return bool(tuned) and all(config.random_init for config in tuned)

    @property
    def weights(self) -> str:
        """What identifies the weights that its fine-tuning starts from; "random" and "none" are those of no encoder."""
        return "random" if self.random else self.start.key

    @property
    def runs(self) -> list[Run]:
        """All its runs, in the order of work."""
        tuned = [run for runs in self.tuned.values() for run in runs]
        candidates = [candidate for run in tuned for candidate in run.candidates]
        return [*self.ancestors, *candidates, *tuned, *(run for row in self.others for run in row.runs)]


@dataclass(frozen=True)
class Plan:
    """A study, its rows, and their runs."""

    study: Study
    inputs: StudyInputs
    rows: list[Row]
    seeds: tuple[int, ...]
    corpus: str  # the store's fingerprint

    @property
    def base(self) -> Row:
        """The row that the others are compared with; of a sweep, which compares none, the first one."""
        return next((row for row in self.rows if row.name == self.study.base), self.rows[0])

    @cached_property
    def runs(self) -> list[Run]:
        """Every run once, in the order of work: the base variant's first, then row by row."""
        runs: dict[str, Run] = {}
        for row in (self.base, *self.rows):
            for run in row.runs:
                runs.setdefault(run.name, run)  # named after the first row that needs it
        return list(runs.values())
