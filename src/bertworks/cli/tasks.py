"""`bertworks tasks`: the tasks that fine-tuning knows."""

from dataclasses import dataclass

from .arguments import parse


@dataclass(frozen=True)
class Arguments:
    """List the tasks that fine-tuning knows, with metrics, files and own defaults.

    The first metric selects the best run.

    Files after the bar are also evaluated if they exist.
    """


def tasks(argv: list[str]) -> None:
    """Print the table of tasks."""
    parse(Arguments, argv, "tasks")
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ..tasks.catalogue import TASKS

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("task", "kind", "metrics", "files, and defaults that differ"):
        table.add_column(heading, no_wrap=heading in ("task", "kind"), overflow="fold")
    for task in TASKS.values():
        names = (file.partition("#")[0] for file in (task.train, task.dev) if file)
        files = " ".join(dict.fromkeys(names)) or f"no training file; {task.test}"
        more = " ".join(task.more.values())
        lines = [f"{files} | {more}" if more else files]
        if task.defaults:
            lines.append(" ".join(f"{name}={value:g}" for name, value in task.defaults.items()))
        table.add_row(task.name, task.kind, "\n".join(task.metrics), "\n".join(lines))
    Console(markup=False, highlight=False).print(table)
