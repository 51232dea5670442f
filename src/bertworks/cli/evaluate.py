"""`bertworks evaluate`: the metrics of a fine-tuned model."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..files import InputError
from ..reporting.outputs import check_output
from .arguments import DevRows, Flat, Positional, flags_in, is_flag, parse, refuse_beside, refuse_with_flag


@dataclass(frozen=True)
class Arguments:
    """Evaluate a model on development rows or on text, and print its metrics as JSON.

    Example:
        bertworks evaluate runs/mrpc --task mrpc --data glue/MRPC
        bertworks evaluate runs/topics dev.csv
        bertworks evaluate runs/topics --dev dev.csv --text question --label topic
        bertworks evaluate runs/base --perplexity notes.txt

    Tables have the columns of the table that the model was fine-tuned on.

    Labels are matched by name, not by number. The reliability table goes to stderr.

    --perplexity measures how well a language model predicts a text.
    """

    model: Positional[Path]  # run folder, or model folder with a task head (or: --model MODEL)
    rows: Flat[DevRows] = field(default_factory=DevRows)
    perplexity: str = ""  # instead of rows: file, folder or glob of text; blank lines separate documents
    out: Path | None = None  # JSON file to write the metrics to, besides printing them
    # choose the probability above which each label is there, by its F1 on these rows, and save them in the model
    # folder; for models of several labels (multilabel)
    save_thresholds: bool = False
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """number type of weights and products; auto: bfloat16 where the processor multiplies it faster than float32"""


def evaluate(argv: list[str]) -> None:
    """Print the metrics, and write them if asked to."""
    argv = _named(argv)
    arguments = parse(Arguments, argv, "evaluate", "--model")
    from ..inference.engines import Computing
    from ..inference.evaluation import evaluate as evaluate_model
    from ..inference.evaluation import known_labels, remembered, save_thresholds
    from ..inference.text_perplexity import perplexity

    computing = Computing(arguments.precision)
    given, rows = flags_in(argv), arguments.rows
    check_output(arguments.out, [arguments.perplexity], [arguments.model])
    if arguments.perplexity:
        rows_flags = {"--task", "--data", "--dev", "--kind", "--text", "--label", "--choices", "--sheet"}
        idle = given & {*rows_flags, "--save-thresholds"}
        refuse_beside("--perplexity", dict.fromkeys(sorted(idle), True))
        return _show(perplexity(arguments.model, [arguments.perplexity], None, computing, rows.encoding), arguments.out)
    if "--text" in given and not rows.task and rows.dev is None:
        raise InputError(
            "--text names a column of a table; give the table with --dev, or for the perplexity of a language model "
            "--perplexity FILE in place of --text"
        )
    rows = remembered(rows, arguments.model, {flag.removeprefix("--") for flag in given})
    check_output(arguments.out, rows.find()[1])
    if arguments.save_thresholds:
        chosen_on = Path(rows.find()[1][-1]).name
        results = save_thresholds(arguments.model, *rows.read(known_labels(arguments.model)), chosen_on)
        _show(results, arguments.out)
        print(results["note"], file=sys.stderr)
        return
    task, read = rows.read(known_labels(arguments.model))
    results = evaluate_model(arguments.model, task, read, computing=computing)
    _show(results, arguments.out)
    for line in results.get("findings", ()):
        print(line, file=sys.stderr)


def _named(argv: list[str]) -> list[str]:
    """The words with --dev (--data if it is a folder) before the rows, where these come right after the model."""
    if len(argv) < 2 or is_flag(argv[0]) or is_flag(argv[1]):
        return argv
    model, rows, *rest = argv
    refuse_with_flag(rows, rest, ("--dev", "--data"))
    return [model, "--data" if Path(rows).is_dir() else "--dev", rows, *rest]


def _show(results: dict[str, Any], out: Path | None) -> None:
    """Print the results as JSON, the reliability as a table on stderr, and write all of them to a file."""
    from ..files import to_json, write_json

    if "reliability" in results:
        from ..tasks.calibration import reliability_table

        print(reliability_table(results["reliability"]).text(), file=sys.stderr)
    print(to_json({key: value for key, value in results.items() if key != "reliability"}, indent=1))
    if results.get("collapsed"):
        from ..reporting.results import COLLAPSED

        print(COLLAPSED, file=sys.stderr)
    if out is not None:
        write_json(out, results)
