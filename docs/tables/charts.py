"""The charts of README, from the JSON files of results, each for a light and a dark page.

python docs/tables/charts.py      # writes docs/results/charts/
"""

from collections.abc import Callable

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sources import RESULTS, result

CHARTS = RESULTS / "charts"
THEMES = {  # of GitHub's pages
    "light": {"text": "#1f2328", "muted": "#59636e", "ours": "#0969da", "other": "#afb8c1"},
    "dark": {"text": "#f0f6fc", "muted": "#9198a1", "ours": "#4493f8", "other": "#656c76"},
}
Colours = dict[str, str]


def speed() -> list[tuple[str, str, float]]:
    """Workload, conditions, and how many times as fast as transformers on the same machine, an Intel Xeon with AMX."""
    tuning, vectors = result("benchmarks/finetuning-amx"), result("benchmarks/features")["last"]["times_as_fast"]
    key, model = "times_as_fast_as_dynamic_padding", "all-MiniLM-L6-v2"
    return [
        ("Pre-training", "4 layers of width 256, length 128", result("benchmarks/pretraining-amx")["ratio"]),
        ("Fine-tuning, MRPC", model, tuning["mrpc"][key]),
        ("Fine-tuning, SST-2", model, tuning["sst2"][key]),
        ("Sentence vectors", f"{model}, bfloat16", vectors["ours, bfloat16 / transformers, bfloat16"]),
    ]


def draw_speed(axes: Axes, colours: Colours) -> None:
    """A bar for each workload; transformers is the line at 1."""
    rows = speed()
    axes.barh(range(len(rows)), [ratio for *_, ratio in rows], height=0.5, color=colours["ours"])
    for y, (name, conditions, ratio) in enumerate(rows):
        axes.text(-0.15, y - 0.13, name, ha="right", va="center", fontsize=12, color=colours["text"])
        axes.text(-0.15, y + 0.22, conditions, ha="right", va="center", fontsize=9, color=colours["muted"])
        axes.text(ratio + 0.1, y, f"{ratio:.1f} ×", va="center", fontsize=13, weight="bold", color=colours["text"])
    axes.axvline(1, color=colours["muted"], linewidth=1, linestyle=(0, (4, 3)))
    axes.text(1.07, -0.52, "transformers = 1", fontsize=9, color=colours["muted"], va="center")
    axes.set(ylim=(len(rows) - 0.5, -0.7), xlim=(0, 1.12 * max(ratio for *_, ratio in rows)), xticks=[], yticks=[])


def write(name: str, draw: Callable[[Axes, Colours], None], size: tuple[float, float], left: float) -> None:
    """Draw the chart with the colours of each theme, on a transparent ground."""
    CHARTS.mkdir(exist_ok=True)
    for theme, colours in THEMES.items():
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((left, 0.02, 0.98 - left, 0.96))
        axes.set_frame_on(False)
        draw(axes, colours)
        figure.savefig(CHARTS / f"{name}-{theme}.svg", transparent=True, metadata={"Date": None})


def main() -> None:
    """Write every chart: the same bytes each time, with texts in the reader's own font."""
    with matplotlib.rc_context({"svg.hashsalt": "bertworks", "svg.fonttype": "none", "font.family": "sans-serif"}):
        write("speed", draw_speed, (8, 3.1), left=0.36)


if __name__ == "__main__":
    main()
