"""Expands a study to its rows and cells, and reports all that is wrong with it before any run begins.

With --minute everything is tiny (minute.py), so that a study is seen to run before hours are spent on it.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model, read_config
from ..config import find_beside, from_dict, load_recipe
from ..data.store import Store
from ..files import InputError, checksum
from ..finetuning.job import check_settings
from ..finetuning.recipe import FinetuneConfig
from ..model.config import ModelConfig
from ..pretraining.recipe import PretrainConfig, StaticConfig
from ..pretraining.static import static_shape
from ..tasks.base import Data, Task
from ..tasks.catalogue import find_task
from ..tasks.draws import WHOLE
from ..tasks.kinds import OWN_TABLE, load_data
from ..tasks.table import part_of
from ..training.distributed import World, this_device
from .baselines import BaselineConfig, check_kind
from .cells import (
    Baseline,
    Concatenation,
    Finetuning,
    HeldOut,
    InitialModel,
    Pretraining,
    StaticVectors,
    StudyCell,
    study_cell,
    user_model,
)
from .choices import combinations
from .minute import MINUTE_ROWS, MINUTE_SEEDS, tiny_finetuning, tiny_pretraining, tiny_static
from .recipe import Column, Variant, load_study
from .rows import Examples, Plan, Row, StudyInputs


def make_plan(inputs: StudyInputs) -> Plan:
    """Read the study and expand it. Raises InputError with everything that is wrong with it."""
    return Planner(inputs).plan()


Made = tuple[InitialModel, ModelConfig | None, PretrainConfig | None]  # a model, its shape and its recipe


class _AlreadyNoted(InputError):
    """What follows from a problem that was already noted."""


class Planner:
    """Expands a study; problems are collected."""

    def __init__(self, inputs: StudyInputs):
        study = inputs.study or load_study(inputs.recipe)
        self.inputs, self.study = inputs, replace(study, name=study.name or inputs.recipe.stem)
        most = MINUTE_SEEDS if inputs.minute else None
        self.seeds, self.pretrain_seeds = self.study.seeds[:most], self.study.pretrain_seeds[:most] or (None,)
        self.problems: list[str] = []
        self.world = World(0, 1, this_device())
        self.store: Store | None = None
        self.base: PretrainConfig | None = None
        self.finetune: Path | None = None  # the recipe of fine-tuning
        self.tasks: dict[str, tuple[Task, Column, str]] = {}  # of each column: with the files that it names
        self.made: dict[tuple[str, int | None], Made] = {}  # of each variant and seed of pre-training

    def plan(self) -> Plan:
        self._read()
        if self.study.finetune:
            with self._noted():
                self.finetune = find_beside(self.study.finetune, self.inputs.recipe, "finetune")
        for column in self.study.columns:
            with self._noted(f"column {column.name!r}"):
                self._find(column)
        whole = [variant for variant in self.study.variants if not variant.concat]
        for variant in [*whole, *(v for v in self.study.variants if v.concat)]:
            with self._noted(f"variant {variant.name!r}"):
                for seed in self.pretrain_seeds:
                    self.made[variant.name, seed] = self._start(variant, seed)
        last = self.pretrain_seeds[-1]
        shown = (variant for variant in self.study.variants if variant.row and (variant.name, last) in self.made)
        rows = [row for variant in shown for row in self._rows(variant)]
        if self.problems:
            found = "\n".join(f"- {problem}" for problem in dict.fromkeys(self.problems))
            raise InputError(f"{self.inputs.recipe} cannot run; nothing was started:\n{found}")
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
        """The store and the base recipe of pre-training, if a variant or a column needs them."""
        judged = any(column.evaluate for column in self.study.columns)
        own = judged or any(self._own(variant) for variant in self.study.variants)
        if not own and not any(variant.static for variant in self.study.variants):
            return
        with self._noted():
            if self.inputs.corpus is None:
                raise InputError("--corpus is missing; give the store to pre-train on")
            self.store = Store.open(self.inputs.corpus)
        with self._noted():
            if not own:
                return
            if not self.study.pretrain:
                raise InputError("pretrain is missing in the study; name the recipe of pre-training")
            path = find_beside(self.study.pretrain, self.inputs.recipe, "pretrain")
            self.base = load_recipe(path, PretrainConfig)

    def _own(self, variant: Variant) -> bool:
        """Whether it is pre-trained here."""
        given = self.inputs.model and not variant.pretrain and not variant.snapshots
        return not (variant.concat or variant.model or variant.static or variant.baseline or given)

    def _start(self, variant: Variant, seed: int | None) -> Made:
        """What the variant's fine-tuning starts from; `seed` of its pre-training, None: that of the recipe."""
        if variant.baseline:
            return InitialModel(), None, None
        if variant.concat:
            return self._side_by_side(variant, seed)
        if variant.static:
            return self._static(variant, seed)
        if not self._own(variant):
            self._check_one_folder(variant)
            given = self.inputs.recipe.parent / variant.model if variant.model else self.inputs.model
            folder = find_model(given or "")
            return user_model(folder), read_config(folder)[0], None
        if self.base is None or self.store is None:
            raise _AlreadyNoted("its recipe or the store is missing")
        config = from_dict(PretrainConfig, variant.pretrain, "pretrain", self.base)
        if seed is not None:
            config = replace(config, loop=replace(config.loop, seed=seed))
        config.loop.check()
        if unknown := [step for step in variant.snapshots if step not in config.snapshots]:
            raise InputError(f"step {unknown[0]} is none of the recipe's snapshots {list(config.snapshots)}")
        self._check_store(config, self.store)
        short = tiny_pretraining(config, self.store.vocab_size) if self.inputs.minute else config
        title = f"{variant.name}: pre-training" + (f", seed {seed}" if seed is not None else "")
        return InitialModel(study_cell(Pretraining(short, self.store.fingerprint), title)), short.model, config

    def _check_one_folder(self, variant: Variant) -> None:
        """Raises InputError if one model folder would count as several pre-trainings."""
        if self.study.pretrain_seeds and not variant.finetune.get("random_init"):
            given = "model" if variant.model else "--model"
            raise InputError(
                f"{given} is one model folder, pre-trained once, but n counts the {len(self.study.pretrain_seeds)} "
                f"pretrain_seeds; leave out {given} or pretrain_seeds"
            )

    def _static(self, variant: Variant, seed: int | None) -> Made:
        """Word vectors, which are a model without layers."""
        if self.store is None:
            raise _AlreadyNoted("the store is missing")
        config = from_dict(StaticConfig, variant.static, "static")
        config = config if seed is None else replace(config, seed=seed)
        config = tiny_static(config) if self.inputs.minute else config
        cell = study_cell(StaticVectors(config, self.store.fingerprint), f"{variant.name}: word2vec")
        return InitialModel(cell), static_shape(self.store.vocab_size, config.width), None

    def _check_store(self, config: PretrainConfig, store: Store) -> None:
        """Note a store that the recipe does not fit; with --minute too, which must find what the study refuses."""
        ours, theirs = config.model.vocab_size, store.vocab_size
        if ours != theirs:
            self.problems.append(  # once, although every variant has it
                f"model.vocab_size is {ours}, {store.folder} was built with a vocabulary of {theirs}; build a corpus "
                f"with {ours} tokens (bertworks tokenizer train --vocab-size {ours}), or copy the study and its "
                f"pre-training recipe and set model.vocab_size = {theirs} there"
            )

    def _side_by_side(self, variant: Variant, seed: int | None) -> Made:
        """Two models as one of twice the width."""
        missing = [name for name in variant.concat if (name, seed) not in self.made]
        if missing:
            raise _AlreadyNoted(f"concat = {missing[0]!r} cannot be made")
        (left, shape, _), (right, other, _) = (self.made[name, seed] for name in variant.concat)
        if shape is None or other is None:
            raise InputError(f"concat = {list(variant.concat)} has a baseline without a model; expected two models")
        if shape.hidden_size != other.hidden_size:
            raise InputError(f"widths {shape.hidden_size} and {other.hidden_size} side by side; expected equal ones")
        cell = study_cell(Concatenation(left, right), f"{variant.name}: {' and '.join(variant.concat)} side by side")
        return InitialModel(cell), shape, None

    # ---- rows and fine-tuning

    def _rows(self, variant: Variant) -> Iterator[Row]:
        """The variant's snapshots, then its end; each with its other seeds of pre-training."""
        every = [list(self._rows_of_seed(variant, number)) for number in range(len(self.pretrain_seeds))]
        for first, *others in zip(*every, strict=True):
            yield replace(first, others=tuple(others))

    def _rows_of_seed(self, variant: Variant, number: int) -> Iterator[Row]:
        """The rows of one seed of pre-training, by its number. Fresh weights need a shape alone: that of the first."""
        seed = self.pretrain_seeds[number]
        random = bool(variant.finetune.get("random_init"))
        start, shape, config = self.made[variant.name, self.pretrain_seeds[0] if random else seed]
        line = variant.line or (variant.name if variant.snapshots else "")
        steps = sorted(config.snapshots) if config else []
        for step in variant.snapshots if config else ():
            short = steps.index(step) + 1 if self.inputs.minute else step
            x = None if self.inputs.minute else float(step)
            row = Row(f"{variant.name}, step {step:,}", line, x, replace(start, step=short), shape, seed=seed)
            yield self._row(row, variant, number)
        yield self._row(Row(variant.name, line, variant.x, start, shape, seed=seed), variant, number)

    def _row(self, row: Row, variant: Variant, number: int) -> Row:
        for column in self.study.columns:
            with self._noted(f"variant {variant.name!r}, column {column.name!r}"):
                if column.evaluate and row.shape and not variant.finetune.get("random_init"):
                    row.tuned[column.name] = (self._held_out(row, column),)
                elif column.name in self.tasks and variant.baseline:
                    row.tuned[column.name] = self._baselines(row, column, number)
                elif column.name in self.tasks:
                    row.tuned[column.name] = self._cells(row, variant, column, number)
        return row

    def _held_out(self, row: Row, column: Column) -> StudyCell:
        """The evaluation of a row's model on the column's held-out set."""
        if self.base is None or self.store is None:
            raise _AlreadyNoted("its recipe or the store is missing")
        config = from_dict(PretrainConfig, column.evaluate, "evaluate", self.base)
        config = tiny_pretraining(config, self.store.vocab_size) if self.inputs.minute else config
        return study_cell(HeldOut(row.start, config, self.store.fingerprint), f"{row.name}: {column.name}")

    def _seeds_of(self, number: int) -> list[int]:
        """The seeds of fine-tuning from a pre-training; those of another pre-training are others."""
        apart = max(self.study.seeds) + (0 in self.study.seeds)
        return [seed + number * apart for seed in self.seeds]

    def _baselines(self, row: Row, column: Column, number: int) -> tuple[StudyCell, ...]:
        """The baseline without an encoder, with each seed."""
        task, taken, rows = self.tasks[column.name]
        check_kind(task)
        works = [Baseline(task, taken, rows, BaselineConfig(seed)) for seed in self._seeds_of(number)]
        return tuple(study_cell(w, f"{row.name}: {column.name}, seed {w.config.seed}") for w in works)

    def _cells(self, row: Row, variant: Variant, column: Column, number: int) -> tuple[StudyCell, ...]:
        """The fine-tuning of one row on one column's task, with each seed."""
        config, (task, taken, rows) = self._finetuning(row, variant, column), self.tasks[column.name]
        seeds = self._seeds_of(number)

        def work(one: FinetuneConfig, seed: int, kept_back: bool = False) -> Finetuning:
            one = replace(one, seeds=(), loop=replace(one.loop, seed=seed))
            return Finetuning(row.start, task, taken, rows, one, kept_back)

        candidates = tuple(
            study_cell(
                replace(work(from_dict(FinetuneConfig, table, "choose", config), seed, True), setting=name),
                f"{row.name}: {column.name}, seed {seed}, to choose: {name}",
            )
            for name, table in combinations(column.choose, variant.choose).items()
            for seed in seeds[: column.choose_seeds]
        )
        found = (replace(work(config, seed), candidates=candidates) for seed in seeds)
        return tuple(study_cell(one, f"{row.name}: {column.name}, seed {one.config.loop.seed}") for one in found)

    def _finetuning(self, row: Row, variant: Variant, column: Column) -> FinetuneConfig:
        """The recipe of fine-tuning one row in one column. Raises InputError if it does not fit the model."""
        if (self.study.finetune and self.finetune is None) or row.shape is None:
            raise _AlreadyNoted("the recipe of fine-tuning is missing")
        task = self.tasks[column.name][0]
        config = FinetuneConfig.for_task(task)
        if self.finetune:
            config = load_recipe(self.finetune, FinetuneConfig, config)
        for table in (column.finetune, variant.finetune):
            config = from_dict(FinetuneConfig, table, "finetune", config)
        if self.inputs.minute:
            config = tiny_finetuning(config)
        check_settings(config, task, row.shape, self.world)
        return config

    def _find(self, column: Column) -> None:
        """The column's task, with its files. Raises InputError if one is missing, or the metric is unknown."""
        if column.pretrain:
            return
        if examples := self.inputs.examples.get(column.name):
            sums = "".join(map(checksum, _files(examples)))
            division = "" if examples.division == WHOLE else str(examples.division)
            self.tasks[column.name] = examples.task, column, sums + division
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
            raise InputError(f"{folder}: no such folder; give the folder that contains {column.data} with --data")
        files = _files(Examples(task, (folder,)))
        if missing := [file for file in files if not file.is_file()]:
            raise InputError(f"{missing[0]}: no such file; expected {task.name}'s training and development files")
        if self.inputs.minute:
            column = replace(column, train_rows=MINUTE_ROWS, dev_rows=MINUTE_ROWS)
        self.tasks[column.name] = task, column, "".join(map(checksum, files))


def _files(examples: Examples) -> list[Path]:
    """The files that hold the examples."""
    task = examples.task
    if task.name == OWN_TABLE:
        return [part_of(file)[0] for file in examples.files]
    (folder,) = examples.files
    files = [part_of(folder / name)[0] for name in (task.train, task.dev)]
    return files + [folder / name for name in task.more.values() if (folder / name).exists()]


def read_rows(work: Finetuning | Baseline, inputs: StudyInputs) -> tuple[Task, Data]:
    """The task and the rows of a column: the first ones of each file, if not all are wanted, or all to draw from."""
    column = work.column
    if column.name in inputs.examples:
        return inputs.examples[column.name].read()
    assert inputs.data is not None  # the plan has checked it
    found = load_data(work.task, inputs.data / column.data)
    first = 0 if column.draw else column.train_rows
    train, dev = (rows[: n or None] for rows, n in ((found.train, first), (found.dev, column.dev_rows)))
    more: dict[str, Any] = {name: rows[: column.dev_rows or None] for name, rows in found.more.items()}
    return work.task, replace(found, train=train, dev=dev, more=more)
