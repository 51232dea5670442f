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

from ..checkpoint.locate import new_folder
from ..config import from_dict, to_toml
from ..files import InputError, read_json, shorten, write_json
from ..finetuning.recipe import FinetuneConfig
from ..tasks.selection import DividedRows
from .choices import combinations
from .recipe import Column, Study, Variant
from .scheduler import Run, RunFolder
from .specs import Plan, StudyInputs

SWEEPS: dict[str, dict[str, list[Any]]] = {
    "paper": {"batch_size": [16, 32], "optim.lr": [5e-5, 3e-5, 2e-5], "epochs": [2.0, 3.0, 4.0]},  # A.3
    "glue": {"batch_size": [32], "optim.lr": [5e-5, 4e-5, 3e-5, 2e-5], "epochs": [3.0]},  # section 4.1
}


# ---- grids of settings


def grid_of(name: str) -> dict[str, list[Any]]:
    """The values of each field of a grid: of the paper, or of one's own such as "optim.lr=1e-4,3e-4 epochs=3".

    Spaces beside a comma are ignored. Raises InputError if it is no grid.
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


def _not_a_grid(name: str, problem: str) -> InputError:
    expected = f'{", ".join(SWEEPS)}, or fields with their values, each once, such as "optim.lr=1e-4,3e-4 epochs=3"'
    return InputError(f"grid {shorten(name)}: {problem}; expected {expected}")


def _parsed(value: str) -> Any:
    """A value as TOML has it; a text without quotes is a text."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def sweep_study(config: FinetuneConfig, rows: DividedRows, model: Path, name: str) -> StudyInputs:
    """A grid of settings on one task.

    Raises InputError if it is no grid, for an unknown field or value, or for `epochs` that the recipe's budget
    overrides.
    """
    grid = grid_of(name)
    if config.loop.budget and len(grid.get("epochs", [])) > 1:
        raise InputError(f"the grid {name} varies epochs; leave loop.steps, loop.tokens and loop.hours out")
    settings = combinations(grid)
    for setting, table in settings.items():
        from_dict(FinetuneConfig, table, f"grid {setting}", config)
    (task, _), more = rows.read_data(), {"min_steps": 0} if "epochs" in grid else {}
    variants = tuple(Variant(setting, finetune=more | table) for setting, table in settings.items())
    teacher = str(Path(config.teacher).absolute()) if config.teacher else ""  # workers have other working directories
    fields = tomllib.loads(to_toml(replace(config, teacher=teacher, seeds=())))
    del fields["schema"]
    column = Column(task.name, task=task.name, finetune=fields)
    study = Study(
        f"Sweep {name}: {task.name}", "", variants, (column,), "",
        name=f"sweep of {task.name}", seeds=config.seeds or (config.loop.seed,), search=True,
    )  # fmt: skip
    return StudyInputs(Path(f"grid {name}"), model=model, study=study, task=task, rows=rows)


# ---- the best setting and the best models


@dataclass(frozen=True)
class Search:
    """Chooses settings and models among the finished runs of a study that is a search."""

    plan: Plan
    folder: RunFolder
    out: Path

    @property
    def groups(self) -> dict[str, list[Column]]:
        """The columns that have the same runs, by their task, or by the first one's name if the task has others."""
        by_runs: dict[tuple[str, ...], list[Column]] = {}
        for column in (column for column in self.plan.study.columns if column.task):
            by_runs.setdefault(tuple(run.name for run in self._runs(column)), []).append(column)
        groups: dict[str, list[Column]] = {}
        for columns in by_runs.values():
            groups[columns[0].name if columns[0].task in groups else columns[0].task] = columns
        return groups

    def _runs(self, column: Column) -> list[Run]:
        """The runs of fine-tuning in a column, in the order of work."""
        tuned = [run for row in self.plan.rows for one in row.replicates for run in one.tuned.get(column.name, ())]
        return [run for run in tuned if run.spec.kind == "finetune"]

    def best(self) -> dict[str, dict[str, Any]]:
        """The best finished run of each task, as results.json has it; of equal ones the first."""
        groups, best = self.groups, {}
        for task, columns in groups.items():
            runs = [(run, results) for run in self._runs(columns[0]) if (results := self.folder.results(run))]
            if not runs:
                continue
            metric = runs[0][0].spec.task.metrics[0]
            run, results = max(runs, key=lambda pair: (not pair[1]["collapsed"], pair[1]["metrics"][metric]))
            best[task] = {
                "run": run.name,
                "what": run.title,
                "metric": metric,
                "value": results["metrics"][metric],
                "collapsed": results["collapsed"],
                "model": "model" if len(groups) == 1 else f"{task}/model",
            }
        return best

    def prune(self) -> None:
        """Remove the models of all finished runs but the best of each task; results and predictions stay.

        Any number of processes may call this at any time: the run that is the best at the end is the best from its own
        end.
        """
        runs = {run.name: run for columns in self.groups.values() for run in self._runs(columns[0])}
        finished = {name for name, run in runs.items() if self.folder.state(run) == "done"}
        best = {one["run"] for one in self.best().values()}  # read later: runs that end meanwhile are left alone
        for name in finished - best:
            shutil.rmtree(self.folder.root / name / "model", ignore_errors=True)

    def choose(self, measured: list[dict[str, Any]]) -> dict[str, str]:
        """The chosen variant in each column, by the mean of the first column that has the same runs.

        A setting of which a seed has failed is chosen only if no setting has all of them.
        """
        chosen: dict[str, str] = {}
        for columns in self.groups.values() if len(self.plan.rows) > 1 else ():
            entries = [entry for entry in measured if entry["column"] == columns[0].name and entry["n"]]
            if entries:
                row = max(entries, key=lambda entry: (entry["n"], entry["mean"]))["row"]
                chosen |= {column.name: row for column in columns}
        return chosen

    def place_models(self) -> None:
        """Copy the best run's model of each task to its place in OUT, unless it is there."""
        for best in self.best().values():
            place, model = self.out / best["model"], self.folder.root / best["run"] / "model"
            note = place.with_name("best.json")
            if place.exists() and note.exists() and read_json(note) == best:
                continue
            if not model.exists():
                raise InputError(f"{model.parent} lost its model to a better run; remove the folder to repeat the run")
            note.unlink(missing_ok=True)
            with new_folder(place, replaces=Path.is_dir) as folder:
                shutil.copytree(model, folder)
            write_json(note, best)
