"""Several fine-tuned models as one: the mean of their probabilities, or of the values of a regression.

The models may have any shape and tokenizer, since each reads the texts itself. They must be classifiers of one kind
with the same labels, which are matched by name. Where a row may have several labels, the mean probability is compared
with the mean of the models' thresholds.

Shapes: N rows, K labels.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..checkpoint.names import LABELS, listed
from ..files import InputError
from ..tasks.base import Task
from ..tasks.calibration import HALF, function_of
from ..tasks.classification import Classified
from ..tasks.labels import SEPARATOR
from ..tasks.rows import in_chunks, rows_of
from .engines import FLOAT32, Computing
from .evaluation import Evaluation
from .model import LoadedModel
from .predictor import CHARACTERS, ROWS, Predictor, checked_pairs

KINDS = ("single", "pair", "regression", "multilabel")


def check_members(loaded: Sequence[LoadedModel]) -> None:
    """Raises InputError if the models are not two or more different classifiers of one kind with the same labels."""
    if len(loaded) < 2:
        raise InputError(f"{len(loaded)} model for an ensemble; expected two or more")
    first, folders = loaded[0], set[Path]()
    for one in loaded:
        if one.folder.resolve() in folders:
            raise InputError(f"{one.folder} is given twice; expected different models: leave one of them out")
        folders.add(one.folder.resolve())
        if one.kind not in KINDS:
            raise InputError(f"{one.folder} is of the kind {one.kind or 'pre-trained'}; expected {', '.join(KINDS)}")
        if one.kind != first.kind:
            raise InputError(f"{one.folder} is of the kind {one.kind}, {first.folder} of {first.kind}; give one kind")
        if one.kind != "regression" and set(one.labels) != set(first.labels):
            apart = listed(sorted(set(one.labels) ^ set(first.labels)), LABELS)
            raise InputError(
                f"{one.folder} and {first.folder} have different labels ({apart}); expected models of the same labels"
            )


def mean_thresholds(loaded: Sequence[LoadedModel]) -> dict[str, float]:
    """The mean threshold of each label, by name; {} if no model has any."""
    each = [one.settings.get("thresholds", {}) for one in loaded]
    if not any(each):
        return {}
    return {name: float(np.mean([one.get(name, HALF) for one in each])) for name in loaded[0].labels}


class Ensemble:
    """Predicts like a `Predictor` of a classifier: `kind`, `classify`, `classify_stream`.

    Ensemble([Predictor("runs/a"), Predictor("runs/b")]).classify(["a fine film"])
    """

    def __init__(self, predictors: Sequence[Predictor]):
        """Raises InputError if the models cannot be joined (`check_members`)."""
        check_members([one.loaded for one in predictors])
        self.predictors, first = [*predictors], predictors[0]
        self.loaded, self.kind, self.max_length = first.loaded, first.kind, min(one.max_length for one in predictors)
        self.note = "\n".join(one.note for one in predictors if one.note)
        self.thresholds = mean_thresholds([one.loaded for one in predictors])

    @property
    def truncated(self) -> dict[str, int]:
        """Inputs cut since the predictors were made, by the one that cut most."""
        return max((one.truncated for one in self.predictors), key=lambda cut: cut["examples"])

    def classify(self, texts: Any, pairs: Any = None, all_scores: bool = False) -> Any:
        """The label of a text, or of a pair of texts, by the mean over the models; lists give lists.

        Raises InputError if `pairs` and `texts` differ in length, or the models read another number of texts.
        """
        if isinstance(texts, str):
            return next(self.classify_stream([(texts, pairs)], all_scores))
        return list(self.classify_stream(rows_of(texts, pairs), all_scores))

    def classify_stream(self, rows: Iterable[tuple[str, str | None]], all_scores: bool = False) -> Iterator[Classified]:
        """`classify` for any number of (text, pair or None), in constant memory, in their order."""
        for chunk in in_chunks(checked_pairs(rows, self.loaded.texts_a_row), ROWS, CHARACTERS):
            each = [list(one.classify_stream(iter(chunk), all_scores=True)) for one in self.predictors]
            for found in zip(*each, strict=True):
                result = self._joined(found)
                if not all_scores:
                    del result["scores"]
                yield result

    def _joined(self, found: Sequence[Classified]) -> Classified:
        """One result from those of all models."""
        names = tuple(found[0]["scores"])
        # of a regression there is one value, whatever each model calls it
        each = [[*one["scores"].values()] if len(names) == 1 else [one["scores"][n] for n in names] for one in found]
        means = dict(zip(names, np.mean(each, 0).tolist(), strict=True))
        label = max(means, key=means.__getitem__)
        if self.kind == "multilabel":
            label = SEPARATOR.join(name for name in names if means[name] > self.thresholds.get(name, HALF))
        most = max(found, key=lambda one: one["cut"])
        return {**most, "label": label, "score": max(means.values()), "scores": means}


@dataclass(frozen=True)
class Joined:
    """Evaluations of several models on the same rows, as one."""

    members: list[Evaluation]

    @classmethod
    def prepare(cls, loaded: Sequence[LoadedModel], task: Task, rows: Sequence[Any]) -> "Joined":
        """Raises InputError if the models cannot be joined, or do not fit the rows."""
        check_members(loaded)
        first = Evaluation.prepare(loaded[0], task, rows)
        names = task if task.kind == "regression" else replace(task, labels=first.task.labels, written=())
        return cls([first, *(Evaluation.prepare(one, names, rows) for one in loaded[1:])])

    def mean(self, scores: Sequence[Tensor]) -> Tensor:
        """(N, K) scores whose probabilities are the mean of the models'; of a regression the mean values.

        scores: (N, K) of each model.
        """
        kind = self.members[0].task.kind
        each = torch.stack([*scores]).double()  # (models, N, K)
        function = function_of(kind, each.shape[-1])
        if function == "none":
            return each.mean(0).float()
        if function == "sigmoid":  # the log-odds of the mean probability, by logarithms, which are never rounded to 0
            return (F.logsigmoid(each).logsumexp(0) - F.logsigmoid(-each).logsumexp(0)).float()
        return (each.log_softmax(-1).logsumexp(0) - math.log(len(each))).float()


def evaluate_ensemble(
    models: Sequence[Path | str],
    task: Task,
    rows: Sequence[Any],
    max_seq_length: int | None = None,
    computing: Computing = FLOAT32,
) -> dict[str, Any]:
    """The metrics of several models as one, like `evaluate`, and those of each (`members`, by folder).

    `truncation` is that of the model that cut most.

    Raises InputError if the models cannot be joined, or do not fit the rows.
    """
    loaded = [LoadedModel.load(model, max_seq_length, computing=computing) for model in models]
    joined = Joined.prepare(loaded, task, rows)
    first, scores = joined.members[0], [one.scores() for one in joined.members]
    judged = first.prepared.judge(joined.mean(scores), {**loaded[0].settings, "thresholds": mean_thresholds(loaded)})
    members = zip(models, joined.members, scores, strict=True)
    cut = [one.prepared.inputs.truncation() for one in joined.members]
    return {
        "task": task.name,
        "metrics": judged.metrics,
        "members": {str(model): one.judge(found).metrics for model, one, found in members},
        **({"majority": judged.majority} if judged.majority else {}),
        "predicted": judged.predicted,
        **({"collapsed": True} if judged.collapsed else {}),
        **judged.details,
        "examples": first.rows,
        "truncation": max(cut, key=lambda found: (found["examples"], found["tokens"])),
    }
