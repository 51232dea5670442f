"""Settings of fine-tuning that are chosen: a run for each candidate, judged on training rows that are kept back.

A study gives the values of some fields (`choose`), of a variant and of a column together. Every combination is a
candidate; it is trained without a fifth of the training rows and judged on that fifth by the task's first metric. The
setting with the best mean over the choosing seeds is trained on all training rows. No development row chooses anything.
A candidate that diverges loses to all that do not.
"""

import itertools
import statistics
from dataclasses import replace
from typing import Any

from ..config import from_dict
from ..finetuning.recipe import FinetuneConfig
from ..tasks.base import Data
from ..tasks.draws import draw_rows, split_rows
from .cells import Baseline, Finetuning, results_of
from .engine import Grid


def candidates_of(config: FinetuneConfig, *choose: dict[str, Any]) -> dict[str, FinetuneConfig]:
    """The recipe with every combination of the values, by names such as "optim.lr = 0.001"; {} if there are none.

    A later table replaces the values that an earlier one has for the same field. Raises InputError for an unknown
    field or an unfit value.
    """
    fields = {name: values for table in choose for name, values in _leaves(table)}
    if not fields:
        return {}
    found = {}
    for values in itertools.product(*fields.values()):
        chosen = dict(zip(fields, values, strict=True))
        name = ", ".join(f"{field} = {value:g}" if isinstance(value, float) else f"{field} = {value}"
                         for field, value in chosen.items())  # fmt: skip
        made = config
        for field, value in chosen.items():
            table: Any = value
            for key in reversed(field.split(".")):
                table = {key: table}
            made = from_dict(FinetuneConfig, table, "choose", made)
        found[name] = made
    return found


def _leaves(table: dict[str, Any], before: str = "") -> list[tuple[str, list[Any]]]:
    """Dotted names and their values."""
    found = []
    for key, value in table.items():
        inner = isinstance(value, dict)
        name = f"{before}{key}"
        found += _leaves(value, f"{name}.") if inner else [(name, value if isinstance(value, list) else [value])]
    return found


def chosen(work: Finetuning, grid: Grid, begun: tuple[str, ...] = ()) -> tuple[str, FinetuneConfig] | None:
    """The best candidate's name, and its recipe with the run's seed.

    A run that was begun keeps the setting `begun`, although a candidate that was run again may be better now. A setting
    of which a seed diverged is chosen only where no setting has all seeds. None without candidates, if some
    have not ended, or if all diverged.
    """
    scores: dict[str, list[float]] = {}
    configs: dict[str, FinetuneConfig] = {}
    for cell in work.candidates:
        results = results_of(cell, grid)
        if results is None and grid.failure(cell).get("outcome") != "diverged":
            return None
        assert isinstance(cell.work, Finetuning)
        if results is not None:
            scores.setdefault(cell.work.setting, []).append(results["metrics"][work.task.metrics[0]])
            configs[cell.work.setting] = cell.work.config
    if not scores:
        return None
    kept = [name for name in begun if name in scores]
    best = max(kept or scores, key=lambda name: (len(scores[name]), statistics.fmean(scores[name])))
    return best, replace(configs[best], loop=replace(configs[best].loop, seed=work.config.loop.seed))


def rows_of_run(work: Finetuning | Baseline, data: Data) -> Data:
    """The rows of a run, from those of its column: drawn by its seed, and without the part that is kept back.

    A run that chooses is judged on the kept-back part.
    """
    seed = work.config.seed if isinstance(work, Baseline) else work.config.loop.seed
    train = draw_rows(data.train, work.column.train_rows, seed) if work.column.draw else data.train
    if isinstance(work, Finetuning) and work.kept_back:
        train, back = split_rows(train, seed)
        return Data(train, back, data.source)
    return replace(data, train=train)
