"""Combinations of settings, and settings of fine-tuning that are chosen on held-out training rows.

A sweep trains every combination as a variant of its own. A study's `choose`, of a variant and a column together, trains
every combination without a fifth of the training rows and evaluates it on that fifth by the task's first metric. The
setting with the best mean over the choosing seeds is trained on all training rows. No development row chooses anything.
A candidate that diverges loses to all that do not.
"""

import functools
import itertools
import statistics
from dataclasses import replace
from typing import Any

from ..config import dotted
from ..finetuning.recipe import FinetuneConfig
from ..tasks.base import Data
from ..tasks.sampling import draw_rows, hold_out_rows
from .cells import Tuning, results_of
from .engine import Grid


def combinations(*tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every combination of the values, as tables of a recipe by names such as "optim.lr = 0.001"; {} if there are none.

    tables: {field: [values]}, nested or dotted; a later table replaces the values that an earlier one has for a field.
    """
    leaves = {name: value for table in tables for name, value in dotted(table).items()}
    fields = {name: value if isinstance(value, list) else [value] for name, value in leaves.items()}
    found = {}
    for values in itertools.product(*fields.values()) if fields else ():
        chosen, made = dict(zip(fields, values, strict=True)), dict[str, Any]()
        for field, value in chosen.items():
            *path, last = field.split(".")
            functools.reduce(lambda inner, part: inner.setdefault(part, {}), path, made)[last] = value
        found[", ".join(f"{field} = {_shown(value)}" for field, value in chosen.items())] = made
    return found


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def chosen(work: Tuning, grid: Grid, earlier: str = "") -> tuple[str, FinetuneConfig] | None:
    """The best candidate's name, and its recipe with the run's seed.

    A run that was started keeps its `earlier` setting, although a candidate that was run again may be better now. A
    setting of which a seed diverged is chosen only where no setting has all seeds. None without candidates, if some
    have not ended, or if all diverged.
    """
    scores: dict[str, list[float]] = {}
    configs: dict[str, FinetuneConfig] = {}
    for cell in work.candidates:
        results = results_of(cell, grid)
        if results is None and grid.failure(cell).get("outcome") != "diverged":
            return None
        assert isinstance(cell.work, Tuning) and isinstance(cell.work.config, FinetuneConfig)
        if results is not None:
            scores.setdefault(cell.work.setting, []).append(results["metrics"][work.task.metrics[0]])
            configs[cell.work.setting] = cell.work.config
    if not scores:
        return None
    best = max(scores, key=lambda name: (name == earlier, len(scores[name]), statistics.fmean(scores[name])))
    return best, replace(configs[best], loop=replace(configs[best].loop, seed=work.seed))


def rows_of_run(work: Tuning, data: Data) -> Data:
    """The rows of a run, from those of its column: drawn by its seed, and without the held-out part.

    A run that chooses is evaluated on the held-out part.
    """
    train = draw_rows(data.train, work.column.train_rows, work.seed) if work.column.draw else data.train
    if work.is_held_out:
        train, back = hold_out_rows(train, work.seed)
        return Data(train, back, data.source)
    return replace(data, train=train)
