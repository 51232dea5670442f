"""The pictures of docs/results.md and docs/plateau.md, from the same JSON files as the tables. write.py calls this.

Each PNG has a digest of its data and of this file in its metadata, so that write.py draws only what has changed. If the
model's position heads change, delete the picture of the initial attention, which the model computes.
"""

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from findings import Judged, judged
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from sources import RESULTS, result

from bertworks.experiments.statistics import difference_text, p_text

BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#767676", "#1a1a1a"  # of Okabe and Ito, but greys
RUNS = {  # of the race: name in the file, on the picture, colour, dashes (15 % masked) or a line (40 %)
    "learned": ("normal initialization", ORANGE, "--"),
    "rotary": ("rotary positions", BLUE, "--"),
    "heads": ("position heads", GREEN, "--"),
    "rotary, 40 % masked": ("rotary positions, 40 % masked", BLUE, "-"),
    "heads, 40 % masked": ("position heads, 40 % masked", GREEN, "-"),
}


def pictures() -> dict[Path, tuple[Any, Callable[[], Figure]]]:
    """Each picture: what it shows, and the function that draws it."""
    race = {name: result("position-heads/race")[name] for name in RUNS}
    shown = [(f.title, f.one.here, f.one.paper_points, text_of(f), f.verdict) for f in judged()]
    return {
        RESULTS / "findings.png": (shown, lambda: forest(judged())),
        RESULTS / "position-heads/initial-attention.png": ("attention", initial_attention),
        RESULTS / "position-heads/loss.png": ({n: run["eval"] for n, run in race.items()}, lambda: losses(race)),
        RESULTS / "position-heads/inside.png": ({n: run["inside"] for n, run in race.items()}, lambda: inside(race)),
    }


def outdated() -> list[Path]:
    """The pictures that are missing or show other data than their files have."""
    return [path for path, (data, _) in pictures().items() if recorded(path) != digest(data)]


def draw() -> None:
    """Draw the pictures that are out of date."""
    old = outdated()
    for path, (data, picture) in pictures().items():
        if path in old:
            figure = picture()
            FigureCanvasAgg(figure)
            figure.savefig(path, dpi=170, facecolor="white", metadata={"Description": digest(data), "Software": None})


def digest(data: Any) -> str:
    """Of the data and of this file."""
    return hashlib.sha256(json.dumps([data, Path(__file__).read_text("utf-8")]).encode()).hexdigest()


def recorded(path: Path) -> str:
    """The digest in a picture, or nothing."""
    if not path.exists():
        return ""
    with Image.open(path) as image:
        return str(image.info.get("Description", ""))


# ---- the findings


COLUMNS = {"points (95 %)": 1.03, "n": 1.60, "p": 1.955, "corrected": 2.16, "verdict": 2.40}  # beside the axes


def text_of(f: Judged) -> tuple[str, ...]:
    return (difference_text(f.ours), f"{f.ours.n} {f.unit}", p_text(f.p), p_text(f.corrected))


def forest(found: list[Judged]) -> Figure:
    """Differences with their intervals, below the finding of the paper that they are about."""
    lines: list[str | Judged] = []
    title = ""
    for f in found:
        lines += [f.title] if f.title != title else []
        lines.append(f)
        title = f.title
    figure = Figure(figsize=(10, 0.245 * len(lines) + 1.0))
    axes = figure.add_axes((0.24, 0.06, 0.262, 0.925))
    place = functools.partial(axes.text, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    for y, line in enumerate(lines):
        if isinstance(line, str):
            place(-0.88, y, line[0].upper() + line[1:], weight="bold")
            continue
        axes.axhline(y, color="#e8e8e8", linewidth=0.6, zorder=0)
        place(-0.84, y, line.one.here + (" *" if line.planned else ""))
        for x, text in zip(COLUMNS.values(), (*text_of(line), worded(line)), strict=True):
            last_one = x == COLUMNS["verdict"]
            place(x, y, text, color=colour(line) if last_one else BLACK, weight="bold" if last_one else "normal")
        interval(axes, y, line)
    for text, x in COLUMNS.items():
        place(x, 0, text, color=GREY)
    place(COLUMNS["points (95 %)"], len(lines) + 0.5, "● shown   ○ not shown   ◇ the paper", color=GREY)
    place(
        COLUMNS["points (95 %)"], len(lines) + 1.4, "* claim named before its runs, judged by p uncorrected", color=GREY
    )
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(-18, 34)
    axes.set_xlabel("difference in points, with its 95 % interval", fontsize=8.5, color=BLACK)
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.tick_params(axis="x", labelsize=8.5, colors=BLACK)
    axes.spines[["left", "right", "top"]].set_visible(False)
    return figure


def interval(axes: Axes, y: int, f: Judged) -> None:
    """A comparison's interval and mean; hollow unless shown, and the paper's difference as a diamond."""
    assert f.ours.interval is not None
    low, high = (100 * end for end in f.ours.interval)
    axes.plot([low, high], [y, y], color=colour(f), linewidth=2.2, solid_capstyle="butt")
    face = colour(f) if "is shown" in f.verdict or f.verdict.startswith("shown") else "white"
    axes.plot([100 * f.ours.mean], [y], "o", markersize=6, color=colour(f), markerfacecolor=face, markeredgewidth=1.6)
    if f.one.paper_points is not None:
        axes.plot([f.one.paper_points], [y], "D", markersize=4.5, color=BLACK, markerfacecolor="none")


def worded(f: Judged) -> str:
    """A verdict in fewer words."""
    return "opposite shown" if f.verdict.startswith("the opposite") else f.verdict.removesuffix(", for this encoder")


def colour(f: Judged) -> str:
    if f.verdict.startswith("the opposite"):
        return ORANGE
    return BLUE if f.verdict.startswith("shown") else GREY


# ---- the plateau


def initial_attention() -> Figure:
    """The attention of the first layer before training, of both initializations: means over random sequences."""
    import torch

    from bertworks.model.bert import Encoder
    from bertworks.model.config import ModelConfig
    from bertworks.model.initialization import OFFSETS, initialize, start_with_position_heads

    config = ModelConfig(vocab_size=8192, hidden_size=256, num_hidden_layers=1, num_attention_heads=4)
    encoder = Encoder(config).eval()
    initialize(encoder, config.initializer_range, torch.Generator().manual_seed(1))
    ids = torch.randint(5, 8192, (200, 24), generator=torch.Generator().manual_seed(1))
    normal = attention_of(encoder, ids)
    start_with_position_heads(encoder)
    figure = Figure(figsize=(10, 2.75), layout="constrained")
    grid = figure.subplots(1, 5, sharey=True)
    titles = ["normal initialization,\na head", *(f"position heads,\noffset {offset:+d}" for offset in OFFSETS)]
    for axes, title, shown in zip(grid, titles, [normal[0], *attention_of(encoder, ids)], strict=True):
        image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=0.6)
        axes.set_title(title, fontsize=10, color=BLACK)
        axes.set_xlabel("attends to position", fontsize=9)
        axes.set_xticks([0, 10, 20])
        axes.set_yticks([0, 10, 20])
        axes.tick_params(labelsize=9)
    grid[0].set_ylabel("token at position", fontsize=9)
    bar = figure.colorbar(image, ax=grid, shrink=0.9, pad=0.01)
    bar.set_label("attention", fontsize=9)
    bar.ax.tick_params(labelsize=9)
    return figure


def attention_of(encoder: Any, ids: Any) -> Any:
    """(N, L, L) the attention of the first layer, its mean over the sequences (B, L)."""
    return encoder(ids, attentions=True).attentions[0].detach().mean(0).numpy()


def losses(race: dict[str, Any]) -> Figure:
    """Held-out loss by tokens."""
    figure = Figure(figsize=(7.6, 3.6), layout="constrained")
    axes = figure.subplots()
    ends = []
    for name, (label, line_colour, dashes) in RUNS.items():
        tokens, values = ([*race[name]["eval"][key][:3], race[name]["eval"][key][-1]] for key in ("tokens", "mlm_loss"))
        axes.plot(tokens, values, dashes, color=line_colour, marker="o", markersize=4, linewidth=1.8)
        ends.append((values[-1], f"{values[-1]:.2f}  {label}", line_colour))
    label_ends(axes, ends, tokens[-1], 0.085)
    entropy = race["heads"]["metrics"]["unigram_entropy"]
    levels = (("word frequencies", entropy), ("the same, and copying of the kept tokens", 0.9 * entropy))
    for label, level in levels:  # a tenth of the predicted tokens is kept, as in the paper
        axes.axhline(level, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(f"{level:.2f}  {label}", (tokens[-1], level), (0, 3), textcoords="offset points", ha="right",
                      fontsize=9, color=GREY)  # fmt: skip
    axes.set_ylabel("held-out masked-LM loss (nats)", fontsize=9)
    axes.set_xticks(tokens, [f"{count / 1e6:.1f} M" for count in tokens])
    finish(axes, "training tokens")
    return figure


def inside(race: dict[str, Any]) -> Figure:
    """Attention on both neighbours, and the sizes of words and positions in the subspace, by steps."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    ends = []
    for name, (label, line_colour, dashes) in RUNS.items():
        steps = [*map(int, race[name]["inside"])]
        values = [100 * max(max(layer) for layer in one["beside"]) for one in race[name]["inside"].values()]
        left.plot(steps, values, dashes, color=line_colour, marker="o", markersize=4, linewidth=1.8)
        ends.append((values[-1], label, line_colour))
    label_ends(left, ends, steps[-1], 6.5)
    left.set_ylabel("attention on both neighbours,\nhighest head (%)", fontsize=9)
    run = race["heads, 40 % masked"]
    for part, line_colour, above in (("positions", GREEN, 8), ("words", ORANGE, -40)):
        values = [one["plane"][part] for one in run["inside"].values()]
        right.plot(steps, values, color=line_colour, marker="o", markersize=4, linewidth=1.8)
        right.annotate(f"{part[:-1]} embeddings", (steps[-1], values[-1]), (-4, above), textcoords="offset points",
                       ha="right", fontsize=9, color=line_colour)  # fmt: skip
    right.set_ylabel("root mean square in the\nposition subspace", fontsize=9)
    right.set_title("position heads, 40 % masked", fontsize=9, color=BLACK)
    right.set_ylim(0, 0.055)
    finish(left, "step")
    finish(right, "step")
    return figure


def label_ends(axes: Axes, ends: list[tuple[float, str, str]], x: float, gap: float) -> None:
    """Name the lines at their right ends, at least `gap` apart."""
    height = float("-inf")
    for value, label, line_colour in sorted(ends):
        height = max(value, height + gap)
        leader = {"arrowstyle": "-", "color": line_colour, "linewidth": 0.7, "relpos": (0, 0.5)}
        axes.annotate(label, (x, value), (1.03, height), textcoords=("axes fraction", "data"), va="center", fontsize=9,
                      color=line_colour, annotation_clip=False, arrowprops=leader)  # fmt: skip


def finish(axes: Axes, x: str) -> None:
    axes.set_xlabel(x, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(axis="y", color="#e8e8e8", linewidth=0.6)
    axes.spines[["right", "top"]].set_visible(False)
