"""The line `bertworks finetune ...`: one run, several seeds, a sweep, or the paper's tasks. The verb imports it."""

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..files import InputError
from ..finetuning.recipe import FinetuneConfig, idle_fields, refuse_idle, starting_recipe, with_restarts
from ..reporting.run_files import RESULTS
from ..tasks.base import Data, Task
from ..tasks.catalogue import find_task
from .arguments import (
    DividedRows,
    Flat,
    Positional,
    flags_in,
    parse,
    positionals_first,
    take_flag,
    with_defaults,
)
from .doctor import print_findings
from .ending import FAILED, run_to_its_end

if TYPE_CHECKING:
    from ..apps.doctor.examination import Report


@dataclass(frozen=True)
class Arguments:
    """Fine-tune a model on a known task or your own table. Rerun it to resume.

    Example:
        bertworks finetune --task mrpc --data MRPC --model runs/base --out runs/mrpc
        bertworks finetune --train a.csv --dev b.csv --text question,answer \\
            --label topic --model runs/base --out runs/topics

    Own tables train for 3 epochs and at least 100 updates, unless flags say more.

    The paper's grid of settings; a fine-tuned teacher; all tasks of the paper:
        bertworks finetune --task mrpc --data glue/MRPC --model runs/base \\
            --out runs/grid --sweep paper --restarts 3
        bertworks finetune --task mrpc --data glue/MRPC --model runs/student \\
            --teacher runs/mrpc --out runs/taught
        bertworks finetune --suite paper --data glue --model runs/base \\
            --out runs/suite --seeds 1 2 3
    """

    model: Positional[Path]  # model folder or run folder to start from (or: --model MODEL)
    out: Path  # run folder to write; an unfinished run in it is resumed
    config: Flat[FinetuneConfig]
    recipe: str | None = None  # name from `bertworks recipes`, or a .toml file; none: the task's own defaults
    rows: Flat[DividedRows] = field(default_factory=DividedRows)
    restarts: int = 0  # number of runs with the seeds loop.seed, loop.seed + 1, ...; 0: see --seeds
    # try a grid of settings: paper (batch_size, optim.lr and epochs of appendix A.3), glue (section 4.1), or your own
    # such as "optim.lr=1e-4,3e-4 epochs=3"; empty: none
    sweep: str = ""
    keep_all: bool = False  # after a sweep or a suite, keep the models of all runs instead of each task's best one
    suite: Literal["paper"] | None = None  # fine-tune on every task of the paper whose files are under --data
    # tracker whose files are written during the run, into the run folder (extra `tensorboard`); others: `bertworks
    # track`
    log: Literal["tensorboard"] | None = None
    # dask scheduler whose workers do the runs of --sweep or --suite: its address (tcp://host:8786), or "local" for one
    # on this machine; none: this process does them. Needs the extra `cluster` and a disk that all workers share
    scheduler: str = ""
    workers: int = 0  # worker processes of --scheduler local; 0 is one for every GPU, or for every core


def finetune(argv: list[str]) -> None:
    """Fine-tune: one run, several seeds, a sweep or the suite; print the metrics."""
    argv = positionals_first(argv, ("--model",), only=True)
    command = _parse(argv)
    task = find_task(command.rows.task) if command.rows.task else None
    _check_effects(command, flags_in(argv), task)
    _check_sweep(command, flags_in(argv))
    from ..reporting.tracking import followed
    from ..training.run import refuse_other_folder

    if not (command.sweep or command.suite):  # which know their own folders
        refuse_other_folder(command.out)  # before any row is read
    first = os.environ.get("RANK", "0") == "0"
    with followed(command.out, command.log if first else None):
        results = run_to_its_end(lambda: _suite(command, argv, task) if command.suite else _one(command))
    print_findings(lambda: _examined(command))
    if first:  # one process of a torchrun prints
        _show(results)
    if results.get("failed"):
        raise SystemExit(FAILED)


def _parse(argv: list[str], task: Task | None = None) -> Arguments:
    """The arguments. Defaults come from the task (--task, or `task` of a suite), then from the recipe on top of it."""
    for former, (new, values) in FinetuneConfig.RENAMED.items():
        if (flag := f"--{former.replace('_', '-')}") in flags_in(argv):
            raise InputError(f"{flag} is no flag any more; give --{new} ({values})")
    recipe, name = (next(iter(take_flag(argv, flag)[0]), None) for flag in ("--recipe", "--task"))
    task = find_task(name) if name else task
    base = starting_recipe(recipe, task, flags_in(argv))
    command = parse(Arguments, argv, "finetune", "--model", start=with_defaults(Arguments, config=base))
    return replace(command, config=with_restarts(command.config, command.restarts))


def _fields(sweep: str) -> list[str]:
    """The fields of the recipe that a grid sets."""
    own = [part.partition("=")[0] for part in sweep.split() if "=" in part]
    return own or ["batch_size", "optim.lr", "epochs"]


def _swept(sweep: str) -> set[str]:
    """The flags that would have no effect beside a grid."""
    flags = {f"--{field.removeprefix('--').replace('_', '-')}" for field in _fields(sweep)}
    return flags | ({"--min-steps"} if "--epochs" in flags else set())


def _check_effects(command: Arguments, given: set[str], task: Task | None) -> None:
    """Raises InputError for a flag that would change nothing, and says what to use instead."""
    own = {
        "--text",
        "--label",
        "--kind",
        "--choices",
        "--dev",
        "--dev-share",
        "--group",
        "--train-rows",
        "--split-seed",
    }
    idle = [
        (
            command.sweep,
            _swept(command.sweep),
            f"--sweep {command.sweep} sets {', '.join(_fields(command.sweep))} itself; leave the flag out, or train "
            "one setting without --sweep",
        ),
        (command.suite, own, "--suite reads the files of the paper's tasks; use --train and --dev without --suite"),
        (not (command.sweep or command.suite), {"--keep-all"}, "only a sweep or a suite drops models; leave it out"),
        (
            not (command.sweep or command.suite),
            {"--scheduler", "--workers"},
            "a scheduler spreads the runs of a sweep or a suite; add --sweep or --suite, or leave it out",
        ),
        (command.scheduler != "local", {"--workers"}, "--workers is for --scheduler local; leave it out"),
    ]
    refuse_idle([*idle, *idle_fields(command.config, bool(task), command.restarts)], given)


def _check_sweep(command: Arguments, given: set[str]) -> None:
    """Raises InputError for a malformed grid, or one that does not fit the recipe, before any row is read."""
    if command.sweep or "--sweep" in given:
        from ..experiments.search import check_settings_of

        check_settings_of(command.sweep, command.config)


def _one(command: Arguments) -> dict[str, Any] | None:
    """A run, the runs of several seeds, or a sweep."""
    _check_model(command)
    task, data = command.rows.read_data()
    if command.rows.dev_share and os.environ.get("RANK", "0") == "0":
        counts = f"{len(data.train):,} rows to train on, {len(data.dev):,} to evaluate on"
        print(f"{command.rows.train}: {counts}", file=sys.stderr)
    if not (command.out / RESULTS).exists():  # a finished run reads no rows
        _check_data(command, task, data)
    if not command.sweep:
        from ..finetuning.run import finetune as run_finetuning

        return run_finetuning(command.config, task, data, command.model, command.out)
    from ..experiments.rows import Examples
    from ..experiments.search import sweep_study
    from ..experiments.study import run_search

    given = (Path(command.rows.data or ""),) if command.rows.task else command.rows.find()[1]
    examples = Examples(task, tuple(map(Path, given)), command.rows.division, data)
    study = sweep_study(command.config, examples, command.model, command.sweep)
    return run_search(study, command.out, command.keep_all, command.scheduler, command.workers)


def _check_model(command: Arguments) -> None:
    """Raises InputError if the model cannot be trained on, before any row is read; faults of the flags come first."""
    from ..checkpoint.folder import find_model, read_config
    from ..checkpoint.locate import refuse_export

    command.rows.find()
    folder = find_model(command.model)
    refuse_export(folder)
    read_config(folder)


def _check_data(command: Arguments, task: Task, data: Data) -> None:
    """Print what is wrong with the examples, before the run."""
    from ..checkpoint.folder import find_model, load_tokenizer
    from ..tasks.checks import check_labelled_data

    if os.environ.get("RANK", "0") == "0":
        reader = load_tokenizer(find_model(command.model)), command.config.max_seq_length
        for finding in check_labelled_data(task, data.train, data.dev, *reader):
            if finding.severity != "note":
                print(finding, file=sys.stderr)


def _examined(command: Arguments) -> "Report":
    """What doctor finds in the finished run, or in several of them."""
    from ..apps.doctor.examination import of_finetuning

    return of_finetuning(command.out)


def _suite(command: Arguments, argv: list[str], task: Task | None) -> dict[str, Any] | None:
    """Fine-tune on all tasks of the paper; the flags replace each task's own defaults."""
    if task or command.rows.train or command.rows.data is None:
        raise InputError("--suite takes --data DIR, a folder with the tasks' folders in it, and no --task or --train")

    from ..experiments.search import suite_study
    from ..experiments.study import run_search

    def config_of(one: Task) -> FinetuneConfig:
        return _parse(argv, one).config

    study = suite_study(config_of, command.rows.data, command.model, command.sweep)
    return run_search(study, command.out, command.keep_all, command.scheduler, command.workers)


def _show(results: dict[str, Any]) -> None:
    if results["kind"] == "study":
        from ..experiments.tables import tables

        for sheet in tables(results):
            sheet.show()
        return
    width = max(10, *map(len, results["metrics"]))
    for name, value in results["metrics"].items():
        print(f"{name:{width}} {value:.4f}" + (f" +- {results['std'][name]:.4f}" if "std" in results else ""))
    if "ece" in results:
        print(f"{'ece':{width}} {results['ece']:.4f}")
    sound, runs = results.get("without_collapsed", {}), len(results.get("runs", []))
    if sound and sound["n"] < runs:
        print(f"\n{runs - sound['n']} of {runs} runs collapsed" + ("; the others:" if sound["n"] else ""))
        for name, value in sound["metrics"].items():
            print(f"{name:{width}} {value:.4f} +- {sound['std'][name]:.4f}")
