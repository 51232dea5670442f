"""Pictures of a study, from its results alone: differences from the base variant, or curves along an axis.

Curves have their points in rows (the steps of a run) or in columns (numbers of training examples).

The paper's figures are beside ours, never on the same scale: differences can be compared between a small model and
the paper's, levels cannot.
"""

from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from rich.cells import cell_len

from ..reporting.figures import COLOURS, GREY, add_legend, new_figure, save_figure
from .statistics import difference

PANELS = 3  # in one line
Entry = dict[str, Any]  # of one row in one column, as results.json has it
Entries = dict[tuple[str, str], Entry]  # by row and column


def plot_study(results: dict[str, Any], out: Path) -> list[Path]:
    """Write `out`.png and `out`.svg; returns the files, none if there is nothing to draw yet."""
    entries = {(entry["row"], entry["column"]): entry for entry in results["measured"]}
    points_are_columns = any("x" in column for column in results["columns"])
    measured = "n" if results["axis"] or points_are_columns else "difference"
    drawn = {column for (_, column), entry in entries.items() if entry[measured]}
    columns = [column for column in results["columns"] if column["name"] in drawn]
    draw = _draw_panels if points_are_columns else _draw_curves if results["axis"] else _draw_differences
    return save_figure(draw(results, entries, columns), out) if columns else []


# ---- differences


def _draw_differences(results: dict[str, Any], entries: Entries, columns: list[dict[str, Any]]) -> Figure:
    """One panel per column: for each variant the seeds' differences from the base, their mean and interval."""
    width, names = min(PANELS, len(columns)), [row["name"] for row in results["rows"] if row["name"] != results["base"]]
    height = -(-len(columns) // width)
    figure = new_figure(1.2 + 0.09 * max(map(cell_len, names)) + 3.2 * width, height * (1.3 + 0.38 * len(names)))
    for number, column in enumerate(columns):
        axes = figure.add_subplot(height, width, number + 1)
        for y, name in enumerate(names):
            entry = entries[name, column["name"]]
            _draw_difference(axes, y, entry, entries[entry["against"], column["name"]], 100 if column["percent"] else 1)
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5), title=column["name"])
        axes.set_yticklabels(names if number % width == 0 else [])
        axes.locator_params(axis="x", nbins=6)  # longer numbers would touch
        axes.set_xlabel("points" if column["percent"] else column["metric"].replace("_", " "))
    add_legend(figure, "outside lower center")
    figure.suptitle(f"{results['title']}: difference from {results['base']}", fontsize=11)
    return figure


def _draw_difference(axes: Axes, y: float, entry: Entry, base: Entry, scale: int) -> None:
    """An entry's difference from that of its base, on the line y."""
    if shown := entry["difference"]:
        if shown["interval"]:
            ends = [scale * end for end in shown["interval"]]
            axes.plot(ends, [y] * 2, color=COLOURS[0], linewidth=2, label="95 % interval")
        axes.plot(scale * shown["mean"], y, "o", color=COLOURS[0], markersize=7, label="ours, mean")
        seeds = [scale * (value - base["values"][s]) for s, value in entry["values"].items() if s in base["values"]]
        if len(seeds) > 1:
            axes.plot(seeds, [y] * len(seeds), "|", color="black", markersize=9, label="ours, each seed")
    if entry["paper_difference"] is not None:
        style: dict[str, Any] = {"markerfacecolor": "none", "color": COLOURS[1], "markersize": 7, "label": "paper"}
        axes.plot(entry["paper_difference"], y, "D", **style)


# ---- curves


def _draw_curves(results: dict[str, Any], entries: Entries, columns: list[dict[str, Any]]) -> Figure:
    """One line of panels per column: our curves over the steps, and beside them the paper's, if it has some."""
    width = 2 if results["paper_curves"] else 1
    figure = new_figure(0.8 + 4.6 * width, 0.6 + 3.4 * len(columns))
    names = dict.fromkeys(row["line"] for row in results["rows"] if row["line"])
    lines = dict(zip(names, cycle(COLOURS), strict=False))
    for number, column in enumerate(columns):
        label = column["name"] + " (%)" * column["percent"]
        axes = figure.add_subplot(len(columns), width, number * width + 1)
        for line, colour in lines.items():
            rows = [row for row in results["rows"] if row["line"] == line]
            row_at = {row["steps"] if row["x"] is None else row["x"]: row["name"] for row in rows}
            points = [(x, entries[name, column["name"]]) for x, name in row_at.items() if x is not None]
            _draw_line(axes, points, column, line, colour)
        axes.set(xlabel=results["axis"], ylabel=label, title="ours" if width > 1 else "")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.legend(frameon=False)
        if curves := results["paper_curves"].get(column["name"]):
            beside = figure.add_subplot(len(columns), width, number * width + 2)
            for line in (line for line in lines if line in curves):
                beside.plot(
                    *zip(*curves[line], strict=True), "D--", color=lines[line], markerfacecolor="none", label=line
                )
            beside.set(xlabel=results["paper_axis"] or results["axis"], ylabel=label, title=results["source"])
            beside.legend(frameon=False)
    figure.suptitle(results["title"], fontsize=11)
    return figure


def _draw_panels(results: dict[str, Any], entries: Entries, columns: list[dict[str, Any]]) -> Figure:
    """One panel for each group of columns, whose curves are the variants over the columns' x."""
    panels = list(dict.fromkeys(column["panel"] for column in columns if "x" in column))
    figure = new_figure(0.8 + 4.6 * len(panels), 4.2)
    for number, name in enumerate(panels):
        inside = [column for column in columns if column.get("panel") == name]
        axes = figure.add_subplot(1, len(panels), number + 1)
        axes.set_xscale("log")
        for at, (row, colour) in enumerate(zip(results["rows"], cycle(COLOURS), strict=False)):
            shift = 1.03 ** (at - len(results["rows"]) / 2)  # keeps the intervals of several variants apart
            points = [(column["x"] * shift, entries[row["name"], column["name"]]) for column in inside]
            _draw_line(axes, points, inside[0], row["name"], colour)
        axes.set(xlabel=results["axis"], ylabel=name + " (%)" * inside[0]["percent"])
        axes.set_xticks([column["x"] for column in inside], [f"{column['x']:,.0f}" for column in inside])
        axes.set_xticks([], minor=True)
    add_legend(figure, "outside lower center")
    figure.suptitle(results["title"], fontsize=11)
    return figure


def _draw_line(axes: Axes, points: list[tuple[float, Entry]], column: dict[str, Any], label: str, colour: str) -> None:
    """A curve through the means of (x, entry), with their 95 % intervals."""
    scale, drawn = 100 if column["percent"] else 1, []
    for x, entry in sorted(points, key=lambda point: point[0]):
        if found := difference(dict.fromkeys(entry["values"], 0.0), entry["values"]):
            low, high = found.interval or (found.mean, found.mean)
            drawn.append([x, scale * found.mean, scale * (found.mean - low), scale * (high - found.mean)])
    if drawn:
        places, means, below, above = zip(*drawn, strict=True)
        axes.errorbar(places, means, [below, above], fmt="-o", color=colour, capsize=3, markersize=5, label=label)
