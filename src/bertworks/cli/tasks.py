"""`bertworks tasks`: the tasks that fine-tuning knows."""


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
