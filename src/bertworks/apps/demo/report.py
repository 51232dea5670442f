"""The demo's REPORT.md and the commands to try next, made from results.json alone."""

import shlex
from pathlib import Path
from typing import Any

from ...experiments.statistics import paired
from ...reporting.tables import no_tags

_SIDE = {"rate": float, "dev": {str: float}, "test": [float], "mean": float, "sd": float}
_TASK = {
    "sides": {"pre-trained": _SIDE, "random": _SIDE},
    "linear": {"test": float},
    "metric": str,
    "examples": {str: int},
    "majority": float,
    "gain": float,
    "seeds": [int],
}
FINISHED = {  # of a demo's results.json, what is shown again
    "tasks": {str: _TASK},
    "heldout": {str: float},
    "pretraining": {"seconds": float, "tokens": int},
    "masks": {str: [str]},
}
METRICS = {"f1": "F1", "accuracy": "accuracy"}
TITLES = {"tags": "Which words name parameters or are code?", "packages": "Which package is a text from?"}
ROWS = {"tags": "paragraphs", "packages": "documents"}
LINEAR = {"tags": "linear model of word and neighbours", "packages": "linear model of TF-IDF"}
ABOUT = {
    "tags": "The docstrings' own markup says which words name parameters and which are other code. It is removed from "
    "the text and becomes the word's tag. The score is F1 over the tagged words.",
    "packages": "The packages' names and usual abbreviations are removed from the texts. The encoder reads the first "
    "64 tokens of each text, the linear model reads all.",
}
PLATEAU = 0.95  # share of the unigram entropy; an encoder with a larger loss has learned nothing of contexts
POSITION_HEADS = (
    "The random weights too have position heads: attention heads that look at a token's neighbours from the start."
)


def compared_with_guessing(held: dict[str, float]) -> list[tuple[str, str, str, str]]:
    """(what, the model's number, the number of guessing, how that guesses)."""
    loss, entropy = held["mlm_loss"], held["unigram_entropy"]
    return [
        ("masked words, accuracy", f"{held['mlm_accuracy']:.1%}", f"{held['mlm_guess']:.1%}", "the commonest token"),
        ("masked words, loss (nats)", f"{loss:.2f}", f"{entropy:.2f}", "frequencies of words alone"),
        ("next sentence, accuracy", f"{held['nsp_accuracy']:.1%}", f"{held['nsp_guess']:.1%}", "the commoner answer"),
    ]


def compared_weights(name: str, task: dict[str, Any]) -> list[tuple[str, float, float | None, str]]:
    """(what was trained, its test score, standard deviation over seeds, its setting).

    Both kinds of weights, then the linear model, then the majority class if the task has one.
    """
    rows: list[tuple[str, float, float | None, str]] = [
        (f"{weights} weights", side["mean"], side["sd"] if len(side["test"]) > 1 else None, f"rate {side['rate']:g}")
        for weights, side in task["sides"].items()
    ]
    rows.append((LINEAR[name], task["linear"]["test"], None, ""))
    return [*rows, ("majority class", task["majority"], None, "")] if task["majority"] else rows


def report(results: dict[str, Any]) -> str:
    """The text of REPORT.md: the numbers, and how they were measured."""
    held = results["heldout"]
    lines = ["# The effect of pre-training", "", conditions(results), ""]
    if warning := too_little(results):
        lines += [f"**{no_tags(warning)}**", ""]
    for name, task in results["tasks"].items():
        lines += [*_task_lines(name, task), f"![test scores](plots/{name}.png)", ""]
    lines += [
        "## Held-out documents",
        "",
        "| | BERT | guessing | |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in compared_with_guessing(held)),
        "",
        f"{held['masked']:,} masked words and {held['pairs']:,} pairs, from documents whose names (`median`, `Parser`) "
        "no document of pre-training has. The rows of both tasks are among them: pre-training has seen none of them.",
        "",
        "![pre-training](plots/pretraining.png)",
        "",
        "## Filling masks",
        "",
        *(f"- {sentence} **{no_tags(', '.join(words))}**" for sentence, words in results["masks"].items()),
    ]
    return "\n".join(lines) + "\n"


def conditions(results: dict[str, Any]) -> str:
    """What was trained, on what text and machine, and what the random weights begin with."""
    machine, how = results["machine"], results["pretraining"]
    start = f" {POSITION_HEADS}" if results.get("start") == "position-heads" else ""
    return (
        f"A BERT pre-trained on {how['tokens']:,} tokens ({how['steps']:,} steps, {how['seconds'] / 60:.1f} minutes) "
        f"of the documentation strings installed on this machine: {machine['cpu']}, {machine['threads']} threads, "
        f"{machine['gpu'] or 'no GPU'}, torch {machine['torch']}, bertworks {machine['bertworks']}.{start}"
    )


def too_little(results: dict[str, Any]) -> str:
    """What to say of an encoder that knows little more than word frequencies, and how to go on; else empty."""
    loss, entropy = results["heldout"]["mlm_loss"], results["heldout"]["unigram_entropy"]
    if loss < PLATEAU * entropy:
        return ""
    return (
        f"This encoder has learned nothing: its held-out loss is {loss:.2f} nats, word frequencies alone reach "
        f"{entropy:.2f}. {results['pretraining']['tokens']:,} tokens of pre-training are too few, and the effects here "
        f"mean nothing. Run the demo with its own settings into another folder: bertworks demo --out runs/demo-full"
    )


def setting(name: str, task: dict[str, Any]) -> str:
    """How many rows and seeds there were, and how the learning rates were chosen."""
    counts, seeds = task["examples"], task["seeds"]
    return (
        f"{counts['train']:,} labelled {ROWS[name]} to fine-tune on, {counts['test']:,} to test on, {len(seeds)} "
        f"{'seed' if len(seeds) == 1 else 'seeds'}. The learning rate is the one that was best on "
        f"{counts['dev']:,} other {ROWS[name]}, the linear model's penalty on a fifth of the training rows."
    )


def _task_lines(name: str, task: dict[str, Any]) -> list[str]:
    labels = f" The packages: {no_tags(', '.join(task['labels']))}." if name == "packages" else ""
    lines = [
        f"## {TITLES[name]}",
        "",
        f"{ABOUT[name]}{labels} {setting(name, task)}",
        "",
        f"| fine-tuned from | test {METRICS[task['metric']]} (%) | sd over seeds | learning rate |",
        "|---|---:|---:|---|",
    ]
    for what, score, sd, how in compared_weights(name, task):
        spread = "" if sd is None else f"{100 * sd:.1f}"
        lines.append(f"| {what} | {100 * score:.1f} | {spread} | {how.removeprefix('rate ')} |")
    return [*lines, "", f"Effect of pre-training: **{effect_of(task)}**. {unit_of(task)}", ""]


def effect_of(task: dict[str, Any]) -> str:
    """The effect of pre-training in points, with its interval over the seeds if there are two or more."""
    points = f"{100 * task['gain']:+.1f} points"
    interval = interval_of(task["sides"])
    if interval is None:
        return f"{points} (no interval over seeds)"
    low, high = (100 * end for end in interval)
    shown = "" if low > 0 or high < 0 else ", which shows no effect"
    return f"{points} (95 % over {len(task['seeds'])} seeds: {low:+.1f} to {high:+.1f}{shown})"


def unit_of(task: dict[str, Any]) -> str:
    """What the interval says, and what it does not."""
    if interval_of(task["sides"]) is None:
        return "One seed gives no interval."
    return (
        "The interval is paired over fine-tuning seeds of one pre-trained encoder. It does not say what another "
        "pre-training would give."
    )


def interval_of(sides: dict[str, Any]) -> list[float] | None:
    """The 95 % interval of the gain, paired over the seeds' test scores; None of fewer than two."""
    runs = (
        {str(number): score for number, score in enumerate(sides[name]["test"])} for name in ("random", "pre-trained")
    )
    found = paired(*runs)
    return found["interval"] if found else None


def tuned_folder(out: Path, results: dict[str, Any]) -> Path:
    """The run folder of the tagger from pre-trained weights, with its best rate and first seed."""
    tags = results["tasks"]["tags"]
    rate, seed = tags["sides"]["pre-trained"]["rate"], tags["seeds"][0]
    return out / "finetune" / "tags" / "pre-trained" / f"lr-{rate:g}" / f"seed-{seed}"


def next_commands(out: Path, results: dict[str, Any]) -> list[str]:
    """Commands to try next; all but the last two can be run as they are, and the last one needs the extra `serve`."""
    sentence = next(iter(results["masks"]))

    def path(name: str) -> str:
        return shlex.quote((out / name).as_posix())

    model, tagger = path("pretrain"), shlex.quote(tuned_folder(out, results).as_posix())
    return [
        f'bertworks predict fill-mask {model} "{sentence}"',
        f"bertworks predict {tagger} {path('documents/heldout.jsonl')}",
        f'bertworks probe explain {model} "The axis along which to sort." --out {path("attention.html")}',
        f"bertworks finetune {model} --recipe {tagger}/recipe.toml --train {path('tags/train.jsonl')} "
        f"--dev {path('tags/test.jsonl')} --kind tagging --text words --label tags --out {path('again')}",
        f"bertworks corpus show {path('store')}",
        "bertworks tokenizer train YOUR_TEXT --out my/tokenizer   (then corpus build, pretrain: your own encoder)",
        f"bertworks serve masks={model} tags={tagger}   (after pip install -e '.[serve]': a page in your browser)",
    ]
