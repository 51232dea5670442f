"""Searches: studies whose variants are settings, of which the best is chosen, and whose best models are kept.

A sweep is a search whose variants are the combinations of some settings, and whose column is one task. The recipe
`suite` is one whose columns are the tasks of the paper.

The setting with the best mean on development data is chosen, collapsed runs included. Of each task the model of the
best single run is kept, which the paper took for LARGE; collapsed runs come last.

    OUT/model/, OUT/best.json         a copy of that model, and which run it is of; of several tasks in OUT/TASK
    OUT/cells/, results.json, ...     as of every study
"""

import re
import shutil
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import from_dict, to_toml
from ..files import InputError, read_json, shorten, write_json
from ..finetuning.recipe import FinetuneConfig
from .cells import StudyCell, results_of
from .choices import combinations
from .engine import Grid
from .recipe import Column, Study, Variant
from .rows import Examples, Plan, StudyInputs

SWEEPS: dict[str, dict[str, list[Any]]] = {
    "paper": {"batch_size": [16, 32], "optim.lr": [5e-5, 3e-5, 2e-5], "epochs": [2.0, 3.0, 4.0]},  # A.3
    "glue": {"batch_size": [32], "optim.lr": [5e-5, 4e-5, 3e-5, 2e-5], "epochs": [3.0]},  # section 4.1
}


# ---- grids of settings


def grid_of(name: str) -> dict[str, list[Any]]:
    """The values of each field of a grid: of the paper, or of one's own such as "optim.lr=1e-4,3e-4 epochs=3".

    Blanks beside a comma are ignored. Raises InputError if it is no grid.
    """
    if name in SWEEPS:
        return SWEEPS[name]
    grid: dict[str, list[Any]] = {}
    for part in re.sub(r"\s*,\s*", ",", name).split():
        field, _, values = part.partition("=")
        field = field.removeprefix("--").replace("-", "_")
        if not re.fullmatch(r"\w+(\.\w+)*=[\w.+-]+(,[\w.+-]+)*", f"{field}={values}") or field in grid:
            raise _not_a_grid(name, f"found {shorten(part)}")
        grid[field] = [_parsed(value) for value in values.split(",")]
        if field in ("seeds", "loop.seed") or len({*grid[field]}) < len(grid[field]):
            raise _not_a_grid(name, f"{shorten(part)} has equal values or seeds, which --seeds gives")
    if not grid:
        raise _not_a_grid(name, "no field in it")
    return grid


def _not_a_grid(name: str, found: str) -> InputError:
    expected = f'{", ".join(SWEEPS)}, or fields with their values, each once, such as "optim.lr=1e-4,3e-4 epochs=3"'
    return InputError(f"grid {shorten(name)}: {found}; expected {expected}")


def _parsed(value: str) -> Any:
    """A value as TOML has it; a text without quotes is a text."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def check_settings_of(name: str, config: FinetuneConfig) -> None:
    """Raises InputError if it is no grid, an unknown field or value, or `epochs` that the recipe's budget overrides."""
    loop, grid = config.loop, grid_of(name)
    if (loop.steps or loop.tokens or loop.hours) and len(grid.get("epochs", [])) > 1:
        raise InputError(f"the grid {name} varies epochs; leave loop.steps, loop.tokens and loop.hours out")
    for setting, table in combinations(grid).items():
        from_dict(FinetuneConfig, table, f"grid {setting}", config)


def _table(config: FinetuneConfig) -> dict[str, Any]:
    """All fields of a recipe, as a study's file has those that differ."""
    teacher = str(Path(config.teacher).absolute()) if config.teacher else ""  # workers have other working directories
    table = tomllib.loads(to_toml(replace(config, teacher=teacher, seeds=())))
    return {name: value for name, value in table.items() if name != "schema"}


def sweep_study(config: FinetuneConfig, examples: Examples, model: Path, name: str) -> StudyInputs:
    """A grid of settings on one task. Raises InputError for an unknown grid, or one that does not fit the recipe."""
    check_settings_of(name, config)
    task, more = examples.task.name, {"min_steps": 0} if "epochs" in grid_of(name) else {}
    variants = (Variant(setting, finetune=more | table) for setting, table in combinations(grid_of(name)).items())
    columns = (Column(task, task=task, finetune=_table(config)),)
    study = Study(
        f"Sweep {name}: {task}", "", tuple(variants), columns, "",
        name=f"sweep of {task}", seeds=config.seeds or (config.loop.seed,), search=True,
    )  # fmt: skip
    return StudyInputs(Path(f"grid {name}"), model=model, study=study, examples={task: examples})


# ---- what a search chooses


@dataclass(frozen=True)
class Search:
    """Chooses settings and models among the finished runs of a study that is a search."""

    plan: Plan
    grid: Grid
    out: Path

    @property
    def groups(self) -> dict[str, list[Column]]:
        """The columns that have the same runs, by their task, or by the first one's name if the task has others."""
        found: dict[str, list[Column]] = {}
        keys: dict[tuple[str, ...], str] = {}
        for column in (one for one in self.plan.study.columns if one.task):
            runs = tuple(cell.name for cell in self._runs(column))
            key = keys.setdefault(runs, column.name if column.task in found else column.task)
            found.setdefault(key, []).append(column)
        return found

    def _runs(self, column: Column) -> list[StudyCell]:
        """The runs of fine-tuning in a column, in the order of work."""
        tuned = [cell for row in self.plan.rows for one in row.every for cell in one.tuned.get(column.name, ())]
        return [cell for cell in tuned if cell.work.kind == "finetune"]

    def best(self) -> dict[str, dict[str, Any]]:
        """The best finished run of each task, as results.json has it; of equal ones the first."""
        groups, best = self.groups, {}
        for task, columns in groups.items():
            found = [(cell, results) for cell in self._runs(columns[0]) if (results := results_of(cell, self.grid))]
            if not found:
                continue
            metric = found[0][0].work.task.metrics[0]  # type: ignore[union-attr]
            cell, results = max(found, key=lambda pair: (not pair[1]["collapsed"], pair[1]["metrics"][metric]))
            best[task] = {
                "run": cell.name,
                "what": cell.title,
                "metric": metric,
                "value": results["metrics"][metric],
                "collapsed": results["collapsed"],
                "model": "model" if len(groups) == 1 else f"{task}/model",
            }
        return best

    def prune(self) -> None:
        """Remove the models of all finished runs but the best of each task; results and predictions stay.

        Any number of processes may do so at any time: the run that is the best at the end is the best from its own end.
        """
        cells = {cell.name: cell for columns in self.groups.values() for cell in self._runs(columns[0])}
        finished = [name for name, cell in cells.items() if self.grid.state(cell) == "done"]
        best = {one["run"] for one in self.best().values()}  # those that end from here on are left alone
        for name in {*finished} - best:
            shutil.rmtree(self.grid.folder / name / "model", ignore_errors=True)

    def choose(self, measured: list[dict[str, Any]]) -> dict[str, str]:
        """The chosen variant in each column, by the mean of the first column that has the same runs.

        A setting of which a seed has failed is chosen only where no setting has all of them.
        """
        found: dict[str, str] = {}
        for columns in self.groups.values() if len(self.plan.rows) > 1 else ():
            known = [entry for entry in measured if entry["column"] == columns[0].name and entry["n"]]
            if known:
                row = max(known, key=lambda entry: (entry["n"], entry["mean"]))["row"]
                found |= dict.fromkeys((column.name for column in columns), row)
        return found

    def place_models(self) -> None:
        """Copy the best run's model of each task to its place in OUT, unless it is there."""
        for best in self.best().values():
            place, run = self.out / best["model"], self.grid.folder / best["run"]
            note = place.with_name("best.json")
            if place.exists() and note.exists() and read_json(note) == best:
                continue
            if not (run / "model").exists():
                raise InputError(f"{run} has lost its model to a better run; remove the folder to train it again")
            temporary = place.with_name(".model.tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.copytree(run / "model", temporary)
            note.unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            temporary.rename(place)
            write_json(note, best)
