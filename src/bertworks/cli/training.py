"""Verbs that train a model, and the one that judges it. Imports stay inside the verbs, for the sake of --help."""

import sys
from pathlib import Path
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
    """Fine-tune: --task NAME --data DIR, or tables of your own with --train, --dev, --text, --label. Resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..config import load_recipe
    from ..finetune import FinetuneConfig
    from ..finetune import finetune as run
    from ..tasks.catalogue import find_task
    from ..tasks.kinds import load_data, own_table, own_task

    recipe, argv = _taken(argv, "--recipe")
    name, argv = _taken(argv, "--task")
    known = find_task(name) if name else None
    base = FinetuneConfig.for_task(known) if known else FinetuneConfig()
    base = load_recipe(recipe, FinetuneConfig, base) if recipe else base

    @dataclass(frozen=True)
    class Command:
        """Fine-tune on a task that bertworks knows (bertworks tasks lists them), or on tables of your own.

        bertworks finetune --task mrpc --data DIR --model FOLDER --out RUN [--recipe FILE] [--optim.lr 3e-5 ...]
        bertworks finetune --train a.csv --dev b.jsonl --text question,answer --label topic --model FOLDER --out RUN
        """

        model: Path  # model folder or run folder to start from
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[FinetuneConfig, tyro.conf.arg(name="")]  # what task and recipe say, field by field
        data: Path | None = None  # folder of the files of --task
        train: Path | None = None  # your own training table: .csv, .tsv, .jsonl, .parquet (docs/finetuning.md)
        dev: Path | None = None  # your own table to judge on
        kind: str = ""  # of your own table: single, pair, regression, multilabel, choice, tagging, span
        text: str = "text"  # its text column, or two of them with a comma between
        label: str = "label"  # its label column
        choices: str = ""  # its columns of a multiple choice, commas between

    start = Command(model=tyro.MISSING, out=tyro.MISSING, recipe=base)  # type: ignore[arg-type]
    command = tyro.cli(Command, args=argv, default=start, prog="bertworks finetune")
    if known:
        task, data = known, load_data(known, _folder(known.name, command.data))
    else:
        columns = own_task(command.kind, _words(command.text), command.label, _words(command.choices))
        task, data = own_table(columns, *_own_files(command.train, command.dev))
    results = run(command.recipe, task, data, command.model, command.out)
    if results is None:
        raise SystemExit(3)
    for name, value in results["metrics"].items():
        print(f"{name:10} {value:.4f}" + (f" +- {results['std'][name]:.4f}" if "std" in results else ""))


def evaluate(argv: list[str]) -> None:
    """Judge a fine-tuned folder: --model FOLDER --task NAME --data DIR, or --dev FILE --text --label."""
    import json
    from pathlib import Path

    import tyro

    from ..evaluate import evaluate as judge
    from ..tasks.catalogue import find_task
    from ..tasks.kinds import own_task, read_rows

    def run(
        model: Path,
        task: str = "",
        data: Path | None = None,
        dev: Path | None = None,
        kind: str = "",
        text: str = "text",
        label: str = "label",
        choices: str = "",
        out: Path | None = None,
    ) -> None:
        """Print the metrics of a fine-tuned folder as JSON. Labels are matched by name.

        Args:
            model: run folder of `bertworks finetune`, or a model folder with a supervised head
            task: a task that bertworks knows (bertworks tasks lists them)
            data: folder of the task's files; the development file is read
            dev: a table of your own instead (.csv, .tsv, .jsonl, .parquet)
            kind: of your own table: single, pair, regression, multilabel, choice, tagging, span
            text: its text column, or two of them with a comma between
            label: its label column
            choices: its columns of a multiple choice, commas between
            out: write the JSON here too
        """
        from ..files import write_json

        if task:
            judged = find_task(task)
            rows = read_rows(judged, _folder(task, data) / judged.dev)
        else:
            judged = own_task(kind, _words(text), label, _words(choices))
            rows = read_rows(judged, _own_files(dev)[0])
        results = judge(model, judged, rows)
        print(json.dumps(results, indent=1, ensure_ascii=False))
        if out is not None:
            write_json(out, results)

    tyro.cli(run, prog="bertworks evaluate", args=argv)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _folder(task: str, folder: Path | None) -> Path:
    from ..files import InputError

    if folder is None:
        raise InputError(f"--task {task} needs --data DIR, the folder with its files")
    return folder


def _own_files(*files: Path | None) -> list[Path]:
    from ..files import InputError

    found = [file for file in files if file is not None]
    if len(found) < len(files):
        raise InputError("give --task NAME with --data DIR, or tables of your own with --train and --dev")
    return found


def _taken(argv: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of `flag VALUE` or `flag=VALUE`, and the other arguments."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1], [*argv[:i], *argv[i + 2 :]]
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :], [*argv[:i], *argv[i + 1 :]]
    return None, argv
