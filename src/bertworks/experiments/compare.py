"""Is the second run better than the first? Both are evaluated on the same development rows, example by example.

The difference of a metric has a 95 % interval from the paired bootstrap (Efron and Tibshirani, 1993): examples are
resampled with replacement, the same ones for both runs. It says what other development rows might have given, not what
other seeds might: give folders of several seeds for that, which are paired by seed. McNemar's exact test is of the
examples that only one of the two has right.

Shapes: n examples, R resamples, P pairs of runs, S numbers per example (statistics.py).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ..files import InputError, not_found, shorten
from ..reporting.results import COLLAPSED, Printed, RunResults
from ..reporting.run_files import METRICS, PREDICTIONS, RESULTS, read_json_lines, read_results, seed_folders
from ..reporting.tables import ResultTable, points
from ..tasks.tags import chunks
from ..typed import check_fields
from . import statistics as resampling
from .statistics import LEVEL, Floats

PLACE, TRUTH = ("id", "line"), ("label", "gold", "answers")  # fields of a row: where it is, and what is true of it
SAME_ROWS = "fine-tune both with the same dev, or with the same train, dev_share, group and split_seed"
RunLike = Path | str | RunResults


@dataclass(frozen=True, repr=False)
class Comparison(Printed):
    """The second run minus the first."""

    details: dict[str, Any]  # all that `compare_runs` found, as `bertworks compare --out` writes it

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """For each metric first, second, difference and its 95 % interval, as fractions."""
        return dict(self.details["metrics"])

    def table(self) -> ResultTable:
        return table(self.details)


def compare(first: RunLike, second: RunLike, samples: int = 10_000, seed: int = 1) -> Comparison:
    """Compare two finished runs of fine-tuning on the same development rows, example by example.

        bertworks.compare("runs/one", "runs/other").metrics["accuracy"]["interval"]

    first, second: run folders, or what `bertworks.finetune` returned. samples: bootstrap samples of the intervals.
    Raises InputError if one is not finished, or they differ in task or development rows.
    """
    for name, run in (("first", first), ("second", second)):
        if not isinstance(run, (RunResults, str, Path)):
            raise InputError(f"{name} is a {type(run).__name__}; expected a run folder, or what finetune returned")
    one, other = (run.folder if isinstance(run, RunResults) else run for run in (first, second))
    return Comparison(compare_runs(one, other, samples, seed))


def compare_runs(first: Path | str, second: Path | str, samples: int = 10_000, seed: int = 1) -> dict[str, Any]:
    """The second run minus the first, as fractions: `metrics` with `interval` of each, `mcnemar`, and by seed.

    `collapsed`, where it is so: which runs predict the same for every row ("second, seed 3").

    Run folders, or folders with several seeds inside. Raises InputError if one is not finished, or they differ in task,
    kind of folder or development rows.
    """
    if samples < 100 or seed < 0:
        raise InputError(f"{samples} samples, seed = {seed}; expected 100 samples or more, and a seed of 0 or more")
    pairs, left_out = _pairs(first, second)
    runs = [run for pair in pairs.values() for run in pair]
    start, form = runs[0], form_of(runs[0])
    for run in runs:
        _check_same_rows(start, run)
    names = [name for name in form.measures if all(name in run.results["metrics"] for run in runs)]
    if not names:
        raise InputError(f"{first}: metrics {', '.join(start.results['metrics'])}; none that can be compared")
    values = [np.concatenate([_numbers(run, start, form, names) for run in pair], 1) for pair in pairs.values()]
    measures = {name: form.measures[name] for name in names}
    collapsed = [
        side if number is None else f"{side}, seed {number}"
        for number, pair in pairs.items()
        for side, run in zip(("first", "second"), pair, strict=True)
        if run.results.get("collapsed") is True
    ]
    return {
        "kind": "comparison",
        "task": start.results["task"],
        "runs": [str(first), str(second)],
        "seeds": [one for one in pairs if one is not None],
        "left_out": left_out,  # seeds that only one side has
        "examples": len(start.rows),
        "samples": samples,
        "seed": seed,
        "metrics": _differences([*pairs.values()], np.concatenate(values, 1), measures, (samples, seed)),
        "mcnemar": [_mcnemar(rows, form.right) for rows in values] if form.right else [],
        **({"collapsed": collapsed} if collapsed else {}),
    }


# ---- runs


class Outcome(NamedTuple):
    """A finished run: its results, and what it predicted for each development row."""

    folder: Path
    results: dict[str, Any]
    rows: list[dict[str, Any]]


def _pairs(first: Path | str, second: Path | str) -> tuple[dict[Any, tuple[Outcome, Outcome]], list[Any]]:
    """The runs by the seeds that both folders have, and the other seeds; a single run is under None."""
    one, other = (read_runs(Path(folder)) for folder in (first, second))
    if (None in one) != (None in other):
        raise InputError(f"{first} and {second}: a single run and a folder of seeds; give two of a kind")
    found = {seed: (run, other[seed]) for seed, run in one.items() if seed in other}
    if not found:
        seeds = " and ".join(", ".join(map(str, side)) for side in (one, other))
        raise InputError(f"no seed in common ({seeds}); give runs with the same seeds, or two single runs")
    return found, sorted({*one, *other} - {*found})


def read_runs(folder: Path) -> dict[Any, Outcome]:
    """The run in `folder`, under None, or those of its seeds. Raises InputError if one is missing or unfinished."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {not_found(folder, 'folder')}; runs are folders that `bertworks finetune` wrote")
    return {seed: read_run(run) for seed, run in seed_folders(folder).items()} or {None: read_run(folder)}


def read_run(folder: Path) -> Outcome:
    """The run in `folder`. Raises InputError if there is none, or if it is not finished."""
    path, expected = folder / RESULTS, "expected a finished run of `bertworks finetune`"
    if not path.exists():
        raise InputError(f"{folder} is not finished (no {RESULTS}); {expected}; rerun its command to finish it")
    results = read_results(path, {"kind?": str})
    if (kind := results.get("kind")) != "finetune":
        raise InputError(f"{folder}: results of the kind {shorten(kind)}; {expected}")
    check_fields(results, {"task": str, "metrics": METRICS, "predicted": {str: int}}, str(path))
    rows = read_json_lines(folder / PREDICTIONS, {})
    if not rows:
        raise InputError(f"{folder / PREDICTIONS}: no rows in it; restore it, or fine-tune again in a new folder")
    return Outcome(folder, results, rows)


def _check_same_rows(first: Outcome, run: Outcome) -> None:
    """Raises InputError if the runs are not of one task and on the same rows.

    Rows are the same if their ids or lines and their labels are. Where the texts are known to be the same, the labels
    decide: the lines of a row differ between a .csv, a .jsonl and rows in memory. Runs of older versions have no hash
    of their texts.
    """
    if run.results["task"] != first.results["task"]:
        tasks = f"{first.folder} is of the task {first.results['task']}, {run.folder} of {run.results['task']}"
        raise InputError(f"{tasks}; expected one task")
    if len(run.rows) != len(first.rows):
        raise InputError(
            f"{run.folder / PREDICTIONS} has {len(run.rows)} rows, {first.folder / PREDICTIONS} {len(first.rows)}; "
            f"only runs on the same development rows can be compared: {SAME_ROWS}"
        )
    texts = [one.results.get("dev_texts") for one in (first, run)]
    names = TRUTH if texts[0] is not None and texts[0] == texts[1] else (*PLACE, *TRUTH)
    for number, rows in enumerate(zip(first.rows, run.rows, strict=True), 1):
        one, other = ({name: row[name] for name in names if name in row} for row in rows)
        if one != other:
            raise InputError(
                f"{run.folder / PREDICTIONS}, line {number}: {other}; {first.folder / PREDICTIONS} has {one} there. "
                f"Only runs on the same development rows can be compared: {SAME_ROWS}"
            )


# ---- predictions as numbers


class Form(NamedTuple):
    """How the predictions of a kind of task become numbers."""

    numbers: Callable[[Outcome, Outcome], Any]  # (n, S), of a run; the other one has the label names
    measures: dict[str, resampling.Measure]
    right: Callable[[Floats], Any] | None = None  # which examples are right, for McNemar


def form_of(run: Outcome) -> Form:
    """By the look of the first row, and by the metrics. Raises InputError if it is not known."""
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


def _numbers(run: Outcome, first: Outcome, form: Form, names: Sequence[str]) -> Floats:
    """(n, S) the predictions. Raises InputError if they do not give the metrics that the results have."""
    try:
        rows = np.array(form.numbers(run, first), np.float64)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{run.folder / PREDICTIONS}: {type(error).__name__}: {error}; restore the file") from None
    for name in names:
        found = float(form.measures[name](np.ones((1, len(rows))), rows)[0])
        expected = run.results["metrics"][name]
        if not abs(found - expected) <= 1e-5:  # NaN too
            raise InputError(
                f"{run.folder}: {PREDICTIONS} gives {name} {found:.6f}, results.json has {expected:.6f}; one of the "
                "two files has been changed"
            )
    return rows


def _classes(run: Outcome, first: Outcome) -> list[tuple[int, int]]:
    """Numbers of the true and the predicted class."""
    numbers = {name: i for i, name in enumerate(first.results["predicted"])}
    return [
        (numbers.setdefault(true, len(numbers)), numbers.setdefault(predicted, len(numbers)))
        for true, predicted in ((str(row["label"]), str(row["predicted"])) for row in run.rows)
    ]


def _columns(*names: str) -> Callable[[Outcome, Outcome], list[list[float]]]:
    """A function that returns these fields of a run's rows, as they are."""
    return lambda run, first: [[row[name] for name in names] for row in run.rows]


def _labels(run: Outcome, first: Outcome) -> list[list[bool]]:
    """(n, 2 K) which labels are true, then which are predicted."""
    cells = [[set(row[key].split("|")) for key in ("label", "predicted")] for row in run.rows]
    return [[name in cell for cell in pair for name in first.results["predicted"]] for pair in cells]


def _tags(run: Outcome, first: Outcome) -> list[tuple[int, ...]]:
    """(n, 5) entities that are right, found, there; units that are right, all."""
    numbers = list[tuple[int, ...]]()
    for row in run.rows:
        there, found = set(chunks(row["gold"])), set(chunks(row["predicted"]))
        same = sum(a == b for a, b in zip(row["gold"], row["predicted"], strict=True))
        numbers.append((len(there & found), len(found), len(there), same, len(row["gold"])))
    return numbers


# ---- statistics


def _differences(
    pairs: Sequence[tuple[Outcome, Outcome]],
    rows: Floats,
    measures: dict[str, resampling.Measure],
    bootstrap: tuple[int, int],
) -> dict[str, Any]:
    """For each metric the values of both sides, their difference, and its interval; rows: (n, P * 2 * S).

    bootstrap: number of samples, and their seed.
    """
    different, draws = resampling.resamples(rows, *bootstrap)
    sides = np.hsplit(different, 2 * len(pairs))  # first and second run of each pair in turn
    drawn = np.concatenate(
        [
            [
                np.mean([measure(some, b) - measure(some, a) for a, b in zip(sides[::2], sides[1::2], strict=True)], 0)
                for measure in measures.values()
            ]
            for some in draws
        ],
        axis=1,
    )  # (metrics, R)
    found = {}
    for name, values in zip(measures, drawn, strict=True):
        first, second = ([pair[side].results["metrics"][name] for pair in pairs] for side in (0, 1))
        differences = [b - a for a, b in zip(first, second, strict=True)]
        found[name] = {
            "first": statistics.fmean(first),
            "second": statistics.fmean(second),
            "difference": statistics.fmean(differences),
            "interval": np.percentile(values, [50 * LEVEL, 100 - 50 * LEVEL]).tolist(),
            "differences": differences,
            "sd": statistics.stdev(differences) if len(pairs) > 1 else None,
        }
    return found


def _mcnemar(rows: Floats, right: Callable[[Floats], Any]) -> dict[str, Any]:
    """Examples that only one run has right, and the exact two-sided p of so unequal a share if both were equal."""
    first, second = (right(side) for side in np.hsplit(rows, 2))
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    p = stats.binomtest(only_first, only_first + only_second).pvalue if only_first + only_second else 1.0
    return {"only_first": only_first, "only_second": only_second, "p": float(p)}


def table(results: dict[str, Any]) -> ResultTable:
    """What `compare_runs` found, in hundredths."""
    seeds = results["seeds"]
    rows = []
    for name, one in results["metrics"].items():
        low, high = (f"{100 * end:+.2f}" for end in one["interval"])
        spread = (points(one["sd"]),) if seeds else ()
        difference = f"{100 * one['difference']:+.2f}"
        rows.append((name, points(one["first"]), points(one["second"]), difference, f"{low} to {high}", *spread))
    header = ("metric", "first", "second", "difference", "95 % interval", *(("sd over seeds",) if seeds else ()))
    notes = [f"first: {results['runs'][0]}", f"second: {results['runs'][1]}"]
    notes += [f"seeds: {', '.join(map(str, seeds))}"] if seeds else []
    if results["left_out"]:
        notes.append(f"seeds of one side only, left out: {', '.join(map(str, results['left_out']))}")
    notes += [f"warning: {run}: {COLLAPSED}" for run in results.get("collapsed", [])]
    for number, test in enumerate(results["mcnemar"]):
        who = f"seed {seeds[number]}: " if seeds else ""
        notes.append(
            f"{who}{test['only_first']:,} right by the first alone, {test['only_second']:,} by the second alone; "
            f"McNemar's exact p = {test['p']:.3g}"
        )
    return ResultTable(f"{results['task']}: {results['examples']:,} rows of dev", header, rows, tuple(notes))
