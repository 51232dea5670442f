"""Is the second run better than the first? Both are evaluated on the same development examples, one by one.

The difference of a metric has a 95 % interval from the paired bootstrap (Efron and Tibshirani, 1993): examples are
resampled with replacement, the same ones for both runs. The interval covers other development examples, not other
seeds: give folders of several seeds for these, which are paired by seed. McNemar's exact test is over the examples that
only one of the two runs predicts correctly.

Shapes: n examples, R resamples, P pairs of runs, S numbers per example (statistics.py).
"""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from ..files import InputError
from ..reporting.results import COLLAPSED, Printed, RunResults
from ..reporting.run_files import METRICS, PREDICTIONS, RESULTS, read_json_lines, read_results, seed_folders
from ..reporting.tables import ResultTable, points
from ..tasks.tags import chunks
from . import statistics as resampling
from .statistics import LEVEL, Floats

PLACE, TRUTH = ("id", "line"), ("label", "gold", "answers")  # fields of a row: its place in the file, its true answer
SAME_ROWS = "fine-tune both with the same dev, or with the same train, dev_share, group and split_seed"
SYSTEMS = ("first", "second")
RunLike = Path | str | RunResults


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """The second run minus the first."""

    details: dict[str, Any]  # all results, as `bertworks compare --out` writes them

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """For each metric first, second, difference and its 95 % interval, as fractions."""
        return dict(self.details["metrics"])

    def table(self) -> ResultTable:
        return _table(self.details)


def compare(first: RunLike, second: RunLike, samples: int = 10_000, seed: int = 1) -> Comparison:
    """Compare two finished runs of fine-tuning on the same development rows, example by example.

        bertworks.compare("runs/one", "runs/other").metrics["accuracy"]["interval"]

    first, second: run folders with one seed or several, or what `bertworks.finetune` returned. samples: bootstrap
    samples of the intervals. `details` has `collapsed` if a run predicts the same for every row ("second, seed 3").
    Raises InputError if one is not finished, or they differ in task, kind of folder or development rows.
    """
    folders = [Path(run.folder if isinstance(run, RunResults) else run) for run in (first, second)]
    if samples < 100 or seed < 0:
        raise InputError(f"{samples} samples, seed = {seed}; expected 100 samples or more, and a seed of 0 or more")
    pairs, left_out = _pairs(*folders)
    runs = [run for pair in pairs.values() for run in pair]
    start, form = runs[0], form_of(runs[0])
    for run in runs:
        _check_same_rows(start, run)
    names = [name for name in form.measures if all(name in run.results["metrics"] for run in runs)]
    if not names:
        raise InputError(f"{folders[0]}: metrics {', '.join(start.results['metrics'])}; none that can be compared")
    values = [np.concatenate([_numbers(run, start, form) for run in pair], 1) for pair in pairs.values()]
    measures = {name: form.measures[name] for name in names}
    collapsed = [
        system if number is None else f"{system}, seed {number}"
        for number, pair in pairs.items()
        for system, run in zip(SYSTEMS, pair, strict=True)
        if run.results.get("collapsed") is True
    ]
    details = {
        "kind": "comparison",
        "task": start.results["task"],
        "runs": list(map(str, folders)),
        "seeds": [number for number in pairs if number is not None],
        "left_out": left_out,  # seeds that only one of the two has
        "examples": len(start.rows),
        "samples": samples,
        "seed": seed,
        "metrics": _differences([*pairs.values()], np.concatenate(values, 1), measures, (samples, seed)),
        "mcnemar": [_mcnemar(rows, form.correct) for rows in values] if form.correct else [],
    }
    return Comparison(details | ({"collapsed": collapsed} if collapsed else {}))


# ---- runs


class FinishedRun(NamedTuple):
    """Its results, and what it predicted for each development row."""

    folder: Path
    results: dict[str, Any]
    rows: list[dict[str, Any]]


def _pairs(first: Path, second: Path) -> tuple[dict[Any, tuple[FinishedRun, FinishedRun]], list[Any]]:
    """The runs by the seeds that both folders have, and the other seeds; a single run is under None."""
    one, other = (_read_runs(folder) for folder in (first, second))
    if (None in one) != (None in other):
        raise InputError(f"{first} and {second}: a single run and a folder of seeds; give two of a kind")
    pairs = {seed: (run, other[seed]) for seed, run in one.items() if seed in other}
    if not pairs:
        seeds = " and ".join(", ".join(map(str, runs)) for runs in (one, other))
        raise InputError(f"no seed in common ({seeds}); give runs with the same seeds, or two single runs")
    return pairs, sorted({*one, *other} - {*pairs})


def _read_runs(folder: Path) -> dict[Any, FinishedRun]:
    """The run in `folder`, under None, or those of its seeds. Raises InputError if one is missing or unfinished."""
    return {seed: _read_run(run) for seed, run in seed_folders(folder).items()} or {None: _read_run(folder)}


def _read_run(folder: Path) -> FinishedRun:
    path, expected = folder / RESULTS, "give a finished run of `bertworks finetune`"
    if not path.exists():
        raise InputError(f"{folder} is not finished (no {RESULTS}); {expected}, or rerun its command to finish it")
    schema = {"kind": Literal["finetune"], "task": str, "metrics": METRICS, "predicted": {str: int}}
    results, rows = read_results(path, schema, expected), read_json_lines(folder / PREDICTIONS, {})
    if not rows:
        raise InputError(f"{folder / PREDICTIONS}: no rows in it; restore it, or fine-tune again in a new folder")
    return FinishedRun(folder, results, rows)


def _check_same_rows(first: FinishedRun, run: FinishedRun) -> None:
    """Raises InputError if the runs differ in task or rows.

    Rows are the same if their ids or lines and their labels are. If the texts are equal by their hash, the labels
    decide: the lines of a row differ between a .csv, a .jsonl and rows in memory. Runs of older versions have no hash
    of their texts.
    """
    if run.results["task"] != first.results["task"]:
        tasks = f"{first.folder} is of the task {first.results['task']}, {run.folder} of {run.results['task']}"
        raise InputError(f"{tasks}; expected one task")
    texts = [one.results.get("dev_texts") for one in (first, run)]
    names = TRUTH if texts[0] is not None and texts[0] == texts[1] else (*PLACE, *TRUTH)
    for number, rows in enumerate(itertools.zip_longest(first.rows, run.rows), 1):
        expected, row = (row and {name: row[name] for name in names if name in row} for row in rows)
        if expected != row:
            raise InputError(
                f"{run.folder / PREDICTIONS}, line {number}: {row or 'missing'}; {first.folder / PREDICTIONS} has "
                f"{expected or 'no such line'}. Only runs on the same development rows can be compared: {SAME_ROWS}"
            )


# ---- predictions as numbers


class Form(NamedTuple):
    """How the predictions of a kind of task become numbers."""

    numbers: Callable[[FinishedRun, FinishedRun], Any]  # (n, S), of a run; the other one has the label names
    measures: dict[str, resampling.Measure]
    correct: Callable[[Floats], Any] | None = None  # which examples are predicted correctly, for McNemar


def form_of(run: FinishedRun) -> Form:
    """By the fields of the first row, and by the metrics. Raises InputError if it is unknown."""
    row, metrics = run.rows[0], run.results["metrics"]
    if "gold" in row:
        return Form(_tags, resampling.TAGS)
    if "exact" in row:
        return Form(_columns("exact", "f1"), resampling.ANSWERS, lambda rows: rows[:, 0] > 0)
    if "label" not in row:
        raise InputError(f"{run.folder / PREDICTIONS}: {row}; expected rows with label and predicted")
    if "pearson" in metrics or "spearman" in metrics:
        return Form(_columns("label", "predicted"), resampling.VALUES)
    if "micro_f1" in metrics or "exact_match" in metrics:
        half = len(run.results["predicted"])
        return Form(_labels, resampling.LABELS, lambda rows: (rows[:, :half] == rows[:, half:]).all(1))
    return Form(_classes, resampling.CLASSES, lambda rows: rows[:, 0] == rows[:, 1])


def _numbers(run: FinishedRun, first: FinishedRun, form: Form) -> Floats:
    """(n, S) the predictions."""
    try:
        return np.array(form.numbers(run, first), np.float64)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{run.folder / PREDICTIONS}: {type(error).__name__}: {error}; restore the file") from None


def _classes(run: FinishedRun, first: FinishedRun) -> list[tuple[int, int]]:
    """Numbers of the true and the predicted class."""
    numbers = {name: i for i, name in enumerate(first.results["predicted"])}
    return [
        (numbers.setdefault(true, len(numbers)), numbers.setdefault(predicted, len(numbers)))
        for true, predicted in ((str(row["label"]), str(row["predicted"])) for row in run.rows)
    ]


def _columns(*names: str) -> Callable[[FinishedRun, FinishedRun], list[list[float]]]:
    """A function that returns these fields of a run's rows, as they are."""
    return lambda run, first: [[row[name] for name in names] for row in run.rows]


def _labels(run: FinishedRun, first: FinishedRun) -> list[list[bool]]:
    """(n, 2 K) which labels are true, then which are predicted."""
    pairs = [[set(row[key].split("|")) for key in ("label", "predicted")] for row in run.rows]
    return [[name in labels for labels in pair for name in first.results["predicted"]] for pair in pairs]


def _tags(run: FinishedRun, first: FinishedRun) -> list[tuple[int, ...]]:
    """(n, 5) numbers of correct, predicted and true entities; of correct units, and of all."""
    numbers = list[tuple[int, ...]]()
    for row in run.rows:
        true, predicted = set(chunks(row["gold"])), set(chunks(row["predicted"]))
        correct = sum(a == b for a, b in zip(row["gold"], row["predicted"], strict=True))
        numbers.append((len(true & predicted), len(predicted), len(true), correct, len(row["gold"])))
    return numbers


# ---- statistics


def _differences(
    pairs: Sequence[tuple[FinishedRun, FinishedRun]],
    rows: Floats,
    measures: dict[str, resampling.Measure],
    bootstrap: tuple[int, int],
) -> dict[str, Any]:
    """For each metric the values of both runs, their difference, and its interval; rows: (n, P * 2 * S).

    bootstrap: number of samples, and their seed.
    """
    distinct, batches = resampling.resamples(rows, *bootstrap)
    systems = np.hsplit(distinct, 2 * len(pairs))  # first and second run of each pair in turn
    pairwise = list(zip(systems[::2], systems[1::2], strict=True))
    resampled = [
        [np.mean([measure(counts, b) - measure(counts, a) for a, b in pairwise], 0) for measure in measures.values()]
        for counts in batches
    ]
    differences = {}
    for name, values in zip(measures, np.concatenate(resampled, axis=1), strict=True):  # (metrics, R)
        first, second = ([pair[i].results["metrics"][name] for pair in pairs] for i in (0, 1))
        observed = [b - a for a, b in zip(first, second, strict=True)]
        differences[name] = {
            "first": statistics.fmean(first),
            "second": statistics.fmean(second),
            "difference": statistics.fmean(observed),
            "interval": np.percentile(values, [50 * LEVEL, 100 - 50 * LEVEL]).tolist(),
            "differences": observed,
            "sd": statistics.stdev(observed) if len(pairs) > 1 else None,
        }
    return differences


def _mcnemar(rows: Floats, correct: Callable[[Floats], Any]) -> dict[str, Any]:
    """McNemar's exact test: examples that only one run predicts correctly, and the two-sided p."""
    first, second = (correct(predictions) for predictions in np.hsplit(rows, 2))
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    p = stats.binomtest(only_first, only_first + only_second).pvalue if only_first + only_second else 1.0
    return {"only_first": only_first, "only_second": only_second, "p": float(p)}


def _table(results: dict[str, Any]) -> ResultTable:
    """A comparison in percent."""
    seeds = results["seeds"]
    rows = []
    for name, metric in results["metrics"].items():
        low, high = (f"{100 * end:+.2f}" for end in metric["interval"])
        sd = (points(metric["sd"]),) if seeds else ()
        difference = f"{100 * metric['difference']:+.2f}"
        rows.append((name, points(metric["first"]), points(metric["second"]), difference, f"{low} to {high}", *sd))
    header = ("metric", *SYSTEMS, "difference", "95 % interval", *(("sd over seeds",) if seeds else ()))
    notes = [f"{system}: {run}" for system, run in zip(SYSTEMS, results["runs"], strict=True)]
    notes += [f"seeds: {', '.join(map(str, seeds))}"] if seeds else []
    if results["left_out"]:
        notes.append(f"seeds that only one of the two has, left out: {', '.join(map(str, results['left_out']))}")
    notes += [f"warning: {run}: {COLLAPSED}" for run in results.get("collapsed", [])]
    for number, test in enumerate(results["mcnemar"]):
        seed = f"seed {seeds[number]}: " if seeds else ""
        notes.append(
            f"{seed}{test['only_first']:,} right by the first alone, {test['only_second']:,} by the second alone; "
            f"McNemar's exact p = {test['p']:.3g}"
        )
    return ResultTable(f"{results['task']}: {results['examples']:,} rows of dev", header, rows, tuple(notes))
