"""`bertworks distill`: a smaller student learns from a pre-trained teacher."""

from typing import Annotated

from .arguments import parse_recipe
from .ending import run_to_its_end
from .pretrain import draw_curves


def distill(argv: list[str]) -> None:
    """Teach a smaller student what a pre-trained teacher knows: --teacher FOLDER --corpus STORE --out RUN. Resumes."""
    from dataclasses import dataclass
    from pathlib import Path

    import tyro

    from ..pretraining.distill import DistillConfig
    from ..pretraining.distill import distill as run

    @dataclass(frozen=True)
    class Command:
        """Distil a pre-trained model. Usage: bertworks distill RECIPE --teacher FOLDER --corpus STORE --out RUN

        RECIPE: a name that `bertworks recipes` lists, or a .toml file of your own.
        """

        teacher: Path  # model folder or run folder with a masked-LM head
        corpus: Path  # store made with the teacher's tokenizer
        out: Path  # run folder; resumed if it is there
        recipe: Annotated[DistillConfig, tyro.conf.arg(name="")]  # what the recipe says, field by field

    command = parse_recipe(Command, DistillConfig, argv, "distill")
    run_to_its_end(lambda: run(command.recipe, command.teacher, command.corpus, command.out))
    draw_curves(command.out)
