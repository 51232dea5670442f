"""Fine-tuned runs: collapsed, no better than guessing, labels in another order, few updates."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checkpoint.folder import read_task
from ...checkpoint.locate import CONFIG
from ...checkpoint.metadata import labels_of
from ...files import InputError, read_json_object
from ...finetuning.recipe import OWN_TABLE_STEPS
from ...reporting.results import COLLAPSED
from ...reporting.run_files import PREDICTIONS, RESULTS, read_json_lines
from ...reporting.tables import counted
from ...tasks.base import Data, Task
from ...tasks.catalogue import find_task
from ...tasks.draws import DIVIDED, Division
from ...tasks.kinds import OWN_TABLE, divided_data, load_data, own_task
from ...tasks.rows import hash_of_texts
from ...tasks.table import PLAIN, TABLES, TableForm, ending_of, form_of, part_of
from .alike import key_of
from .findings import Finding, NotChecked, named, percent, some_of
from .logs import RunFiles, held_out_loss, more_rows
from .rows import CUT, IDS, OWN, Rows, own_labels, rows_of

SWAPPED = 0.2  # by which another order of the labels has to be more accurate
CHANCE = 0.01  # probability with which chance may pass for another order of the labels
SURE = 1.5  # times the loss of equal probabilities
SEVERAL = "multi_label_classification"  # problem_type in config.json
ROW_KINDS = ("single", "pair", "regression", "multilabel", "choice")  # kinds whose examples are rows of a file
SHOWN = 4  # runs that a finding names
SEEN = 0.05  # share of evaluated rows in the training rows; fewer may be duplicates


@dataclass(frozen=True)
class FinetunedRun:
    """A fine-tuned run, and its rows where they could be read."""

    files: RunFiles
    given: Rows | None = field(default=None)

    @property
    def results(self) -> dict[str, Any]:
        """results.json."""
        return self.files.results

    @property
    def metric(self) -> tuple[str, float]:
        """The first metric of the task. Raises NotChecked if there is none yet."""
        names = [name for name in self.files.metrics if name not in ("loss", "seconds")]
        if not names:
            raise NotChecked("no score on development rows yet")
        return names[0], self.files.metrics[names[0]]

    @property
    def config(self) -> Path:
        """config.json of its model, which may be missing."""
        return self.files.folder / "model" / CONFIG

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """(label, prediction) of each development row. Raises NotChecked if they are no classes."""
        path = self.files.folder / PREDICTIONS
        if not path.is_file():
            raise NotChecked(f"no {PREDICTIONS}")
        settings = read_json_object(self.config) if self.config.is_file() else {}
        if settings.get("problem_type") == SEVERAL:
            raise NotChecked("rows have several labels")
        rows = read_json_lines(path, {})
        if not rows or not all(
            isinstance(row.get("label"), str) and isinstance(row.get("predicted"), str) for row in rows
        ):
            raise NotChecked("the predictions are no classes")
        return [(row["label"], row["predicted"]) for row in rows]


_MORE = f"give more --epochs or --loop.steps, for at least {OWN_TABLE_STEPS} updates"
IN_SCORE = "the finding of 'score' names the few updates"
_FEW = f"the run had few updates ({{}}); {_MORE}"


def collapsed(run: FinetunedRun) -> Iterator[Finding]:
    """The same answer for every row, or a score that guessing has."""
    results = run.results
    if not results:
        raise NotChecked("the run is not finished")
    advice = "try another seed, more --epochs, or another optim.lr (large encoders: lower, small ones: higher)"
    examples = results.get("examples") or {}
    if own_labels(len(results.get("predicted") or {}), sum(examples.values())):
        advice = f"{OWN}: {IDS}"
    elif (steps := run.files.steps) < OWN_TABLE_STEPS:  # the same rows may do with more of them
        advice = _FEW.format(steps)
    elif few := more_rows(run.files):
        advice = few
    elif any(held_out_loss(run.files)):  # more of the same would make it worse
        advice = "try another seed or a lower optim.lr, and label more rows"
    name, value = run.metric
    majority, rows = results.get("majority") or 0.0, examples.get("dev") or 0
    numbers = {name: value, "majority": majority, "rows": rows}
    if results.get("collapsed") is True:
        answer = Counter(results.get("predicted") or {}).most_common(1)
        what = f", {named(answer[0][0])}" if answer and answer[0][1] else ""
        yield Finding("error", f"{COLLAPSED}{what}", advice, numbers)
    elif results.get("flat") is True:
        yield Finding(
            "error", "the predicted values hardly vary: under 1 % of the true ones' deviation", advice, numbers
        )
    elif value <= majority + _error(majority, rows):
        guess = f"guessing has {majority:.3f}" if majority else "guessing has 0"
        yield Finding(
            "warning",
            f"{name} {value:.3f} on {rows:,} development rows; {guess}: hardly anything was learned",
            advice,
            numbers,
        )


def _error(share: float, rows: int) -> float:
    """The standard error of a share of so many rows."""
    return math.sqrt(share * (1 - share) / rows) if rows and 0 < share < 1 else 0.0


def label_order(run: FinetunedRun) -> Iterator[Finding]:
    """Predictions that would be right under other names, and names that config.json and rows do not share."""
    pairs = run.pairs
    names = sorted({name for pair in pairs for name in pair})
    table = np.zeros((len(names), len(names)))
    for true, predicted in pairs:
        table[names.index(true), names.index(predicted)] += 1
    from scipy.optimize import linear_sum_assignment

    best = table[linear_sum_assignment(-table)].sum() / len(pairs)
    accuracy, majority = table.trace() / len(pairs), table.sum(1).max() / len(pairs)
    if best > max(accuracy + SWAPPED, _best_by_chance(table)) and accuracy < majority:
        yield Finding(
            "error",
            f"accuracy {accuracy:.3f}, but {best:.3f} if the labels had other names: rows and model order them "
            "differently",
            "compare id2label in config.json with the label column; evaluate matches them by name",
            {"accuracy": accuracy, "renamed": best},
        )
    path = run.config
    known = labels_of(read_json_object(path), str(path)) if path.is_file() else None
    if known is not None and (unknown := [name for name in names if name not in known]):
        yield Finding(
            "error",
            f"{path.name} does not name the labels {', '.join(map(named, unknown[:SHOWN]))}",
            "restore config.json, or fine-tune again",
        )


def _best_by_chance(table: NDArray[np.float64]) -> float:
    """The accuracy that the best new names of the labels may have where rows and predictions have nothing in common.

    table: (L, L) rows by label and prediction. One order of names has at most the sorted shares multiplied, and by
    Hoeffding's inequality exceeds that by e in n rows with a probability of at most exp(-2 n e^2). The bound holds for
    all L! orders together, with a probability of 1 - CHANCE. A constant answer never exceeds it.
    """
    rows = table.sum()
    true, predicted = (np.sort(table.sum(axis)) / rows for axis in (1, 0))
    orders = math.lgamma(len(table) + 1)  # the logarithm of L!
    return float(true @ predicted) + math.sqrt((orders - math.log(CHANCE)) / (2 * rows))


def updates(run: FinetunedRun) -> Iterator[Finding]:
    """Too few updates, or rows that were never read."""
    results, batch = run.results, run.files.recipe.get("batch_size") or 0
    rows = (results.get("examples") or {}).get("train") or 0
    if not results or not rows:
        raise NotChecked("the run is not finished")
    steps = run.files.steps
    if results.get("stopped_early"):
        raise NotChecked("early stopping ended the run")
    few = steps < OWN_TABLE_STEPS
    named_there = few and any(finding.advice == _FEW.format(steps) for finding in collapsed(run))
    if few and not named_there:
        yield Finding(
            "warning",
            counted(steps, "update"),
            _MORE,
            {"steps": steps},
        )
    if batch and steps < rows // batch:  # the last batch of a pass is left out if it is not full
        yield Finding(
            "warning",
            f"{counted(steps, 'update')} of {batch} rows read {steps * batch:,} of the {rows:,} training rows, the "
            "others never",
            "give more --epochs",
            {"read": steps * batch, "rows": rows},
        )
    elif named_there:  # nothing was found here would be wrong
        raise NotChecked(IN_SCORE)


def truncation(run: FinetunedRun) -> Iterator[Finding]:
    """Rows that were cut."""
    for side, cut in (run.results.get("truncation") or {}).items():
        rows, examples = (run.results.get("examples") or {}).get(side) or 0, cut.get("examples") or 0
        if rows and examples >= CUT * rows:
            yield Finding(
                "warning",
                f"{some_of(examples, rows, f'{side} rows ({percent(examples / rows)})', 'was', 'were')} cut, by "
                f"{cut['tokens'] / examples:.0f} tokens on average",
                "give a longer --max-seq-length if the model has the positions",
                {"rows": examples, "tokens": cut["tokens"]},
            )


def certainty(run: FinetunedRun) -> Iterator[Finding]:
    """Probabilities that are far too sure."""
    classes, loss = len({*(true for true, _ in run.pairs)}), run.files.metrics.get("loss")
    overfitted = "train for fewer epochs, or --loop.keep-best loss"
    if classes > 1 and loss is not None and loss > SURE * math.log(classes):
        yield Finding(
            "note",
            f"development loss {loss:.2f}, equal probabilities have {math.log(classes):.2f}: the model is sure of its "
            "errors",
            f"do not read its scores as probabilities; {more_rows(run.files) or overfitted}",
            {"loss": loss},
        )


def rows_of_run(run: RunFiles, given: TableForm = PLAIN) -> Rows:
    """The rows of a run, where its files are still there and have as many rows as it read.

    given: the form of its tables; PLAIN: the form that results.json names. Raises NotChecked with the reason why not.
    """
    results = run.results
    if not results:
        raise NotChecked("the run is not finished, results.json names its files when it ends; examine the table itself")
    place = str(results.get("data") or "")
    try:
        form = given if given != PLAIN else form_of(results)
        if results.get("task") == OWN_TABLE:
            task, data = _own_rows(run, place, form)
        else:
            task = replace(find_task(str(results.get("task"))), form=form)
            data = load_data(task, _located(run.folder, place))
    except (InputError, OSError) as error:
        found = f"the rows were not found as the run read them, {place}: {error}"
        raise NotChecked(f"{found}; examine the table itself") from None
    counts, read = {"train": len(data.train), "dev": len(data.dev)}, results.get("examples")
    own = results.get("task") == OWN_TABLE
    if read != counts and (own or (read and task.kind in ROW_KINDS)):
        said = [", ".join(f"{count:,} {side} rows" for side, count in one.items()) for one in (counts, read or {})]
        raise NotChecked(
            f"{place}: found {said[0]}, the run read {said[1]}: the file has changed, or --train-rows or --group chose "
            f"the rows; examine the {'table' if own else 'folder'} itself"
        )
    if results.get("dev_texts") not in (None, hash_of_texts(data.dev)):
        raise NotChecked(f"{place}: other development rows than the run read; examine the rows themselves")
    return Rows.of(task, data)


def _located(run: Path, name: str) -> Path:
    """A file or folder as a run was given it, from here or from a folder above the run: it may have begun elsewhere."""
    places = (folder / name for folder in (Path(), *run.resolve().parents))
    return next((place for place in places if part_of(place)[0].exists()), Path(name))


def _own_rows(run: RunFiles, place: str, form: TableForm) -> tuple[Task, Data]:
    """The rows of a run on tables of one's own, from what its results and its model say. Raises InputError."""
    settings = read_task(run.folder / "model")
    texts = tuple(settings.get("words") or settings.get("text") or ())
    columns = (texts, str(settings.get("label") or ""), tuple(settings.get("choices") or ()))
    task = replace(own_task(str(settings.get("kind") or ""), *columns), form=form)
    if divided := DIVIDED.fullmatch(place):
        division = Division(dev_share=float(divided["share"]), seed=int(divided["seed"]))
        files = [_located(run.folder, divided["table"])]
    else:
        division, files = Division(), [_located(run.folder, name) for name in place.split(", ")]
    if missing := [file for file in files if not part_of(file)[0].is_file()]:
        if ending_of(missing[0]) not in (*TABLES, ".txt"):
            raise NotChecked("the rows were in memory, and a run keeps no rows")
        raise InputError(f"{missing[0]}: no such file")
    return divided_data(task, files, division)


def rows_trained_on(run: Path, task: Task, rows: Sequence[Any]) -> str:
    """A warning that evaluated rows are training rows of a run on a table of one's own; "" if hardly any are."""
    files = RunFiles(run)
    try:
        known = rows_of_run(files) if files.results.get("task") == OWN_TABLE else None
    except (InputError, NotChecked):
        return ""
    if known is None or not rows:
        return ""
    train = {*known.keys}
    asked = rows_of(task, rows)  # of questions the paragraphs
    seen = sum(tuple(map(key_of, row.texts)) in train for row in asked)
    if not seen or seen < SEEN * len(asked):
        return ""
    what = "paragraphs" if task.kind == "span" else "rows"
    own = next((f"{name} {score:.4f}" for name, score in files.metrics.items() if name != "loss"), "its metrics")
    return (
        f"warning: {some_of(seen, len(asked), what, 'is', 'are')} in the training rows of {run}, so these metrics tell "
        f"little about new texts; on its own development rows it has {own} ({run / RESULTS})"
    )


CHECKS: dict[str, Callable[[FinetunedRun], Iterable[Finding]]] = {
    "score": collapsed,
    "order of labels": label_order,
    "updates": updates,
    "cut texts": truncation,
    "certainty": certainty,
}
