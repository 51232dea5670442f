"""`bertworks fill-mask`: the most probable tokens at [MASK]."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from .arguments import Positional, parse, required


@dataclass(frozen=True)
class Arguments:
    """Print the most probable tokens for each [MASK] of one text or several.

    Example:
        bertworks fill-mask runs/base "The capital of France is [MASK]."
    """

    model: Positional[Path]  # model folder or run folder with a masked-LM head (or: --model MODEL)
    texts: Annotated[tuple[str, ...], Positional, required("TEXT")]  # texts, each with one or more [MASK]
    top_k: int = 5  # number of tokens to print for each [MASK]


def fill_mask(argv: list[str]) -> None:
    """Print the predictions."""
    arguments = parse(Arguments, argv, "fill-mask", "--model")
    from ..inference.predictor import Predictor

    predictor = Predictor(arguments.model)
    if predictor.note:
        print(predictor.note, file=sys.stderr)
    for text, masks in zip(arguments.texts, predictor.fill_mask(arguments.texts, arguments.top_k), strict=True):
        if len(arguments.texts) > 1:
            print(text)
        for number, candidates in enumerate(masks, 1):
            print(f"mask {number}")
            for candidate in candidates:
                print(f"{candidate['score']:8.4f}  {candidate['token']:16}  {candidate['text']}")
