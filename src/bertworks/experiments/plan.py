"""Expands a study to its rows and cells, and refuses what is wrong with it before any run begins.

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
from ..tasks.kinds import OWN_TABLE, load_data
from ..tasks.sampling import WHOLE
from ..tasks.table import part_of
from ..training.distributed import World, this_device
from .baselines import BaselineConfig, check_kind
from .cells import Concatenation, HeldOut, InitialModel, StudyCell, Training, Tuning, study_cell, user_model
from .choices import combinations
from .minute import MINUTE_ROWS, MINUTE_SEEDS, tiny_finetuning, tiny_pretraining
from .recipe import Column, Study, Variant, load_study
from .rows import Examples, Plan, Row, StudyInputs

Made = tuple[InitialModel, ModelConfig | None, PretrainConfig | None]  # a model, its shape and its recipe
Found = tuple[Task, Column, str]  # a column's task, the column, and the checksum of its files


class _NotThere(InputError):
    """The files of a column are missing, which a search leaves out."""


def make_plan(inputs: StudyInputs) -> Plan:
    """Read the study and expand it. Raises InputError for the first thing that is wrong with it."""
    study = inputs.study or load_study(inputs.recipe)
    with _within(f"{inputs.recipe} cannot run"):
        return Planner(inputs, replace(study, name=study.name or inputs.recipe.stem)).plan()


@contextlib.contextmanager
def _within(where: str) -> Iterator[None]:
    """Let an InputError of the block begin with `where`."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None


class Planner:
    """Expands a study."""

    def __init__(self, inputs: StudyInputs, study: Study):
        self.inputs, self.study = inputs, study
        most = MINUTE_SEEDS if inputs.minute else None
        self.seeds, self.pretrain_seeds = study.seeds[:most], study.pretrain_seeds[:most] or (None,)
        self.world = World(0, 1, this_device())
        self.models: dict[tuple[str, int | None], Made] = {}  # of each variant and seed of pre-training
        self.tasks: dict[str, Found] = {}  # of each column with a task

    def plan(self) -> Plan:
        self.base, self.store = self._base(), self._store()
        path = self.study.finetune
        self.finetune = find_beside(path, self.inputs.recipe, "finetune") if path else None
        self._find_columns()
        for variant in sorted(self.study.variants, key=lambda variant: bool(variant.concat)):
            with _within(f"variant {variant.name!r}"):
                for seed in self.pretrain_seeds:
                    self.models[variant.name, seed] = self._model(variant, seed)
        rows = [row for variant in self.study.variants if variant.row for row in self._rows(variant)]
        return Plan(self.study, self.inputs, rows, self.seeds, self.store.fingerprint if self.store else "")

    # ---- what the study reads

    @property
    def _pretrains(self) -> bool:
        """Whether a variant is pre-trained here, or a column needs the recipe of pre-training."""
        evaluated = any(column.evaluate for column in self.study.columns)
        return evaluated or any(self._is_pretrained(variant) for variant in self.study.variants)

    def _is_pretrained(self, variant: Variant) -> bool:
        given = self.inputs.model and not variant.pretrain and not variant.snapshots
        return not (variant.concat or variant.model or variant.static or variant.baseline or given)

    def _base(self) -> PretrainConfig | None:
        """The recipe of pre-training that variants differ from, if one is needed."""
        if not self._pretrains:
            return None
        if not self.study.pretrain:
            raise InputError("pretrain is missing in the study; name the recipe of pre-training, or give --model")
        return load_recipe(find_beside(self.study.pretrain, self.inputs.recipe, "pretrain"), PretrainConfig)

    def _store(self) -> Store | None:
        """The store, if a variant or a column needs it."""
        if not self._pretrains and not any(variant.static for variant in self.study.variants):
            return None
        if self.inputs.corpus is None:
            raise InputError("--corpus is missing; give the store to pre-train on")
        return Store.open(self.inputs.corpus)

    def _find_columns(self) -> None:
        """The tasks of the columns, with their files; a search leaves out the columns whose files are not there."""
        missing = []
        for column in self.study.columns:
            try:
                with _within(f"column {column.name!r}"):
                    if column.task:
                        self.tasks[column.name] = self._find(column)
            except _NotThere:
                if not self.study.search:
                    raise
                missing.append(column.name)
        columns = tuple(column for column in self.study.columns if column.name not in missing)
        if not columns:
            raise InputError(f"{self.inputs.data}: no column's files are here; expected those of {', '.join(missing)}")
        if missing:
            notes = (*self.study.notes, f"Not there: {', '.join(missing)}.")
            self.study = replace(self.study.with_columns(columns), notes=notes)

    def _find(self, column: Column) -> Found:
        """Raises InputError if a file is missing, or the metric is unknown."""
        if examples := self.inputs.examples.get(column.name):
            split = "" if examples.split == WHOLE else str(examples.split)
            return examples.task, column, "".join(map(checksum, _files(examples))) + split
        task = find_task(column.task)
        task = replace(task, train=column.train or task.train, dev=column.dev or task.dev)
        names = [f"{name}{more}" for more in ("", *(f"_{name}" for name in task.more)) for name in task.metrics]
        if column.metric and column.metric not in names:
            raise InputError(f"metric = {column.metric!r}; {column.task} has {', '.join(names)}")
        if self.inputs.data is None:
            raise InputError("--data is missing; give the folder with the tasks' folders")
        folder = self.inputs.data / column.data
        if not folder.is_dir():
            raise _NotThere(f"{folder}: no such folder; give the folder that contains {column.data} with --data")
        files = _files(Examples(task, (folder,)))
        needed = [folder / name for more, name in task.more.items() if column.metric.endswith(f"_{more}")]
        if missing := [file for file in (*files, *needed) if not file.is_file()]:
            raise _NotThere(f"{missing[0]}: no such file; expected {task.name}'s training and development files")
        if self.inputs.minute:
            column = replace(column, train_rows=MINUTE_ROWS, dev_rows=MINUTE_ROWS)
        return task, column, "".join(map(checksum, files))

    # ---- models

    def _model(self, variant: Variant, seed: int | None) -> Made:
        """What the variant's fine-tuning starts from; `seed` of its pre-training, None: that of the recipe."""
        if variant.baseline:
            return InitialModel(), None, None
        if variant.concat:
            return self._side_by_side(variant, seed)
        if variant.static:
            return self._static(variant, seed)
        if self._is_pretrained(variant):
            return self._pretraining(variant, seed)
        if self.study.pretrain_seeds and not variant.finetune.get("random_init"):
            given = "model" if variant.model else "--model"
            raise InputError(
                f"{given} is one model folder, pre-trained once, but n counts the {len(self.study.pretrain_seeds)} "
                f"pretrain_seeds; leave out {given} or pretrain_seeds"
            )
        folder = find_model(self.inputs.recipe.parent / variant.model if variant.model else self.inputs.model or "")
        return user_model(folder), read_config(folder)[0], None

    def _pretraining(self, variant: Variant, seed: int | None) -> Made:
        assert self.base is not None and self.store is not None  # read, since a variant is pre-trained
        config = from_dict(PretrainConfig, variant.pretrain, "pretrain", self.base)
        if seed is not None:
            config = replace(config, loop=replace(config.loop, seed=seed))
        config.loop.check()
        if unknown := [step for step in variant.snapshots if step not in config.snapshots]:
            raise InputError(f"step {unknown[0]} is none of the recipe's snapshots {list(config.snapshots)}")
        check_store(config, self.store)  # with --minute too, which must find what the study refuses
        short = tiny_pretraining(config, self.store.vocab_size) if self.inputs.minute else config
        title = f"{variant.name}: pre-training" + (f", seed {seed}" if seed is not None else "")
        return InitialModel(study_cell(Training(short, self.store.fingerprint), title)), short.model, config

    def _static(self, variant: Variant, seed: int | None) -> Made:
        """Word vectors, which are a model without layers."""
        assert self.store is not None  # opened, since a variant is static
        config = from_dict(StaticConfig, variant.static, "static")
        config = config if seed is None else replace(config, seed=seed)
        config = replace(config, width=16, epochs=1) if self.inputs.minute else config
        cell = study_cell(Training(config, self.store.fingerprint), f"{variant.name}: word2vec")
        return InitialModel(cell), static_shape(self.store.vocab_size, config.width), None

    def _side_by_side(self, variant: Variant, seed: int | None) -> Made:
        """Two models as one of twice the width."""
        (left, shape, _), (right, other, _) = (self.models[name, seed] for name in variant.concat)
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
        start, shape, config = self.models[variant.name, self.pretrain_seeds[0] if random else seed]
        line = variant.line or (variant.name if variant.snapshots else "")
        steps = sorted(config.snapshots) if config else []
        for step in variant.snapshots if config else ():
            short = steps.index(step) + 1 if self.inputs.minute else step
            x = None if self.inputs.minute else float(step)
            row = Row(f"{variant.name}, step {step:,}", line, x, replace(start, step=short), shape, seed=seed)
            yield self._row(row, variant, number)
        yield self._row(Row(variant.name, line, variant.x, start, shape, seed=seed), variant, number)

    def _row(self, row: Row, variant: Variant, number: int) -> Row:
        """The row with its runs in each column; `number` of its seed of pre-training."""
        apart = max(self.study.seeds) + (0 in self.study.seeds)  # another pre-training has other seeds of fine-tuning
        seeds = [seed + number * apart for seed in self.seeds]
        for column in self.study.columns:
            with _within(f"variant {variant.name!r}, column {column.name!r}"):
                if column.evaluate and row.shape and not variant.finetune.get("random_init"):
                    row.tuned[column.name] = (self._held_out(row, column),)
                elif column.task and row.shape is None:
                    row.tuned[column.name] = self._baselines(row, column, seeds)
                elif column.task:
                    row.tuned[column.name] = self._tunings(row, variant, column, seeds)
        return row

    def _held_out(self, row: Row, column: Column) -> StudyCell:
        """The evaluation of a row's model on the column's held-out set."""
        assert self.base is not None and self.store is not None  # read, since a column evaluates
        config = from_dict(PretrainConfig, column.evaluate, "evaluate", self.base)
        config = tiny_pretraining(config, self.store.vocab_size) if self.inputs.minute else config
        return study_cell(HeldOut(row.start, config, self.store.fingerprint), f"{row.name}: {column.name}")

    def _baselines(self, row: Row, column: Column, seeds: list[int]) -> tuple[StudyCell, ...]:
        """The baseline without an encoder, with each seed."""
        found = self.tasks[column.name]
        check_kind(found[0])
        works = [Tuning(*found, BaselineConfig(seed)) for seed in seeds]
        return tuple(study_cell(work, f"{row.name}: {column.name}, seed {work.seed}") for work in works)

    def _tunings(self, row: Row, variant: Variant, column: Column, seeds: list[int]) -> tuple[StudyCell, ...]:
        """The fine-tuning of one row on one column's task, with each seed."""
        config, found = self._finetuning(row, variant, column), self.tasks[column.name]

        def work(one: FinetuneConfig, seed: int, **more: Any) -> Tuning:
            return Tuning(*found, replace(one, seeds=(), loop=replace(one.loop, seed=seed)), row.start, **more)

        candidates = tuple(
            study_cell(
                work(from_dict(FinetuneConfig, table, "choose", config), seed, is_held_out=True, setting=name),
                f"{row.name}: {column.name}, seed {seed}, to choose: {name}",
            )
            for name, table in combinations(column.choose, variant.choose).items()
            for seed in seeds[: column.choose_seeds]
        )
        works = [work(config, seed, candidates=candidates) for seed in seeds]
        return tuple(study_cell(one, f"{row.name}: {column.name}, seed {one.seed}") for one in works)

    def _finetuning(self, row: Row, variant: Variant, column: Column) -> FinetuneConfig:
        """The recipe of fine-tuning one row in one column. Raises InputError if it does not fit the model."""
        assert row.shape is not None  # of a baseline, which is not fine-tuned
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


def check_store(config: PretrainConfig, store: Store) -> None:
    """Raises InputError if the recipe does not fit the store's vocabulary."""
    ours, theirs = config.model.vocab_size, store.vocab_size
    if ours != theirs:
        raise InputError(
            f"model.vocab_size is {ours}, {store.folder} was built with a vocabulary of {theirs}; build a corpus "
            f"with {ours} tokens (bertworks tokenizer train --vocab-size {ours}), or copy the study and its "
            f"pre-training recipe and set model.vocab_size = {theirs} there"
        )


# ---- files of examples


def _files(examples: Examples) -> list[Path]:
    """The files that hold the examples."""
    task = examples.task
    if task.name == OWN_TABLE:
        return [part_of(file)[0] for file in examples.files]
    (folder,) = examples.files
    files = [part_of(folder / name)[0] for name in (task.train, task.dev)]
    return files + [folder / name for name in task.more.values() if (folder / name).exists()]


def read_rows(work: Tuning, inputs: StudyInputs) -> tuple[Task, Data]:
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
