"""`bertworks finetune`: one run, or a run for each of several seeds."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..finetuning.recipe import FinetuneConfig, idle_fields, refuse_idle, starting_recipe
from ..tasks.catalogue import find_task
from .arguments import DividedRows, Flat, Positional, flags_in, parse, value_of, with_defaults
from .exit_status import FAILED, run_to_its_end

T = TypeVar("T", bound=Any)  # arguments with a recipe of fine-tuning


@dataclass(frozen=True)
class Arguments:
    """Fine-tune a model on a built-in task or your own table. Rerun it to resume.

    Example:
        bertworks finetune runs/base --task mrpc --data MRPC --out runs/mrpc
        bertworks finetune runs/base --train a.csv --dev b.csv \\
            --text question,answer --label topic --out runs/topics
        bertworks finetune runs/student --task mrpc --data MRPC \\
            --teacher runs/mrpc --out runs/taught

    Default for your own table: 3 epochs, but at least 100 updates.

    To search settings: `bertworks study sweep`. All GLUE tasks: `study run suite`.

    Most used (-H explains all flags):
        --task, --data    a built-in task (`bertworks recipes tasks`) and its folder
        --train, --dev    your own tables instead: .csv, .jsonl, .parquet, ...
        --text, --label   their columns; two text columns are separated by a comma
        --dev-share       fraction of --train to evaluate on, instead of --dev
        --out             folder to write the model, log and results to
        --epochs          passes over the training examples
        --batch-size      examples per update
        --optim.lr        peak learning rate
        --max-seq-length  longest input in tokens, [CLS] and [SEP] included
        --seeds           one run per seed; mean and deviation are reported
        --patience        stop after so many evaluations without improvement
        --loop.hours      hours to train, instead of epochs
    """

    model: Positional[Path]  # model folder or run folder to start from (or: --model MODEL)
    out: Path  # run folder to write; an unfinished run in it is resumed
    config: Flat[FinetuneConfig]
    rows: Flat[DividedRows] = field(default_factory=DividedRows)
    recipe: str | None = None  # name from `bertworks recipes`, or a .toml file; none: the task's defaults
    # also log to this tracker, into the run folder (needs the extra `tensorboard`)
    log: Literal["tensorboard"] | None = None


def finetune(argv: list[str]) -> None:
    """Fine-tune, and print the metrics."""
    arguments = read_arguments(Arguments, argv, "finetune")
    from .. import api
    from ..apps.doctor.examination import of_finetuning
    from ..apps.doctor.listing import print_warnings
    from ..reporting.tracking import followed

    first = os.environ.get("RANK", "0") == "0"  # of the processes of a torchrun one prints
    rows = vars(arguments.rows)
    with followed(arguments.out, arguments.log if first else None):
        results = run_to_its_end(
            lambda: api.finetune(arguments.model, arguments.out, recipe=arguments.config, **rows).details or None
        )
    print_warnings(lambda: of_finetuning(arguments.out))
    if first:
        show(results)
    if results.get("failed"):
        raise SystemExit(FAILED)


def read_arguments(arguments: type[T], argv: list[str], command: str) -> T:
    """The arguments. The recipe's defaults come from the task, then from --recipe."""
    name = value_of(argv, "--task")
    own_task = find_task(name) if name else None
    base = starting_recipe(value_of(argv, "--recipe"), own_task, flags_in(argv))
    parsed = parse(arguments, argv, command, start=with_defaults(arguments, config=base))
    refuse_idle(idle_fields(parsed.config), flags_in(argv))
    return parsed


def show(results: dict[str, Any]) -> None:
    """Print the metrics; of several runs mean and standard deviation, also without the collapsed ones."""
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
