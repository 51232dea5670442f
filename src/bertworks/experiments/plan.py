"""Expands a study to its rows and runs, and refuses what is wrong with it before any run begins.

With --minute everything is tiny, to check that a study runs from end to end before hours are spent on it: a dozen steps
of small models on few examples, whose figures mean nothing.
"""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..checkpoint.folder import find_model
from ..config import find_beside, from_dict, load_recipe
from ..data.opening import open_store
from ..data.store import Store
from ..files import InputError, checksum
from ..finetuning.job import check_settings
from ..finetuning.recipe import FinetuneConfig
from ..pretraining.job import check_vocabulary, open_training
from ..pretraining.recipe import Phase, PretrainConfig
from ..pretraining.static import StaticConfig, static_shape
from ..tasks.base import Data, Task
from ..tasks.catalogue import find_task
from ..tasks.kinds import OWN_TABLE, load_data
from ..tasks.sampling import WHOLE
from ..tasks.table import part_of
from ..training.distributed import World, this_device
from . import specs
from .baselines import BaselineConfig, check_kind
from .choices import combinations
from .recipe import Column, Study, Variant
from .scheduler import Run
from .specs import InitialModel, Plan, Row, StudyInputs, Tuning, model_of, study_run, user_model

Source = tuple[Task, Column, str]  # a column's task, the column, and the checksum of its files
MINUTE_ROWS = 64  # of each file
MINUTE_SEEDS = 2
MINUTE_LENGTH = 64  # tokens


class _FilesMissing(InputError):
    """The files of a column are missing; a search leaves such a column out."""


def make_plan(inputs: StudyInputs) -> Plan:
    """Read the study and expand it. Raises InputError for the first thing that is wrong with it."""
    study = inputs.study or load_recipe(inputs.recipe, Study)
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
        self.models: dict[tuple[str, int | None], InitialModel] = {}  # of each variant and seed of pre-training
        self.sources: dict[str, Source] = {}  # of each column with a task

    def plan(self) -> Plan:
        study, inputs = self.study, self.inputs
        base = find_beside(study.pretrain, inputs.recipe, "pretrain") if study.pretrain else None
        self.base = load_recipe(base, PretrainConfig) if base else None
        self.finetune = find_beside(study.finetune, inputs.recipe, "finetune") if study.finetune else None
        self._find_columns()
        for variant in sorted(self.study.variants, key=lambda variant: bool(variant.concat)):
            with _within(f"variant {variant.name!r}"):
                for seed in self.pretrain_seeds:
                    self.models[variant.name, seed] = self._model(variant, seed)
        rows = [row for variant in self.study.variants if variant.row for row in self._rows(variant)]
        return Plan(self.study, self.inputs, rows, self.seeds, self.store.fingerprint if inputs.corpus else "")

    # ---- what the study reads

    def _pretraining(self, fields: dict[str, Any], where: str) -> PretrainConfig:
        """The recipe of pre-training with other values of some fields."""
        if self.base is None:
            raise InputError("pretrain is missing in the study; name the recipe of pre-training, or give --model")
        return from_dict(PretrainConfig, fields, where, self.base)

    @functools.cached_property
    def store(self) -> Store:
        """The store to pre-train on."""
        if self.inputs.corpus is None:
            raise InputError("--corpus is missing; give the store to pre-train on")
        return open_store(self.inputs.corpus)

    def _find_columns(self) -> None:
        """The tasks of the columns, with their files; a search leaves out the columns whose files are missing."""
        missing = []
        for column in self.study.columns:
            try:
                with _within(f"column {column.name!r}"):
                    if column.task:
                        self.sources[column.name] = self._find(column)
            except _FilesMissing:
                if not self.study.search:
                    raise
                missing.append(column.name)
        if len(missing) == len(self.study.columns):
            raise InputError(f"{self.inputs.data}: no column's files are here; expected those of {', '.join(missing)}")
        if missing:
            notes = (*self.study.notes, f"Not there: {', '.join(missing)}.")
            self.study = replace(self.study.without(missing), notes=notes)

    def _find(self, column: Column) -> Source:
        """Raises InputError if a file is missing, or the metric is unknown."""
        if (given := self.inputs.task) and (rows := self.inputs.rows):
            own = [part_of(file)[0] for file in rows.find()[1]] if given.name == OWN_TABLE else []
            split = "" if rows.split == WHOLE else str(rows.split)
            return given, column, "".join(map(checksum, own or _files(given, Path(rows.data or "")))) + split
        task = find_task(column.task)
        task = replace(task, train=column.train or task.train, dev=column.dev or task.dev)
        names = [f"{name}{more}" for more in ("", *(f"_{name}" for name in task.more)) for name in task.metrics]
        if column.metric and column.metric not in names:
            raise InputError(f"metric = {column.metric!r}; {column.task} has {', '.join(names)}")
        if self.inputs.data is None:
            raise InputError("--data is missing; give the folder with the tasks' folders")
        folder = self.inputs.data / column.data
        files = _files(task, folder)
        needed = [folder / name for more, name in task.more.items() if column.metric.endswith(f"_{more}")]
        if missing := [file for file in (*files, *needed) if not file.is_file()]:
            expected = f"expected the training and development files of {task.name} in {column.data} below --data"
            raise _FilesMissing(f"{missing[0]}: no such file; {expected}")
        if self.inputs.minute:
            column = replace(column, train_rows=MINUTE_ROWS, dev_rows=MINUTE_ROWS)
        return task, column, "".join(map(checksum, files))

    # ---- models

    def _model(self, variant: Variant, seed: int | None) -> InitialModel:
        """The model that a variant's fine-tuning starts from; seed: of its pre-training, None: that of the recipe."""
        if variant.baseline:
            return InitialModel("none", Path())
        if variant.concat:
            return self._concatenated(variant, seed)
        if variant.static:
            return self._static(variant, seed)
        if not variant.model and (variant.pretrain or variant.snapshots or not self.inputs.model):
            return self._pretrained(variant, seed)
        if self.study.pretrain_seeds and not variant.finetune.get("random_init"):
            given = "model" if variant.model else "--model"
            raise InputError(f"{given} is one model folder, but n counts pretrain_seeds; leave out one of the two")
        folder = find_model(self.inputs.recipe.parent / variant.model if variant.model else self.inputs.model or "")
        return user_model(folder)

    def _pretrained(self, variant: Variant, seed: int | None) -> InitialModel:
        config, store = self._pretraining(variant.pretrain, "pretrain"), self.store
        if seed is not None:
            config = replace(config, loop=replace(config.loop, seed=seed))
        config.loop.check()
        if unknown := [step for step in variant.snapshots if step not in config.snapshots]:
            raise InputError(f"step {unknown[0]} is none of the recipe's snapshots {list(config.snapshots)}")
        check_vocabulary(open_training(config, store.folder, True), None)  # with --minute too, before it is made tiny
        short = tiny_pretraining(config, store.vocab_size) if self.inputs.minute else config
        title = f"{variant.name}: pre-training" + (f", seed {seed}" if seed is not None else "")
        return model_of(specs.Training(short, store.fingerprint), title, short.model)

    def _static(self, variant: Variant, seed: int | None) -> InitialModel:
        """Word vectors, which are a model without layers."""
        config, store = from_dict(StaticConfig, variant.static, "static"), self.store
        config = config if seed is None else replace(config, seed=seed)
        config = replace(config, width=16, epochs=1) if self.inputs.minute else config
        shape = static_shape(store.vocab_size, config.width)
        return model_of(specs.Training(config, store.fingerprint), f"{variant.name}: word2vec", shape)

    def _concatenated(self, variant: Variant, seed: int | None) -> InitialModel:
        """Two models as one of twice the width."""
        models = tuple(self.models[name, seed] for name in variant.concat)
        widths = [model.shape.hidden_size for model in models if model.shape]
        if len({*widths}) > 1:
            raise InputError(f"concat: models of the widths {widths[0]} and {widths[1]}; expected equal widths")
        title = f"{variant.name}: {' and '.join(variant.concat)} concatenated"
        return model_of(specs.Concatenation(models), title, models[0].shape)

    # ---- rows and fine-tuning

    def _rows(self, variant: Variant) -> Iterator[Row]:
        """The variant's snapshots, then its end; each with its other seeds of pre-training."""
        by_seed = [list(self._rows_of_seed(variant, number)) for number in range(len(self.pretrain_seeds))]
        for first, *others in zip(*by_seed, strict=True):
            yield replace(first, others=tuple(others))

    def _rows_of_seed(self, variant: Variant, number: int) -> Iterator[Row]:
        """The rows of one seed of pre-training, by its number. Random weights need a shape alone: that of the first."""
        seed = self.pretrain_seeds[number]
        random, minute = bool(variant.finetune.get("random_init")), self.inputs.minute
        start = self.models[variant.name, self.pretrain_seeds[0] if random else seed]
        line = variant.line or (variant.name if variant.snapshots else "")
        for step in variant.snapshots:
            steps = sorted(self._pretraining(variant.pretrain, "pretrain").snapshots)  # --minute numbers them
            snapshot = start.at_step(steps.index(step) + 1 if minute else step)
            x = None if minute else float(step)
            yield self._row(Row(f"{variant.name}, step {step:,}", line, x, snapshot, seed=seed), variant, number)
        yield self._row(Row(variant.name, line, variant.x, start, seed=seed), variant, number)

    def _row(self, row: Row, variant: Variant, number: int) -> Row:
        """The row with its runs in each column; `number` of its seed of pre-training."""
        offset = max(self.study.seeds) + (0 in self.study.seeds)  # other pre-trainings have other fine-tuning seeds
        seeds = [seed + number * offset for seed in self.seeds]
        for column in self.study.columns:
            if variant.columns and column.name not in variant.columns:
                continue
            with _within(f"variant {variant.name!r}, column {column.name!r}"):
                row.tuned[column.name] = tuple(self._runs(row, variant, column, seeds[: column.seeds or None]))
        return row

    def _runs(self, row: Row, variant: Variant, column: Column, seeds: list[int]) -> Iterator[Run]:
        """The runs of a row in a column: its evaluation on the held-out set, or the runs on the task with each seed."""
        title = f"{row.name}: {column.name}"
        if column.evaluate and row.start.shape and not variant.finetune.get("random_init"):
            yield study_run(self._held_out(row, column), title)
        elif column.task and row.start.shape is None:
            check_kind(self.sources[column.name][0])
            for seed in seeds:
                config = BaselineConfig(seed, variant.baseline or "words")
                yield study_run(Tuning(*self.sources[column.name], config), f"{title}, seed {seed}")
        elif column.task:
            yield from self._tunings(row, variant, column, seeds)

    def _held_out(self, row: Row, column: Column) -> specs.HeldOut:
        """The evaluation of a row's model on the column's held-out set."""
        config = self._pretraining(column.evaluate, "evaluate")
        config = tiny_pretraining(config, self.store.vocab_size) if self.inputs.minute else config
        return specs.HeldOut((row.start,), config, self.store.fingerprint)

    def _tunings(self, row: Row, variant: Variant, column: Column, seeds: list[int]) -> Iterator[Run]:
        """The fine-tuning of one row on one column's task, with each seed."""
        config, source = self._finetuning(row, variant, column), self.sources[column.name]

        def run(config: FinetuneConfig, seed: int, title: str = "", **more: Any) -> Run:
            config = replace(config, seeds=(), loop=replace(config.loop, seed=seed))
            spec = Tuning(*source, config, (row.start,), **more)
            return study_run(spec, f"{row.name}: {column.name}, seed {seed}{title}")

        candidates = tuple(
            run(from_dict(FinetuneConfig, table, "choose", config), seed, f", to choose: {name}",
                held_out=True, setting=name)
            for name, table in combinations(column.choose, variant.choose).items()
            for seed in seeds[: column.choose_seeds]
        )  # fmt: skip
        for seed in seeds:
            yield run(config, seed, candidates=candidates)

    def _finetuning(self, row: Row, variant: Variant, column: Column) -> FinetuneConfig:
        """The recipe of fine-tuning one row in one column. Raises InputError if it does not fit the model."""
        assert row.start.shape is not None  # of a baseline, which is not fine-tuned
        task = self.sources[column.name][0]
        config = FinetuneConfig.for_task(task)
        if self.finetune:
            config = load_recipe(self.finetune, FinetuneConfig, config)
        for table in (column.finetune, variant.finetune):
            config = from_dict(FinetuneConfig, table, "finetune", config)
        if self.inputs.minute:
            config = tiny_finetuning(config)
        check_settings(config, task, row.start.shape, self.world)
        return config


# ---- files of examples


def _files(task: Task, folder: Path) -> list[Path]:
    """The files of a built-in task."""
    files = [part_of(folder / name)[0] for name in (task.train, task.dev)]
    return files + [folder / name for name in task.more.values() if (folder / name).exists()]


def read_rows(spec: Tuning, inputs: StudyInputs) -> tuple[Task, Data]:
    """The task and the examples of a column: the first ones of each file, all of them, or all to draw from."""
    column = spec.column
    if inputs.rows:
        return inputs.rows.read_data()
    assert inputs.data is not None  # the plan has checked it
    data = load_data(spec.task, inputs.data / column.data)
    first = 0 if column.draw else column.train_rows
    train, dev = (rows[: n or None] for rows, n in ((data.train, first), (data.dev, column.dev_rows)))
    more: dict[str, Any] = {name: rows[: column.dev_rows or None] for name, rows in data.more.items()}
    return spec.task, replace(data, train=train, dev=dev, more=more)


# ---- tiny sizes of --minute: what is varied stays varied


def tiny_pretraining(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    """A dozen steps of a model of at most four layers with narrow heads, for the store's vocabulary."""
    model, heads = config.model, config.model.num_attention_heads
    width = heads * max(4, model.hidden_size // heads // 16)
    shape = replace(model, vocab_size=vocab_size, hidden_size=width, intermediate_size=2 * width)
    shape = replace(shape, num_hidden_layers=min(model.num_hidden_layers, 4))
    snapshots = tuple(range(1, len(config.snapshots) + 1))
    steps = max(12, len(snapshots) + 2)
    loop = replace(config.loop, steps=steps, tokens=0, hours=0.0, log_every=4, eval_every=0, save_every=4)
    phases = tuple(Phase(min(p.length, MINUTE_LENGTH), p.budget_fraction, min(p.batch_size, 8)) for p in config.phases)
    return replace(config, model=shape, loop=loop, phases=phases, snapshots=snapshots, eval_batches=2)


def tiny_finetuning(config: FinetuneConfig) -> FinetuneConfig:
    """Three steps on short inputs."""
    loop = replace(config.loop, steps=3, tokens=0, hours=0.0, log_every=1, eval_every=0, save_every=0)
    top = replace(config.top, bilstm_width=min(config.top.bilstm_width, 16)) if config.top.bilstm_layers else config.top
    length = min(config.max_seq_length, MINUTE_LENGTH)
    stride, query = min(config.doc_stride, MINUTE_LENGTH // 4), min(config.max_query_length, MINUTE_LENGTH // 4)
    config = replace(config, max_seq_length=length, doc_stride=stride, max_query_length=query)
    return replace(config, loop=loop, top=top, batch_size=8)
