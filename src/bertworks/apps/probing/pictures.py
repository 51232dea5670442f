"""The picture of the probes: lines over layers. Colours as in reporting/figures.py."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...files import InputError, write_json
from ...reporting.figures import COLOURS, GREY, legend_columns, new_figure, save_figure
from ...reporting.outputs import check_output


def lines(
    names: Sequence[str],
    curves: Mapping[str, Sequence[float]],
    dotted: Mapping[str, Sequence[float]],
    ylabel: str,
    out: Path,
    spreads: Mapping[str, Sequence[float]] = {},
) -> list[Path]:
    """Curves over layers, thick with points, and others dotted in grey; `spreads` are standard deviations of curves."""
    figure = new_figure(2.4 + 0.45 * len(names), 3.6)
    axes = figure.add_subplot()
    places = np.arange(len(names))
    for (name, values), colour in zip(curves.items(), COLOURS, strict=False):
        axes.plot(places, values, color=colour, linewidth=2.2, marker="o", markersize=4, label=name)
        if name in spreads:
            low, high = (np.array(values) + sign * np.array(spreads[name]) for sign in (-1, 1))
            axes.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    for (name, values), dash in zip(dotted.items(), (":", "--", "-."), strict=False):
        axes.plot(places, values, color=GREY, linewidth=1.5, linestyle=dash, label=name)
    axes.set(xticks=places, xticklabels=list(names), xlabel="layer", ylabel=ylabel)
    columns = legend_columns(figure, [*curves, *dotted])
    figure.legend(loc="outside upper left", ncols=columns, frameon=False)
    return save_figure(figure, out)


def check_out(
    out: Path | None,
    endings: Sequence[str] = (".json", ".png", ".svg"),
    data: Iterable[Any] = (),
    folders: Iterable[Any] = (),
) -> None:
    """Raises InputError if the ending of the name is not one of `endings`, or as `check_output`. Call it first."""
    if out is not None and out.suffix.lower() not in endings:
        raise InputError(f"--out {out}: expected a name that ends in {' or '.join(endings)}")
    check_output(out, data, folders, makes_folder=True)


def write_or_plot(results: dict[str, Any], out: Path, plot: Callable[[dict[str, Any], Path], list[Path]]) -> list[Path]:
    """`results` as JSON, or drawn by `plot(results, out)`, as the ending of `out` says. Returns the files.

    Raises InputError for another ending.
    """
    check_out(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix.lower() == ".json":
        write_json(out, results)
        return [out]
    return plot(results, out)
