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
from ..checkpoint.weights import weights_checksum
from ..files import Diverged, InputError, read_json
from ..model.heads import Model
from ..tasks.base import Data, Judged, Kind, Prepared, Task
from ..tasks.inputs import Inputs, Order, compute_scores
from ..tasks.kinds import kind_of, with_labels
from ..tasks.rows import hash_of_texts
from ..tasks.table import form_facts
from ..tokenizer import Tokenizer, unknown_share
from ..training.distributed import World
from ..training.identity import RunIdentity
from ..training.loop import Watch
from ..training.objectives import Objective
from ..training.progress import TrainerState
from ..training.task_objectives import TeacherScoresObjective
from ..training.trainer import AccumulationBatch
from .class_weights import class_weights
from .recipe import FinetuneConfig
from .settings import check_settings, rows_of_a_pass
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
        mine, micro = self.world.local_range(len(rows)), self.config.micro_batch_size or len(rows)
        longest = self.inputs.padded_length(rows)
        made = []
        for start in mine[::micro]:
            chosen = rows[start : min(start + micro, mine.stop)]
            batch = self.inputs.batch(chosen, longest)
            if self.teacher is not None:
                batch["teacher_scores"] = self.teacher[torch.from_numpy(chosen)]
            made.append((batch, start * self.inputs.choices))
        return AccumulationBatch(made, (0, *divmod((progress.step + 1) * len(rows), len(self.inputs))))


@dataclass(frozen=True)
class Job:
    """All that the runs of several seeds and settings share."""

    config: FinetuneConfig
    task: Task  # with its labels
    kind: Kind
    data: Data
    folder: Path
    tokenizer: Tokenizer
    train: Inputs
    dev: Prepared
    more: dict[str, Prepared]  # further development sets
    notes: tuple[str, ...]  # what was left out of the training rows
    teacher: TeacherScores | None  # scores of the training rows
    class_weights: tuple[float, ...]  # of the task's labels; (): none
    world: World
    quiet: bool
    watch: Watch | None = None  # see TrainingLoop

    @classmethod
    def of(cls, config: FinetuneConfig, task: Task, data: Data, folder: Path, world: World, quiet: bool) -> "Job":
        """Read the tokenizer and featurise. Raises InputError if settings, rows, labels or lengths do not fit."""
        check_settings(config, task, read_config(folder)[0], world)
        kind, tokenizer = kind_of(task), load_tokenizer(folder)
        task = with_labels(task, data.train)
        train, dev = (kind.prepare(tokenizer, rows, task, config) for rows in (data.train, data.dev))
        more = {name: kind.prepare(tokenizer, rows, task, config) for name, rows in data.more.items()}
        notes = (*data.notes, *train.notes(), *_unknown(train.inputs, tokenizer), *_negatives(config, task, world))
        if not (data.train and data.dev and train.inputs.whole and dev.inputs.whole):
            left_out = f" ({'; '.join(notes)})" if notes else ""
            raise InputError(f"{task.name}: training and development data need rows, and every row a label{left_out}")
        teacher = score_with_teacher(config.teacher, task, kind, data, config, world) if config.teacher else None
        weights = class_weights(config.class_weights, task, kind, train.inputs)
        prepared = (train.inputs, dev, more, notes, teacher, weights)
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
        weights = dict(zip(self.task.labels, self.class_weights, strict=True)) if self.class_weights else None
        return {
            "examples": {"train": len(self.data.train), "dev": len(self.data.dev)},
            "dev_texts": hash_of_texts(self.data.dev),
            "truncation": {"train": self.train.truncation(), "dev": self.dev.inputs.truncation()},
            "notes": list(self.notes),
            **({"teacher": self.teacher.facts} if self.teacher else {}),
            **({"class_weights": weights} if weights else {}),
            "data": self.data.source,
            **form_facts(self.task.form),
            "model": str(self.folder),
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
        """What is learned: labels, and what the teacher says, if there is one."""
        if self.teacher is not None:
            return TeacherScoresObjective(self.config.temperature, self.class_weights)
        weighted = self.kind.weighted
        return weighted(self.class_weights) if weighted and self.class_weights else self.kind.objective

    @property
    def weights(self) -> dict[str, float]:
        """Of the terms in the loss."""
        share = self.config.soft_share
        return {} if self.teacher is None else {"task": 1 - share, "soft": share}

    def identity(self, config: FinetuneConfig) -> RunIdentity:
        """What determines the outcome of a run."""
        return RunIdentity(config, self.start)

    def judge(self, model: Model, rows: Prepared, settings: dict[str, Any] | None = None) -> Judged:
        """The model on labelled rows. settings: those tuned on the development set; None: they are tuned now.

        Raises Diverged if scores or loss are not finite, as those of weights that are not.
        """
        scores = compute_scores(model, rows.inputs, self.world)
        finite = bool(torch.isfinite(scores).all())
        judged = rows.judge(scores, settings) if finite else Judged({"loss": math.nan})
        if not math.isfinite(judged.metrics["loss"]):
            raise Diverged(
                "the model cannot be judged on the development rows: its scores or its loss there are not finite. "
                "Begin again with a lower optim.lr or a longer optim.warmup, and another --out"
            )
        return judged

    def say(self, text: str) -> None:
        if not self.quiet and self.world.main:
            print(text, file=sys.stderr)


def _unknown(train: Inputs, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The fraction of [UNK] among the tokens of the training rows, if there is any."""
    counts = np.bincount(train.ids, minlength=tokenizer.vocab_size)
    counts[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]] = 0
    share = unknown_share(tokenizer, counts)
    return (f"{share:.2%} of the tokens of the training rows are [UNK]",) if share else ()


def _negatives(config: FinetuneConfig, task: Task, world: World) -> tuple[str, ...]:
    """How many negatives a text has, if micro-batches or processes leave it fewer than the batch has."""
    together = rows_of_a_pass(config, world)
    if task.kind != "embedding" or task.label or together == config.batch_size:
        return ()
    found = f"a text has at most {together - 1:,} negatives instead of {config.batch_size - 1:,}"
    return (f"{found}: those of its micro-batch; micro_batch_size and processes change the loss of this task",)
