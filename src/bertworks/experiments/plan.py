"""From a study to its cells. All that can be wrong is looked for here, before hours are spent, and told at once."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model, read_config
from ..config import from_dict, load_recipe
from ..data.store import Store
from ..files import InputError, checksum
from ..finetuning.job import FinetuneConfig
from ..model.encoder import ModelConfig
from ..model.layer_choice import LayerChoice
from ..pretraining.run import PretrainConfig
from ..tasks.base import Data, Task
from ..tasks.catalogue import find_task
from ..tasks.kinds import load_data
from . import minute
from .cells import Cell, Finetuning, Start, concat_cell, finetune_cell, folder_start, pretrain_cell
from .recipe import Column, Study, Variant, load_study


@dataclass(frozen=True)
class Sources:
    """Where a study's material is."""

    recipe: Path  # the study's file
    corpus: Path | None = None  # store to pre-train on
    data: Path | None = None  # folder that has the columns' folders
    model: Path | None = None  # model folder instead of the pre-training of all variants that do not differ in it
    minute: bool = False  # everything small, to see it run


@dataclass(frozen=True)
class Row:
    """A row of the table: a variant, or a snapshot of one."""

    name: str
    line: str  # the curve that it is a point of
    x: float | None
    start: Start
    shape: ModelConfig
    tuned: dict[str, tuple[Cell, ...]] = field(default_factory=dict)  # by column, a cell for each seed
    step: int | None = None  # of a snapshot; None: the end of the run

    @property
    def trained(self) -> tuple[Cell, ...]:
        """The pre-training that it is made of."""
        found = [one for cell in self.start.needs for one in (*cell.before, cell) if one.kind == "pretrain"]
        return tuple({cell.key: cell for cell in found}.values())

    @property
    def random(self) -> bool:
        """Whether all its fine-tuning begins with random weights: its start gives the shape alone."""
        works = [cell.work for cells in self.tuned.values() for cell in cells]
        return bool(works) and all(isinstance(work, Finetuning) and work.config.random_init for work in works)

    @property
    def cells(self) -> list[Cell]:
        """All its cells, in the order in which they can be worked on."""
        before = [one for cell in self.start.needs for one in (*cell.before, cell)]
        return [*before, *(cell for cells in self.tuned.values() for cell in cells)]


@dataclass(frozen=True)
class Plan:
    """A study, its rows, and their cells."""

    study: Study
    sources: Sources
    rows: list[Row]
    seeds: tuple[int, ...]
    corpus: str  # the store's fingerprint

    @property
    def base(self) -> Row:
        return next(row for row in self.rows if row.name == self.study.base)

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell once, in the order of work: the base variant's first, then row by row."""
        order = [self.base, *(row for row in self.rows if row is not self.base)]
        found: dict[str, Cell] = {}
        for cell in (cell for row in order for cell in row.cells):
            found.setdefault(cell.key, cell)  # named after the first row that needs it
        return list(found.values())


def make_plan(sources: Sources) -> Plan:
    """Read the study and expand it. Raises InputError with everything that is wrong with it."""
    return Planner(sources).plan()


class Planner:
    """Expands a study; problems are collected."""

    def __init__(self, sources: Sources):
        self.sources, self.study = sources, load_study(sources.recipe)
        self.study = replace(self.study, name=self.study.name or sources.recipe.stem)
        self.seeds = self.study.seeds[: minute.SEEDS] if sources.minute else self.study.seeds
        self.problems: list[str] = []
        self.store: Store | None = None
        self.base: PretrainConfig | None = None
        self.tasks: dict[str, tuple[Task, Column, str]] = {}  # of each column: with the files that it names
        self.made: dict[str, tuple[Start, ModelConfig, PretrainConfig | None]] = {}  # of each variant

    def plan(self) -> Plan:
        self._read()
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
            raise InputError(f"{self.sources.recipe} cannot run; nothing was begun:\n{found}")
        return Plan(self.study, self.sources, rows, self.seeds, self.store.fingerprint if self.store else "")

    @contextlib.contextmanager
    def _noted(self, where: str = "") -> Iterator[None]:
        """What is wrong inside the block becomes one of the problems."""
        try:
            yield
        except InputError as error:
            self.problems.append(f"{where}: {error}" if where else str(error))

    # ---- pre-training

    def _read(self) -> None:
        """The store and the base recipe of pre-training, if a variant needs them."""
        if not any(self._own(variant) for variant in self.study.variants):
            return
        with self._noted():
            if self.sources.corpus is None:
                raise InputError("--corpus is missing; give the store to pre-train on")
            self.store = Store.open(self.sources.corpus)
        with self._noted():
            if not self.study.pretrain:
                raise InputError("pretrain is missing in the study; name the recipe of pre-training")
            self.base = load_recipe(self.sources.recipe.parent / self.study.pretrain, PretrainConfig)

    def _own(self, variant: Variant) -> bool:
        """Whether it is pre-trained here."""
        given = self.sources.model and not variant.pretrain and not variant.snapshots
        return not (variant.concat or variant.model or given)

    def _start(self, variant: Variant) -> tuple[Start, ModelConfig, PretrainConfig | None]:
        """What the variant's fine-tuning starts from, and the shape of that model."""
        if variant.concat:
            return self._side_by_side(variant)
        if not self._own(variant):
            given = self.sources.recipe.parent / variant.model if variant.model else self.sources.model
            folder = find_model(given or "")
            return folder_start(folder), read_config(folder)[0], None
        if self.base is None or self.store is None:
            raise InputError("its recipe or the store is missing")
        config = from_dict(PretrainConfig, variant.pretrain, "pretrain", self.base)
        config.loop.check()
        if unknown := [step for step in variant.snapshots if step not in config.snapshots]:
            raise InputError(f"step {unknown[0]} is none of the recipe's snapshots {list(config.snapshots)}")
        self._check_store(config, self.store)
        if self.sources.minute:
            config = minute.pretraining(config, self.store.vocab_size)
        cell = pretrain_cell(config, self.store.fingerprint, f"{variant.name}: pre-training")
        return Start(cell.key, Path(cell.name), (cell,)), config.model, config

    def _check_store(self, config: PretrainConfig, store: Store) -> None:
        """Note a store that the recipe does not fit; with --minute too, which must find what the study refuses."""
        if config.model.vocab_size != store.vocab_size:
            self.problems.append(  # once, although every variant has it
                f"model.vocab_size is {config.model.vocab_size}, {store.folder} was built with a vocabulary of "
                f"{store.vocab_size}; change the recipe, or build the corpus with the other tokenizer"
            )

    def _side_by_side(self, variant: Variant) -> tuple[Start, ModelConfig, None]:
        """Two models as one of twice the width."""
        missing = [name for name in variant.concat if name not in self.made]
        if missing:
            raise InputError(f"concat = {missing[0]!r} cannot be made")
        (left, shape, _), (right, other, _) = (self.made[name] for name in variant.concat)
        if shape.hidden_size != other.hidden_size:
            raise InputError(f"widths {shape.hidden_size} and {other.hidden_size} side by side; expected equal ones")
        cell = concat_cell(left, right, f"{variant.name}: {' and '.join(variant.concat)} side by side")
        return Start(cell.key, Path(cell.name), (cell,)), shape, None

    # ---- rows and fine-tuning

    def _rows(self, variant: Variant) -> Iterator[Row]:
        """The variant's snapshots, then its end."""
        start, shape, config = self.made[variant.name]
        line = variant.line or (variant.name if variant.snapshots else "")
        for step in variant.snapshots if config else ():
            short = minute.snapshot(self._whole(variant), step) if self.sources.minute else step
            place = Path(start.folder, "snapshots", f"step-{short}")
            then = Start(f"{start.key}@{short}", place, start.needs)
            x = None if self.sources.minute else float(step)
            yield self._row(Row(f"{variant.name}, step {step:,}", line, x, then, shape, step=short), variant)
        yield self._row(Row(variant.name, line, variant.x, start, shape), variant)

    def _whole(self, variant: Variant) -> PretrainConfig:
        """The recipe before it was made short."""
        assert self.base is not None
        return from_dict(PretrainConfig, variant.pretrain, "", self.base)

    def _row(self, row: Row, variant: Variant) -> Row:
        for column in self.study.columns:
            if column.name in self.tasks:
                with self._noted(f"variant {variant.name!r}, column {column.name!r}"):
                    row.tuned[column.name] = self._cells(row, variant, column)
        return row

    def _cells(self, row: Row, variant: Variant, column: Column) -> tuple[Cell, ...]:
        """The fine-tuning of one row on one column's task, with each seed."""
        task, taken, rows = self.tasks[column.name]
        config = load_recipe(
            self.sources.recipe.parent / self.study.finetune, FinetuneConfig, FinetuneConfig.for_task(task)
        )
        for table in (column.finetune, variant.finetune):
            config = from_dict(FinetuneConfig, table, "finetune", config)
        if self.sources.minute:
            config = minute.finetuning(config)
        if config.max_seq_length > row.shape.max_length:
            raise InputError(
                f"max_seq_length = {config.max_seq_length}, but the model has {row.shape.max_length} positions"
            )
        LayerChoice.parse(config.top.layers, row.shape.num_hidden_layers)
        found = []
        for seed in self.seeds:
            one = replace(config, seeds=(), loop=replace(config.loop, seed=seed))
            work = Finetuning(row.start, task, taken, rows, one)
            found.append(finetune_cell(work, f"{row.name}: {column.name}, seed {seed}"))
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
        if self.sources.data is None:
            raise InputError("--data is missing; give the folder with the tasks' folders")
        folder = self.sources.data / column.data
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; expected the one with {task.train} and {task.dev}")
        files = [folder / name for name in (task.train, task.dev)]
        if missing := [file for file in files if not file.is_file()]:
            raise InputError(f"{missing[0]}: no such file; expected {task.name}'s training and development files")
        files += [folder / name for name in task.more.values() if (folder / name).exists()]
        if self.sources.minute:
            column = replace(column, train_rows=minute.ROWS, dev_rows=minute.ROWS)
        self.tasks[column.name] = task, column, "".join(map(checksum, files))


def read_rows(work: Finetuning, data: Path) -> Data:
    """The rows of a fine-tuning: the first ones of each file, if not all are wanted."""
    column = work.column
    found = load_data(work.task, data / column.data)
    train, dev = (rows[: n or None] for rows, n in ((found.train, column.train_rows), (found.dev, column.dev_rows)))
    more: dict[str, Any] = {name: rows[: column.dev_rows or None] for name, rows in found.more.items()}
    return replace(found, train=train, dev=dev, more=more)
