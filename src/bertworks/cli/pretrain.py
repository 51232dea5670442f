"""`bertworks pretrain`: pre-train an encoder on a corpus store."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..pretraining.recipe import PretrainConfig
from ..reporting.log import duration, mebibytes
from .arguments import Flat, parse_recipe
from .doctor import print_findings
from .ending import run_to_its_end

if TYPE_CHECKING:
    from ..doctor.findings import Report


@dataclass(frozen=True)
class Arguments:
    """Pre-train an encoder on a corpus store. Rerun the command to resume.

    Example:
        bertworks pretrain cpu --corpus store --out runs/cpu
        bertworks pretrain cpu --corpus store --out runs/cpu --optim.lr 1e-4

    Every field of a recipe is a flag. The defaults are those of the given recipe.
    """

    corpus: Path  # corpus store made by `bertworks corpus build`
    out: Path  # run folder to write; an unfinished run in it is resumed
    config: Flat[PretrainConfig]
    recipe: str | None = None  # name from `bertworks recipes`, or a .toml file; may come first, without the flag
    init: Path | None = None  # model folder or run folder whose weights the run starts from; none: random weights
    estimate: bool = False  # print the expected time and memory of the run, and train nothing


def pretrain(argv: list[str]) -> None:
    """Pre-train, or print the estimate; draw the curves of a finished run."""
    arguments = parse_recipe(Arguments, PretrainConfig, argv, "pretrain")
    if arguments.estimate:
        from ..pretraining.estimate import estimate

        found = estimate(arguments.config, arguments.corpus, init=arguments.init)
        print_estimate(found)
        return
    from ..pretraining.run import pretrain as run_pretraining

    run_to_its_end(lambda: run_pretraining(arguments.config, arguments.corpus, arguments.out, arguments.init))
    draw_curves(arguments.out)
    print_findings(lambda: _examined(arguments))


def _examined(arguments: Arguments) -> "Report":
    """What doctor finds in the finished run."""
    from ..doctor.examine import of_pretraining

    return of_pretraining(arguments.out, arguments.corpus)


def print_estimate(found: dict[str, float]) -> None:
    """Print what `estimate` found, in the units of a run's log."""
    rows = {}
    for name, value in found.items():
        if name.endswith("hours"):
            rows[name.removesuffix("hours") + "time"] = duration(value * 3600)
        else:
            rows[name] = mebibytes(value) if name == "memory" else f"{value:,.0f}"
    for name, text in rows.items():
        print(f"{name:{max(map(len, rows))}}  {text}")


def draw_curves(run: Path) -> None:
    """Draw the curves of a finished run into its folder; a figure that fails costs a message, never the run."""
    if os.environ.get("RANK", "0") != "0":  # one process of a torchrun draws
        return
    try:
        from ..reporting.figures import plot_runs

        files = plot_runs([run], run / "curves")
        print(f"curves: {', '.join(map(str, files))}", file=sys.stderr)
    except Exception as error:
        print(f"no curves were drawn ({type(error).__name__}: {error}); the run is complete", file=sys.stderr)
