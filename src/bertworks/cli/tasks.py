"""Verbs about what has a name: tasks, recipes, and GLUE's leaderboard. Imports stay inside the verbs."""

import sys

from ..files import InputError


def tasks(argv: list[str]) -> None:
    """The tasks that `bertworks finetune --task NAME` knows: kind, files, metrics, own defaults."""
    import tyro

    def run() -> None:
        """List every task: its kind, the files it expects in --data, its metrics, its own defaults.

        The first metric is the one to choose by. Files after the bar are judged too if they are there.
        """
        from rich import box
        from rich.console import Console
        from rich.table import Table

        from ..tasks.catalogue import TASKS

        table = Table(box=box.SIMPLE_HEAD)
        for heading in ("task", "kind", "metrics", "files, and defaults that differ"):
            table.add_column(heading, no_wrap=heading in ("task", "kind"), overflow="fold")
        for task in TASKS.values():
            names = (file.partition("#")[0] for file in (task.train, task.dev) if file)
            files = " ".join(dict.fromkeys(names)) or f"none to train on; {task.test}"
            more = " ".join(task.more.values())
            lines = [f"{files} | {more}" if more else files]
            if task.defaults:
                lines.append(" ".join(f"{name}={value:g}" for name, value in task.defaults.items()))
            table.add_row(task.name, task.kind, "\n".join(task.metrics), "\n".join(lines))
        Console(markup=False, highlight=False).print(table)

    tyro.cli(run, prog="bertworks tasks", args=argv)


def recipes(argv: list[str]) -> None:
    """The recipes that come with bertworks: without NAME a list, with NAME that recipe's file."""
    import textwrap

    import tyro

    def run(name: tyro.conf.Positional[str] = "") -> None:
        """List the recipes, or print one. `bertworks pretrain`, `distill` and `study` take the name of one of theirs.

        Args:
            name: KIND/NAME (pretrain/cpu), or NAME alone if only one kind has it
        """
        from ..config import RECIPES, find_recipe, recipe_names

        names = recipe_names()
        if not name:
            for one in names:
                first = (RECIPES / f"{one}.toml").read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
                print(f"{one:34}{textwrap.shorten(first, 84, placeholder=' ...')}")
            print("\nbertworks recipes NAME prints one. Use one: bertworks pretrain cpu --corpus STORE --out RUN")
            return
        alike = [one for one in names if one.partition("/")[2] == name] or [name]
        if len(alike) > 1:
            raise InputError(f"several recipes have the name {name}: {', '.join(alike)}; give the whole name")
        print(find_recipe(alike[0]).read_text(encoding="utf-8"), end="")

    tyro.cli(run, prog="bertworks recipes", args=argv)


def submit(argv: list[str]) -> None:
    """Answer GLUE's test files with finished runs: RUN... --data GLUE --out submission.zip [--fill majority]."""
    from pathlib import Path
    from typing import Literal

    import tyro

    def run(
        runs: tyro.conf.Positional[tuple[Path, ...]],
        data: Path,
        out: Path = Path("submission.zip"),
        fill: Literal["nothing", "majority"] = "nothing",
    ) -> None:
        """Write the zip file that GLUE's leaderboard takes, and say what is missing in it.

        Args:
            runs: run folders of `bertworks finetune --task ...`, one a task; MNLI's answers MNLI-m, MNLI-mm and AX
            data: folder with the tasks' folders: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX
            out: the zip file
            fill: majority answers tests without a run by the most frequent training label, as is usual for WNLI
        """
        from ..experiments.submission import ENTRIES, submit

        results = submit(runs, data, out, fill == "majority")
        cut = sum(facts["cut"] for facts in results["files"].values())
        print(f"{out}: {len(results['files'])} of {len(ENTRIES)} files" + (f"; {cut:,} inputs were cut" if cut else ""))
        for name, why in results["missing"].items():
            print(f"missing {name}: {why}", file=sys.stderr)
        if results["missing"]:
            print("the leaderboard takes complete submissions only", file=sys.stderr)

    tyro.cli(run, prog="bertworks submit", args=argv)
