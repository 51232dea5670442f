"""The table of docs/plateau.md: the comparison of initializations (benchmarks/plateau.py of commit 393c8ca)."""

from sources import Lines, result, table

VARIANTS = {
    "learned": "normal initialization",
    "rotary": "rotary positions",
    "heads": "position heads: four offsets, both layers, gain 2, amplitude 0.03 (default)",
    "heads in the first layer": "position heads in the first layer only",
    "heads at -1, +1": "position heads, offsets -1 and +1 only",
    "heads, gain 4": "position heads, gain 4",
    "heads, gain 4, amplitude 0.1": "position heads, gain 4, amplitude 0.1",
}


def race() -> Lines:
    """Held-out losses of the initializations during 2.4 million tokens with 15 % masked."""
    rows, runs = [], result("position-heads/race")
    for name, label in VARIANTS.items():
        losses = [*runs[name]["eval"]["mlm_loss"][:3], runs[name]["metrics"]["mlm_loss"]]
        rows.append((label, *(f"{loss:.2f}" for loss in losses)))
    return table(("15 % masked, one seed; training tokens:", "0.6 M", "1.2 M", "1.8 M", "2.4 M"), rows)
