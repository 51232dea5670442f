"""`bertworks concat`: join two encoders of opposite directions."""

from dataclasses import dataclass
from pathlib import Path

from .arguments import Positional, parse


@dataclass(frozen=True)
class Arguments:
    """Join a left-to-right and a right-to-left encoder into one model, as ELMo does.

    A token's vector is the vectors of both encoders, concatenated.

    Example:
        bertworks concat runs/ltr runs/rtl --out runs/pair
    """

    left: Positional[Path]  # model folder or run folder of the left-to-right encoder (objective "ltr")
    right: Positional[Path]  # that of the right-to-left encoder ("rtl"), with the same sizes and vocabulary
    out: Path  # model folder to write


def concat(argv: list[str]) -> None:
    """Write the model folder with both encoders."""
    arguments = parse(Arguments, argv, "concat")
    from ..checkpoint.start import concatenate

    concatenate(arguments.left, arguments.right, arguments.out)
    print(f"{arguments.out}: two encoders as one model. Next: bertworks finetune --model {arguments.out} ...")
