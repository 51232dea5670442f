"""Expands a study to its rows and cells, and reports all that is wrong with it before any run begins.

With --minute everything is tiny, so that a study is seen to run from end to end before hours are spent on it. Its
figures mean nothing then.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model, read_config
from ..config import find_beside, from_dict, load_recipe
from ..data.store import Store
from ..files import InputError, checksum
from ..finetuning.recipe import FinetuneConfig
from ..model.config import ModelConfig
from ..model.layer_choice import LayerChoice
from ..pretraining.recipe import Phase, PretrainConfig
from ..tasks.base import Data, Task
from ..tasks.catalogue import find_task
from ..tasks.kinds import load_data
from .cells import Concatenation, Finetuning, InitialModel, Pretraining, StudyCell, study_cell, user_model
from .recipe import Column, Study, Variant, load_study

MINUTE_ROWS = 64  # of each file with --minute
MINUTE_SEEDS = 2
MINUTE_LENGTH = 64  # tokens


@dataclass(frozen=True)
class StudyInputs:
    """What a study is made from."""

    recipe: Path  # the study's file
    corpus: Path | None = None  # store to pre-train on
    data: Path | None = None  # folder that has the columns' folders
    model: Path | None = None  # model folder instead of the pre-training of all variants that do not differ in it
    minute: bool = False  # tiny models and few rows


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant, or a snapshot of one."""

    name: str
    line: str  # the curve that it is a point of
    x: float | None
    start: InitialModel
    shape: ModelConfig
    tuned: dict[str, tuple[StudyCell, ...]] = field(default_factory=dict)  # by column, a cell for each seed

    @property
    def step(self) -> int | None:
        """Of a snapshot; None: the end of the run."""
        return self.start.step

    @property
    def trained(self) -> tuple[StudyCell, ...]:
        """The pre-training that it is made of."""
        found = [cell for cell in self.ancestors if cell.work.kind == "pretrain"]
        return tuple({cell.name: cell for cell in found}.values())

    @property
    def random(self) -> bool:
        """Whether all its fine-tuning begins with random weights: its start gives the shape alone."""
        works = [cell.work for cells in self.tuned.values() for cell in cells]
        return bool(works) and all(isinstance(work, Finetuning) and work.config.random_init for work in works)

    @property
    def ancestors(self) -> list[StudyCell]:
        """The cells that make its model, in the order of work."""
        return [one for cell in self.start.needs for one in (*cell.ancestors, cell)]

    @property
    def cells(self) -> list[StudyCell]:
        """All its cells, in the order of work."""
        return [*self.ancestors, *(cell for cells in self.tuned.values() for cell in cells)]


@dataclass(frozen=True)
class Plan:
    """A study, its rows, and their cells."""

    study: Study
    inputs: StudyInputs
    rows: list[Row]
    seeds: tuple[int, ...]
    corpus: str  # the store's fingerprint

    @property
    def base(self) -> Row:
        return next(row for row in self.rows if row.name == self.study.base)

    @cached_property
    def cells(self) -> list[StudyCell]:
        """Every cell once, in the order of work: the base variant's first, then row by row."""
        order = [self.base, *(row for row in self.rows if row is not self.base)]
        found: dict[str, StudyCell] = {}
        for cell in (cell for row in order for cell in row.cells):
            found.setdefault(cell.name, cell)  # named after the first row that needs it
        return list(found.values())


def make_plan(inputs: StudyInputs) -> Plan:
    """Read the study and expand it. Raises InputError with everything that is wrong with it."""
    return Planner(inputs).plan()


class _AlreadyNoted(InputError):
    """What follows from a problem that was already noted."""


class Planner:
    """Expands a study; problems are collected."""

    def __init__(self, inputs: StudyInputs):
        self.inputs, self.study = inputs, load_study(inputs.recipe)
        self.study = replace(self.study, name=self.study.name or inputs.recipe.stem)
        self.seeds = self.study.seeds[:MINUTE_SEEDS] if inputs.minute else self.study.seeds
        self.problems: list[str] = []
        self.store: Store | None = None
        self.base: PretrainConfig | None = None
        self.finetune: Path | None = None  # the recipe of fine-tuning
        self.tasks: dict[str, tuple[Task, Column, str]] = {}  # of each column: with the files that it names
        self.made: dict[
            str, tuple[InitialModel, ModelConfig, PretrainConfig | None]
        ] = {}  # of each variant, and its recipe

    def plan(self) -> Plan:
        self._read()
        if any(column.task for column in self.study.columns):
            with self._noted():
                self.finetune = find_beside(self.study.finetune, self.inputs.recipe, "finetune")
        for column in self.study.columns:
            with self._noted(f"column {column.name!r}"):
                self._find(column)
        whole = [variant for variant in self.study.variants if not variant.concat]
        for variant in [*whole, *(v for v in self.study.variants if v.concat)]:
            with self._noted(f"variant {variant.name!r}"):
                self.made[variant.name] = self._start(variant)
        shown = (variant for variant in self.study.variants if variant.row and variant.name in self.made)
        rows = [row for variant in shown for row in self._rows(variant)]
        if self.problems:
            found = "\n".join(f"- {problem}" for problem in dict.fromkeys(self.problems))
            raise InputError(f"{self.inputs.recipe} cannot run; nothing was begun:\n{found}")
        return Plan(self.study, self.inputs, rows, self.seeds, self.store.fingerprint if self.store else "")

    @contextlib.contextmanager
    def _noted(self, where: str = "") -> Iterator[None]:
        """What is wrong inside the block becomes one of the problems."""
        try:
            yield
        except _AlreadyNoted:
            pass
        except InputError as error:
            self.problems.append(f"{where}: {error}" if where else str(error))

    # ---- pre-training

    def _read(self) -> None:
        """The store and the base recipe of pre-training, if a variant needs them."""
        if not any(self._own(variant) for variant in self.study.variants):
            return
        with self._noted():
            if self.inputs.corpus is None:
                raise InputError("--corpus is missing; give the store to pre-train on")
            self.store = Store.open(self.inputs.corpus)
        with self._noted():
            if not self.study.pretrain:
                raise InputError("pretrain is missing in the study; name the recipe of pre-training")
            path = find_beside(self.study.pretrain, self.inputs.recipe, "pretrain")
            self.base = load_recipe(path, PretrainConfig)

    def _own(self, variant: Variant) -> bool:
        """Whether it is pre-trained here."""
        given = self.inputs.model and not variant.pretrain and not variant.snapshots
        return not (variant.concat or variant.model or given)

    def _start(self, variant: Variant) -> tuple[InitialModel, ModelConfig, PretrainConfig | None]:
        """What the variant's fine-tuning starts from, and the shape of that model."""
        if variant.concat:
            return self._side_by_side(variant)
        if not self._own(variant):
            given = self.inputs.recipe.parent / variant.model if variant.model else self.inputs.model
            folder = find_model(given or "")
            return user_model(folder), read_config(folder)[0], None
        if self.base is None or self.store is None:
            raise _AlreadyNoted("its recipe or the store is missing")
        config = from_dict(PretrainConfig, variant.pretrain, "pretrain", self.base)
        config.loop.check()
        if unknown := [step for step in variant.snapshots if step not in config.snapshots]:
            raise InputError(f"step {unknown[0]} is none of the recipe's snapshots {list(config.snapshots)}")
        self._check_store(config, self.store)
        short = tiny_pretraining(config, self.store.vocab_size) if self.inputs.minute else config
        cell = study_cell(Pretraining(short, self.store.fingerprint), f"{variant.name}: pre-training")
        return InitialModel(cell), short.model, config

    def _check_store(self, config: PretrainConfig, store: Store) -> None:
        """Note a store that the recipe does not fit; with --minute too, which must find what the study refuses."""
        ours, theirs = config.model.vocab_size, store.vocab_size
        if ours != theirs:
            self.problems.append(  # once, although every variant has it
                f"model.vocab_size is {ours}, {store.folder} was built with a vocabulary of {theirs}; build a corpus "
                f"with {ours} tokens (bertworks tokenizer train --vocab-size {ours}), or copy the study and its "
                f"pre-training recipe and set model.vocab_size = {theirs} there"
            )

    def _side_by_side(self, variant: Variant) -> tuple[InitialModel, ModelConfig, None]:
        """Two models as one of twice the width."""
        missing = [name for name in variant.concat if name not in self.made]
        if missing:
            raise _AlreadyNoted(f"concat = {missing[0]!r} cannot be made")
        (left, shape, _), (right, other, _) = (self.made[name] for name in variant.concat)
        if shape.hidden_size != other.hidden_size:
            raise InputError(f"widths {shape.hidden_size} and {other.hidden_size} side by side; expected equal ones")
        cell = study_cell(Concatenation(left, right), f"{variant.name}: {' and '.join(variant.concat)} side by side")
        return InitialModel(cell), shape, None

    # ---- rows and fine-tuning

    def _rows(self, variant: Variant) -> Iterator[Row]:
        """The variant's snapshots, then its end."""
        start, shape, config = self.made[variant.name]
        line = variant.line or (variant.name if variant.snapshots else "")
        steps = sorted(config.snapshots) if config else []
        for step in variant.snapshots if config else ():
            short = steps.index(step) + 1 if self.inputs.minute else step
            x = None if self.inputs.minute else float(step)
            yield self._row(Row(f"{variant.name}, step {step:,}", line, x, replace(start, step=short), shape), variant)
        yield self._row(Row(variant.name, line, variant.x, start, shape), variant)

    def _row(self, row: Row, variant: Variant) -> Row:
        for column in self.study.columns:
            if column.name in self.tasks:
                with self._noted(f"variant {variant.name!r}, column {column.name!r}"):
                    row.tuned[column.name] = self._cells(row, variant, column)
        return row

    def _cells(self, row: Row, variant: Variant, column: Column) -> tuple[StudyCell, ...]:
        """The fine-tuning of one row on one column's task, with each seed."""
        task, taken, rows = self.tasks[column.name]
        if self.finetune is None:
            raise _AlreadyNoted("the recipe of fine-tuning is missing")
        config = load_recipe(self.finetune, FinetuneConfig, FinetuneConfig.for_task(task))
        for table in (column.finetune, variant.finetune):
            config = from_dict(FinetuneConfig, table, "finetune", config)
        if self.inputs.minute:
            config = tiny_finetuning(config)
        if config.max_seq_length > row.shape.max_length:
            raise InputError(
                f"max_seq_length = {config.max_seq_length}, but the model has {row.shape.max_length} positions"
            )
        LayerChoice.parse(config.top.layers, row.shape.num_hidden_layers)
        found = []
        for seed in self.seeds:
            one = replace(config, seeds=(), loop=replace(config.loop, seed=seed))
            work = Finetuning(row.start, task, taken, rows, one)
            found.append(study_cell(work, f"{row.name}: {column.name}, seed {seed}"))
        return tuple(found)

    def _find(self, column: Column) -> None:
        """The column's task, with its files. Raises InputError if one is missing, or the metric is unknown."""
        if column.pretrain:
            return
        task = find_task(column.task)
        task = replace(task, train=column.train or task.train, dev=column.dev or task.dev)
        names = [f"{name}{more}" for more in ("", *(f"_{name}" for name in task.more)) for name in task.metrics]
        if column.metric and column.metric not in names:
            raise InputError(f"metric = {column.metric!r}; {column.task} has {', '.join(names)}")
        if self.inputs.data is None:
            raise InputError("--data is missing; give the folder with the tasks' folders")
        folder = self.inputs.data / column.data
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; expected the one with {task.train} and {task.dev}")
        files = [folder / name for name in (task.train, task.dev)]
        if missing := [file for file in files if not file.is_file()]:
            raise InputError(f"{missing[0]}: no such file; expected {task.name}'s training and development files")
        files += [folder / name for name in task.more.values() if (folder / name).exists()]
        if self.inputs.minute:
            column = replace(column, train_rows=MINUTE_ROWS, dev_rows=MINUTE_ROWS)
        self.tasks[column.name] = task, column, "".join(map(checksum, files))


def read_rows(work: Finetuning, data: Path) -> Data:
    """The rows of a fine-tuning: the first ones of each file, if not all are wanted."""
    column = work.column
    found = load_data(work.task, data / column.data)
    train, dev = (rows[: n or None] for rows, n in ((found.train, column.train_rows), (found.dev, column.dev_rows)))
    more: dict[str, Any] = {name: rows[: column.dev_rows or None] for name, rows in found.more.items()}
    return replace(found, train=train, dev=dev, more=more)


# ---- --minute: what is varied stays varied


def tiny_pretraining(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    """A dozen steps of a model of at most four layers with narrow heads, for the store's vocabulary."""
    model, heads = config.model, config.model.num_attention_heads
    width = heads * max(4, model.hidden_size // heads // 16)
    layers = min(model.num_hidden_layers, 4)
    shape = replace(
        model, vocab_size=vocab_size, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers
    )
    snapshots = tuple(range(1, len(config.snapshots) + 1))
    steps = max(12, len(snapshots) + 2)
    loop = replace(config.loop, steps=steps, tokens=0, hours=0.0, log_every=4, eval_every=0, save_every=4)
    phases = tuple(Phase(min(p.length, MINUTE_LENGTH), p.share, min(p.batch_size, 8)) for p in config.phases)
    return replace(config, model=shape, loop=loop, phases=phases, snapshots=snapshots, eval_batches=2)


def tiny_finetuning(config: FinetuneConfig) -> FinetuneConfig:
    """Three steps on short inputs."""
    loop = replace(config.loop, steps=3, tokens=0, hours=0.0, log_every=1, eval_every=0, save_every=0)
    top = replace(config.top, bilstm_width=min(config.top.bilstm_width, 16))
    length = min(config.max_seq_length, MINUTE_LENGTH)
    stride, query = min(config.doc_stride, MINUTE_LENGTH // 4), min(config.max_query_length, MINUTE_LENGTH // 4)
    return replace(
        config, loop=loop, top=top, max_seq_length=length, doc_stride=stride, max_query_length=query, batch_size=8
    )
