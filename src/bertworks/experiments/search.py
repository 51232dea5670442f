"""Sweeps and suites: shorthands for a study.

    sweep     a study whose variants are the combinations of some settings, and whose column is one task
    suite     a study whose columns are the fine-tuning tasks of the paper, with the paper's figures beside ours

The setting with the best mean on development data is chosen, collapsed runs included. Of each task the model of the
best single run is kept, which the paper took for LARGE; collapsed runs come last.

    OUT/model/, OUT/best.json         a copy of that model, and which run it is of; of a suite in OUT/TASK
    OUT/cells/, results.json, ...     as of every study
"""

import re
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..config import from_dict, to_toml
from ..files import InputError, read_json, shorten, write_json
from ..finetuning.recipe import FinetuneConfig
from ..tasks.base import Task
from ..tasks.catalogue import TASKS, plain_name
from .cells import Finetuning, StudyCell, results_of
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


def _variants(sweep: str) -> tuple[Variant, ...]:
    """A variant for each setting; without a sweep the recipe's own setting alone."""
    if not sweep:
        return (Variant("here"),)
    grid = grid_of(sweep)
    more = {"min_steps": 0} if "epochs" in grid else {}
    return tuple(Variant(name, finetune=more | table) for name, table in combinations(grid).items())


def _table(config: FinetuneConfig) -> dict[str, Any]:
    """All fields of a recipe, as a study's file has those that differ."""
    teacher = str(Path(config.teacher).absolute()) if config.teacher else ""  # workers have other working directories
    table = tomllib.loads(to_toml(replace(config, teacher=teacher, seeds=())))
    return {name: value for name, value in table.items() if name != "schema"}


# ---- the two studies


def sweep_study(config: FinetuneConfig, examples: Examples, model: Path, name: str) -> StudyInputs:
    """A grid of settings on one task. Raises InputError for an unknown grid, or one that does not fit the recipe."""
    check_settings_of(name, config)
    task = examples.task.name
    study = Study(
        f"Sweep {name}: {task}", "", _variants(name), (Column(task, task=task, finetune=_table(config)),), "",
        name=f"sweep of {task}", seeds=config.seeds or (config.loop.seed,), search=True,
    )  # fmt: skip
    return StudyInputs(Path(f"grid {name}"), model=model, study=study, examples={task: examples})


class Figure(NamedTuple):
    """A number that the paper prints."""

    name: str  # of the column or row there
    metric: str  # of ours
    paper: float | None  # BERT-BASE, in hundredths; None: not in the paper


PAPER: dict[tuple[str, str], tuple[Figure, ...]] = {  # (task, folder)
    ("mnli", "MNLI"): (Figure("MNLI-m", "accuracy", 84.6), Figure("MNLI-mm", "accuracy_mm", 83.4)),
    ("qqp", "QQP"): (Figure("QQP", "f1", 71.2),),
    ("qnli", "QNLI"): (Figure("QNLI", "accuracy", 90.5),),
    ("sst2", "SST-2"): (Figure("SST-2", "accuracy", 93.5),),
    ("cola", "CoLA"): (Figure("CoLA", "matthews", 52.1),),
    ("stsb", "STS-B"): (Figure("STS-B", "spearman", 85.8),),
    ("mrpc", "MRPC"): (Figure("MRPC", "f1", 88.9),),
    ("rte", "RTE"): (Figure("RTE", "accuracy", 66.4),),
    ("squad1", "squad"): (Figure("SQuAD 1.1, EM", "exact", 80.8), Figure("SQuAD 1.1, F1", "f1", 88.5)),
    ("squad2", "squad"): (Figure("SQuAD 2.0, EM", "exact", None), Figure("SQuAD 2.0, F1", "f1", None)),
    ("conll2003", "conll2003"): (Figure("CoNLL-2003, dev", "f1", 96.4), Figure("CoNLL-2003, test", "f1_test", 92.4)),
    ("swag", "swag"): (Figure("SWAG", "accuracy", 81.6),),
}
SOURCE = (
    "BERT-BASE (tables 1, 2, 4 and 7); its figures of GLUE are test scores, which only the leaderboard's server can "
    "measure, all others of development data unless the name says test"
)


def suite_study(config_of: Callable[[Task], FinetuneConfig], data: Path, model: Path, sweep: str = "") -> StudyInputs:
    """Every task of the paper whose files are under `data`; with a sweep in each of its settings.

    config_of: the recipe for a task. Raises InputError if there is none of the tasks.
    """
    folders, missing = find_folders(data)
    if not folders:
        wanted = ", ".join(dict.fromkeys(folder for _, folder in PAPER))
        raise InputError(f"{data}: none of the paper's tasks is here; expected some of the folders {wanted}")
    configs = {name: config_of(TASKS[name]) for name in folders}
    for config in configs.values() if sweep else ():
        check_settings_of(sweep, config)
    figures = [(name, figure) for (name, _), printed in PAPER.items() if name in folders for figure in printed]
    columns = tuple(
        Column(one.name, name, folders[name].relative_to(data).as_posix(), one.metric, finetune=_table(configs[name]))
        for name, one in figures
    )
    first, variants = next(iter(configs.values())), _variants(sweep)
    paper = {figure.name: figure.paper for _, figure in figures if figure.paper is not None}
    notes = (f"Not there: {', '.join(dict.fromkeys(missing))}.",) if missing else ()  # two tasks may share a folder
    study = Study(
        "The tasks of the paper", "", variants, columns, "", name="paper suite", source=SOURCE, notes=notes,
        seeds=first.seeds or (first.loop.seed,), paper={variant.name: paper for variant in variants}, search=True,
    )  # fmt: skip
    return StudyInputs(Path("the suite"), data=data, model=model, study=study)


def find_folders(data: Path) -> tuple[dict[str, Path], list[str]]:
    """The folder of each task that is there, in `data` or in glue/ inside it; and what is not there, in words.

    Names of folders are those of the official files, in small letters or capitals, with hyphens or without.
    """
    bases = (data / "glue", data / "GLUE", data)
    inner = {plain_name(path.name): path for base in bases for path in sorted(base.glob("*")) if path.is_dir()}
    found, missing = {}, []
    for name, official in PAPER:
        folder, task = inner.get(plain_name(official)), TASKS[name]
        if folder is None:
            missing.append(official)
        elif lacking := [file for file in (task.train, task.dev) if not (folder / file).exists()]:
            missing.append(f"{name} (no {lacking[0]} in {folder.name})")
        else:
            found[name] = folder
    return found, missing


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
        for column in (one for one in self.plan.study.columns if one.task):
            same = (key for key, columns in found.items() if self._cells(columns[0]) == self._cells(column))
            key = next(same, column.name if column.task in found else column.task)
            found.setdefault(key, []).append(column)
        return found

    def _cells(self, column: Column) -> list[str]:
        return [cell.name for cell in self._runs(column)]

    def _runs(self, column: Column) -> list[StudyCell]:
        """The runs of fine-tuning in a column, in the order of work."""
        tuned = [cell for row in self.plan.rows for one in row.every for cell in one.tuned.get(column.name, ())]
        return [cell for cell in tuned if isinstance(cell.work, Finetuning)]

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
