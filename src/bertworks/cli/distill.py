"""`bertworks distill`: distil a pre-trained encoder into a smaller one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..pretraining.distill_recipe import DistillConfig
from ..reporting.progress import is_first_process
from .arguments import Flat, Positional, parse_recipe
from .exit_status import run_to_its_end
from .pretrain import draw_curves


@dataclass(frozen=True)
class Arguments:
    """Distil a pre-trained encoder into a smaller one. Rerun the command to resume.

    Example:
        bertworks distill cpu --teacher runs/base --corpus store --out runs/small

    RECIPE is a name from `bertworks recipes` or a .toml file. Every field of it
    is a flag, whose default is the recipe's value.

    Most used (-H explains all flags):
        --teacher                model to distil, with a masked-LM head
        --corpus                 corpus store built with the teacher's tokenizer
        --out                    folder to write the student, log and results to
        --layers                 teacher's layers that the student is made of
        --loop.hours             budget, instead of the recipe's; or --loop.steps, .tokens
        --optim.lr               peak learning rate
        --phases.0.batch-size    sequences per update; .length: tokens of each
    """

    teacher: Path  # model folder or run folder of the teacher, with a masked-LM head
    corpus: Path  # corpus store built with the teacher's tokenizer
    out: Path  # run folder to write; an unfinished run in it is resumed
    config: Flat[DistillConfig]
    recipe: Positional[str | None] = None  # name from `bertworks recipes`, or a .toml file (or: --recipe RECIPE)
    # also log to this tracker, into the run folder (needs the extra `tensorboard`)
    log: Literal["tensorboard"] | None = None


def distill(argv: list[str]) -> None:
    """Distil, and draw the curves of a finished run."""
    arguments = parse_recipe(Arguments, DistillConfig, argv, "distill")
    from ..pretraining.distill import distill as run_distillation
    from ..reporting.tracking import followed

    with followed(arguments.out, arguments.log if is_first_process() else None):
        run_to_its_end(lambda: run_distillation(arguments.config, arguments.teacher, arguments.corpus, arguments.out))
    draw_curves(arguments.out)
