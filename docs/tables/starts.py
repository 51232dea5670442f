"""The tables of docs/plateau.md: the race of starts (benchmarks/plateau.py of commit 393c8ca)."""

from statistics import mean, stdev
from typing import Any

from sources import Lines, result, table


def race() -> Lines:
    """Held-out losses of all candidates during 2.4 million tokens, the lowest at the end first."""
    rows = []
    for stage, layers in (("race", 2), ("deep", 4)):
        for name, run in by_loss(result(f"position-heads/{stage}")):
            losses = [*run["eval"]["mlm_loss"][:3], run["metrics"]["mlm_loss"]]
            rows.append((name, str(layers), *(f"{loss:.2f}" for loss in losses), f"{last(run)['mask_loss']:.2f}"))
    header = ("held-out masked-LM loss (nats)", "layers", "0.6 M", "1.2 M", "1.8 M", "2.4 M", "2.4 M, at [MASK]")
    return table(header, rows)


def attention() -> Lines:
    """The share of attention on both neighbours over the steps, of the head that has most."""
    runs = result("position-heads/race")
    steps = ("0", "150", "300", "600", "900")
    rows = [(name, *(f"{highest(run['inside'][s])}" for s in steps), highest(last(run))) for name, run in by_loss(runs)]
    return table(("attention on both neighbours, highest head (%)", *(f"step {s}" for s in steps), "end"), rows)


def plane() -> Lines:
    """The size of words and positions in the plane over the steps, words first."""
    runs = {name: run for name, run in by_loss(result("position-heads/race")) if run["heads"]}

    def sizes(inside: dict[str, Any]) -> str:
        return " and ".join(f"{1000 * inside['plane'][part]:.0f}" for part in ("words", "positions"))

    steps = ("0", "150", "300", "600", "900")
    rows = [(name, *(sizes(run["inside"][s]) for s in steps), sizes(last(run))) for name, run in runs.items()]
    return table(("words and positions in the plane", *(f"step {s}" for s in steps), "end"), rows)


def confirm() -> Lines:
    """Held-out losses of three pre-training seeds at 6 million tokens: each, their mean and standard deviation."""
    runs = result("position-heads/confirm")
    groups: dict[str, dict[int, float]] = {}
    for name, run in runs.items():
        groups.setdefault(name.rsplit(", seed", 1)[0], {})[run["seed"]] = run["metrics"]["mlm_loss"]
    seeds = list(dict.fromkeys(run["seed"] for run in runs.values()))
    rows = [
        (
            name,
            *(f"{losses[seed]:.3f}" for seed in seeds),
            f"{mean(losses.values()):.3f} ± {stdev(losses.values()):.3f}",
        )
        for name, losses in sorted(groups.items(), key=lambda group: mean(group[1].values()))
    ]
    return table(("held-out masked-LM loss (nats), 6 M tokens", *(f"seed {seed}" for seed in seeds), "mean ± sd"), rows)


def lengths() -> Lines:
    """Held-out losses at 6 million tokens by how much of the training is at length 128, the lowest first."""
    runs = result("position-heads/lengths")
    runs["heads, 40 % masked, last tenth at length 128"] = result("position-heads/confirm")[
        "heads, 40 % masked, seed 12345"
    ]
    runs["rotary, last tenth at length 128"] = runs.pop("rotary")
    names = {"mlm_loss": "masked-LM loss (nats)", "nsp_accuracy": "next sentence (%)"}
    rows = [
        (name, f"{run['metrics']['mlm_loss']:.3f}", f"{100 * run['metrics']['nsp_accuracy']:.1f}")
        for name, run in by_loss(runs)
    ]
    return table(("held out at length 128, 6 M tokens", *names.values()), rows)


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


def by_loss(runs: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(runs.items(), key=lambda item: float(item[1]["metrics"]["mlm_loss"]))


def last(run: dict[str, Any]) -> Any:
    """What is inside the run's last model."""
    return run["inside"][str(run["steps"])]


def highest(inside: dict[str, Any]) -> str:
    return f"{100 * max(share for layer in inside['beside'] for share in layer):.0f}"
