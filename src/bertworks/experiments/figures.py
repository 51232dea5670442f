"""Pictures of a study, from its results alone: differences from the base variant, or curves along an axis.

Curves have their points in rows (the steps of a run) or in columns (numbers of training examples).

The paper's figures stand beside ours, never on the same scale: differences can be compared between a small model and
the paper's, levels cannot.
"""

import itertools
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from ..files import InputError, read_json
from ..reporting.figures import COLOURS, GREY, new_figure, save_figure
from ..reporting.fonts import text_width
from ..reporting.run_files import LOG, METRICS, RESULTS
from ..typed import check_fields
from .compare import paired
from .report import FORMAT

PANELS = 3  # side by side
_MAYBE = (float, None)
DRAWN = {  # of a study's results.json
    **dict.fromkeys(("title", "base", "axis", "paper_axis", "source"), str),
    "columns": [{"name": str, "percent": bool, "metric": str, "panel?": str, "x?": float}],
    "rows": [{"name": str, "line": str, "x": _MAYBE, "steps": _MAYBE}],
    "measured": [
        {
            **dict.fromkeys(("row", "column", "against"), str),
            "values": METRICS,
            "n": int,
            "mean": _MAYBE,
            "difference": ({"mean": float, "interval": ([float, float], None)}, None),
            "paper_difference": _MAYBE,
        }
    ],
    "paper_curves": {str: {str: [[float, float]]}},
}


def read_study(folder: Path) -> dict[str, Any] | None:
    """The results in a study's folder, finished or not; None if it is no study's folder.

    Raises InputError if its results.json is not JSON, or of another version.
    """
    path = folder / RESULTS
    try:
        found = read_json(path, finite=False) if path.exists() else None
    except InputError as error:
        if (folder / LOG).exists():  # a run, whose reader says what to do
            return None
        again = "restore the file, or remove it and rerun `bertworks study`, which keeps finished runs"
        raise InputError(f"{error}; {again}") from None
    if not isinstance(found, dict) or found.get("kind") != "study":
        return None
    if found.get("format") != FORMAT:
        raise InputError(
            f"{path}: a study's results in format {found.get('format')!r}; this program reads format {FORMAT}. "
            "`bertworks study` writes them anew from the finished runs: give it another --out, and --cells with the old"
        )
    _check(found, str(path))
    return found


def _check(found: dict[str, Any], where: str) -> None:
    """Raises InputError if the results lack what is drawn of them."""
    repair = "run the study again: it writes the file anew from the finished runs"
    check_fields(found, DRAWN, where, repair)
    cells = {(entry["row"], entry["column"]) for entry in found["measured"]}
    rows = {row["name"] for row in found["rows"]}
    for row, column in itertools.product(rows, (column["name"] for column in found["columns"])):
        if (row, column) not in cells:
            raise InputError(f"{where}: measured has no entry for row {row!r} and column {column!r}; {repair}")
    if odd := [entry for entry in found["measured"] if entry["n"] and entry["mean"] is None]:
        raise InputError(f"{where}: row {odd[0]['row']!r}, column {odd[0]['column']!r}: n but no mean; {repair}")
    if unknown := {entry["against"] for entry in found["measured"]} - rows:
        raise InputError(f"{where}: measured is compared against {unknown.pop()!r}, which is no row; {repair}")


def plot_study(results: dict[str, Any], out: Path) -> list[Path]:
    """Write `out`.png and `out`.svg; returns the files, none if there is nothing to draw yet."""
    if any("x" in column for column in results["columns"]):
        return _draw_panels(results, out)
    return _draw_curves(results, out) if results["axis"] else _draw_differences(results, out)


def _of(results: dict[str, Any], column: str) -> list[dict[str, Any]]:
    """The entries of a column, in the order of the rows."""
    return [entry for entry in results["measured"] if entry["column"] == column]


# ---- differences


def _draw_differences(results: dict[str, Any], out: Path) -> list[Path]:
    """A panel a column: for each variant the seeds' differences from the base, their mean and interval."""
    columns = [c for c in results["columns"] if any(e["difference"] for e in _of(results, c["name"]))]
    if not columns:
        return []
    wide, names = min(PANELS, len(columns)), [row["name"] for row in results["rows"] if row["name"] != results["base"]]
    high = -(-len(columns) // wide)
    figure = new_figure(1.2 + 0.09 * max(map(text_width, names)) + 3.2 * wide, high * (1.3 + 0.38 * len(names)))
    for number, column in enumerate(columns):
        axes = figure.add_subplot(high, wide, number + 1)
        _draw_column(axes, results, column, names, labelled=number % wide == 0)
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
    figure.legend([*lines.values()], [*lines], loc="outside lower center", ncols=len(lines), frameon=False)
    figure.suptitle(f"{results['title']}: difference from {results['base']}", fontsize=11)
    return save_figure(figure, out)


def _draw_column(axes: Axes, results: dict[str, Any], column: dict[str, Any], names: list[str], labelled: bool) -> None:
    entries = {entry["row"]: entry for entry in _of(results, column["name"])}
    scale = 100 if column["percent"] else 1
    axes.axvline(0, color=GREY, linewidth=1)
    for y, name in enumerate(names):
        entry = entries[name]
        base = entries[entry["against"]]["values"]
        if found := entry["difference"]:
            mean, ends = scale * found["mean"], found["interval"]
            if ends:
                reach = [scale * end for end in ends]
                axes.plot(reach, [y] * 2, color=COLOURS[0], linewidth=2, label="95 % interval")
            axes.plot(mean, y, "o", color=COLOURS[0], markersize=7, label="ours, mean")
            seeds = [scale * (value - base[s]) for s, value in entry["values"].items() if s in base]
            if len(seeds) > 1:
                axes.plot(seeds, [y] * len(seeds), "|", color="black", markersize=9, label="ours, each seed")
        if entry["paper_difference"] is not None:
            axes.plot(
                entry["paper_difference"], y, "D", markerfacecolor="none", color=COLOURS[1], markersize=7,
                label="paper",
            )  # fmt: skip
    axes.set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5), title=column["name"])
    axes.set_yticklabels(names if labelled else [])
    axes.locator_params(axis="x", nbins=6)  # longer numbers would touch
    axes.set_xlabel("points" if column["percent"] else column["metric"].replace("_", " "))


# ---- curves


def _draw_curves(results: dict[str, Any], out: Path) -> list[Path]:
    """A line of panels a column: our curves with every seed, and the paper's beside them where it has some."""
    columns = [c for c in results["columns"] if any(e["n"] for e in _of(results, c["name"]))]
    if not columns:
        return []
    wide = 2 if results["paper_curves"] else 1
    figure = new_figure(0.8 + 4.6 * wide, 0.6 + 3.4 * len(columns))
    lines = list(dict.fromkeys(row["line"] for row in results["rows"] if row["line"]))
    for number, column in enumerate(columns):
        axes = figure.add_subplot(len(columns), wide, number * wide + 1)
        for line, colour in zip(lines, cycle(COLOURS), strict=False):
            _draw_line(axes, results, column, line, colour)
        unit = " (%)" if column["percent"] else ""
        axes.set(xlabel=results["axis"], ylabel=column["name"] + unit, title="ours" if wide > 1 else "")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.legend(frameon=False)
        if curves := results["paper_curves"].get(column["name"]):
            beside = figure.add_subplot(len(columns), wide, number * wide + 2)
            for line, colour in zip(lines, cycle(COLOURS), strict=False):
                if pairs := curves.get(line):
                    beside.plot(*zip(*pairs, strict=True), "D--", color=colour, markerfacecolor="none", label=line)
            beside.set(xlabel=results["paper_axis"] or results["axis"], ylabel=column["name"] + unit)
            beside.set_title(results["source"])
            beside.legend(frameon=False)
    figure.suptitle(results["title"], fontsize=11)
    return save_figure(figure, out)


def _draw_line(axes: Axes, results: dict[str, Any], column: dict[str, Any], line: str, colour: str) -> None:
    """One curve: a point each seed, a line through their means."""
    scale = 100 if column["percent"] else 1
    entries = {entry["row"]: entry for entry in _of(results, column["name"])}
    means = []
    for row in results["rows"]:
        x = row["x"] if row["x"] is not None else row["steps"]
        if row["line"] != line or not entries[row["name"]]["n"] or x is None:
            continue
        values = [scale * value for value in entries[row["name"]]["values"].values()]
        axes.plot([x] * len(values), values, "o", color=colour, alpha=0.35, markersize=4)
        means.append((x, scale * entries[row["name"]]["mean"]))
    if means:
        axes.plot(*zip(*sorted(means), strict=True), "-o", color=colour, markersize=5, label=line)


# ---- curves over columns


def _draw_panels(results: dict[str, Any], out: Path) -> list[Path]:
    """A panel for each group of columns; in it a curve for each variant, with the interval of each mean."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for column in results["columns"]:
        if "x" in column and any(e["n"] for e in _of(results, column["name"])):
            panels.setdefault(column["panel"], []).append(column)
    if not panels:
        return []
    figure = new_figure(0.8 + 4.6 * len(panels), 4.2)
    for number, (name, columns) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), number + 1)
        axes.set_xscale("log")
        columns = sorted(columns, key=lambda column: float(column["x"]))
        for at, (row, colour) in enumerate(zip(results["rows"], cycle(COLOURS), strict=False)):
            _draw_points(axes, results, row["name"], columns, colour, 1.03 ** (at - len(results["rows"]) / 2))
        axes.set(xlabel=results["axis"], ylabel=name + " (%)" * columns[0]["percent"])
        axes.set_xticks([column["x"] for column in columns], [f"{column['x']:,.0f}" for column in columns])
        axes.set_xticks([], minor=True)
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
    figure.legend([*lines.values()], [*lines], loc="outside lower center", ncols=min(len(lines), 4), frameon=False)
    figure.suptitle(results["title"], fontsize=11)
    return save_figure(figure, out)


def _draw_points(
    axes: Axes, results: dict[str, Any], row: str, columns: list[dict[str, Any]], colour: str, shift: float
) -> None:
    """The means of one variant with their 95 % intervals; `shift` keeps the bars of several apart."""
    points = []
    for column in columns:
        entry = next(entry for entry in _of(results, column["name"]) if entry["row"] == row)
        found = paired(dict.fromkeys(entry["values"], 0.0), entry["values"])
        if found:
            low, high = found["interval"] or (found["mean"], found["mean"])
            scale = 100 if column["percent"] else 1
            points.append([scale * value for value in (found["mean"], low, high)] + [column["x"] * shift])
    if points:
        mean, low, high, x = (list(values) for values in zip(*points, strict=True))
        reach = [[m - end for m, end in zip(mean, low, strict=True)], [e - m for m, e in zip(mean, high, strict=True)]]
        axes.errorbar(x, mean, reach, fmt="-o", color=colour, capsize=3, markersize=5, label=row)
