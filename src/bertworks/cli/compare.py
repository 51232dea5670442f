"""`bertworks compare`: the difference between two fine-tuned models."""

from dataclasses import dataclass
from pathlib import Path

from .arguments import Positional, parse


@dataclass(frozen=True)
class Arguments:
    """Compare two fine-tuned models on the same development examples.

    Print each metric of the second run minus the first, with a confidence interval.

    Example:
        bertworks compare runs/one runs/other
    """

    first: Positional[Path]  # run folder of `bertworks finetune`, with one seed or several
    second: Positional[Path]  # run folder with the same task and development examples
    samples: int = 10_000  # number of bootstrap samples for the confidence interval
    seed: int = 1  # seed of the bootstrap samples
    out: Path | None = None  # JSON file to which all results are also written


def compare(argv: list[str]) -> None:
    """Print the differences as a table, and write them with --out."""
    arguments = parse(Arguments, argv, "compare")
    from ..experiments.compare import compare as compare_runs
    from ..files import write_json
    from ..reporting.outputs import check_output

    check_output(arguments.out, folders=[arguments.first, arguments.second])
    comparison = compare_runs(arguments.first, arguments.second, arguments.samples, arguments.seed)
    if arguments.out is not None:
        write_json(arguments.out, comparison.details)
    comparison.table().show()
