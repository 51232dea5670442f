"""What came out of a study: values, means, differences from the base variant, costs, and the paper's figures.

A difference has a 95 % interval from Student's t over the differences of equal seeds: it says what other seeds of
fine-tuning might have given, and with three of them it is wide. `bertworks compare` of two cells says what other
development rows might have given. tables.py shows it all as tables.
"""

import math
import statistics
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..checkpoint.folder import find_model
from ..checkpoint.weights import weight_files
from ..typed import check_fields
from .cells import results_of, setting_of
from .claims import UNIT, UNITS, claim_results, claimed_rows
from .engine import Grid
from .recipe import FORMAT, Column
from .rows import Plan, Row
from .statistics import paired


def measure(plan: Plan, grid: Grid, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything that is known so far, as results.json has it; `before` is what it had when it was last written."""
    study = plan.study
    measured = [_measured(row, column, plan, grid) for row in plan.rows for column in study.columns]
    _compare(measured, plan)
    return {
        "kind": "study",
        "format": FORMAT,
        "study": study.name,
        "title": study.title,
        "source": study.source,
        "size": study.size,
        "minute": plan.inputs.minute,
        "base": study.base,
        "claim": _claim(plan, grid, before or {}),
        "seeds": list(plan.seeds),
        "unit": UNITS if study.pretrain_seeds else UNIT,
        "pretrain_seeds": [one.seed for one in plan.base.every if one.seed is not None],
        "corpus": plan.corpus,
        "columns": [_column(column) for column in study.columns],
        "rows": [_row(row, grid) for row in plan.rows],
        "measured": measured,
        "axis": study.axis,
        "paper_axis": study.paper_axis,
        "paper_curves": _curves(plan),
        "notes": list(study.notes),
        "cells": {cell.name: {"what": cell.title, "state": grid.state(cell)} for cell in plan.cells},
        "left": [{"cell": c.name, "what": c.title, "busy": grid.busy(c)} for c in grid.left(plan.cells)],
        "failed": grid.failures(plan.cells),
        "machines": _machines(plan, grid),
    }


def _claim(plan: Plan, grid: Grid, before: dict[str, Any]) -> dict[str, Any] | None:
    """The study's claim, and whether it was named before any run of its two rows was finished.

    Runs of all seeds of pre-training count, and those that choose a setting. A column without fine-tuning has those of
    pre-training.
    """
    claim = plan.study.claim
    if claim is None:
        return None
    found = claim_results(claim, plan.study.base, named_before=True)
    if before.get("claim") in (found, found | {"named_before": False}):
        return before["claim"]
    rows = (one for row in plan.rows if row.name in claimed_rows(found) for one in row.every)
    cells = [cell for row in rows for cell in row.tuned.get(claim.column) or row.trained]
    cells += [one for cell in cells for one in cell.trials]
    return found | {"named_before": not any(grid.state(cell) == "done" for cell in cells)}


def _column(column: Column) -> dict[str, Any]:
    point = {"panel": column.panel, "x": column.x} if column.panel else {}
    drawn = {"draw": True} if column.draw else {}
    metric = column.metric or column.pretrain
    return {"name": column.name, "percent": column.percent, "metric": metric, **drawn, **point}


# ---- values


def _measured(row: Row, column: Column, plan: Plan, grid: Grid) -> dict[str, Any]:
    """One row in one column: the value of each seed, and what they amount to."""
    found = _held_out(row, column, grid) if column.pretrain else _tuned(row, column, plan, grid)
    values = list(found["values"].values())
    return {
        "row": row.name,
        "column": column.name,
        **found,
        "n": len(values),
        "mean": statistics.fmean(values) if values else None,
        "sd": statistics.stdev(values) if len(values) > 1 else None,
        "paper": plan.study.figure(row.name, column.name),
    }


def _tuned(row: Row, column: Column, plan: Plan, grid: Grid) -> dict[str, Any]:
    """The task's metric of each seed; keys are seeds, as text for JSON's sake.

    With several seeds of pre-training these are the keys, and a value is the mean over its seeds of fine-tuning.
    """
    each = {str(one.seed): _of_seeds(one, column, plan, grid) for one in row.every}
    if not row.others:
        return each[str(row.seed)]
    whole = {seed: found["values"].values() for seed, found in each.items() if len(found["values"]) == len(plan.seeds)}
    return {
        "values": {seed: statistics.fmean(values) for seed, values in whole.items()},
        "collapsed": sum(found["collapsed"] for found in each.values()),
        "failed": [one for found in each.values() for one in found["failed"]],
    }


def _of_seeds(row: Row, column: Column, plan: Plan, grid: Grid) -> dict[str, Any]:
    """The metric of each seed of fine-tuning that is finished, and the settings that were chosen for these, if any."""
    values, collapsed, failed, settings = {}, 0, [], dict[str, None]()
    for seed, cell in zip(plan.seeds, row.tuned.get(column.name, ()), strict=False):
        results = results_of(cell, grid)
        if results is not None:
            name = column.metric or cell.work.task.metrics[0]  # type: ignore[union-attr]
            check_fields(results, {"metrics": {name: float}}, f"the results of {cell.title} ({grid.path(cell)})")
            values[str(seed)] = results["metrics"][name]
            collapsed += bool(results["collapsed"])
            settings |= dict.fromkeys([setting_of(cell, grid)])
        elif failure := grid.failure(cell):
            failed.append({"seed": seed, **failure})
    found = {"chosen": " or ".join(settings)} if any(settings) else {}
    return {"values": values, "collapsed": collapsed, "failed": failed, **found}


def _held_out(row: Row, column: Column, grid: Grid) -> dict[str, Any]:
    """A metric on held-out text for each seed of pre-training; none of snapshots and of two models side by side.

    Where the column names one held-out set for all, those have one too.
    """
    values, failed = {}, []
    for one in row.every:
        trained = () if row.random else one.trained
        cells = one.tuned.get(column.name, ()) if column.evaluate else trained
        single = column.evaluate or (len(cells) == 1 and one.start.step is None)
        results = results_of(cells[0], grid) if cells and single else None
        failed += [{"seed": one.seed, **failure} for cell in cells if (failure := grid.failure(cell))]
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
        entry["difference"] = paired(base["values"], entry["values"]) if other else None
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


def _row(row: Row, grid: Grid) -> dict[str, Any]:
    """The costs of a row: its pre-training up to its snapshot (none for random weights), and all its fine-tuning."""
    found = [cell for one in row.every for cell in one.trained]
    trained = () if row.random else tuple({cell.name: cell for cell in found}.values())
    runs = [results for cell in trained if (results := results_of(cell, grid))]
    whole = len(runs) == len(trained)
    step = row.start.step
    known = whole and (bool(runs) or row.random)  # nothing is known of a model folder from elsewhere
    shares = [1.0 if step is None else step / results["steps"] for results in runs]
    tuning = {cell.name: cell for cell in row.cells if cell.work.kind in ("finetune", "baseline")}.values()
    tuned = [results for cell in tuning if (results := results_of(cell, grid))]
    return {
        "name": row.name,
        "line": row.line,
        "x": row.x,
        "start": row.start.name.as_posix() if row.start.needs else "",
        "weights": row.weights,
        "parameters": parameters(row.start.path(grid)) if row.shape else None,
        "tokens": sum(r["tokens"] * share for r, share in zip(runs, shares, strict=True)) if known else None,
        "pretrain_seconds": sum(r["seconds"] * s for r, s in zip(runs, shares, strict=True)) if whole else None,
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


def _machines(plan: Plan, grid: Grid) -> list[dict[str, Any]]:
    """Where the cells ran, each machine once."""
    keys, found = ("cpu", "kind", "gpu", "threads", "torch", "bertworks", "commit"), {}
    for cell in plan.cells:
        machine = (results_of(cell, grid) or {}).get("machine", {})
        some = {key: machine[key] for key in keys if key in machine}
        found[str(some)] = some
    return [some for some in found.values() if some]


def _curves(plan: Plan) -> dict[str, dict[str, list[list[float]]]]:
    """The paper's curves by column and line, without empty ones."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for column in plan.study.columns:
        for line in dict.fromkeys(row.line for row in plan.rows if row.line):
            if pairs := plan.study.curve(line, column.name):
                found.setdefault(column.name, {})[line] = pairs
    return found
