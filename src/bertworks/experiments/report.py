"""What came out of a study: values, means, differences from the base variant, costs, and the paper's figures.

A difference has a 95 % interval from Student's t over the differences of equal seeds: it says what other seeds of
fine-tuning might have given, and with three of them it is honestly wide. What other development rows might have given
says `bertworks compare` of two cells.
"""

import math
import statistics
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..checkpoint.folder import find_model
from ..checkpoint.weights import weight_files
from ..files import check_fields
from ..reporting.tables import ResultTable
from .cells import results_of
from .compare import paired
from .engine import Grid, failure_notes
from .plan import Plan, Row
from .recipe import Column

FORMAT = 1  # of results.json


def measure(plan: Plan, grid: Grid) -> dict[str, Any]:
    """Everything that is known so far, as results.json has it."""
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
        "seeds": list(plan.seeds),
        "corpus": plan.corpus,
        "columns": [{"name": c.name, "percent": c.percent, "metric": c.metric or c.pretrain} for c in study.columns],
        "rows": [_row(row, grid) for row in plan.rows],
        "measured": measured,
        "axis": study.axis,
        "paper_axis": study.paper_axis,
        "paper_curves": _curves(plan),
        "notes": list(study.notes),
        "cells": {grid.name(cell): {"what": cell.title, "state": grid.state(cell)} for cell in plan.cells},
        "left": [{"cell": grid.name(c), "what": c.title, "busy": grid.busy(c)} for c in grid.left(plan.cells)],
        "failed": grid.failures(plan.cells),
        "machines": _machines(plan, grid),
    }


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
    """The task's metric of each seed that is finished; keys are seeds, as text for JSON's sake."""
    values, collapsed, failed = {}, 0, []
    for seed, cell in zip(plan.seeds, row.tuned.get(column.name, ()), strict=False):
        results = results_of(cell, grid)
        if results is not None:
            name = column.metric or cell.work.task.metrics[0]  # type: ignore[union-attr]
            check_fields(results, {"metrics": {name: float}}, f"the results of {cell.title} ({grid.path(cell)})")
            values[str(seed)] = results["metrics"][name]
            collapsed += bool(results["collapsed"])
        elif failure := grid.failure(cell):
            failed.append({"seed": seed, **failure})
    return {"values": values, "collapsed": collapsed, "failed": failed}


def _held_out(row: Row, column: Column, grid: Grid) -> dict[str, Any]:
    """A metric of the pre-training at its end; none of snapshots and of two models side by side."""
    trained = () if row.random else row.trained
    results = results_of(trained[0], grid) if len(trained) == 1 and row.step is None else None
    failed = [{"seed": None, **failure} for cell in trained if (failure := grid.failure(cell))]
    metrics = results["metrics"] if results else {}
    name = column.pretrain.removesuffix("_perplexity")
    value = metrics.get(column.pretrain) if name == column.pretrain else metrics.get(f"{name}_loss")
    if value is not None and name != column.pretrain:
        value = math.exp(value)
    return {"values": {} if value is None else {"": value}, "collapsed": 0, "failed": failed}


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
    """The row that a row is compared with: the base variant, of a snapshot that one's snapshot of the same step."""
    row = next(row for row in plan.rows if row.name == name)
    if row.step is None or row.line == plan.base.line:
        return plan.base.name
    same = (other.name for other in plan.rows if other.line == plan.base.line and other.step == row.step)
    return next(same, plan.base.name)


# ---- costs, and where it ran


def _row(row: Row, grid: Grid) -> dict[str, Any]:
    """The costs of a row: its pre-training up to its snapshot (none for random weights), and all its fine-tuning."""
    trained = () if row.random else row.trained
    runs = [results for cell in trained if (results := results_of(cell, grid))]
    whole = len(runs) == len(trained)
    known = whole and (bool(runs) or row.random)  # nothing is known of a model folder from elsewhere
    shares = [1.0 if row.step is None else row.step / results["steps"] for results in runs]
    tuning = {cell.name: cell for group in row.tuned.values() for cell in group}.values()  # columns may share cells
    tuned = [results for cell in tuning if (results := results_of(cell, grid))]
    return {
        "name": row.name,
        "line": row.line,
        "x": row.x,
        "start": row.start.name(grid).as_posix() if row.start.needs else "",
        "parameters": parameters(row.start.path(grid)),
        "tokens": sum(r["tokens"] * share for r, share in zip(runs, shares, strict=True)) if known else None,
        "pretrain_seconds": sum(r["seconds"] * s for r, s in zip(runs, shares, strict=True)) if whole else None,
        "finetune_seconds": sum(results["seconds"] for results in tuned),
        "steps": row.step or (runs[0]["steps"] if len(runs) == 1 else None),
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


# ---- tables


def tables(results: dict[str, Any]) -> list[ResultTable]:
    """The figures, the differences from the base variant, the paper's curves if there are any, and the costs."""
    found = [_figures(results), _differences(results), *_paper_curves(results), _costs(results)]
    return [sheet for sheet in found if sheet.rows]


def _figures(results: dict[str, Any]) -> ResultTable:
    rows = [
        (row["name"], *(_cell(_entry(results, row, column), column, results) for column in results["columns"]))
        for row in results["rows"]
    ]
    header = ("variant", *(column["name"] for column in results["columns"]))
    return ResultTable(results["title"], header, rows, tuple(_notes(results)))


def _differences(results: dict[str, Any]) -> ResultTable:
    rows = []
    for row in results["rows"]:
        entries = [(_entry(results, row, column), column) for column in results["columns"]]
        if row["name"] != results["base"] and any(entry["difference"] for entry, _ in entries):
            rows.append((row["name"], *(_difference(entry, column) for entry, column in entries)))
    header = ("variant", *(column["name"] for column in results["columns"]))
    notes = ["In brackets: 95 % interval over equal seeds."]
    if any(entry["against"] != results["base"] for entry in results["measured"]):
        notes.append(f"Snapshots: from {results['base']} at the same step.")
    return ResultTable(f"Differences from {results['base']}", header, rows, tuple(notes))


def _paper_curves(results: dict[str, Any]) -> list[ResultTable]:
    """The paper's curves, a table for each column."""
    sheets = []
    for column, curves in results["paper_curves"].items():
        axis = sorted({x for pairs in curves.values() for x, _ in pairs})
        rows = [
            (line, *(next((f"{y:.1f}" for x, y in pairs if x == at), "-") for at in axis))
            for line, pairs in curves.items()
        ]
        title = f"{column} in {results['source']}, by {results['paper_axis'] or results['axis']}"
        sheets.append(ResultTable(title, ("", *(f"{x:g}" for x in axis)), rows))
    return sheets


def _costs(results: dict[str, Any]) -> ResultTable:
    header = ("variant", "parameters", "training tokens", "minutes of pre-training", "minutes of fine-tuning")
    rows = []
    for row in results["rows"]:
        numbers = ["-" if row[key] is None else f"{row[key]:,.0f}" for key in ("parameters", "tokens")]
        minutes = ["-" if s is None else f"{s / 60:.1f}" for s in (row["pretrain_seconds"], row["finetune_seconds"])]
        rows.append((row["name"], *numbers, *minutes))
    note = "Parameters with the heads of pre-training; fine-tuning of all columns and seeds together."
    return ResultTable("Costs", header, rows, (note,))


def _entry(results: dict[str, Any], row: dict[str, Any], column: dict[str, Any]) -> dict[str, Any]:
    return next(e for e in results["measured"] if e["row"] == row["name"] and e["column"] == column["name"])


def _number(value: float, column: dict[str, Any], sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if column["percent"] else f"{value:{sign}.2f}"


def _cell(entry: dict[str, Any], column: dict[str, Any], results: dict[str, Any]) -> str:
    """63.1 ± 0.4 (n 2) †1 *84.4*: ours, of how many seeds if not all, collapsed ones among them, the paper's."""
    parts = []
    if entry["n"]:
        spread = f" ± {_number(entry['sd'], column)}" if entry["sd"] is not None else ""
        parts.append(_number(entry["mean"], column) + spread)
    expected = 1 if "" in entry["values"] else len(results["seeds"])
    if entry["failed"]:
        parts.append("/".join(dict.fromkeys(one["outcome"] for one in entry["failed"])))
    if 0 < entry["n"] < expected:
        parts.append(f"(n {entry['n']})")
    if entry["collapsed"]:
        parts.append(f"†{entry['collapsed']}")
    parts = parts or ["-"]
    if entry["paper"] is not None:
        parts.append(f"*{entry['paper']:.{1 if column['percent'] else 2}f}*")
    return " ".join(parts)


def _difference(entry: dict[str, Any], column: dict[str, Any]) -> str:
    """-1.2 (-3.0 to +0.6) *-0.5*"""
    found, parts = entry["difference"], []
    if found:
        parts.append(_number(found["mean"], column, "+"))
        if found["interval"]:
            low, high = (_number(end, column, "+") for end in found["interval"])
            parts.append(f"({low} to {high})")
    if entry["paper_difference"] is not None:
        parts.append(f"*{entry['paper_difference']:+.{1 if column['percent'] else 2}f}*")
    return " ".join(parts) or "-"


def _notes(results: dict[str, Any]) -> list[str]:
    """Sentences below the figures."""
    seeds, measured = results["seeds"], results["measured"]
    notes = ["Made with --minute: this shows that the study runs; its figures mean nothing."] * results["minute"]
    if any("" not in entry["values"] and entry["n"] for entry in measured):
        names = ", ".join(map(str, seeds))
        notes.append(
            f"Mean ± standard deviation over {len(seeds)} seeds of fine-tuning ({names}), on development data. A "
            "variant is pre-trained once: what another seed of pre-training would change is in no interval."
        )
    if any(entry["paper"] is not None for entry in measured):
        notes.append(f"In italics: {results['source']}.")
    if any(entry["collapsed"] for entry in measured):
        notes.append("† so many of the runs collapsed to the same answer everywhere; they are in the mean.")
    notes += failure_notes(results)
    if left := len(results["left"]):
        empty = f"{sum(not entry['n'] for entry in measured)} of {len(measured)}"
        cells = len(results["cells"])
        notes.append(f"A dash is a missing figure: {empty}. Of the study's {cells} runs {left} have not been run.")
    return [*notes, *results["notes"]]
