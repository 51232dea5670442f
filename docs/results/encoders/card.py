"""The model card of a bundled encoder, from the results of its pre-training and of its study.

    python docs/results/encoders/card.py mini RUN STUDY [BLIMP.json] > src/bertworks/pretrained/mini/README.md

RUN: folder of the pre-training, whose model/README.md has the sections "Shape" and "Use". STUDY: folder of
`bertworks study run mini`. BLIMP.json: what `bertworks evaluate RUN --task blimp --out` has written.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from huggingface_hub.repocard_data import ModelCardData

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
            "the language of today's web nor newer names and events."
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
            "without labels. Texts of their development and test sets were left out."
        ],
    },
}


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
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
    facts, results = CARDS[name], json.loads((run / "results.json").read_text(encoding="utf-8"))
    generated, recipe = ((run / file).read_text(encoding="utf-8") for file in ("model/README.md", "recipe.toml"))
    metrics, machine = results["metrics"], results["machine"]
    front = ModelCardData(
        language=facts["language"], license="cc-by-sa-4.0", library_name="transformers", pipeline_tag="fill-mask",
        tags=["bert", "bertworks"],
    )  # fmt: skip
    processor = machine.get("gpu") or f"{machine['threads']} of {machine['cores']} cores of {machine['cpu']}"
    lines = ["---", front.to_yaml(), "---", "", f"# {facts['title']}", ""]
    lines += [f"Trained from scratch with bertworks; it is the model that `bertworks` calls `{name}`.", ""]
    lines += ["## Data and licence", "", *table(("texts", "licence"), facts["texts"])]
    lines += ["The weights are shared under CC BY-SA 4.0, with attribution to the authors of these texts.", ""]
    lines += ["## Training", "", f"{results['tokens']:,.0f} tokens in {results['steps']:,} updates, "
              f"{results['seconds'] / 3600:.1f} hours on {processor} (torch {machine['torch']}, commit "
              f"{machine.get('commit', 'unknown')}, seed {results['seed']}). The recipe:", ""]  # fmt: skip
    lines += ["```toml", recipe.strip(), "```", "", "On held-out documents:", ""]
    held_out = [(key.replace("_", " "), f"{value:.3f}") for key, value in metrics.items()]
    held_out += [("perplexity of masked tokens", f"{math.exp(metrics['mlm_loss']):.1f}")]
    held_out += [("BLiMP, accuracy", f"{100 * blimp['accuracy']:.1f} %")] if blimp else []
    lines += [*table(("metric", "value"), held_out), "## Scores", ""]
    lines += ["Per cent on development data: mean and standard deviation over fine-tuning seeds.", *study["notes"], ""]
    lines += [*scores(study), "## Limits", "", *(f"- {limit}" for limit in facts["limits"] + COMMON), ""]
    parts = {part.partition("\n")[0]: part for part in generated.split("\n## ")[1:]}
    return "\n".join(lines) + "".join(f"\n## {parts[title].strip()}\n" for title in ("Shape", "Use"))


def main(name: str, run: str, study: str, blimp: str = "") -> None:
    """Print the card."""
    results = json.loads((Path(study) / "results.json").read_text(encoding="utf-8"))
    pairs = json.loads(Path(blimp).read_text(encoding="utf-8")) if blimp else None
    print(card(name, Path(run), results, pairs), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
