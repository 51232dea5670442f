"""The line `bertworks finetune ...`: one run, several seeds, a sweep, or the paper's tasks. The verb imports it."""

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..config import find_recipe, load_recipe
from ..experiments import suite as suites
from ..experiments import sweep as sweeps
from ..files import InputError
from ..finetuning.job import OWN_TABLE_STEPS, FinetuneConfig
from ..finetuning.run import finetune as run_finetuning
from ..finetuning.run import joined_job
from ..tasks.base import Data, Task
from ..tasks.catalogue import find_task
from ..tasks.kinds import load_data, own_table, own_task
from .arguments import check_alone, flags_in, folder_of, own_files, taken, words
from .ending import FAILED, run_to_its_end

BUDGETS = ("loop.steps", "loop.tokens", "loop.hours")


@dataclass(frozen=True)
class Command:
    """Fine-tune on a task that bertworks knows (bertworks tasks lists them), or on tables of your own.

    bertworks finetune --task mrpc --data DIR --model FOLDER --out RUN [--recipe NAME] [--optim.lr 3e-5 ...]

    bertworks finetune --train a.csv --dev b.jsonl --text question,answer --label topic --model FOLDER --out RUN

    Tables of your own are trained on for 3 epochs and at least 100 updates; --epochs or --min-steps changes that.

    bertworks finetune --task mrpc --data DIR --model FOLDER --out DIR --sweep paper --restarts 3

    bertworks finetune --task mrpc --data DIR --model STUDENT --teacher FINETUNED --out RUN

    bertworks finetune --suite paper --data GLUE --model FOLDER --out DIR --seeds 1 2 3
    """

    model: Path  # model folder or run folder to start from
    out: Path  # run folder; resumed if it is there
    recipe: Annotated[FinetuneConfig, tyro.conf.arg(name="")]  # what task and recipe say, field by field
    data: Path | None = None  # folder of the files of --task; of --suite the one that has the tasks' folders
    train: Path | None = None  # your own training table: .csv, .tsv, .jsonl, .parquet (docs/finetuning.md)
    dev: Path | None = None  # your own table to judge on
    kind: str = ""  # of your own table: single, pair, regression, multilabel, choice, tagging, span
    text: str = "text"  # its text column, or two of them with a comma between
    label: str = "label"  # its label column; multilabel: or several with commas between, of 0 and 1
    choices: str = ""  # its columns of a multiple choice, commas between
    restarts: int = 0  # so many seeds, counted up from loop.seed: new head, order and dropout (instead of --seeds)
    sweep: Literal["paper", "glue"] | None = None  # the paper's grid of batch_size, optim.lr and epochs (A.3; 4.1)
    keep_all: bool = False  # of a sweep, keep the models of all runs, not of the best one alone
    suite: Literal["paper"] | None = None  # every task of the paper whose files are under --data


def finetune(argv: list[str]) -> None:
    """Parse, run, show; exit status 3 says that it was stopped and the same line goes on."""
    recipe, argv = taken(argv, "--recipe")
    name, argv = taken(argv, "--task")
    task = find_task(name) if name else None
    command = _parse(argv, recipe, task)
    _check_effects(command, flags_in(argv), task)
    results = run_to_its_end(lambda: _suite(command, argv, recipe, task) if command.suite else _one(command, task))
    if os.environ.get("RANK", "0") == "0":  # of several processes one talks
        _show(results)
    if any("error" in found or "failed" in found for found in (results, *results.get("tasks", {}).values())):
        raise SystemExit(FAILED)


def _parse(argv: list[str], recipe: str | None, task: Task | None) -> Command:
    """The line, its recipe begun with the defaults of the task."""
    base = FinetuneConfig.for_task(task) if task else FinetuneConfig()
    path = find_recipe(recipe, "finetune") if recipe else None
    base = load_recipe(path, FinetuneConfig, base) if path else base
    if task is None and not _length_given(path, argv):
        base = replace(base, min_steps=OWN_TABLE_STEPS)
    start = Command(model=tyro.MISSING, out=tyro.MISSING, recipe=base)
    try:
        command = tyro.cli(Command, args=argv, default=start, prog="bertworks finetune")
    except ValueError as error:  # a value that the recipe's own checks refuse
        raise InputError(str(error)) from None
    if not command.restarts:
        return command
    if command.restarts < 0 or command.recipe.seeds:
        raise InputError(f"--restarts {command.restarts}: expected 1 or more, and no --seeds beside it")
    first = command.recipe.loop.seed
    try:
        several = replace(command.recipe, seeds=tuple(range(first, first + command.restarts)))
    except ValueError as error:  # a seed beyond the last one
        raise InputError(str(error)) from None
    return replace(command, recipe=several)


def _length_given(recipe: Path | None, argv: list[str]) -> bool:
    """Whether recipe or line say how long to train; else a small table of one's own gets `OWN_TABLE_STEPS` updates."""
    table = tomllib.loads(recipe.read_text(encoding="utf-8")) if recipe else {}
    named = {*table, *(f"loop.{key}" for key in table.get("loop", {}))}
    return bool(named & {"epochs", "min_steps", *BUDGETS}) or bool(flags_in(argv) & {"--epochs", *_flags(BUDGETS)})


def _flags(names: Iterable[str]) -> set[str]:
    return {f"--{name}" for name in names}


def _check_effects(command: Command, given: set[str], task: Task | None) -> None:
    """Raises InputError for a flag that would change nothing, and says what to use instead."""
    loop, own = command.recipe.loop, {"--text", "--label", "--kind", "--choices", "--dev"}
    idle = (
        (
            command.sweep,
            {"--batch-size", "--optim.lr", "--epochs", "--min-steps"},
            f"--sweep {command.sweep} sets batch_size, optim.lr and epochs itself; leave the flag out, or train one "
            "setting without --sweep",
        ),
        (command.suite, own, "--suite reads the files of the paper's tasks; use --train and --dev without --suite"),
        (task, own, "--task has columns and files of its own; leave the flag out, or use --train and --dev"),
        (not command.sweep, {"--keep-all"}, "only a sweep drops models; leave it out, or add --sweep"),
        (
            command.recipe.seeds and not command.restarts,
            {"--loop.seed"},
            "--seeds names the seeds; leave one of the two out, or count up from --loop.seed with --restarts",
        ),
        (
            loop.steps or loop.tokens or loop.hours,
            {"--epochs", "--min-steps"},
            "loop.steps, loop.tokens or loop.hours says how long to train; leave one of the two out",
        ),
        (not command.recipe.teacher, {"--temperature", "--soft-share"}, "there is no teacher; add --teacher FOLDER"),
    )
    for applies, flags, instead in idle:
        if applies and (found := sorted(given & flags)):
            raise InputError(f"{', '.join(found)} would have no effect: {instead}")


def _one(command: Command, task: Task | None) -> dict[str, Any] | None:
    """A run, the runs of several seeds, or a sweep."""
    task, data = _rows(command, task)
    if not command.sweep:
        return run_finetuning(command.recipe, task, data, command.model, command.out)
    with joined_job(command.recipe, task, data, command.model) as job:
        return sweeps.run_sweep(job, command.out, command.sweep, command.keep_all)


def _rows(command: Command, task: Task | None) -> tuple[Task, Data]:
    own = {"--train": command.train, "--dev": command.dev, "--kind": command.kind, "--choices": command.choices}
    check_alone("--task", {name: value for name, value in own.items() if value} if task else {})
    if task:
        return task, load_data(task, folder_of(task.name, command.data))
    check_alone("tables of your own", {"--data": command.data} if command.data else {})
    columns = own_task(command.kind, words(command.text), command.label, words(command.choices))
    return own_table(columns, *own_files(command.train, command.dev))


def _suite(command: Command, argv: list[str], recipe: str | None, task: Task | None) -> dict[str, Any] | None:
    """All tasks; what the line says is put on top of each task's own defaults."""
    if task or command.train or command.data is None:
        raise InputError("--suite takes --data DIR, a folder with the tasks' folders in it, and no --task or --train")

    def config_of(one: Task) -> FinetuneConfig:
        return _parse(argv, recipe, one).recipe

    return suites.run_suite(config_of, command.data, command.model, command.out, command.sweep or "")


def _show(results: dict[str, Any]) -> None:
    if results["kind"] in ("sweep", "suite"):
        table = sweeps.table if results["kind"] == "sweep" else suites.table
        table(results).show()
        return
    for name, value in results["metrics"].items():
        print(f"{name:10} {value:.4f}" + (f" +- {results['std'][name]:.4f}" if "std" in results else ""))
    sound, runs = results.get("without_collapsed", {}), len(results.get("runs", []))
    if sound and sound["n"] < runs:
        print(f"\n{runs - sound['n']} of {runs} runs collapsed" + ("; the others:" if sound["n"] else ""))
        for name, value in sound["metrics"].items():
            print(f"{name:10} {value:.4f} +- {sound['std'][name]:.4f}")
