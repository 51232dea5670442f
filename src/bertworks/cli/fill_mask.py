"""`bertworks fill-mask`: the likeliest words at [MASK]."""

import sys

from .arguments import model_first


def fill_mask(argv: list[str]) -> None:
    """Guess the words at [MASK]: FOLDER "text with [MASK]" [--top-k 5]."""
    from pathlib import Path

    import tyro

    from ..inference.predictor import Predictor

    def run(folder: tyro.conf.Positional[Path], text: tyro.conf.Positional[str], top_k: int = 5) -> None:
        """The likeliest pieces for each [MASK], with their probabilities.

        Args:
            folder: model folder or run folder with a masked-LM head (or --model FOLDER)
            text: text with one or more [MASK]
            top_k: candidates for each mask
        """
        predictor = Predictor(folder)
        if predictor.note:
            print(predictor.note, file=sys.stderr)
        for number, candidates in enumerate(predictor.fill_mask(text, top_k), 1):
            print(f"mask {number}")
            for candidate in candidates:
                print(f"{candidate['score']:8.4f}  {candidate['token']:16}  {candidate['text']}")

    tyro.cli(run, prog="bertworks fill-mask", args=model_first(argv))
