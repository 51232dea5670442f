"""Verbs that train a model, and the one that judges it. Imports stay inside the verbs, for the sake of --help."""

import sys
from typing import Annotated, Any


def pretrain(argv: list[str]) -> None:
    """Pre-train on a store: masked LM and next sentence. Typing the same line again resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..config import load_recipe
    from ..pretrain import PretrainConfig
    from ..pretrain import estimate as estimate_run
    from ..pretrain import pretrain as run

    recipe = argv[0] if argv and not argv[0].startswith("-") else None
    base = load_recipe(recipe, PretrainConfig) if recipe else PretrainConfig()

    @dataclass(frozen=True)
    class Command:
        """Pre-train on a store. Usage: bertworks pretrain RECIPE.toml --corpus STORE --out RUN [--optim.lr 1e-4 ...]"""

        corpus: Path  # store made by `bertworks corpus build`
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[PretrainConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        init: Path | None = None  # model folder to continue from
        estimate: bool = False  # only say how long it will take and how much memory it needs

    command = tyro.cli(
        Command, args=argv[1:] if recipe else argv, default=_with_recipe(Command, base), prog="bertworks pretrain"
    )
    if command.estimate:
        for name, value in estimate_run(command.recipe, command.corpus).items():
            print(f"{name:18} {value:,.2f}")
        return
    results = run(command.recipe, command.corpus, command.out, command.init)
    if results is None:
        raise SystemExit(3)
    _plot_quietly(command.out)


def _plot_quietly(run: Any) -> None:
    """Curves into a finished run's folder; a plot that fails costs a line, never the run."""
    import os

    if os.environ.get("RANK", "0") != "0":  # one process of a torchrun draws
        return
    try:
        from ..plots import plot_runs

        files = plot_runs([run], run / "curves")
        print(f"curves: {', '.join(map(str, files))}", file=sys.stderr)
    except Exception as error:
        print(f"no plot was made ({type(error).__name__}: {error}); the run is whole", file=sys.stderr)


def _with_recipe(command: Any, base: Any) -> Any:
    """Defaults for tyro: everything as declared, the recipe as read from its file."""
    import tyro

    return command(corpus=tyro.MISSING, out=tyro.MISSING, recipe=base)


def finetune(argv: list[str]) -> None:
    """Fine-tune a classifier: --task sst2|mrpc --data DIR, or --train --dev --text --label. The same line resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..config import load_recipe
    from ..finetune import FinetuneConfig
    from ..finetune import finetune as run
    from ..tasks.base import load_data, own_table

    recipe, argv = _taken(argv, "--recipe")
    base = load_recipe(recipe, FinetuneConfig) if recipe else FinetuneConfig()

    @dataclass(frozen=True)
    class Command:
        """Fine-tune a classifier, on a task of GLUE or on a table of your own (CSV, TSV with plain quotes, JSON lines).

        bertworks finetune --task mrpc --data DIR --model FOLDER --out RUN [--recipe FILE] [--optim.lr 3e-5 ...]
        bertworks finetune --train a.csv --dev b.csv --text question,answer --label topic --model FOLDER --out RUN
        """

        model: Path  # model folder or run folder to start from
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[FinetuneConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        task: str = ""  # sst2 or mrpc
        data: Path | None = None  # folder of the task's files
        train: Path | None = None  # your own training table
        dev: Path | None = None  # your own table to judge on
        text: str = "text"  # its text column, or two of them with a comma between
        label: str = "label"  # its label column

    start = Command(model=tyro.MISSING, out=tyro.MISSING, recipe=base)  # type: ignore[arg-type]
    command = tyro.cli(Command, args=argv, default=start, prog="bertworks finetune")
    if command.train and command.dev:
        task, data = own_table(command.train, command.dev, tuple(command.text.split(",")), command.label)
    else:
        task = _glue_task(command.task, command.data is not None)
        data = load_data(task, command.data or "")
    results = run(command.recipe, task, data, command.model, command.out)
    if results is None:
        raise SystemExit(3)
    for name, value in results["metrics"].items():
        print(f"{name:10} {value:.4f}" + (f" +- {results['std'][name]:.4f}" if "std" in results else ""))


def evaluate(argv: list[str]) -> None:
    """Judge a fine-tuned folder: --model FOLDER --task sst2|mrpc --data DIR, or --dev FILE --text --label."""
    import json
    from pathlib import Path

    import tyro

    from ..finetune import evaluate as judge
    from ..tasks.base import Task, read_examples

    def run(
        model: Path,
        task: str = "",
        data: Path | None = None,
        dev: Path | None = None,
        text: str = "text",
        label: str = "label",
        out: Path | None = None,
    ) -> None:
        """Print the metrics of a fine-tuned folder as JSON. Labels are matched by name.

        Args:
            model: run folder of `bertworks finetune`, or a model folder with a classifier
            task: sst2 or mrpc
            data: folder of the task's files; the development file is read
            dev: a table of your own instead (CSV, TSV, JSON lines)
            text: its text column, or two of them with a comma between
            label: its label column
            out: write the JSON here too
        """
        from ..files import write_json

        if dev is not None:
            judged = Task("table", tuple(text.split(",")), label, metrics=("accuracy", "macro_f1"), dev=str(dev))
        else:
            judged = _glue_task(task, data is not None)
        results = judge(model, judged, read_examples(judged, (data or Path()) / judged.dev))
        print(json.dumps(results, indent=1, ensure_ascii=False))
        if out is not None:
            write_json(out, results)

    tyro.cli(run, prog="bertworks evaluate", args=argv)


def _glue_task(name: str, folder: bool) -> Any:
    """The GLUE task of that name, if there is a folder to read it from."""
    from ..files import InputError
    from ..tasks.glue import GLUE

    if name not in GLUE or not folder:
        raise InputError(
            f"give --task ({' or '.join(GLUE)}) with --data DIR, or tables of your own with --train and --dev"
        )
    return GLUE[name]


def _taken(argv: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of `flag VALUE` or `flag=VALUE`, and the other arguments."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1], [*argv[:i], *argv[i + 2 :]]
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :], [*argv[:i], *argv[i + 1 :]]
    return None, argv
