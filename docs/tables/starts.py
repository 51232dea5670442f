"""The tables of docs/plateau.md: the comparison of initializations (benchmarks/plateau.py of commit 393c8ca)."""

from sources import Lines, result, table

VARIANTS = {
    "heads, gain 4, amplitude 0.1": "gain 4, amplitude 0.1",
    "heads in the first layer": "in the first layer alone",
    "heads": "gain 2, amplitude 0.03, in both layers: as in the recipes",
    "heads at -1, +1": "at offsets -1 and +1 alone",
    "heads, gain 4": "gain 4",
}


def race() -> Lines:
    """Held-out losses of variants of the position heads during 2.4 million tokens, the lowest at the end first."""
    rows, runs = [], result("position-heads/race")
    for name, label in VARIANTS.items():
        losses = [*runs[name]["eval"]["mlm_loss"][:3], runs[name]["metrics"]["mlm_loss"]]
        rows.append((label, *(f"{loss:.2f}" for loss in losses)))
    return table(("position heads: held-out masked-LM loss (nats)", "0.6 M", "1.2 M", "1.8 M", "2.4 M"), rows)


def long() -> Lines:
    """The runs of 20 million tokens beside the rotary one that cpu.toml had before."""
    before = result("pretrain-cpu-rotary/results")
    runs = [("rotary positions, 15 % masked", before)]
    runs += [(f"position {name}", run) for name, run in result("position-heads/long").items()]
    names = {"mlm_loss": "masked-LM loss (nats)", "mlm_accuracy": "masked-LM accuracy (%)"}
    names |= {"nsp_accuracy": "NSP accuracy (%)"}
    scale = {"mlm_loss": 1}
    rows = [
        (label, *(f"{scale.get(key, 100) * run['metrics'][key]:.{2 if key in scale else 1}f}" for _, run in runs))
        for key, label in names.items()
    ]
    return table(("held-out documents, length 128, 20 M tokens", *(name for name, _ in runs)), rows)
