"""The demo's REPORT.md and the commands to try next, made from results.json alone."""

from pathlib import Path
from typing import Any

from ..experiments.compare import paired
from ..reporting.tables import no_tags

_SIDE = {"rate": float, "dev": {str: float}, "test": [float], "mean": float, "sd": float}
FINISHED = {  # of a demo's results.json, what is shown again
    "task": {"sides": {"pre-trained": _SIDE, "random": _SIDE}, "majority": float, "gain": float},
    "pretraining": {"seconds": float},
    "masks": {str: [str]},
    "seeds": [int],
    "cut?": [str],
}


def compared_with_guessing(held: dict[str, float]) -> list[tuple[str, str, str, str]]:
    """(what, the model's number, the number of guessing, how that guesses)."""
    loss, entropy = held["mlm_loss"], held["unigram_entropy"]
    return [
        ("masked words, accuracy", f"{held['mlm_accuracy']:.1%}", f"{held['mlm_guess']:.1%}", "the commonest token"),
        ("masked words, loss (nats)", f"{loss:.2f}", f"{entropy:.2f}", "frequencies of words alone"),
        ("next sentence, accuracy", f"{held['nsp_accuracy']:.1%}", f"{held['nsp_guess']:.1%}", "the commoner answer"),
    ]


def report(results: dict[str, Any]) -> str:
    """The text of REPORT.md: the numbers, and how they were measured."""
    held, task, machine, how = results["heldout"], results["task"], results["machine"], results["pretraining"]
    examples = task["examples"]
    lines = [
        "# The effect of pre-training",
        "",
        f"{how['seconds'] / 60:.1f} minutes of pre-training ({how['steps']:,} steps, {how['tokens']:,} tokens) on the "
        f"documentation strings installed on this machine: {machine['cpu']}, {machine['threads']} threads, "
        f"{machine['gpu'] or 'no GPU'}, torch {machine['torch']}, bertworks {machine['bertworks']}.",
        "",
        f"## Telling packages apart after {examples['train']} labelled examples",
        "",
        f"{len(task['labels'])} packages: {no_tags(', '.join(task['labels']))}. Their names and usual abbreviations "
        f"are removed from the texts. {examples['test']} test documents, {len(results['seeds'])} seeds, each side at "
        f"its best of {len(task['sides']['random']['dev'])} learning rates on {examples['dev']} other documents.",
        "",
        "| fine-tuned from | test accuracy | sd over seeds | learning rate | dev accuracy of each rate |",
        "|---|---|---|---|---|",
    ]
    for name, side in task["sides"].items():
        dev = ", ".join(f"{rate}: {score:.1%}" for rate, score in side["dev"].items())
        lines.append(f"| {name} weights | {side['mean']:.1%} | {side['sd']:.1%} | {side['rate']:g} | {dev} |")
    lines += [
        f"| majority class | {task['majority']:.1%} | | | |",
        "",
        f"Effect of pre-training: **{effect_of(results)}**.",
        "",
        *(f"Cut short by the time limit: {what}.\n" for what in results.get("cut", [])),
        "![test accuracy](plots/gain.png)",
        "",
        "## Held-out documents",
        "",
        "| | BERT | guessing | |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in compared_with_guessing(held)),
        "",
        f"{held['masked']:,} masked words and {held['pairs']:,} pairs, from documents whose names (`median`, `Parser`) "
        "no document of pre-training has. Those to classify are among them: pre-training has seen none of them.",
        "",
        "![pre-training](plots/pretraining.png)",
        "",
        "## Filling masks",
        "",
        *(f"- {sentence} **{no_tags(', '.join(words))}**" for sentence, words in results["masks"].items()),
    ]
    return "\n".join(lines) + "\n"


def next_commands(out: Path, results: dict[str, Any]) -> list[str]:
    """Commands to try next; all but the last can be run as they are."""
    best = results["task"]["sides"]["pre-trained"]["rate"]
    tuned = out / "finetune" / "pre-trained" / f"lr-{best:g}" / f"seed-{results['seeds'][0]}"
    sentence = next(iter(results["masks"]))
    return [
        f'bertworks fill-mask {out}/pretrain "{sentence}"',
        f"bertworks predict {tuned} {out}/task/test.jsonl",
        f"bertworks finetune --train {out}/task/train.jsonl --dev {out}/task/test.jsonl --model {out}/pretrain "
        f"--out {out}/again --optim.lr {best:g}",
        f"bertworks plot {out}/pretrain --x tokens --out {out}/plots/tokens",
        f"bertworks corpus show {out}/store",
        "bertworks tokenizer train YOUR_TEXT --out my/tokenizer   (then corpus build, pretrain: your own encoder)",
    ]


def effect_of(results: dict[str, Any]) -> str:
    """The effect of pre-training in points, with its interval over the seeds if there are two or more."""
    task = results["task"]
    points = f"{100 * task['gain']:+.1f} points"
    interval = interval_of(task["sides"])
    if interval is None:
        return f"{points} (no interval over seeds)"
    low, high = (100 * end for end in interval)
    shown = "" if low > 0 or high < 0 else ", which shows no effect"
    return f"{points} (95 % over {len(results['seeds'])} seeds: {low:+.1f} to {high:+.1f}{shown})"


def interval_of(sides: dict[str, Any]) -> list[float] | None:
    """The 95 % interval of the gain, paired over the seeds' test accuracies; None of fewer than two."""
    runs = (
        {str(number): score for number, score in enumerate(sides[name]["test"])} for name in ("random", "pre-trained")
    )
    found = paired(*runs)
    return found["interval"] if found else None
