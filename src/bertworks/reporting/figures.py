"""Plots of runs, from their folders alone (log.jsonl, results.json).

The first row has loss curves, the second accuracies and other metrics, and of finished classifiers the reliability of
their probabilities; any number of runs share an axis. Training is thin, held-out data thick. The colours are Okabe and
Ito's, which colour-blind people can tell apart.
"""

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter
from rich.cells import cell_len

from ..files import InputError, atomic_write
from .fonts import plain_texts
from .outputs import check_output
from .run_files import LOG, METRICS, RESULTS, read_log, read_results, runs_in

X = Literal["step", "tokens", "seconds"]
Place = Literal["outside upper center", "outside lower center"]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.")  # of more runs than colours
WIDE = 3  # panels in one line
GREY = "#666666"
ENDINGS = [".png", ".svg"]
TERMS = {
    "mlm": "masked-LM",
    "ltr": "left-to-right LM",
    "rtl": "right-to-left LM",
    "nsp": "next-sentence",
    "sop": "sentence-order",
}
NAMES = {
    **{f"{term}_loss": f"{name} loss (nats)" for term, name in TERMS.items()},
    **{f"{term}_accuracy": f"{name} accuracy" for term, name in TERMS.items()},
    "soft_loss": "divergence from the teacher (nats)",
    "cosine_loss": "cosine distance from the teacher",
    "task_loss": "loss (nats)",
    "f1": "F1",
    "macro_f1": "macro F1",
}
WORD_LOSSES = {"mlm_loss", "ltr_loss", "rtl_loss"}  # a model without context reaches the unigram entropy
AXES = {"step": "step", "tokens": "training tokens", "seconds": "minutes of training"}
RELIABILITY = "reliability"  # a table in the results of a classifier, drawn beside its metrics
# fields of a record that are no metric: counters, speeds, and what the optimizer does
NO_METRIC = {*AXES, "left", "skipped", "tokens_per_second", "memory", "cores_used_by_others", "kind", "lr", "grad_norm"}


class Curves(NamedTuple):
    """The log and results of a run folder."""

    name: str
    train: list[dict[str, Any]]
    held_out: list[dict[str, Any]]
    results: dict[str, Any]  # empty if it is not finished


def read_curves(folder: Path | str) -> Curves:
    """The run in `folder`. Raises InputError if there is no log with records in it, or a file was changed."""
    folder = Path(folder)
    train, evaluated = ([one for one in read_log(folder) if one["kind"] == kind] for kind in ("train", "eval"))
    if not train:
        raise InputError(f"{folder / LOG}: no record of training in it yet")
    held_out = [{"task_loss" if key == "loss" else key: v for key, v in record.items()} for record in evaluated]
    form = {"metrics?": METRICS, "majority?": (float, None), f"{RELIABILITY}?": [METRICS], "ece?": float}
    results = read_results(folder / RESULTS, form) if (folder / RESULTS).exists() else {}
    return Curves(folder.resolve().name, train, held_out, results)


def plot_runs(runs: Sequence[Path | str], out: Path | str, x: X = "step") -> list[Path]:
    """Draw the curves of run folders. `out` ends in .png or .svg, or in neither: then both are written.

    A folder of seeds gives its runs. Returns the files. Raises InputError if a folder is no run.
    """
    folders = [folder for given in runs for folder in runs_in(Path(given))]
    curves = [read_curves(folder) for folder in folders]
    if not curves:
        raise InputError("no run to plot; give one run folder or more")
    if len({run.name for run in curves}) < len(curves):  # names alone do not tell them apart: say where they are
        curves = [run._replace(name="/".join(f.resolve().parts[-2:])) for run, f in zip(curves, folders, strict=True)]
    rows = [row[i : i + WIDE] for row in _panels(curves) for i in range(0, len(row), WIDE)]
    columns = max(map(len, rows))
    figure = new_figure(4.8 * columns, 3.4 * len(rows))
    for i, row in enumerate(rows):
        for j, metric in enumerate(row):
            axes = figure.add_subplot(len(rows), columns, i * columns + j + 1)
            if metric == RELIABILITY:
                _draw_reliability(axes, curves)
            else:
                _draw(axes, curves, metric, x)
    if len(curves) > 1:
        title = "thin: training, thick: held-out" if any(run.held_out for run in curves) else None
        add_legend(figure, "outside upper center", title)  # above the panels: it would hide lines in each
    return save_figure(figure, Path(out))


def add_legend(figure: Figure, place: Place, title: str | None = None) -> None:
    """One legend for all panels."""
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
    columns = legend_columns(figure, lines)
    figure.legend([*lines.values()], [*lines], loc=place, ncols=columns, edgecolor="none", title=title)


def legend_columns(figure: Figure, labels: Collection[str]) -> int:
    """How many columns of these labels a legend may have; a figure that is too narrow for one is made wider."""
    sizes = [(50 + 6.5 * cell_len(label)) / 72 for label in labels]  # inches, with the line's sample
    figure.set_figwidth(max(figure.get_figwidth(), 1.15 * max(sizes)))
    columns = range(len(sizes), 0, -1)  # each as wide as its widest label
    return next(n for n in columns if n == 1 or sum(map(max, np.array_split(sizes, n))) <= figure.get_figwidth())


def _panels(runs: list[Curves]) -> tuple[list[str], list[str]]:
    """(losses, other metrics) that the runs have, in the order in which they log them."""
    keys = dict.fromkeys(key for run in runs for record in (run.train[-1], *run.held_out[-1:]) for key in record)
    metrics = [key for key in keys if key not in NO_METRIC]
    others = [m for m in metrics if not m.endswith("loss")]
    if any(run.results.get(RELIABILITY) for run in runs):
        others.append(RELIABILITY)
    return [m for m in metrics if m.endswith("loss")], others


def _style(number: int) -> dict[str, Any]:
    """Colour and dashes of the run of that number."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def _draw_reliability(axes: Axes, runs: list[Curves]) -> None:
    """The share of right predictions over their confidence; the area of a point is its number of predictions."""
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1.5, label="calibrated")
    for i, run in enumerate(runs):
        table = run.results.get(RELIABILITY)
        if not table:
            continue
        columns = np.array([[row["confidence"], row["accuracy"], row["count"]] for row in table])
        confidence, accuracy, count = columns.T
        ece = f"ECE {run.results['ece']:.1%}" if "ece" in run.results else None
        axes.plot(confidence, accuracy, **_style(i), linewidth=1.5, label=ece if len(runs) == 1 else None)
        axes.scatter(confidence, accuracy, s=10 + 150 * count / count.sum(), color=_style(i)["color"], alpha=0.7)
    axes.set(xlabel="confidence", ylabel="share that is right", ylim=(-0.03, 1.03))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.legend(edgecolor="none", framealpha=0.9)


def _draw(axes: Axes, runs: list[Curves], metric: str, x: X) -> None:
    """One metric of all runs."""
    is_comparison = len(runs) > 1
    for i, run in enumerate(runs):
        style = _style(i)
        position = _positions(run, x)
        for records, width, what in ((run.train, 1.0, "training"), (run.held_out, 2.2, "held-out")):
            points = [(position(r), r[metric]) for r in records if isinstance(r.get(metric), int | float)]
            name = f" {run.name}" if run.name.startswith("_") else run.name  # which matplotlib would keep to itself
            label = (name if what == "held-out" or not run.held_out else None) if is_comparison else what
            if points:
                thick = what == "held-out"
                axes.plot(
                    *np.array(points).T, **style, linewidth=width, alpha=1.0 if thick else 0.45, label=label,
                    marker="o" if thick and len(points) < 30 else None, markersize=4,
                )  # fmt: skip
    for value, label in _levels(runs, metric):
        axes.axhline(value, color=GREY, linestyle=":", linewidth=1.5, label=label)
    axes.set(xlabel=AXES[x], ylabel=NAMES.get(metric, metric.replace("_", " ")))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if not metric.endswith("loss"):
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        if axes.get_ylim()[1] > 1:  # matplotlib adds a margin above the highest value; no fraction is above 1
            axes.set_ylim(top=1.01)
    axes.set_xlim(left=0)
    if not is_comparison:
        axes.legend(edgecolor="none", framealpha=0.9)


def _positions(run: Curves, x: X) -> Callable[[dict[str, Any]], float]:
    """A function from a record to its x. Held-out records have only a step; tokens and seconds are interpolated."""
    steps = [0.0, *(float(r["step"]) for r in run.train)]
    values = [0.0, *(float(r.get(x, math.nan)) for r in run.train)]
    scale = 60.0 if x == "seconds" else 1.0
    return lambda record: float(np.interp(record["step"], steps, values)) / scale


def _levels(runs: list[Curves], metric: str) -> list[tuple[float, str]]:
    """Levels of models without context or without input (unigram entropy, majority class); equal ones once."""
    levels: dict[float, str] = {}
    for run in runs:
        metrics, majority = run.results.get("metrics", {}), run.results.get("majority")
        entropy, first = metrics.get("unigram_entropy"), next((name for name in metrics if name != "loss"), None)
        if metric in WORD_LOSSES and entropy is not None:
            levels[round(entropy, 4)] = "unigram entropy"
        if metric == first and majority:  # of a task's first metric; 0 says nothing
            levels[round(majority, 4)] = "majority class"
    return list(levels.items())


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, with its own canvas: no global state, no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, out: Path) -> list[Path]:
    """Write `out`, or both .png and .svg of it, with a faint grid in place of frames; returns the files."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    endings = [""] if out.suffix.lower() in ENDINGS else ENDINGS
    files = [out.with_name(out.name + ending) for ending in endings]
    for file in files:
        check_output(file, makes_folder=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    for file in files:
        with plain_texts(figure), atomic_write(file) as target:
            figure.savefig(target, format=file.suffix[1:].lower(), dpi=150)
    return files
