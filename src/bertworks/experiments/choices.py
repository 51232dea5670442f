"""Combinations of settings, and settings of fine-tuning that are chosen on held-out training examples.

A sweep trains every combination as a variant of its own. A study's `choose`, of a variant and a column together, trains
every combination without a fifth of the training examples and evaluates it on that fifth by the task's first metric.
The setting with the best mean over the choosing seeds is trained on all training examples. Development examples are
not used to choose. A candidate that diverges loses to all that do not.
"""

import itertools
import statistics
from dataclasses import replace
from typing import Any

from ..config import dotted, nested
from ..finetuning.recipe import FinetuneConfig
from ..tasks.base import Data
from ..tasks.sampling import draw_rows, hold_out_rows
from .scheduler import RunFolder
from .specs import Tuning


def combinations(*tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every combination of the values, as tables of a recipe by names such as "optim.lr = 0.001"; {} if there are none.

    tables: {field: [values]}, nested or dotted; a later table replaces the values that an earlier one has for a field.
    """
    values = {field: value for table in tables for field, value in dotted(table).items()}
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    settings = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*lists)] if values else []
    return {", ".join(f"{field} = {_shown(value)}" for field, value in one.items()): nested(one) for one in settings}


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def best_setting(spec: Tuning, folder: RunFolder, earlier: str = "") -> tuple[str, FinetuneConfig] | None:
    """The best candidate's name, and its recipe with the run's seed.

    A run that was started keeps its `earlier` setting, although a candidate that was repeated may be better now. A
    setting of which a seed diverged is chosen only if no setting has all seeds. None without candidates, if some have
    not ended, or if all diverged.
    """
    scores: dict[str, list[float]] = {}
    configs: dict[str, FinetuneConfig] = {}
    for run in spec.candidates:
        results = folder.results(run)
        if results is None and folder.failure(run).get("outcome") != "diverged":
            return None
        if results is not None:
            scores.setdefault(run.spec.setting, []).append(results["metrics"][spec.task.metrics[0]])
            configs[run.spec.setting] = run.spec.config
    if not scores:
        return None
    best = max(scores, key=lambda name: (name == earlier, len(scores[name]), statistics.fmean(scores[name])))
    return best, replace(configs[best], loop=replace(configs[best].loop, seed=spec.seed))


def data_of_run(spec: Tuning, data: Data) -> Data:
    """The examples of a run, from those of its column: drawn by its seed, and without the held-out part.

    A candidate is evaluated on the held-out part.
    """
    train = draw_rows(data.train, spec.column.train_rows, spec.seed) if spec.column.draw else data.train
    if spec.held_out:
        train, held_out = hold_out_rows(train, spec.seed)
        return Data(train, held_out, data.source)
    return replace(data, train=train)
