"""Pictures of a study, from its results alone: differences from the base variant, or curves along an axis.

Curves have their points in rows (the steps of a run) or in columns (numbers of training examples).

The paper's figures stand beside ours, never on the same scale: differences can be compared between a small model and
the paper's, levels cannot.
"""

from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ..reporting.figures import COLOURS, GREY, new_figure, save_figure
from ..reporting.fonts import text_width
from .statistics import paired

PANELS = 3  # side by side


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
    _add_legend(figure, most=3)
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
    """A line of panels a column: our curves over the steps, and the paper's beside them where it has some."""
    columns = [c for c in results["columns"] if any(e["n"] for e in _of(results, c["name"]))]
    if not columns:
        return []
    wide = 2 if results["paper_curves"] else 1
    figure = new_figure(0.8 + 4.6 * wide, 0.6 + 3.4 * len(columns))
    lines = list(dict.fromkeys(row["line"] for row in results["rows"] if row["line"]))
    for number, column in enumerate(columns):
        axes = figure.add_subplot(len(columns), wide, number * wide + 1)
        entries = {entry["row"]: entry for entry in _of(results, column["name"])}
        for line, colour in zip(lines, cycle(COLOURS), strict=False):
            rows = [row for row in results["rows"] if row["line"] == line]
            points = [(row["steps"] if row["x"] is None else row["x"], entries[row["name"]]) for row in rows]
            _draw_line(axes, [(x, entry) for x, entry in points if x is not None], column, line, colour)
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


def _draw_panels(results: dict[str, Any], out: Path) -> list[Path]:
    """A panel for each group of columns, whose curves are the variants over the columns' x."""
    panels: dict[str, list[dict[str, Any]]] = {}
    for column in results["columns"]:
        if "x" in column and any(e["n"] for e in _of(results, column["name"])):
            panels.setdefault(column["panel"], []).append(column)
    if not panels:
        return []
    figure = new_figure(0.8 + 4.6 * len(panels), 4.2)
    entries = {(entry["row"], entry["column"]): entry for entry in results["measured"]}
    for number, (name, columns) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), number + 1)
        axes.set_xscale("log")
        for at, (row, colour) in enumerate(zip(results["rows"], cycle(COLOURS), strict=False)):
            shift = 1.03 ** (at - len(results["rows"]) / 2)  # keeps the intervals of several variants apart
            points = [(column["x"] * shift, entries[row["name"], column["name"]]) for column in columns]
            _draw_line(axes, points, columns[0], row["name"], colour)
        axes.set(xlabel=results["axis"], ylabel=name + " (%)" * columns[0]["percent"])
        axes.set_xticks([column["x"] for column in columns], [f"{column['x']:,.0f}" for column in columns])
        axes.set_xticks([], minor=True)
    _add_legend(figure, most=4)
    figure.suptitle(results["title"], fontsize=11)
    return save_figure(figure, out)


def _draw_line(
    axes: Axes, points: list[tuple[float, dict[str, Any]]], column: dict[str, Any], label: str, colour: str
) -> None:
    """A curve through the means of (x, entry), with their 95 % intervals."""
    scale, drawn = 100 if column["percent"] else 1, []
    for x, entry in sorted(points, key=lambda point: point[0]):
        if found := paired(dict.fromkeys(entry["values"], 0.0), entry["values"]):
            low, high = found["interval"] or (found["mean"], found["mean"])
            drawn.append((x, scale * found["mean"], scale * (found["mean"] - low), scale * (high - found["mean"])))
    if drawn:
        places, means, below, above = (list(values) for values in zip(*drawn, strict=True))
        axes.errorbar(places, means, [below, above], fmt="-o", color=colour, capsize=3, markersize=5, label=label)


def _add_legend(figure: Figure, most: int) -> None:
    """One legend below all panels, with at most so many columns."""
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
    figure.legend([*lines.values()], [*lines], loc="outside lower center", ncols=min(len(lines), most), frameon=False)
