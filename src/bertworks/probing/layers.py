"""What each layer knows of a task: `bertworks probe layers`.

A linear classifier (multinomial logistic regression, scikit-learn) is trained on the frozen vectors of each layer, on
the true labels and on those of a control task (controls.py). Beside its accuracies stand what one reaches without the
encoder: the commonest label, and for tags the commonest label of each word.

Shapes: N items (texts, or the tagged units of sentences), T tokens, L layers, D width, K labels.
"""

import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from ..batch import to_device
from ..files import InputError
from ..model.encoder import Encoder
from ..reporting.log import duration
from ..reporting.tables import Sheet, points
from ..tasks.inputs import Inputs
from ..training.machine import facts
from .controls import by_lexicon, by_type
from .inside import Floats, Inside
from .items import Items
from .pictures import lines

BATCH = 32  # sequences a forward pass
CONTROLS = {"words": "each word form", "texts": "a random lexicon of word pieces"}


@dataclass(frozen=True)
class LayersConfig:
    """How `bertworks probe layers` measures."""

    train_items: int = 5000  # labelled items (texts, or words of whole sentences) to train on, drawn at random; 0: all
    dev_items: int = 2000  # to judge on
    pool: Literal["mean", "cls"] = "mean"  # a text's vector: the mean over its tokens, or that of [CLS]
    seeds: int = 3  # probes a layer: each leaves out another tenth of the training items and has another control
    first_seed: int = 1  # counted up from here
    l2: float = 100.0  # penalty: half of it times the squared weights, beside the loss summed over the items
    steps: int = 300  # of L-BFGS, at most
    max_seq_length: int = 128  # tokens of an input; longer texts are cut, longer sentences have windows

    def __post_init__(self) -> None:
        if (
            min(self.seeds, self.steps) < 1
            or self.l2 <= 0
            or min(self.train_items, self.dev_items, self.first_seed) < 0
        ):
            raise InputError("expected seeds and steps of 1 or more, l2 above 0, items and first_seed of 0 or more")
        if self.max_seq_length < 8:
            raise InputError(f"max_seq_length = {self.max_seq_length}; expected 8 or more, room for a few words")


@dataclass(frozen=True)
class Scores:
    """Accuracies of the probes of one layer, a number a seed."""

    task: list[float]
    control: list[float]


def probe_layers(inside: Inside, train: Items, dev: Items, config: LayersConfig, quiet: bool = False) -> dict[str, Any]:
    """Accuracy, accuracy on the control task and selectivity of every layer, embeddings first.

    Raises InputError if there are not two labels to tell apart.
    """
    K, began = len(train.names), time.perf_counter()
    if K < 2:
        raise InputError(f"labels of the training items: {', '.join(train.names) or 'none'}; expected two or more")
    if not len(dev.labels):
        raise InputError(f"no item to judge on is left of {dev.of} ({dev.left_out} were left out); give others")
    vectors = [layer_vectors(inside, items, config.pool) for items in (train, dev)]
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    controls = [_control(train, dev, inside.tokenizer.vocab_size, seed) for seed in seeds]
    scores = []
    for layer, (x, y) in enumerate(zip(*vectors, strict=True)):
        scores.append(judge_layer(x, y, train, dev, controls, config))
        if not quiet:
            spent, name = duration(time.perf_counter() - began), f"layer {layer}" if layer else "embeddings"
            print(f"{name}: {points(np.mean(scores[-1].task))} ({spent})", file=sys.stderr, flush=True)
    return {
        "probe": "layers",
        "model": str(inside.folder),
        "task": train.task,
        "unit": train.unit,
        "labels": list(train.names),
        "settings": vars(config),
        "items": {"train": len(train.labels), "dev": len(dev.labels), "of": [train.of, dev.of]},
        "cut": {"train": train.cut, "dev": dev.cut},
        "left_out": dev.left_out,
        "layers": ["embeddings", *(str(i + 1) for i in range(inside.layers))],
        "task_accuracy": [one.task for one in scores],
        "control_accuracy": [one.control for one in scores],
        "majority": _majority(train, dev),
        "by_type": _by_type(train, dev),
        "control_majority": float(np.mean([_majority_of(a, b) for a, b in controls])),
        "seconds": time.perf_counter() - began,
        "machine": facts(),
    }


# ---- vectors


@torch.no_grad()
def layer_vectors(inside: Inside, items: Items, pool: str) -> list[Floats]:
    """(N, D) for the embeddings and each layer: of texts pooled, of units the vector of their first piece."""
    inputs, found = items.inputs, list[Floats]()
    N = len(items.labels)
    if items.place is not None:  # which unit's vector a token gives, -1 for none
        unit = np.full(len(inputs.ids), -1)
        unit[items.place] = np.arange(N)
    for rows in inputs.by_length(BATCH):
        states = _states(inside.encoder, inputs, rows, inside.device)
        if items.place is None:
            parts = [_pooled(x, np.diff(inputs.edges)[rows], pool) for x in states]
            places = rows
        else:
            real = np.arange(states[0].shape[1]) < np.diff(inputs.edges)[rows][:, None]
            wanted = unit[inputs.tokens(rows)]
            parts, places = [x[real][wanted >= 0] for x in states], wanted[wanted >= 0]
        if not found:
            found = [np.empty((N, x.shape[-1]), np.float32) for x in parts]
        for whole, part in zip(found, parts, strict=True):
            whole[places] = part
    return found


def _states(encoder: Encoder, inputs: Inputs, rows: NDArray[np.int64], device: torch.device) -> list[Floats]:
    """(B, L, D) a layer, embeddings first."""
    batch = to_device(inputs.batch(rows), device)
    types = batch["token_type_ids"] if encoder.config.type_vocab_size > 1 else None
    out = encoder(batch["input_ids"], batch["attention_mask"], types).hidden_states
    assert out is not None
    return [state.float().cpu().numpy() for state in out]


def _pooled(states: Floats, lengths: NDArray[np.int64], pool: str) -> Floats:
    """(B, D), padding is zeros."""
    pooled: Floats = states[:, 0] if pool == "cls" else states.sum(1) / lengths[:, None].astype(np.float32)
    return pooled


# ---- probes


def judge_layer(
    x: Floats,
    y: Floats,
    train: Items,
    dev: Items,
    controls: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    config: LayersConfig,
) -> Scores:
    """Probes on the vectors x of the training and y of the development items, one a seed for each of the two tasks."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, y = (x - mean) / spread, (y - mean) / spread
    scores = Scores([], [])
    for number, (a, b) in enumerate(controls):
        rng = np.random.default_rng((config.first_seed + number, 3))
        kept = rng.permutation(len(x))[: max(2, len(x) * 9 // 10)]
        scores.task.append(_accuracy(x[kept], train.labels[kept], y, dev.labels, config))
        scores.control.append(_accuracy(x[kept], a[kept], y, b, config))
    return scores


def _accuracy(x: Floats, labels: NDArray[np.int64], y: Floats, true: NDArray[np.int64], config: LayersConfig) -> float:
    """Share of `true` that a probe trained on x and labels gives for y."""
    if len(set(labels.tolist())) == 1:
        return float((true == labels[0]).mean())
    probe = LogisticRegression(C=1 / config.l2, max_iter=config.steps, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is a setting, and told
        probe.fit(x, labels)
    return float((probe.predict(y) == true).mean())


def _control(train: Items, dev: Items, pieces: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels of the control task for both sets."""
    K = len(train.names)
    if train.types is not None and dev.types is not None:
        drawn = by_type([*train.types, *dev.types], train.labels, K, seed)
        one, two = (np.array([drawn[kind] for kind in items.types or ()], np.int64) for items in (train, dev))
        return one, two
    texts = [
        items.inputs.ids[a + 1 : b - 1] for items in (train, dev) for a, b in pairwise(items.inputs.edges.tolist())
    ]
    shares = np.bincount(train.labels, minlength=K) / len(train.labels)
    labels = by_lexicon([text.tolist() for text in texts], pieces, shares, seed)
    return labels[: len(train.labels)], labels[len(train.labels) :]


def _majority(train: Items, dev: Items) -> float:
    return _majority_of(train.labels, dev.labels)


def _majority_of(labels: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    return float((true == np.bincount(labels).argmax()).mean())


def _by_type(train: Items, dev: Items) -> float | None:
    """Accuracy of each word's commonest label, the commonest of all for a new word; None for texts."""
    if train.types is None or dev.types is None:
        return None
    counts: dict[str, NDArray[np.int64]] = {}
    for kind, label in zip(train.types, train.labels.tolist(), strict=True):
        counts.setdefault(kind, np.zeros(len(train.names), np.int64))[label] += 1
    usual = int(np.bincount(train.labels).argmax())
    told = [int(counts[kind].argmax()) if kind in counts else usual for kind in dev.types]
    return float((np.array(told) == dev.labels).mean())


# ---- showing it


def sheet(results: dict[str, Any]) -> Sheet:
    """A row a layer: accuracy, that on the control task, and the difference."""
    rows = [
        (name, _spread(task), _spread(control), f"{100 * (np.mean(task) - np.mean(control)):+.2f}")
        for name, task, control in _rows(results)
    ]
    items, unit, settings = results["items"], results["unit"], results["settings"]
    known = f"each word's commonest label {points(results['by_type'])}, " if results["by_type"] is not None else ""
    notes = [
        f"model: {results['model']}",
        f"trained on {items['train']:,} {unit} of {items['of'][0]:,}, judged on {items['dev']:,} of {items['of'][1]:,}",
        f"{len(results['labels'])} labels; {settings['seeds']} seeds: mean and standard deviation",
        f"without the encoder: {known}the commonest label {points(results['majority'])} "
        f"(of the control {points(results['control_majority'])})",
        "control: labels drawn at random for " + CONTROLS[unit] + " (Hewitt and Liang 2019)",
    ]
    if unit == "texts":
        notes.append(f"a text's vector: {'its [CLS]' if settings['pool'] == 'cls' else 'the mean of its tokens'}")
    if sum(results["cut"].values()):
        notes.append(f"{sum(results['cut'].values()):,} texts were cut to {settings['max_seq_length']} tokens")
    if results["left_out"]:
        notes.append(f"left out of those to judge on, their label has no training word: {results['left_out']:,}")
    return Sheet(f"{results['task']}: accuracy", ("layer", "task", "control", "selectivity"), rows, tuple(notes))


def _rows(results: dict[str, Any]) -> list[tuple[str, list[float], list[float]]]:
    return list(zip(results["layers"], results["task_accuracy"], results["control_accuracy"], strict=True))


def _spread(values: Sequence[float]) -> str:
    return f"{points(np.mean(values))} ± {points(np.std(values, ddof=1) if len(values) > 1 else 0.0)}"


def plot(results: dict[str, Any], out: Path) -> list[Path]:
    """Both accuracies over the layers, and what is reached without the encoder."""
    names = ["emb.", *results["layers"][1:]]
    curves = {"task": results["task_accuracy"], "control task": results["control_accuracy"]}
    levels = {"commonest label": results["majority"], "commonest label of the word": results["by_type"]}
    return lines(
        names,
        {name: [float(np.mean(one)) for one in values] for name, values in curves.items()},
        {name: [level] * len(names) for name, level in levels.items() if level is not None},
        f"accuracy, {results['task']}",
        out,
        {name: [float(np.std(one)) for one in values] for name, values in curves.items()},
    )
