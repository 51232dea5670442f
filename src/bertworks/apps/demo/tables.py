"""The results of a demo as rows of tables, for the terminal and for report.html; made from results.json only."""

import shlex
from pathlib import Path
from typing import Any

from ...reporting.log import duration
from ...reporting.tables import ResultTable

_SCORES = {"lr": float, "run": str, "test": [float], "mean": float, "sd": (float, None)}
FORM = {  # what is shown of results.json
    "model": (str, None),
    "name": (str, None),
    "tags": {"scores": {str: _SCORES}, "linear": float, "examples": int, "tested": int},
    "pretraining": {"tokens": int, "seconds": float, "held_out": {str: float}},
    "masks?": {str: [str]},
    "own_masks": {str: [str]},
    "seconds": float,
}
QUESTION = "Which words of a docstring name a parameter or other code?"
# fraction of the unigram entropy; a model with a larger loss has learned little more than word frequencies
PLATEAU = 0.95


def systems(results: dict[str, Any]) -> dict[str, str]:
    """How each system of a comparison is called."""
    return {
        "encoder": f"{results['name']}",
        "encoder-random": f"{results['name']}, random initialization",
        "own": f"small BERT, pre-trained for {duration(results['pretraining']['seconds'])}",
        "own-random": "small BERT, random initialization",
        "linear": "linear model",
    }


def score_rows(results: dict[str, Any]) -> list[tuple[str, float, list[float]]]:
    """(name, mean test score, score of each seed) of each system; a linear model has no seeds."""
    names, tags = systems(results), results["tags"]
    rows = [(names[key], scores["mean"], scores["test"]) for key, scores in tags["scores"].items()]
    return [*rows, (names["linear"], tags["linear"], [])]


def describe_scores(results: dict[str, Any]) -> str:
    """The encoder's comparison in one line."""
    scores = {key: system["mean"] for key, system in results["tags"]["scores"].items()}
    return (
        f"words that name code, F1: {results['name']} {100 * scores['encoder']:.1f} %, random initialization "
        f"{100 * scores['encoder-random']:.1f} %, linear model {100 * results['tags']['linear']:.1f} %"
    )


def conditions(results: dict[str, Any]) -> str:
    """Numbers of examples and seeds."""
    tags, names = results["tags"], {"encoder": results["name"], "own": "the small BERT"}
    counts = {name: len(tags["scores"][key]["test"]) for key, name in names.items() if key in tags["scores"]}
    seeds = ", ".join(f"{count} of {name}" for name, count in counts.items())
    return f"{tags['examples']:,} labelled examples, {tags['tested']:,} for the test; seeds: {seeds}"


def held_out_rows(held: dict[str, float]) -> list[tuple[str, str, str]]:
    """(what, the small BERT's value, the baseline's). Next sentences are left out unless they are above theirs."""
    rows = [
        ("masked words, accuracy", f"{held['mlm_accuracy']:.1%}", f"{held['mlm_baseline']:.1%} most frequent token"),
        ("masked words, loss (nats)", f"{held['mlm_loss']:.2f}", f"{held['unigram_entropy']:.2f} word frequencies"),
    ]
    if held["nsp_accuracy"] > held["nsp_least"]:
        baseline = f"{held['nsp_baseline']:.1%} majority class"
        rows.append(("next sentence, accuracy", f"{held['nsp_accuracy']:.1%}", baseline))
    return rows


def too_short(results: dict[str, Any]) -> str:
    """A sentence about a pre-training that was too short to learn from contexts; else empty."""
    held = results["pretraining"]["held_out"]
    if held["mlm_loss"] < PLATEAU * held["unigram_entropy"]:
        return ""
    return (
        f"{results['pretraining']['tokens']:,} tokens of pre-training are too few: the small BERT has learned little "
        "more than word frequencies. Run the demo again with more --minutes and another --out."
    )


def result_tables(results: dict[str, Any]) -> list[ResultTable]:
    """The tables that the terminal shows."""
    rows, how = [(what, f"{100 * mean:.1f}") for what, mean, _ in score_rows(results)], results["pretraining"]
    title = f"The small BERT on held-out documents, after {how['tokens']:,} tokens"
    warning = too_short(results)
    return [
        ResultTable(QUESTION, ("", "F1 (%)"), rows, (conditions(results),)),
        ResultTable(title, ("", "BERT", "baseline"), held_out_rows(how["held_out"]), (warning,) * bool(warning)),
    ]


def mask_lines(masks: dict[str, list[str]]) -> list[str]:
    """A line for each sentence with what fills its mask."""
    return [f"  {sentence}  {', '.join(words)}" for sentence, words in masks.items()]


def final_text(results: dict[str, Any], out: Path) -> str:
    """What a finished demo prints."""
    masks = results.get("masks", {}) | ({} if too_short(results) else results["own_masks"])
    return "\n".join(
        [
            *mask_lines(masks),
            "",
            *(table.text() + "\n" for table in result_tables(results)),
            f"{duration(results['seconds'])}; report: {out / 'report.html'}",
            "",
            "What to try next:",
            *(f"  {line}" for line in next_commands(out, results)),
        ]
    )


def next_commands(out: Path, results: dict[str, Any]) -> list[str]:
    """Commands to try next; the last one needs the extra `serve`."""
    scores = results["tags"]["scores"]
    key = "encoder" if results["model"] else "own"
    model = shlex.quote(results["model"] or (out / "pretrain").as_posix())
    tagger = shlex.quote(scores[key]["run"])
    return [
        f'bertworks predict fill-mask {model} "{next(iter(results.get("masks") or results["own_masks"]))}"',
        f"bertworks predict {tagger} {shlex.quote((out / 'documents' / 'heldout.jsonl').as_posix())}",
        f'bertworks probe explain {model} "The axis along which to sort." --out attention.html',
        f"bertworks finetune {model} --recipe small --train YOUR_TABLE.csv --dev-share 0.2 --out runs/mine",
        f"bertworks serve masks={model} tags={tagger}",
    ]
