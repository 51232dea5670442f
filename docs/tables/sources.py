"""Where the figures of docs/results.md and of the pages below docs/results/ come from, and how they are written."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertworks.experiments.tables import load_results
from bertworks.files import read_json
from bertworks.reporting.tables import cell_text

DOCS = Path(__file__).parents[1]
RESULTS = DOCS / "results"
BENCHMARKS = DOCS.parent / "benchmarks" / "results"

Lines = list[str]
Values = dict[str, float]  # of each seed


@functools.cache
def result(path: str) -> Any:
    """A JSON file of docs/results, without its ending; of benchmarks/results if the path begins with benchmarks."""
    name = path.removeprefix("benchmarks/")
    return read_json((RESULTS if name == path else BENCHMARKS) / f"{name}.json")


@functools.cache
def study(name: str) -> dict[str, Any]:
    """The results of a study, in docs/results/studies; of a bundled encoder's in its own folder."""
    own = RESULTS / "encoders" / name / "study"
    return load_results(own if own.exists() else RESULTS / "studies" / name)


def values_in(name: str, row: str, column: str) -> Values:
    """The values of one row and column of a study."""
    return next(e["values"] for e in study(name)["measured"] if (e["row"], e["column"]) == (row, column))


def seeds_of(run: str, metric: str) -> Values:
    """A metric of each seed of a fine-tuning run in docs/results."""
    found = result(f"{run}/results")
    return {str(seed): one[metric] for seed, one in zip(found["seeds"], found["runs"], strict=True)}


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> Lines:
    """A Markdown table, whose first columns hold words and the others numbers."""
    rule = ["---" if number < words else "---:" for number in range(len(header))]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *(map(cell_text, row) for row in rows))]


def processor(machine: dict[str, Any]) -> str:
    """The processor of a results file and the number of its threads. Version 0.1 did not record the instruction set."""
    name = {"AMD EPYC": "EPYC", "Intel(R) Xeon(R) Processor": "Xeon"}.get(machine["cpu"], machine["cpu"])
    kind = f", {machine['kind']}" if machine.get("kind") else ""
    return f"{name}{kind}, {machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"


def percent(value: float, sign: str = "") -> str:
    """A fraction in hundredths, with one digit."""
    return f"{100 * value:{sign}.1f}"


def spread(mean: float, sd: float | None) -> str:
    """Mean and standard deviation in hundredths."""
    return percent(mean) if sd is None else f"{percent(mean)} ± {percent(sd)}"
