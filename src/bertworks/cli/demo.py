"""`bertworks demo`: a small BERT from this machine's own text, and what pre-training did for it."""

from dataclasses import dataclass
from pathlib import Path

from ..apps.demo.config import DemoConfig, default_config
from .arguments import Flat, parse
from .exit_status import INTERRUPTED, run_to_its_end


@dataclass(frozen=True)
class Arguments:
    """Pre-train a small BERT on the documentation of this Python, and measure it.

    Two tables show the effect of pre-training: tagging words, classifying texts.

    Nothing is downloaded. Rerun the command to resume.

    Example:
        bertworks demo --out runs/demo

    Most used (-H explains all flags):
        --out             folder of the demo
        --tokens          tokens of pre-training
        --minutes         limit of this call; a rerun continues
        --tags.seeds      seeds of the task of tags; also --packages.seeds
        --tags.train      its labelled examples; also --packages.train
    """

    config: Flat[DemoConfig]
    out: Path = Path("runs/demo")  # run folder to write; an unfinished demo in it is resumed


def demo(argv: list[str]) -> None:
    """Run the demo."""
    arguments = parse(Arguments, argv, "demo", start=Arguments(default_config()))
    from ..apps.demo.run import demo as run_demo

    run_to_its_end(lambda: run_demo(arguments.config, arguments.out), INTERRUPTED)
