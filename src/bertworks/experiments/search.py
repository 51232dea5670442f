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
import statistics
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
EXPECTED = (
    f'expected {", ".join(SWEEPS)}, or fields with their values, each field once, such as "optim.lr=1e-4,3e-4 epochs=3"'
)


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
        field, found = field.removeprefix("--").replace("-", "_"), values.split(",")
        named = re.fullmatch(r"\w+(\.\w+)*", field) and all(re.fullmatch(r"[\w.+-]+", value) for value in found)
        if not named or field in grid:
            raise InputError(f"grid {shorten(name)}: found {shorten(part)}; {EXPECTED}")
        if field in ("seeds", "loop.seed"):
            raise InputError(f"grid {shorten(name)}: all settings have the same seeds; give --seeds")
        grid[field] = [_parsed(value) for value in found]
        if len({*grid[field]}) < len(found):
            raise InputError(f"grid {shorten(name)}: {shorten(part)} has equal values; give each value once")
    if not grid:
        raise InputError(f"grid {shorten(name)}: no field in it; {EXPECTED}")
    return grid


def _parsed(value: str) -> Any:
    """A value as TOML has it; a text without quotes is a text."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def check_grid(name: str, config: FinetuneConfig) -> None:
    """Raises InputError if it is no grid, or if the budget of the recipe leaves its `epochs` without an effect."""
    loop, grid = config.loop, grid_of(name)
    if (loop.steps or loop.tokens or loop.hours) and len(grid.get("epochs", [])) > 1:
        raise InputError(f"the grid {name} varies epochs; leave loop.steps, loop.tokens and loop.hours out")


def check_settings_of(name: str, config: FinetuneConfig) -> None:
    """Raises InputError as `check_grid`, and for an unknown field or a value that does not fit it."""
    check_grid(name, config)
    for setting, table in combinations(grid_of(name)).items():
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
    check_grid(name, config)
    task = examples.task.name
    column = Column(task, task=task, finetune=_table(config))
    study = Study(
        f"Sweep {name}: {task}", "", _variants(name), (column,), "", name=f"sweep of {task}",
        seeds=config.seeds or (config.loop.seed,), search=True,
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
AVERAGED = tuple(figure.name for figures in list(PAPER.values())[:8] for figure in figures)  # table 1's Average
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
    columns, figures, configs = [], dict[str, float](), {name: config_of(TASKS[name]) for name in folders}
    for (name, _), printed in PAPER.items():
        for figure in printed if name in folders else ():
            folder = folders[name].relative_to(data).as_posix()
            columns.append(Column(figure.name, name, folder, figure.metric, finetune=_table(configs[name])))
            if figure.paper is not None:
                figures[figure.name] = figure.paper
    for config in configs.values() if sweep else ():
        check_grid(sweep, config)
    first, variants = next(iter(configs.values())), _variants(sweep)
    notes = (f"Not there: {', '.join(dict.fromkeys(missing))}.",) if missing else ()  # two tasks may share a folder
    study = Study(
        "The tasks of the paper", "", variants, tuple(columns), "", name="paper suite", source=SOURCE, notes=notes,
        seeds=first.seeds or (first.loop.seed,), paper={variant.name: figures for variant in variants}, search=True,
        average=AVERAGED,
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
        folder, task = inner.get(plain_name(official)), TASKS.get(name)
        if task is None or folder is None:
            missing.append(official if task else name)
        elif lacking := [file for file in (task.train, task.dev) if not (folder / file).exists()]:
            missing.append(f"{name} (no {lacking[0]} in {folder.name})")
        else:
            found[name] = folder
    return found, missing


# ---- what a search chooses


def _runs_of(column: Column) -> Column:
    """A column without what makes no difference to its runs."""
    return replace(column, name="", metric="", panel="", x=None)


def _task_of(cell: StudyCell) -> Task:
    assert isinstance(cell.work, Finetuning)
    return cell.work.task


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
            same = (key for key, columns in found.items() if _runs_of(columns[0]) == _runs_of(column))
            key = next(same, column.name if column.task in found else column.task)
            found.setdefault(key, []).append(column)
        return found

    @property
    def cells(self) -> dict[str, list[StudyCell]]:
        """The runs of each group of columns, in the order of work."""
        return {
            key: [
                cell
                for row in self.plan.rows
                for one in row.every
                for cell in one.tuned.get(columns[0].name, ())
                if isinstance(cell.work, Finetuning)
            ]
            for key, columns in self.groups.items()
        }

    def best(self) -> dict[str, dict[str, Any]]:
        """The best finished run of each task, as results.json has it; of equal ones the first."""
        cells, best = self.cells, {}
        for task, some in cells.items():
            found = [(cell, results) for cell in some if (results := results_of(cell, self.grid))]
            if not found:
                continue
            metric = _task_of(found[0][0]).metrics[0]
            cell, results = max(found, key=lambda pair: (not pair[1]["collapsed"], pair[1]["metrics"][metric]))
            best[task] = {
                "run": cell.name,
                "what": cell.title,
                "metric": metric,
                "value": results["metrics"][metric],
                "collapsed": results["collapsed"],
                "model": "model" if len(cells) == 1 else f"{task}/model",
            }
        return best

    def prune(self) -> None:
        """Remove the models of all finished runs but the best of each task; results and predictions stay.

        Any number of processes may do so at any time: the run that is the best at the end is the best from its own end.
        """
        finished = [cell for cells in self.cells.values() for cell in cells if self.grid.state(cell) == "done"]
        best = {one["run"] for one in self.best().values()}  # those that end from here on are left alone
        for cell in finished:
            if cell.name not in best:
                shutil.rmtree(self.grid.path(cell) / "model", ignore_errors=True)

    def choose(self, measured: list[dict[str, Any]]) -> dict[str, str]:
        """The chosen variant in each column, by the mean of the first column that has the same runs.

        A setting of which a seed has failed is chosen only where no setting has all of them.
        """
        found: dict[str, str] = {}
        if len(self.plan.rows) > 1:
            for columns in self.groups.values():
                known = [entry for entry in measured if entry["column"] == columns[0].name and entry["n"]]
                if known:
                    row = max(known, key=lambda entry: (entry["n"], entry["mean"]))["row"]
                    found |= dict.fromkeys((column.name for column in columns), row)
        return found

    def average(self, measured: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The plain mean of the study's averaged columns and of the paper's figures (in points); None without both."""
        both = [entry for entry in measured if None not in (entry["mean"], entry["paper"])]
        found = [entry for entry in both if entry["column"] in self.plan.study.average]
        if not found or len(self.plan.rows) > 1:
            return None
        mean, paper = (statistics.fmean(entry[key] for entry in found) for key in ("mean", "paper"))
        return {"of": [entry["column"] for entry in found], "mean": mean, "paper": paper}

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
