"""The model card of a bundled encoder, from the results of its pre-training and of its study.

    python docs/results/encoders/card.py mini RUN STUDY [BLIMP.json] > src/bertworks/pretrained/mini/README.md

RUN: folder of the pre-training, whose model/README.md has the sections "Shape" and "Use". STUDY: folder of
`bertworks study run mini`. BLIMP.json: what `bertworks evaluate RUN --task blimp --out` has written.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub.repocard_data import ModelCardData

from bertworks.config import differences, load_recipe
from bertworks.pretraining.recipe import PretrainConfig

LICENSE, TAGS = "cc-by-sa-4.0", ["bert", "bertworks"]
WIKIPEDIA = "CC BY-SA 3.0; its authors are listed in each article's history"
COMMON = [
    "It has a few million parameters. Larger encoders score far higher on every task below.",
    "It was trained on few texts, and knows the facts of none of them reliably: do not use it as a source of facts.",
    "It repeats the stereotypes of its texts, among them those about sex, origin and religion. Examine a "
    "fine-tuned model on the groups that its decisions concern.",
]
CARDS: dict[str, dict[str, Any]] = {
    "mini": {
        "title": "mini: a small English BERT encoder",
        "language": "en",
        "texts": [
            ("English Wikipedia, a part of the dump of May 2015", WIKIPEDIA),
            ("some 350 novels and other books", "public domain"),
        ],
        "limits": [
            "English alone. Half of its texts are old books, the others an encyclopedia of 2015: it has seen neither "
            "the language of today's web nor newer names and events.",
            "Paragraphs of SQuAD and QNLI are from Wikipedia, and some are among its texts.",
        ],
    },
    "mini-ko": {
        "title": "mini-ko: a small Korean BERT encoder",
        "language": "ko",
        "texts": [
            ("Korean Wikipedia, a part", WIKIPEDIA),
            ("film reviews, the training texts of NSMC", "CC0"),
            ("sentences, the training texts of KorSTS", "CC BY-SA 4.0, Ham et al. 2020"),
        ],
        "limits": [
            "Korean alone. Scores on NSMC and KorSTS are those of an encoder that has read their training texts, "
            "without labels. Texts of their development and test sets were left out.",
            "Paragraphs of KorQuAD are from Wikipedia, and some are among its texts.",
        ],
    },
}


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def scores(study: dict[str, Any]) -> list[str]:
    """The figures of the study, a line for each column: mean and standard deviation over seeds."""
    entries = {(entry["row"], entry["column"]): entry for entry in study["measured"]}
    names = [row["name"] for row in study["rows"]]

    def shown(entry: dict[str, Any]) -> str:
        if not entry["n"]:
            return "-"
        deviation = "" if entry["sd"] is None else f" ± {100 * entry['sd']:.1f}"
        return f"{100 * entry['mean']:.1f}{deviation}"

    columns = [column["name"] for column in study["columns"]]
    rows = [(column, *(shown(entries[name, column]) for name in names)) for column in columns]
    return table(("task", *names), rows)


def card(name: str, run: Path, study: dict[str, Any], blimp: dict[str, Any] | None) -> str:
    """The card as Markdown."""
    facts, results = CARDS[name], read(run / "results.json")
    metrics, machine, tokenizer = results["metrics"], results["machine"], read(run / "model/tokenizer_config.json")
    case = "Letters are lowercased" if tokenizer.get("do_lower_case") else "Capital letters are kept"
    language, library, pipeline = facts["language"], "transformers", "fill-mask"
    front = ModelCardData(language=language, license=LICENSE, library_name=library, pipeline_tag=pipeline, tags=TAGS)
    lines = ["---", front.to_yaml(), "---", "", f"# {facts['title']}", ""]
    lines += [f"Trained from scratch with bertworks, which knows it by the name `{name}`. {case}.", ""]
    lines += ["## Data and licence", "", *table(("texts", "licence"), facts["texts"])]
    lines += ["The weights are shared under CC BY-SA 4.0, with attribution to the authors of these texts.", ""]
    size = f"{results['tokens']:,.0f} tokens in {results['steps']:,} updates, {results['seconds'] / 3600:.1f} hours"
    place = machine.get("gpu") or f"{machine['threads']} of {machine['cores']} cores of {machine['cpu']}"
    source = f"torch {machine['torch']}, commit {machine.get('commit', 'unknown')}, seed {results['seed']}"
    lines += ["## Training", "", f"{size} on {place} ({source}). Settings that are not the paper's:", ""]
    changed = differences(PretrainConfig(), load_recipe(run / "recipe.toml", PretrainConfig))
    lines += [*table(("setting", "value"), [(f"`{key}`", f"`{new}`") for key, _, new in changed if "every" not in key])]
    held_out = [(key.replace("_", " "), f"{value:.3f}") for key, value in metrics.items()]
    held_out += [("perplexity of masked tokens", f"{math.exp(metrics['mlm_loss']):.1f}")]
    held_out += [("BLiMP, accuracy", f"{100 * blimp['accuracy']:.1f} %")] if blimp else []
    lines += ["On held-out documents:", "", *table(("metric", "value"), held_out), "## Scores", ""]
    lines += ["Per cent on development data: mean and standard deviation over fine-tuning seeds.", *study["notes"], ""]
    lines += [*scores(study), "## Limits", "", *(f"- {limit}" for limit in facts["limits"] + COMMON), ""]
    generated = (run / "model/README.md").read_text(encoding="utf-8").split("\n## ")
    return "\n".join(lines) + "".join(
        f"\n## {part.strip()}\n" for part in generated if part.startswith(("Shape", "Use"))
    )


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main(name: str, run: str, study: str, blimp: str = "") -> None:
    pairs = read(Path(blimp)) if blimp else None
    print(card(name, Path(run), read(Path(study) / "results.json"), pairs), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
