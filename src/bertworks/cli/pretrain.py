"""`bertworks pretrain`: pre-train an encoder on a corpus store."""

import os
import sys
from typing import Annotated, Any

from .arguments import parse_recipe
from .ending import run_to_its_end


def pretrain(argv: list[str]) -> None:
    """Pre-train on a store: masked LM and next sentence. Typing the same line again resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..pretraining.estimate import estimate as estimate_run
    from ..pretraining.run import PretrainConfig
    from ..pretraining.run import pretrain as run

    @dataclass(frozen=True)
    class Command:
        """Pre-train on a store. Usage: bertworks pretrain RECIPE --corpus STORE --out RUN [--optim.lr 1e-4 ...]

        RECIPE: a name that `bertworks recipes` lists, or a .toml file of your own.
        """

        corpus: Path  # store made by `bertworks corpus build`
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[PretrainConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field
        init: Path | None = None  # model folder to continue from
        estimate: bool = False  # only say how long it will take and how much memory it needs

    command = parse_recipe(Command, PretrainConfig, argv, "pretrain")
    if command.estimate:
        found = estimate_run(command.recipe, command.corpus, init=command.init)
        for name, value in found.items():
            print(f"{name:{max(map(len, found))}} {value:,.2f}")
        return
    run_to_its_end(lambda: run(command.recipe, command.corpus, command.out, command.init))
    draw_curves(command.out)


def draw_curves(run: Any) -> None:
    """Draw the curves of a finished run into its folder; a figure that fails costs a message, never the run."""
    if os.environ.get("RANK", "0") != "0":  # one process of a torchrun draws
        return
    try:
        from ..reporting.figures import plot_runs

        files = plot_runs([run], run / "curves")
        print(f"curves: {', '.join(map(str, files))}", file=sys.stderr)
    except Exception as error:
        print(f"no curves were drawn ({type(error).__name__}: {error}); the run is complete", file=sys.stderr)
