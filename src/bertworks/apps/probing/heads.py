"""The effect of each attention head on a fine-tuned model's score: `bertworks probe heads`.

Every head is removed in turn: its context vector becomes zeros, and the model is evaluated again on the development
rows (Michel et al. 2019, section 3.2). Nothing is trained. One evaluation is of the whole model.

Shapes: L layers, N heads a layer.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checkpoint.locate import refuse_export
from ...inference.evaluation import Evaluation
from ...inference.model import LoadedModel
from ...model.bert import Encoder
from ...reporting.run_files import PREDICTIONS
from ...tasks.base import EvaluationResult, Task
from ...training.machine import facts
from .config import HeadsConfig
from .model import check_attention


def ablate_heads(
    run: Path | str, task: Task, rows: Sequence[Any], config: HeadsConfig, quiet: bool = False
) -> dict[str, Any]:
    """The task's first metric and the number of changed predictions, without each head in turn.

    Raises InputError if the folder is an export, was not fine-tuned for the task, or has no attention.
    """
    loaded = LoadedModel.load(run)
    refuse_export(loaded.folder)
    shape = loaded.model.config.num_hidden_layers, loaded.model.config.num_attention_heads
    check_attention(loaded)
    evaluation = Evaluation.prepare(loaded, task, _drawn(rows, config))
    counted, metric, began = shape[0] * shape[1] + 1, task.metrics[0], time.perf_counter()
    if not quiet:
        heads = f"one without each of {shape[0]} x {shape[1]} heads"
        print(f"{counted} evaluations of {evaluation.rows:,} rows, {heads}", file=sys.stderr, flush=True)
    whole = evaluation.run(config.batch_size)
    values, changed = np.zeros(shape), np.zeros(shape, np.int64)
    for head in np.ndindex(*shape):
        mask = torch.ones(shape)
        mask[head] = 0
        with masked(loaded.model.encoder, mask.to(loaded.device)):
            pruned = evaluation.run(config.batch_size)
        values[head], changed[head] = pruned.metrics[metric], _changed(whole, pruned)
    return {
        "probe": "heads",
        "model": str(loaded.folder),
        "task": task.name,
        "metric": metric,
        "examples": evaluation.rows,
        "of": len(rows),
        "settings": vars(config),
        "whole": whole.metrics[metric],
        "majority": whole.majority,
        "without": values.tolist(),
        "changed": changed.tolist(),
        "evaluations": counted,
        "seconds": time.perf_counter() - began,
        "machine": facts(),
    }


def _drawn(rows: Sequence[Any], config: HeadsConfig) -> Sequence[Any]:
    """`config.examples` rows, in their order."""
    if not config.examples or config.examples >= len(rows):
        return rows
    chosen = np.random.default_rng(config.seed).choice(len(rows), config.examples, replace=False)
    return [rows[i] for i in sorted(chosen.tolist())]


@contextlib.contextmanager
def masked(encoder: Encoder, mask: Tensor) -> Iterator[None]:
    """In this context every call of the encoder gets this `head_mask` (L, N)."""
    hook = encoder.register_forward_pre_hook(
        lambda module, arguments, named: (arguments, {**named, "head_mask": mask}), with_kwargs=True
    )
    try:
        yield
    finally:
        hook.remove()


def _changed(whole: EvaluationResult, other: EvaluationResult) -> int:
    """The number of rows whose prediction differs from the whole model's."""
    return sum(a != b for a, b in zip(whole.files[PREDICTIONS], other.files[PREDICTIONS], strict=True))


# ---- the table


def show(results: dict[str, Any]) -> None:
    """Print the change of the metric in points: a row per layer, a column per head. 12 heads fit 80 columns."""
    from rich.console import Console
    from rich.table import Table

    change, console = 100 * (np.array(results["without"]) - results["whole"]), Console(highlight=False)  # (L, N)
    title = f"{results['task']}: {results['metric']} without each head, in points"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 0, 0, 1))
    for name in ("layer", *(str(i + 1) for i in range(change.shape[1]))):
        table.add_column(name, justify="right", no_wrap=True)
    for i, row in enumerate(change):
        table.add_row(str(i + 1), *(f"{value:+.1f}" for value in row))
    console.print(table, markup=False)
    changed, examples = np.array(results["changed"]), results["examples"]
    worst, best = (np.unravel_index(index, change.shape) for index in (change.argmin(), change.argmax()))
    for note in (
        f"model: {results['model']}; {results['metric']} of the whole model on {examples:,} of {results['of']:,} "
        f"examples: {100 * results['whole']:.2f}; one example is {100 / examples:.2f} points of an accuracy",
        f"largest loss: without head {worst[0] + 1}-{worst[1] + 1} ({change[worst]:+.2f}); "
        f"largest gain: without head {best[0] + 1}-{best[1] + 1} ({change[best]:+.2f})",
        f"changed predictions: {changed.mean():.1f} on average, at most {changed.max()} (of {examples:,})",
        "The same examples select and evaluate the heads: differences of a few are random (Michel et al. 2019).",
    ):
        console.print(note, markup=False, soft_wrap=True)
