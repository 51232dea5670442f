"""The drawings of report.html as SVG: scores of seeds, the falling loss, a map for each attention head.

Colours are variables of the page's style sheet, so that light and dark pages have their own.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from ..probing.model import Attention
from .report import compared_weights

WIDTH, LABEL = 480, 150  # of a drawing and of the names at its left; the page scales both


def score_bars(name: str, task: dict[str, Any]) -> str:
    """A bar for each row of the task's table, with a point a seed."""
    rows, size = compared_weights(name, task), 38
    scale = (WIDTH - LABEL - 60) / max(0.01, *(score for _, score, _, _ in rows), *_seeds(task))
    parts = []
    for number, (what, score, _, _) in enumerate(rows):
        y, seeds = size * number + 4, task["sides"].get(what.removesuffix(" weights"), {"test": []})["test"]
        first, _, rest = what.partition(" of ")
        lines = [first, f"of {rest}"] if rest else [first]
        parts += [
            f'<text x="{LABEL - 8}" y="{y + 19 - 7 * (len(lines) - 1) + 14 * i}" class="name">{escape(line)}</text>'
            for i, line in enumerate(lines)
        ]
        kind = "main" if number == 0 else "other"
        parts.append(f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{scale * score:.1f}" height="28" rx="3"/>')
        parts += [
            f'<circle cx="{LABEL + scale * seed:.1f}" cy="{y + 14 + spread:.1f}" r="3"/>'
            for seed, spread in zip(seeds, np.linspace(-8, 8, max(2, len(seeds))), strict=False)
        ]
        end = LABEL + scale * max([score, *seeds]) + 8
        parts.append(f'<text x="{end:.1f}" y="{y + 19}" class="value">{100 * score:.1f}</text>')
    return _svg("scores", WIDTH, size * len(rows) + 4, parts, "test scores in per cent; a point is a seed")


def _seeds(task: dict[str, Any]) -> Iterable[float]:
    return (score for side in task["sides"].values() for score in side["test"])


def falling_loss(records: Sequence[dict[str, Any]], entropy: float) -> str:
    """The masked-LM loss over the tokens: training as a line, held-out as points, guessing as a broken line."""
    train = [(r["tokens"], r["mlm_loss"]) for r in records if r["kind"] == "train" and r.get("mlm_loss") is not None]
    steps = [(r["step"], r["tokens"]) for r in records if r["kind"] == "train"]
    held = [
        (float(np.interp(r["step"], *np.array(steps, float).T)), r["mlm_loss"])
        for r in records
        if r["kind"] == "eval" and steps and r.get("mlm_loss") is not None
    ]
    values = [y for _, y in [*train, *held]] + [entropy]
    low, high, last = np.floor(min(values)), np.ceil(max(values)), max([x for x, _ in train] or [1])
    left, right, top, bottom = 34, WIDTH - 10, 10, 210

    def at(x: float, y: float) -> str:
        return f"{left + (right - left) * x / last:.1f},{bottom - (bottom - top) * (y - low) / (high - low):.1f}"

    def level(y: float) -> float:
        return float(at(0, y).split(",")[1])

    parts = []
    for value in np.arange(low, high + 1):
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{level(value)}" y2="{level(value)}"/>')
        parts.append(f'<text class="name" x="{left - 6}" y="{level(value) + 4}">{value:.0f}</text>')
    guess = level(entropy)
    parts += [
        f'<line class="guess" x1="{left}" x2="{right}" y1="{guess}" y2="{guess}"/>',
        f'<text class="end" x="{right}" y="{guess - 6}">word frequencies alone: {entropy:.2f}</text>',
        f'<polyline points="{" ".join(at(x, y) for x, y in train)}"/>',
        *('<circle cx="{}" cy="{}" r="4"/>'.format(*at(x, y).split(",")) for x, y in held),
    ]
    for share in (0, 0.5, 1):
        anchor = {0: "start", 0.5: "middle", 1: "end"}[share]
        x = left + (right - left) * share
        tokens = f"{share * last / 1e6:.1f} M" if last > 1e6 else f"{share * last / 1e3:.0f} k"
        label = f"{tokens} tokens" if share else "0"
        parts.append(f'<text x="{x}" y="{bottom + 20}" style="text-anchor:{anchor}">{label}</text>')
    return _svg("curve", WIDTH, bottom + 28, parts, "masked-LM loss in nats over tokens of pre-training")


def head_maps(attention: Attention) -> str:
    """A map for each head: a row is a token that looks, a column one that is looked at."""
    layers, heads, _, _ = attention.weights.shape
    maps = [
        f"<figure>{_map(attention, layer, head)}<figcaption>layer {layer + 1}, head {head + 1}</figcaption></figure>"
        for layer in range(layers)
        for head in range(heads)
    ]
    return "".join(maps)


def _map(attention: Attention, layer: int, head: int) -> str:
    cell, label = 14, 66
    tokens, weights = attention.tokens, attention.weights[layer, head]
    parts = []
    for i, token in enumerate(tokens):
        middle = label + cell * i + cell / 2
        parts.append(f'<text class="name" x="{label - 5}" y="{middle + 4}">{escape(token[:9])}</text>')
        parts.append(
            f'<text transform="translate({middle + 4},{label - 5}) rotate(-90)">{escape(token[:9])}</text>',
        )
        for j, weight in enumerate(weights[i]):
            if weight >= 0.01:
                title = f"{escape(token)} looks at {escape(tokens[j])}: {weight:.0%}"
                parts.append(
                    f'<rect x="{label + cell * j}" y="{label + cell * i}" width="{cell - 1}" height="{cell - 1}" '
                    f'opacity="{weight**0.5:.2f}"><title>{title}</title></rect>'
                )
    size = label + cell * len(tokens)
    return _svg("map", size, size, parts, f"attention of layer {layer + 1}, head {head + 1}")


def _svg(kind: str, width: float, height: float, parts: Iterable[str], title: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
