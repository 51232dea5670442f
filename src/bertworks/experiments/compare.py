"""Is the second run better than the first? Both judged on the same development rows, example by example.

The difference of a metric has a 95 % interval from the paired bootstrap (Efron and Tibshirani, 1993): examples are
drawn anew with replacement, for both runs the same. It says what other development rows might have given, not what
other seeds might: give folders of several seeds for that, which are paired by seed. McNemar's exact test is of the
examples that only one of the two has right.

Shapes: n examples, R resamples, P pairs of runs, S numbers an example (statistics.py).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..files import InputError
from ..reporting.results import COLLAPSED, Printed, RunResults
from ..reporting.run_files import PREDICTIONS
from ..reporting.tables import ResultTable, points
from ..tasks.tags import chunks
from ..typed import check_fields
from . import statistics as resampling
from .outcomes import Outcome, read_runs

PLACE, TRUTH = ("id", "line"), ("label", "gold", "answers")  # fields of a row: where it is, and what is true of it
SAME_ROWS = "fine-tune both with the same dev, or with the same train, dev_share, group and split_seed"
CONFIDENCE = 0.95
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
    if samples < 100:
        raise InputError(f"{samples} samples; expected 100 or more")
    if seed < 0:
        raise InputError(f"seed = {seed}; expected 0 or more")
    sides = [read_runs(Path(folder)) for folder in (first, second)]
    seeds = _shared_seeds([first, second], sides)
    pairs = [(sides[0][seed], sides[1][seed]) for seed in seeds]
    runs = [run for pair in pairs for run in pair]
    form = form_of(runs[0])
    for run in runs:
        _check(runs[0], run)
        _check_rows(run, form)
    names = [name for name in form.measures if all(name in run.results["metrics"] for run in runs)]
    if not names:
        raise InputError(f"{first}: metrics {', '.join(pairs[0][0].results['metrics'])}; none that can be compared")
    values = [np.concatenate([form.numbers(run, pairs[0][0]) for run in pair], 1) for pair in pairs]  # (n, 2 S) each
    for pair, rows in zip(pairs, values, strict=True):
        _check_metrics(pair, rows, form, names)
    return {
        "kind": "comparison",
        "task": pairs[0][0].results["task"],
        "runs": [str(first), str(second)],
        "seeds": [] if seeds == [None] else seeds,
        "left_out": sorted({*sides[0], *sides[1]} - {*seeds}),  # seeds that only one side has
        "examples": len(pairs[0][0].rows),
        "samples": samples,
        "seed": seed,
        "metrics": _differences(pairs, np.concatenate(values, 1), form, names, samples, seed),
        "mcnemar": [_mcnemar(rows, form) for rows in values] if form.right else [],
        **({"collapsed": fallen} if (fallen := _collapsed(seeds, pairs)) else {}),
    }


# ---- runs


def _shared_seeds(folders: Sequence[Path | str], sides: list[dict[int | None, Outcome]]) -> list[Any]:
    one, other = sides
    if (None in one) != (None in other):
        single, several = folders if None in one else reversed(folders)
        seed = next(iter(other if None in one else one))
        raise InputError(f"{single} is a single run, {several} a folder of seeds; give two of a kind, such as "
                         f"{single} and {Path(several) / f'seed-{seed}'}")  # fmt: skip
    seeds = [seed for seed in one if seed in other]
    if not seeds:
        seeds_of = " and ".join(", ".join(map(str, side)) for side in sides)
        raise InputError(f"no seed in common ({seeds_of}); give runs with the same seeds, or two single runs")
    return seeds


def _check(first: Outcome, run: Outcome) -> None:
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
    for number, (a, b) in enumerate(zip(first.rows, run.rows, strict=False), 1):
        if _only(a, names) != _only(b, names):
            shown = (*PLACE, *TRUTH)
            raise InputError(
                f"{run.folder / PREDICTIONS}, line {number}: {_only(b, shown)}; {first.folder / PREDICTIONS} has "
                f"{_only(a, shown)} there. Only runs on the same development rows can be compared: {SAME_ROWS}"
            )


def _only(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields of these names that a row of predictions has."""
    return {name: row[name] for name in names if name in row}


def _collapsed(seeds: list[Any], pairs: list[tuple[Outcome, Outcome]]) -> list[str]:
    """The runs that give every row the same answer, although the true ones differ: "second", or "second, seed 3"."""
    return [
        side if seed is None else f"{side}, seed {seed}"
        for seed, pair in zip(seeds, pairs, strict=True)
        for side, run in zip(("first", "second"), pair, strict=True)
        if run.results.get("collapsed") is True
    ]


# ---- predictions as numbers


@dataclass(frozen=True)
class Form:
    """How the predictions of a kind of task become numbers."""

    row: dict[str, Any]  # the form of a row of predictions
    numbers: Callable[[Outcome, Outcome], NDArray[np.float64]]  # (n, S), of a run; the other one has the label names
    measures: dict[str, resampling.Measure]
    right: Callable[[NDArray[np.float64]], NDArray[np.bool_]] | None = None  # which examples are right, for McNemar


def form_of(run: Outcome) -> Form:
    """By the look of the first row, and by the metrics. Raises InputError if it is not known."""
    row, metrics = (run.rows or [{}])[0], run.results["metrics"]
    if "gold" in row:
        return Form({"gold": [str], "predicted": [str]}, _tags, resampling.TAGS)
    if "exact" in row:
        return Form(
            {"exact": float, "f1": float}, _columns("exact", "f1"), resampling.ANSWERS, lambda rows: rows[:, 0] > 0
        )
    if "label" not in row:
        raise InputError(f"{run.folder / PREDICTIONS}: {row}; expected rows with label and predicted")
    if "pearson" in metrics or "spearman" in metrics:
        return Form({"label": float, "predicted": float}, _columns("label", "predicted"), resampling.VALUES)
    if "micro_f1" in metrics or "exact_match" in metrics:
        half = len(run.results["predicted"])
        same = lambda rows: (rows[:, :half] == rows[:, half:]).all(1)  # noqa: E731
        return Form({"label": str, "predicted": str}, _labels, resampling.LABELS, same)
    name = (str, int, None)  # of a class, or the number of a choice
    return Form({"label": name, "predicted": name}, _classes, resampling.CLASSES, lambda rows: rows[:, 0] == rows[:, 1])


def _check_rows(run: Outcome, form: Form) -> None:
    """Raises InputError for a row of another form, or with another number of tags than are true."""
    for number, row in enumerate(run.rows, 1):
        where = f"{run.folder / PREDICTIONS}, line {number}"
        check_fields(row, form.row, where)
        if "gold" in form.row and len(row["gold"]) != len(row["predicted"]):
            raise InputError(f"{where}: {len(row['predicted'])} tags for {len(row['gold'])} units; restore the file")


def _classes(run: Outcome, names_from: Outcome) -> NDArray[np.float64]:
    """(n, 2) numbers of the true and the predicted class."""
    numbers = {name: i for i, name in enumerate(names_from.results["predicted"])}
    cells = [(str(row["label"]), str(row["predicted"])) for row in run.rows]
    for name in (name for pair in cells for name in pair):
        numbers.setdefault(name, len(numbers))
    return np.array([[numbers[a], numbers[b]] for a, b in cells], np.float64)


def _columns(*names: str) -> Callable[[Outcome, Outcome], NDArray[np.float64]]:
    """A function that returns these fields of a run's rows, as they are."""
    return lambda run, names_from: np.array([[row[name] for name in names] for row in run.rows], np.float64)


def _labels(run: Outcome, names_from: Outcome) -> NDArray[np.float64]:
    """(n, 2 K) which labels are true, then which are predicted."""
    names = list(names_from.results["predicted"])
    cells = [[set(row[key].split("|")) for key in ("label", "predicted")] for row in run.rows]
    return np.array([[name in cell for cell in pair for name in names] for pair in cells], np.float64)


def _tags(run: Outcome, names_from: Outcome) -> NDArray[np.float64]:
    """(n, 5) entities that are right, found, there; units that are right, all."""
    numbers = []
    for row in run.rows:
        there, found = set(chunks(row["gold"])), set(chunks(row["predicted"]))
        same = sum(a == b for a, b in zip(row["gold"], row["predicted"], strict=True))
        numbers.append((len(there & found), len(found), len(there), same, len(row["gold"])))
    return np.array(numbers, np.float64)


# ---- statistics


def _check_metrics(pair: tuple[Outcome, Outcome], rows: NDArray[np.float64], form: Form, names: list[str]) -> None:
    """Raises InputError if predictions do not give the metrics that the results have."""
    once = np.ones((1, len(rows)))
    for run, numbers in zip(pair, np.hsplit(rows, 2), strict=True):
        for name in names:
            found, expected = float(form.measures[name](once, numbers)[0]), run.results["metrics"][name]
            if not abs(found - expected) <= 1e-5:  # NaN too
                raise InputError(
                    f"{run.folder}: {PREDICTIONS} gives {name} {found:.6f}, results.json has {expected:.6f}; one of "
                    "the two files has been changed"
                )


def _differences(
    pairs: list[tuple[Outcome, Outcome]],
    rows: NDArray[np.float64],
    form: Form,
    names: list[str],
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """For each metric the values of both sides, their difference, and its interval; rows: (n, P * 2 * S)."""
    different, draws = resampling.resamples(rows, samples, seed)
    sides = np.hsplit(different, 2 * len(pairs))  # first and second run of each pair in turn
    drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    for some in draws:
        for name in names:
            values = [form.measures[name](some, side) for side in sides]
            drawn[name].append(np.mean([b - a for a, b in zip(values[::2], values[1::2], strict=True)], 0))
    tails = 100 * (1 - CONFIDENCE) / 2
    found = {}
    for name in names:
        first, second = ([pair[side].results["metrics"][name] for pair in pairs] for side in (0, 1))
        differences = [b - a for a, b in zip(first, second, strict=True)]
        found[name] = {
            "first": statistics.fmean(first),
            "second": statistics.fmean(second),
            "difference": statistics.fmean(differences),
            "interval": np.percentile(np.concatenate(drawn[name]), [tails, 100 - tails]).tolist(),
            "differences": differences,
            "sd": statistics.stdev(differences) if len(pairs) > 1 else None,
        }
    return found


def _mcnemar(rows: NDArray[np.float64], form: Form) -> dict[str, Any]:
    """Examples that only one run has right, and the exact two-sided p of so unequal a share if both were equal."""
    assert form.right is not None
    first, second = (form.right(side) for side in np.hsplit(rows, 2))
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
