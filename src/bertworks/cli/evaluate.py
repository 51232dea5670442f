"""`bertworks evaluate`: the metrics of a fine-tuned model."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..reporting.outputs import check_output
from .arguments import DevRows, Flat, Positional, flags_in, names_in, parse, refuse_beside


@dataclass(frozen=True)
class Arguments:
    """Evaluate a model on labelled examples or on text, and print its metrics as JSON.

    Example:
        bertworks evaluate runs/mrpc --task mrpc --data glue/MRPC
        bertworks evaluate runs/topics --dev dev.csv
        bertworks evaluate runs/topics --dev dev.csv --text question --label topic
        bertworks evaluate runs/base --perplexity notes.txt
        bertworks evaluate runs/base --task blimp --data blimp/data

    The columns of a table default to those used in fine-tuning.

    Labels are matched by name, not by number.

    --perplexity measures how well a language model predicts a text. --task blimp measures how often it prefers the
    acceptable sentence of a minimal pair.
    """

    model: Positional[Path]  # run folder, or model folder with a task head (or: --model MODEL)
    rows: Flat[DevRows] = field(default_factory=DevRows)
    perplexity: str = ""  # instead of labelled examples: file, folder or glob of text; blank lines separate documents
    out: Path | None = None  # JSON file to which the metrics are also written
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """number type of weights and products; auto: bfloat16 where the processor multiplies it faster than float32"""


def evaluate(argv: list[str]) -> None:
    """Print the metrics, and write them with --out."""
    arguments = parse(Arguments, argv, "evaluate")
    from ..inference.evaluation import measure
    from ..inference.text_perplexity import perplexity

    rows, model, precision = arguments.rows, arguments.model, arguments.precision
    check_output(arguments.out, [arguments.perplexity], [model])
    if arguments.perplexity:
        idle = flags_in(argv) & {"--task", "--kind", "--text", "--label", "--choices", "--sheet"}
        refuse_beside("--perplexity", {**dict.fromkeys(sorted(idle), True), "--data": rows.data, "--dev": rows.dev})
        return _show(perplexity(model, arguments.perplexity, None, precision, rows.encoding), arguments.out)
    results = measure(model, rows, names_in(argv), precision, arguments.out)
    _show(results, arguments.out)
    for line in results.get("findings", ()):
        print(line, file=sys.stderr)


def _show(results: dict[str, Any], out: Path | None) -> None:
    """Print the results as JSON, and write them with the reliability table to a file."""
    from ..files import to_json, write_json

    print(to_json({key: value for key, value in results.items() if key != "reliability"}, indent=1))
    if results.get("collapsed"):
        from ..reporting.results import COLLAPSED

        print(COLLAPSED, file=sys.stderr)
    if out is not None:
        write_json(out, results)
