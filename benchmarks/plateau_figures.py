"""The picture of a stage of the race of starts (plateau.py), from its result alone.

Left: held-out masked-LM loss over training tokens, all runs on one axis. Right: attention at offsets -1 and +1 over
steps, the mean of all heads and the highest head.
"""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from bertworks.files import read_json
from bertworks.reporting.figures import COLOURS, new_figure, save_figure

STYLES = ("-", "--", ":")


def family(name: str) -> int:
    """The colour of a run: rotary positions, learned ones, or a start with position heads."""
    return ["rotary", "learned", "heads"].index(name.split(",")[0].split()[0])


def draw_losses(axes: Axes, runs: dict[str, Any]) -> None:
    """Held-out loss over tokens; each line is named at its end."""
    ends = []
    for name, run in runs.items():
        tokens, losses = run["eval"]["tokens"], run["eval"]["mlm_loss"]
        dashed = STYLES[1] if "40 %" in name else STYLES[0]
        axes.plot(tokens, losses, dashed, color=COLOURS[family(name)], linewidth=1.6, marker="o", markersize=3)
        ends.append((losses[-1], name, COLOURS[family(name)]))
    low, high = axes.get_ylim()
    step, at = (high - low) / 26, float("-inf")
    for loss, name, colour in sorted(ends):  # names keep their distance
        at = max(loss, at + step)
        axes.annotate(
            f"{loss:.2f}  {name}", (1.0, at), xycoords=axes.get_yaxis_transform(), xytext=(6, 0),
            textcoords="offset points", va="center", fontsize=8, color=colour,
        )  # fmt: skip
    axes.set(xlabel="training tokens", ylabel="held-out masked-LM loss (nats)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def draw_attention(axes: Axes, runs: dict[str, Any]) -> None:
    """Attention at offsets -1 and +1 over steps: thick the mean of all heads, thin the highest head."""
    for name, run in runs.items():
        steps = [int(step) for step in run["inside"]]
        heads = [[share for layer in inside["beside"] for share in layer] for inside in run["inside"].values()]
        dashed = STYLES[1] if "40 %" in name else STYLES[0]
        axes.plot(steps, [sum(h) / len(h) for h in heads], dashed, color=COLOURS[family(name)], linewidth=2)
        axes.plot(steps, [max(h) for h in heads], dashed, color=COLOURS[family(name)], linewidth=0.8, alpha=0.6)
    axes.set(xlabel="step", ylabel="attention at offsets -1 and +1", ylim=(0, 1))
    axes.set_title("thick: mean of all heads, thin: the highest head", fontsize=9)


def draw(result: Path) -> list[Path]:
    """Draw the result of a stage beside it, as .png and .svg; returns the files."""
    runs = read_json(result)
    figure = new_figure(12.5, 4.2)
    left, right = figure.subplots(1, 2)
    draw_losses(left, runs)
    draw_attention(right, runs)
    return save_figure(figure, result.with_suffix(""))
