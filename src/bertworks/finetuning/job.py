"""What the runs of a fine-tuning have in common: settings, examples as tokens, and labels, read once.

The paper's settings are in sections 3.2, 4.1 and A.3; runs themselves are in run.py.
"""

import functools
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checkpoint.folder import find_model, load_tokenizer, read_config
from ..checkpoint.metadata import input_length
from ..checkpoint.weights import weights_checksum
from ..files import Diverged, InputError, read_json
from ..model.comparators import LayerChoice
from ..model.config import NO_TOP, ModelConfig
from ..model.heads import Model
from ..pretrained import name_of
from ..tasks.base import Data, EvaluationResult, Prepared, Task, TaskType
from ..tasks.inputs import Inputs, Order, compute_scores
from ..tasks.kinds import kind_of, with_labels
from ..tasks.rows import hash_of_texts
from ..tokenizer import Tokenizer, unknown_fraction
from ..training.config import TrainerState
from ..training.distributed import World
from ..training.identity import RecordCallback, RunIdentity
from ..training.objectives import Objective
from ..training.task_objectives import ClassificationObjective
from ..training.trainer import AccumulationBatch
from .recipe import FinetuneConfig
from .teacher import TeacherScores, score_with_teacher


class ExampleFeed:
    """The batches of a run: a pure function of its progress. All micro-batches of an update have the same length."""

    def __init__(self, inputs: Inputs, config: FinetuneConfig, world: World, teacher: Tensor | None = None):
        if (size := config.batch_size) < world.size:
            raise InputError(f"batch_size {size} is less than the {world.size} processes; give each of them a row")
        self.inputs, self.config, self.world, self.teacher = inputs, config, world, teacher
        updates = config.loop.steps or sys.maxsize // config.batch_size
        self.order = Order(inputs.lengths, config.batch_size, updates, config.loop.seed, config.length_window)

    def __call__(self, progress: TrainerState, budget_used: float) -> AccumulationBatch:
        rows = self.order.rows(progress.step)
        own_rows, micro = self.world.local_range(len(rows)), self.config.micro_batch_size or len(rows)
        longest = self.inputs.padded_length(rows)
        micro_batches = []
        for start in own_rows[::micro]:
            numbers = rows[start : min(start + micro, own_rows.stop)]
            batch = self.inputs.batch(numbers, longest)
            if self.teacher is not None:
                batch["teacher_scores"] = self.teacher[torch.from_numpy(numbers)]
            micro_batches.append((batch, start * self.inputs.choices))
        return AccumulationBatch(micro_batches, (0, *divmod((progress.step + 1) * len(rows), len(self.inputs))))


@dataclass(frozen=True)
class Job:
    """All that the runs of several seeds and settings share."""

    config: FinetuneConfig
    task: Task  # with its labels
    kind: TaskType
    data: Data
    folder: Path
    tokenizer: Tokenizer
    train: Inputs
    dev: Prepared
    more: dict[str, Prepared]  # further development sets
    notes: tuple[str, ...]  # what was left out of the training rows
    teacher: TeacherScores | None  # scores of the training rows
    world: World
    quiet: bool
    on_record: RecordCallback | None = None

    @classmethod
    def of(cls, config: FinetuneConfig, task: Task, data: Data, folder: Path, world: World, quiet: bool) -> "Job":
        """Read the tokenizer and featurise. Raises InputError if settings, rows, labels or lengths do not fit."""
        check_settings(config, task, shape := read_config(folder)[0], world)
        kind, tokenizer = kind_of(task), load_tokenizer(folder)
        task = with_labels(task, data.train)
        train, dev = (kind.prepare(tokenizer, rows, task, config) for rows in (data.train, data.dev))
        more = {name: kind.prepare(tokenizer, rows, task, config) for name, rows in data.more.items()}
        notes = (*train.notes(), *_unknown(train.inputs, tokenizer), *_negatives(config, task, world))
        notes += () if config.random_init else _untrained(train.inputs, input_length(folder, shape.max_length))
        if not (data.train and data.dev and train.inputs.whole and dev.inputs.whole):
            left_out = f" ({'; '.join(notes)})" if notes else ""
            raise InputError(f"{task.name}: training and development data need rows, and every row a label{left_out}")
        teacher = score_with_teacher(config.teacher, task, kind, data, config, world) if config.teacher else None
        prepared = (train.inputs, dev, more, notes, teacher)
        return cls(config, task, kind, data, folder, tokenizer, *prepared, world, quiet)

    @functools.cached_property
    def start(self) -> tuple[str, ...]:
        """Labels, and checksums of rows and weights: what a run begins with besides its settings."""
        sets = (self.train, self.dev.inputs, *(rows.inputs for rows in self.more.values()))
        names = (self.task.name, self.task.kind, *self.task.metrics, *self.task.labels)
        folders = [] if self.config.random_init else [self.folder]
        folders += [find_model(self.config.teacher)] if self.teacher else []
        config = json.dumps(read_json(self.folder / "config.json"))
        return (*names, *(one.fingerprint() for one in sets), config, *map(weights_checksum, folders))

    @property
    def facts(self) -> dict[str, Any]:
        """What the results of every run have."""
        form = {"encoding": self.task.form.encoding, "sheet": self.task.form.sheet}
        return {
            "examples": {"train": len(self.data.train), "dev": len(self.data.dev)},
            "dev_texts": hash_of_texts(self.data.dev),
            "truncation": {"train": self.train.truncation(), "dev": self.dev.inputs.truncation()},
            "notes": list(self.notes),
            **({"teacher": self.teacher.facts} if self.teacher else {}),
            "data": self.data.source,
            **{name: value for name, value in form.items() if value not in ("utf-8", "")},
            "model": name_of(self.folder) or str(self.folder),
        }

    @property
    def tokens(self) -> Tensor:
        """(K,) the tokens that the batches of training and evaluation can have."""
        sets = (self.train, self.dev.inputs, *(rows.inputs for rows in self.more.values()))
        counts = sum(np.bincount(one.ids, minlength=self.tokenizer.vocab_size) for one in sets)
        assert isinstance(counts, np.ndarray)
        counts[[one.pad_id for one in sets]] += 1
        return torch.from_numpy(np.flatnonzero(counts))

    @property
    def objective(self) -> Objective:
        """The loss: of labels, and of the teacher's scores if there is a teacher."""
        if self.teacher is not None:
            return ClassificationObjective(self.config.temperature)
        return self.kind.objective

    @property
    def weights(self) -> dict[str, float]:
        """Of the terms in the loss."""
        fraction = self.config.soft_share
        return {} if self.teacher is None else {"task": 1 - fraction, "soft": fraction}

    def identity(self, config: FinetuneConfig) -> RunIdentity:
        """What determines the outcome of a run."""
        return RunIdentity(config, self.start)

    def evaluate(self, model: Model, rows: Prepared, settings: dict[str, Any] | None = None) -> EvaluationResult:
        """The model on labelled rows. settings: those tuned on the development set; None: they are tuned now.

        Raises Diverged if scores or loss are not finite, as those of weights that are not.
        """
        scores = compute_scores(model, rows.inputs, self.world)
        finite = bool(torch.isfinite(scores).all())
        result = rows.evaluate(scores, settings) if finite else EvaluationResult({"loss": math.nan})
        if not math.isfinite(result.metrics["loss"]):
            raise Diverged(
                "the model cannot be evaluated on the development rows: its scores or its loss there are not finite. "
                "Begin again with a lower optim.lr or a longer optim.warmup, and another output folder"
            )
        return result

    def say(self, text: str) -> None:
        if not self.quiet and self.world.is_main:
            print(text, file=sys.stderr)


def _unknown(train: Inputs, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The fraction of [UNK] among the tokens of the training rows, if there is any."""
    counts = np.bincount(train.ids, minlength=tokenizer.vocab_size)
    counts[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]] = 0
    fraction = unknown_fraction(tokenizer, counts)
    return (f"{fraction:.2%} of the tokens of the training rows are [UNK]",) if fraction else ()


def _untrained(train: Inputs, length: int) -> tuple[str, ...]:
    """That inputs are longer than those which the encoder was trained with, if they are."""
    longest = train.lengths.max(initial=0)
    text = f"inputs have up to {longest} tokens; the encoder was trained with at most {length} (model_max_length)"
    return (text,) if longest > length else ()


def _negatives(config: FinetuneConfig, task: Task, world: World) -> tuple[str, ...]:
    """How many negatives a text has, if micro-batches or processes leave it fewer than the batch has."""
    together = rows_of_a_pass(config, world)
    if task.kind != "embedding" or task.label or together == config.batch_size:
        return ()
    number = f"a text has at most {together - 1:,} negatives instead of {config.batch_size - 1:,}"
    return (f"{number}: those of its micro-batch; micro_batch_size and processes change the loss of this task",)


# ---- settings


def check_settings(config: FinetuneConfig, task: Task, shape: ModelConfig, world: World) -> None:
    """Raises InputError for settings that do not fit the model's shape or the task."""
    layers, limit = shape.num_hidden_layers, shape.max_length
    LayerChoice.parse(config.top.layers, layers)
    if config.max_seq_length > limit:
        raise InputError(f"max_seq_length = {config.max_seq_length}, but the model has {limit} positions; give fewer")
    trained = config.trained_layers(layers)
    if trained > layers:
        raise InputError(f"trained = {trained}, but the model has {layers} layers; give {layers} or less")
    if shape.shared_layers != "none" and 0 < trained < layers:
        raise InputError(f"trained = {trained}, but the layers of the model share their weights; give all or head")
    if task.kind == "embedding":
        _check_embedding(config, task, world)
    metrics, kept = ", ".join((*task.metrics, "loss")), config.loop.keep_best
    if kept and kept not in metrics.split(", "):
        raise InputError(f"loop.keep_best = {kept!r}; expected one of {metrics}")
    if config.patience and not kept:
        raise InputError(f"patience = {config.patience} without loop.keep_best; give one of {metrics}")


def _check_embedding(config: FinetuneConfig, task: Task, world: World) -> None:
    """Raises InputError for settings with which no encoder would be trained, or not the one that is stored."""
    if config.trained == "head" or config.top != NO_TOP:
        raise InputError(
            "trained = 'head' and the table top do not go with the kind embedding, which trains the encoder itself: a "
            "vector is the mean over its last layer; leave them out"
        )
    if not task.label and rows_of_a_pass(config, world) == 1:
        raise InputError(
            f"batch_size = {config.batch_size}, micro_batch_size = {config.micro_batch_size}: the negatives of a pair "
            "without a score are the other rows of its micro-batch; give 2 rows or more"
        )


def rows_of_a_pass(config: FinetuneConfig, world: World) -> int:
    """The rows of a micro-batch in the process that has most rows."""
    mine = -(-config.batch_size // world.size)
    return min(config.micro_batch_size or mine, mine)
