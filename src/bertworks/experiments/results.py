"""results.json of a study: values, means, differences from the base variant, costs, and the paper's figures.

A difference has a 95 % interval from Student's t over the differences of equal seeds. It covers other seeds of
fine-tuning, and with three seeds it is wide. The interval of `bertworks compare` of two runs covers other development
examples. tables.py shows the results as tables.
"""

import math
import statistics
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..checkpoint.folder import find_model
from ..checkpoint.weights import weight_files
from ..typed import check_fields
from .claims import UNIT, UNITS, claim_results, claimed_rows
from .recipe import FORMAT, Column
from .scheduler import RunFolder
from .specs import Plan, Row, Tuning, setting_of
from .statistics import difference


def measure(plan: Plan, folder: RunFolder, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """All results so far, as results.json has them; before: the results that it had when it was last written."""
    study = plan.study
    measured = [_measured(row, column, plan, folder) for row in plan.rows for column in study.columns]
    _compare(measured, plan)
    return {
        "kind": "study",
        "format": FORMAT,
        "study": study.name,
        "title": study.title,
        "source": study.source,
        "minute": plan.inputs.minute,
        "base": study.base,
        "claim": _claim(plan, folder, before or {}),
        "seeds": list(plan.seeds),
        "unit": UNITS if study.pretrain_seeds else UNIT,
        "pretrain_seeds": [row.seed for row in plan.base.replicates if row.seed is not None],
        "corpus": plan.corpus,
        "columns": [_column(column) for column in study.columns],
        "rows": [_row(row, folder) for row in plan.rows],
        "measured": measured,
        "axis": study.axis,
        "paper_axis": study.paper_axis,
        "paper_curves": _curves(plan),
        "notes": list(study.notes),
        "cells": {run.name: {"what": run.title, "state": folder.state(run)} for run in plan.runs},
        "left": [{"cell": run.name, "what": run.title} for run in folder.unfinished(plan.runs)],
        "failed": folder.failures(plan.runs),
        "machines": _machines(plan, folder),
    }


def _claim(plan: Plan, folder: RunFolder, before: dict[str, Any]) -> dict[str, Any] | None:
    """The study's claim, and whether it was named before any run of its two rows was finished.

    Runs of all seeds of pre-training count, and those that choose a setting. A column without fine-tuning has those of
    pre-training.
    """
    claim = plan.study.claim
    if claim is None:
        return None
    results = claim_results(claim, plan.study.base, named_before=True)
    if before.get("claim") in (results, results | {"named_before": False}):
        return before["claim"]
    rows = [one for row in plan.rows if row.name in claimed_rows(results) for one in row.replicates]
    runs = [run for row in rows for run in row.tuned.get(claim.column) or row.trained]
    runs += [candidate for run in runs for candidate in run.candidates]
    return results | {"named_before": not any(folder.state(run) == "done" for run in runs)}


def _column(column: Column) -> dict[str, Any]:
    point = {"panel": column.panel, "x": column.x} if column.panel else {}
    drawn = {"draw": True} if column.draw else {}
    metric = column.metric or column.pretrain
    return {"name": column.name, "percent": column.percent, "metric": metric, **drawn, **point}


# ---- values


def _measured(row: Row, column: Column, plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """One row in one column: the value of each seed, their mean and standard deviation."""
    entry = _held_out(row, column, folder) if column.pretrain else _tuned(row, column, plan, folder)
    values = list(entry["values"].values())
    return {
        "row": row.name,
        "column": column.name,
        **entry,
        "n": len(values),
        "mean": statistics.fmean(values) if values else None,
        "sd": statistics.stdev(values) if len(values) > 1 else None,
        "paper": plan.study.figure(row.name, column.name),
    }


def _tuned(row: Row, column: Column, plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """The task's metric of each seed; keys are seeds, as text for JSON's sake.

    With several seeds of pre-training these are the keys, and a value is the mean over its seeds of fine-tuning.
    """
    entries = {str(one.seed): _of_seeds(one, column, plan, folder) for one in row.replicates}
    if not row.others:
        return entries[str(row.seed)]
    values = {seed: entry["values"].values() for seed, entry in entries.items()}
    expected = len(plan.seeds[: column.seeds or None])
    return {
        "values": {seed: statistics.fmean(each) for seed, each in values.items() if len(each) == expected},
        "collapsed": sum(entry["collapsed"] for entry in entries.values()),
        "failed": [failure for entry in entries.values() for failure in entry["failed"]],
    }


def _of_seeds(row: Row, column: Column, plan: Plan, folder: RunFolder) -> dict[str, Any]:
    """The metric of each seed of fine-tuning that is finished, and the settings that were chosen for these, if any."""
    values, collapsed, failed, settings = {}, 0, [], dict[str, None]()
    for seed, run in zip(plan.seeds, row.tuned.get(column.name, ()), strict=False):
        results = folder.results(run)
        if results is not None:
            name = column.metric or run.spec.task.metrics[0]
            check_fields(results, {"metrics": {name: float}}, f"the results of {run.title} ({folder.path(run)})")
            values[str(seed)] = results["metrics"][name]
            collapsed += bool(results["collapsed"])
            settings |= dict.fromkeys([setting_of(run, folder)])
        elif failure := folder.failure(run):
            failed.append({"seed": seed, **failure})
    chosen = {"chosen": " or ".join(settings)} if any(settings) else {}
    return {"values": values, "collapsed": collapsed, "failed": failed, **chosen}


def _held_out(row: Row, column: Column, folder: RunFolder) -> dict[str, Any]:
    """A metric on held-out text for each seed of pre-training; none of snapshots and of concatenated models.

    If the column names one held-out set for all variants, snapshots and concatenated models have a value too.
    """
    values, failed = {}, []
    for one in row.replicates:
        trained = () if row.random else one.trained
        runs = one.tuned.get(column.name, ()) if column.evaluate else trained
        single = column.evaluate or (len(runs) == 1 and one.start.step is None)
        results = folder.results(runs[0]) if runs and single else None
        failed += [{"seed": one.seed, **failure} for run in runs if (failure := folder.failure(run))]
        value = _metric(results["metrics"] if results else {}, column.pretrain)
        if value is not None:
            values["" if one.seed is None else str(one.seed)] = value
    return {"values": values, "collapsed": 0, "failed": failed}


def _metric(metrics: dict[str, float], name: str) -> float | None:
    """A metric of pre-training; a perplexity is e to the loss."""
    plain = name.removesuffix("_perplexity")
    if plain == name:
        return metrics.get(name)
    loss = metrics.get(f"{plain}_loss")
    return None if loss is None else math.exp(loss)


def _compare(measured: list[dict[str, Any]], plan: Plan) -> None:
    """Add to each entry its difference from the base variant: ours over equal seeds, and the paper's."""
    entries = {(entry["row"], entry["column"]): entry for entry in measured}
    for entry in measured:
        base = entries[_against(entry["row"], plan), entry["column"]]
        other = entry is not base
        entry["against"] = base["row"]
        found = difference(base["values"], entry["values"]) if other else None
        interval = list(found.interval) if found and found.interval else None  # None of a single seed
        entry["difference"] = {"mean": found.mean, "n": found.n, "interval": interval} if found else None
        both = None not in (entry["paper"], base["paper"])
        entry["paper_difference"] = entry["paper"] - base["paper"] if other and both else None


def _against(name: str, plan: Plan) -> str:
    """The row that a row is compared with: the base, or its snapshot of the same step; without a base itself."""
    if not plan.study.base:
        return name
    row = next(row for row in plan.rows if row.name == name)
    if row.start.step is None or row.line == plan.base.line:
        return plan.base.name
    same = (other.name for other in plan.rows if other.line == plan.base.line and other.start.step == row.start.step)
    return next(same, plan.base.name)


# ---- costs, and where it ran


def _row(row: Row, folder: RunFolder) -> dict[str, Any]:
    """The costs of a row: its pre-training up to its snapshot (none for random weights), and all its fine-tuning."""
    trained = {} if row.random else {run.name: run for one in row.replicates for run in one.trained}
    runs = [results for run in trained.values() if (results := folder.results(run))]
    complete = len(runs) == len(trained)
    has_tokens = complete and (bool(runs) or row.random)  # a model folder of the user has no record of its tokens
    step = row.start.step
    fractions = [1.0 if step is None else step / results["steps"] for results in runs]
    tuning = {run.name: run for run in row.runs if isinstance(run.spec, Tuning)}
    tuned = [results for run in tuning.values() if (results := folder.results(run))]
    return {
        "name": row.name,
        "line": row.line,
        "x": row.x,
        "start": row.start.path.as_posix() if row.start.run else "",
        "weights": row.weights,
        "parameters": parameters(row.start.path_in(folder)) if row.start.shape else None,
        "tokens": sum(r["tokens"] * f for r, f in zip(runs, fractions, strict=True)) if has_tokens else None,
        "pretrain_seconds": sum(r["seconds"] * f for r, f in zip(runs, fractions, strict=True)) if complete else None,
        "finetune_seconds": sum(results["seconds"] for results in tuned),
        "steps": step or (runs[0]["steps"] if len({run["steps"] for run in runs}) == 1 else None),
    }


def parameters(folder: Path) -> int | None:
    """Numbers in a model folder, heads included; None if it is not there (yet)."""
    total = 0
    for path in weight_files(find_model(folder)):
        with safe_open(path, "numpy") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total or None


def _machines(plan: Plan, folder: RunFolder) -> list[dict[str, Any]]:
    """Where the runs were computed, each machine once."""
    keys, machines = ("cpu", "kind", "gpu", "threads", "torch", "bertworks", "commit"), {}
    for run in plan.runs:
        facts = (folder.results(run) or {}).get("machine", {})
        machine = {key: facts[key] for key in keys if key in facts}
        machines[str(machine)] = machine
    return [machine for machine in machines.values() if machine]


def _curves(plan: Plan) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """The paper's curves by column and line, without empty ones."""
    lines, columns = dict.fromkeys(row.line for row in plan.rows if row.line), plan.study.columns
    curves = {column.name: {line: plan.study.curve(line, column.name) for line in lines} for column in columns}
    curves = {name: {line: pairs for line, pairs in by_line.items() if pairs} for name, by_line in curves.items()}
    return {name: by_line for name, by_line in curves.items() if by_line}
