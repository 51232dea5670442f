"""How well each layer predicts the labels of a task: `bertworks probe layers`.

A linear classifier (multinomial logistic regression, scikit-learn) is trained on the frozen vectors of each layer, once
on the true labels and once on those of a control task. Two baselines need no encoder: the commonest label, and for tags
the commonest label of each word (controls.py).

Shapes: N items (texts, or the labelled words of sentences), T tokens of all inputs, D hidden width.
"""

import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files import InputError
from ...reporting.log import duration
from ...reporting.tables import ResultTable, counted, points
from ...training.machine import facts
from .config import LayersConfig
from .controls import control_labels, form_majority, majority
from .items import Items, Numbers
from .model import Floats, ProbedModel
from .pictures import lines

CONTROLS = {"words": "each word form", "texts": "a random lexicon of tokens"}


def probe_layers(
    model: ProbedModel, train: Items, dev: Items, config: LayersConfig, quiet: bool = False
) -> dict[str, Any]:
    """Accuracy, accuracy on the control task and selectivity of every layer, embeddings first.

    Raises InputError if the training items have fewer than two labels, or there is no development item.
    """
    began = time.perf_counter()
    _check_items(train, dev)
    vectors = [layer_vectors(model, items) for items in (train, dev)]
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    controls = [control_labels(train, dev, model.tokenizer.vocab_size, seed) for seed in seeds]
    scores = []
    for layer, (x, y) in enumerate(zip(*vectors, strict=True)):
        scores.append(score_layer(x, y, train, dev, controls, config))
        if not quiet:
            spent, name = duration(time.perf_counter() - began), f"layer {layer}" if layer else "embeddings"
            print(f"{name}: {points(np.mean(scores[-1][0]))} ({spent})", file=sys.stderr, flush=True)
    return {
        "probe": "layers",
        "model": str(model.folder),
        "task": train.task,
        "unit": train.unit,
        "labels": list(train.names),
        "settings": vars(config),
        "items": {"train": len(train.labels), "dev": len(dev.labels), "of": [train.of, dev.of]},
        "cut": {"train": train.cut, "dev": dev.cut},
        "left_out": dev.left_out,
        "layers": model.layer_names,
        "task_accuracy": [task for task, _ in scores],
        "control_accuracy": [control for _, control in scores],
        "majority": majority(train.labels, dev.labels),
        "by_type": form_majority(train, dev),
        "control_majority": float(np.mean([majority(a, b) for a, b in controls])),
        "seconds": time.perf_counter() - began,
        "machine": facts(),
    }


def _check_items(train: Items, dev: Items) -> None:
    """Raises InputError if a probe cannot be trained or evaluated on these items."""
    if len(train.names) < 2:
        raise InputError(f"labels of the training items: {', '.join(train.names) or 'none'}; expected two or more")
    if not len(dev.labels):
        raise InputError(f"no item to evaluate on is left of {dev.of} ({dev.left_out} were left out); give others")


def layer_vectors(model: ProbedModel, items: Items) -> list[Floats]:
    """(N, D) of the embeddings and each layer: the mean of a text's tokens, or the vector of a word's first subword."""
    inputs, N = items.inputs, len(items.labels)
    item = np.full(len(inputs.ids), -1)  # (T,) the item that each token's vector belongs to, -1: none
    if items.token is not None:
        item[items.token] = np.arange(N)
    else:
        item = np.repeat(np.arange(N), np.diff(inputs.edges))
    return model.extractor.layers(inputs, item, N)


# ---- probes


def score_layer(
    x: Floats,
    y: Floats,
    train: Items,
    dev: Items,
    controls: Sequence[tuple[Numbers, Numbers]],
    config: LayersConfig,
) -> tuple[list[float], list[float]]:
    """Accuracies on the task and on its control, one per seed, of probes trained on x and evaluated on y."""
    mean, scale = x.mean(0), x.std(0) + 1e-6
    x, y = (x - mean) / scale, (y - mean) / scale
    task, control = list[float](), list[float]()
    for number, (a, b) in enumerate(controls):
        rng = np.random.default_rng((config.first_seed + number, 3))
        sample = rng.permutation(len(x))[: max(2, len(x) * 9 // 10)]
        task.append(_accuracy(x[sample], train.labels[sample], y, dev.labels, config))
        control.append(_accuracy(x[sample], a[sample], y, b, config))
    return task, control


def _accuracy(x: Floats, labels: Numbers, y: Floats, true: Numbers, config: LayersConfig) -> float:
    """Share of `true` that a probe trained on x and labels predicts for y."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(set(labels.tolist())) == 1:
        return float((true == labels[0]).mean())
    probe = LogisticRegression(C=1 / config.l2, max_iter=config.steps, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is a setting
        probe.fit(x, labels)
    return float((probe.predict(y) == true).mean())


# ---- tables and pictures


def sheet(results: dict[str, Any]) -> ResultTable:
    """One row per layer: accuracy, that on the control task, and the difference."""
    layers = zip(results["layers"], results["task_accuracy"], results["control_accuracy"], strict=True)
    rows = [
        (name, _mean_and_sd(task), _mean_and_sd(control), f"{100 * (np.mean(task) - np.mean(control)):+.2f}")
        for name, task, control in layers
    ]
    items, unit, settings = results["items"], results["unit"], results["settings"]
    words = f"each word's commonest label {points(results['by_type'])}, " if results["by_type"] is not None else ""
    notes = [
        f"model: {results['model']}",
        f"trained on {items['train']:,} {unit} of {items['of'][0]:,}, "
        f"evaluated on {items['dev']:,} of {items['of'][1]:,}",
        f"{len(results['labels'])} labels; {counted(settings['seeds'], 'seed')}: mean and standard deviation",
        f"without the encoder: {words}the commonest label {points(results['majority'])} "
        f"(of the control {points(results['control_majority'])})",
        "control: labels drawn at random for " + CONTROLS[unit] + " (Hewitt and Liang 2019)",
    ]
    if unit == "texts":
        notes.append("a text's vector: the mean of its tokens")
    if sum(results["cut"].values()):
        notes.append(f"{sum(results['cut'].values()):,} texts were cut to {settings['max_seq_length']} tokens")
    if results["left_out"]:
        notes.append(f"development words left out, because no training word has their label: {results['left_out']:,}")
    return ResultTable(f"{results['task']}: accuracy", ("layer", "task", "control", "selectivity"), rows, tuple(notes))


def _mean_and_sd(values: Sequence[float]) -> str:
    return f"{points(np.mean(values))} ± {points(np.std(values, ddof=1) if len(values) > 1 else 0.0)}"


def plot(results: dict[str, Any], out: Path) -> list[Path]:
    """Draw both accuracies over the layers, and the baselines without the encoder. Returns the files."""
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
