"""`bertworks demo`: what the bundled encoder is good for, and a small BERT pre-trained on this machine's text."""

from dataclasses import dataclass
from pathlib import Path

from ..apps.demo.config import DemoConfig
from .arguments import parse
from .exit_status import INTERRUPTED, run_to_its_end


@dataclass(frozen=True)
class Arguments:
    """Try an encoder on text of this machine, and pre-train a small BERT on it.

    The text and the labels are those of docstrings in installed packages.
    Nothing is downloaded, unless --model is a name on the Hugging Face Hub. Rerun
    the command to resume.

    Example:
        bertworks demo
    """

    out: Path = Path("runs/demo")  # folder to write; an unfinished demo in it is resumed
    model: str = DemoConfig.model  # encoder to fine-tune: a model name, model folder or run folder
    # approximate duration of the demo in minutes; pre-training uses the time that fine-tuning leaves
    minutes: float = DemoConfig.minutes


def demo(argv: list[str]) -> None:
    """Run the demo."""
    arguments = parse(Arguments, argv, "demo")
    from ..apps.demo.run import demo as run_demo

    run_to_its_end(lambda: run_demo(DemoConfig(arguments.model, arguments.minutes), arguments.out), INTERRUPTED)
