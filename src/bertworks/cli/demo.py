"""`bertworks demo`: a small BERT from this machine's own text, measured."""

from typing import Annotated

from .ending import INTERRUPTED, run_to_its_end


def demo(argv: list[str]) -> None:
    """The whole road in minutes on this machine's own text, no download: [--minutes 5] [--out runs/demo]."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..demo.run import DemoConfig, default_config
    from ..demo.run import demo as run

    @dataclass(frozen=True)
    class Command:
        """Pre-train a small BERT on the documentation strings of this Python, and show what that bought."""

        recipe: Annotated[DemoConfig, tyro.conf.arg(name="")]  # demo.toml, field by field
        out: Path = Path("runs/demo")  # run folder; the same line goes on where it stopped

    command = tyro.cli(Command, args=argv, default=Command(default_config()), prog="bertworks demo")
    run_to_its_end(lambda: run(command.recipe, command.out), INTERRUPTED)
