"""`bertworks evaluate`: the metrics of a fine-tuned model."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .arguments import DevRows, Flat, Positional, parse


@dataclass(frozen=True)
class Arguments:
    """Evaluate a fine-tuned model on development rows, and print its metrics as JSON.

    Example:
        bertworks evaluate runs/mrpc --task mrpc --data glue/MRPC
        bertworks evaluate runs/topics --dev dev.csv --text question --label topic

    Labels are matched by name, not by number.
    """

    model: Positional[Path]  # run folder, or model folder with a task head (or: --model MODEL)
    rows: Flat[DevRows] = field(default_factory=DevRows)
    out: Path | None = None  # JSON file to write the metrics to, besides printing them
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """number type of weights and products; auto: bfloat16 where the processor multiplies it faster than float32"""


def evaluate(argv: list[str]) -> None:
    """Print the metrics, and write them if asked to."""
    arguments = parse(Arguments, argv, "evaluate", "--model")
    from ..files import to_json, write_json
    from ..inference.engines import Computing
    from ..inference.evaluation import evaluate as evaluate_model

    computing = Computing(arguments.precision)
    results = evaluate_model(arguments.model, *arguments.rows.read(), computing=computing)
    print(to_json(results, indent=1))
    if arguments.out is not None:
        write_json(arguments.out, results)
