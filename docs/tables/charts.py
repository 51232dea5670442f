"""The charts of README, from the JSON files of results, each for a light and a dark page.

python docs/tables/charts.py      # writes docs/results/charts/
"""

from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sources import RESULTS, result, study

CHARTS = RESULTS / "charts"
THEMES = {  # of GitHub's pages
    "light": {"text": "#1f2328", "muted": "#59636e", "line": "#d1d9e0", "ours": "#0969da"}
    | {"linear model": "#bc4c00", "word2vec + BiLSTM": "#8250df", "random weights": "#59636e"},
    "dark": {"text": "#f0f6fc", "muted": "#9198a1", "line": "#3d444d", "ours": "#4493f8"}
    | {"linear model": "#f0883e", "word2vec + BiLSTM": "#ab7df8", "random weights": "#9198a1"},
}
Colours = dict[str, str]
PUBLISHED = {"BERT-Tiny": 83.2, "BERT-Mini": 85.9}  # SST-2, test: Turc et al. (2019), 3.3 billion words


def speed() -> list[tuple[str, str, float]]:
    """Workload, conditions, and how many times as fast as transformers on the same machine, an Intel Xeon with AMX."""
    tuning, vectors = result("benchmarks/finetuning-amx"), result("benchmarks/features")["last"]["times_as_fast"]
    key, model = "times_as_fast_as_dynamic_padding", "all-MiniLM-L6-v2"
    return [
        # the run with the lowest ratio
        ("Pre-training", "4 layers of width 256, length 128", result("benchmarks/pretraining-amx")["ratio"]),
        ("Fine-tuning, MRPC", model, tuning["mrpc"][key]),
        ("Fine-tuning, SST-2", model, tuning["sst2"][key]),
        ("Vectors of tokens", f"{model}, sorted by length", vectors["ours, bfloat16 / transformers, sorted, bfloat16"]),
    ]


def draw_speed(figure: Figure, colours: Colours) -> None:
    """A bar for each workload; transformers is the line at 1."""
    axes, rows = figure.add_axes((0.36, 0.02, 0.62, 0.96), frameon=False), speed()
    axes.barh(range(len(rows)), [ratio for *_, ratio in rows], height=0.5, color=colours["ours"])
    for y, (name, conditions, ratio) in enumerate(rows):
        axes.text(-0.15, y - 0.13, name, ha="right", va="center", fontsize=12, color=colours["text"])
        axes.text(-0.15, y + 0.22, conditions, ha="right", va="center", fontsize=9, color=colours["muted"])
        axes.text(ratio + 0.1, y, f"{ratio:.1f} ×", va="center", fontsize=13, weight="bold", color=colours["text"])
    axes.axvline(1, color=colours["muted"], linewidth=1, linestyle=(0, (4, 3)))
    axes.text(1.07, -0.52, "transformers = 1", fontsize=9, color=colours["muted"], va="center")
    axes.set(ylim=(len(rows) - 0.5, -0.7), xlim=(0, 1.12 * max(ratio for *_, ratio in rows)), xticks=[], yticks=[])


def draw_quality(figure: Figure, colours: Colours) -> None:
    """The scores of the bundled encoder and of what it is compared with, over the number of labelled sentences."""
    found = study("mini")
    means = {(entry["row"], entry["column"]): entry["mean"] for entry in found["measured"] if entry["n"] > 1}
    for i, panel in enumerate(("NER, F1", "SST-2, accuracy")):
        axes = figure.add_axes((0.06 + 0.5 * i, 0.13, 0.3, 0.74))
        columns = [column for column in found["columns"] if column.get("panel") == panel]
        ends = []
        for row in found["rows"]:
            name, colour = row["name"], colours.get(row["name"], colours["ours"])
            points = [(c["x"], 100 * means[name, c["name"]]) for c in columns if (name, c["name"]) in means]
            if points:
                width = 2.6 if name == found["base"] else 1.6
                axes.plot(*zip(*points, strict=True), color=colour, linewidth=width, marker="o", markersize=5)
                ends.append((*points[-1], name, colour))
        if panel.startswith("SST-2"):
            for name, score in PUBLISHED.items():
                axes.plot(columns[-1]["x"], score, "D", color=colours["muted"], markersize=5)
                ends.append((columns[-1]["x"], score, name, colours["muted"]))
        low, high = axes.get_ylim()
        label_y = -1e9
        for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
            text, style = f"{name} {y:.1f}", dict[str, Any](va="center", fontsize=10, color=colour)
            if x < columns[-1]["x"]:
                if name.startswith("random"):  # below the other lines
                    axes.text(x * 1.2, y, text, **style)
                else:
                    axes.text(x * 0.85, y, text.replace(" ", "\n", 1), ha="right", **style | {"va": "bottom"})
                continue
            label_y = max(y, label_y + (high - low) / 16)  # labels do not overlap
            axes.text(x * 1.25, label_y, text, **style)
        axes.set_xscale("log", nonpositive="clip")
        axes.set_xticks([c["x"] for c in columns], [f"{c['x']:,.0f}" for c in columns], minor=False)
        axes.minorticks_off()
        axes.set_title(panel, loc="left", color=colours["text"], fontsize=12, weight="bold")
        axes.tick_params(colors=colours["muted"], length=0)
        axes.grid(axis="y", color=colours["line"], linewidth=0.8)
        axes.set_frame_on(False)
    figure.text(0.06, 0.01, "labelled sentences", color=colours["muted"], fontsize=10)


def write(name: str, draw: Callable[[Figure, Colours], None], size: tuple[float, float]) -> None:
    """Draw the chart with the colours of each theme, on a transparent ground."""
    CHARTS.mkdir(exist_ok=True)
    for theme, colours in THEMES.items():
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        draw(figure, colours)
        figure.savefig(CHARTS / f"{name}-{theme}.svg", transparent=True, metadata={"Date": None})


def main() -> None:
    """Write every chart: the same bytes each time, with texts in the reader's own font."""
    with matplotlib.rc_context({"svg.hashsalt": "bertworks", "svg.fonttype": "none", "font.family": "sans-serif"}):
        write("speed", draw_speed, (8, 3.1))
        write("quality", draw_quality, (10, 3.6))


if __name__ == "__main__":
    main()
