"""A bundled encoder: the weights of its pre-training in bfloat16, its tokenizer, and its model card.

    python docs/results/encoders/bundle.py mini RUN [STUDY] [BLIMP.json]

writes src/bertworks/pretrained/mini, and the record of its run to docs/results/encoders/mini. RUN: folder of the
pre-training, with held-out.json (held_out.py). Where a second run continued a snapshot of the first, log.jsonl has
both, results.json is that of the second with the first under `before`, and recipe-decay.toml is the second recipe.
STUDY: folder of `bertworks study run mini`; its scores are in the card. BLIMP.json: what
`bertworks evaluate RUN --task blimp --out` has written.
"""

import json
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.repocard_data import ModelCardData
from safetensors.torch import load_file, save_file

import bertworks
from bertworks.config import differences, load_recipe
from bertworks.pretraining.recipe import PretrainConfig

BUNDLED = Path(bertworks.__file__).parent / "pretrained"
TOKENIZER = ("tokenizer.json", "vocab.txt")
RECORD = ("recipe.toml", "recipe-decay.toml", "results.json", "held-out.json", "log.jsonl", "curves.svg")
LENGTH = 128  # tokens of an input: later positions were not trained, or hardly
LICENSE, TAGS = "cc-by-sa-4.0", ["bert", "bertworks"]
WIKIPEDIA = "CC BY-SA 3.0; its authors are listed in each article's history"
COMMON = [
    "It has 7.6 million parameters. Larger encoders score far higher.",
    "It was trained on few texts, and knows the facts of none of them reliably: do not use it as a source of facts.",
    "It repeats the stereotypes of its texts, among them those about sex, origin and religion. Examine a "
    "fine-tuned model on the groups that its decisions concern.",
]
CARDS: dict[str, dict[str, Any]] = {
    "mini": {
        "title": "mini: a small English BERT encoder",
        "language": "en",
        "example": "He studied at the [MASK] of Oxford.",
        "texts": [
            ("English Wikipedia, a part of the dump of May 2015", WIKIPEDIA),
            ("some 380 novels and other books", "public domain"),
        ],
        "limits": [
            "English alone. Half of its texts are old books, the others an encyclopedia of 2015: it has seen neither "
            "the language of today's web nor newer names and events.",
            "SQuAD and QNLI are made from Wikipedia. The articles of SQuAD's development questions were left out.",
        ],
    },
    "mini-ko": {
        "title": "mini-ko: a small Korean BERT encoder",
        "summary": "작은 한국어 BERT 인코더: 4층, 은닉 크기 256, 대소문자를 구별하는 어휘 16,384개. 128토큰까지의 "
        "텍스트에 쓰세요. 한국어 위키백과, NSMC 리뷰, KorSTS 문장에서 3,200만 토큰을 레이블 없이 학습했습니다. "
        "가중치의 라이선스는 CC BY-SA 4.0입니다.",
        "language": "ko",
        "example": "배우들의 [MASK]가 정말 좋았다.",
        "texts": [
            ("Korean Wikipedia, a part", WIKIPEDIA),
            ("film reviews, the training texts of NSMC", "CC0"),
            ("sentences, the training texts of KorSTS", "CC BY-SA 4.0, Ham et al. 2020"),
        ],
        "limits": [
            "Korean alone. Scores on NSMC and KorSTS are those of an encoder that has read their training texts, "
            "without labels. Texts of their development and test sets, and of KLUE-NER, were left out.",
            "KorQuAD is made from Wikipedia. The articles of its development questions were left out.",
        ],
    },
}


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def scores(study: dict[str, Any]) -> list[str]:
    """The figures of the study, a line for each column: mean and standard deviation over seeds."""
    entries = {(entry["row"], entry["column"]): entry for entry in study["measured"] if entry["n"]}
    names = [row["name"] for row in study["rows"] if any(row["name"] == name for name, _ in entries)]
    columns = [one["name"] for one in study["columns"] if any(one["name"] == column for _, column in entries)]

    def shown(entry: dict[str, Any] | None) -> str:
        if entry is None:
            return "-"
        deviation = "" if entry["sd"] is None else f" ± {100 * entry['sd']:.1f}"
        return f"{100 * entry['mean']:.1f}{deviation} ({entry['n']})"

    rows = [(column, *(shown(entries.get((name, column))) for name in names)) for column in columns]
    return table(("task, labelled sentences", *names), rows)


def example(name: str, sentence: str) -> list[str]:
    """Code that fills a mask with the bundled encoder, and what it prints."""
    [found] = bertworks.Predictor(BUNDLED / name, device="cpu").fill_mask(sentence, top_k=3)
    call = f'bertworks.Predictor("{name}").fill_mask("{sentence}", top_k=3)'
    code = ["import bertworks", "", f"[found] = {call}", "for one in found:"]
    code += ["    print(f\"{one['score']:.3f}  {one['token']}\")"]
    printed = [f"{one['score']:.3f}  {one['token']}" for one in found]
    return ["## Example", "", "```python", *code, "```", "", "```text", *printed, "```", ""]


def settings(start: PretrainConfig, recipe: PretrainConfig) -> list[str]:
    changed = [(f"`{key}`", f"`{new}`") for key, _, new in differences(start, recipe) if "every" not in key]
    return table(("setting", "value"), [row for row in changed if row[0] != "`snapshots`"])


def card(name: str, run: Path, study: dict[str, Any] | None, blimp: dict[str, Any] | None) -> str:
    """The card as Markdown. The bundled folder has its weights already: the example is computed with them."""
    facts, results = CARDS[name], read(run / "results.json")
    machine, tokenizer = results["machine"], read(run / "model/tokenizer_config.json")
    metrics, longest = (read(run / "held-out.json")[length] for length in ("128", "512"))
    case = "Letters are lowercased" if tokenizer.get("do_lower_case") else "Capital letters are kept"
    language, library, pipeline = facts["language"], "transformers", "fill-mask"
    front = ModelCardData(language=language, license=LICENSE, library_name=library, pipeline_tag=pipeline, tags=TAGS)
    lines = ["---", front.to_yaml(), "---", "", f"# {facts['title']}", ""]
    lines += [f"Trained from scratch with bertworks, which knows it by the name `{name}`. {case}.", ""]
    lines += [facts["summary"], ""] if "summary" in facts else []
    lines += example(name, facts["example"])
    lines += ["## Data and licence", "", *table(("texts", "licence"), facts["texts"])]
    lines += ["The weights are shared under CC BY-SA 4.0, with attribution to the authors of these texts.", ""]
    before, second = results.get("before", {}), run / "recipe-decay.toml"
    tokens, steps, seconds = (results[key] + before.get(key, 0) for key in ("tokens", "steps", "seconds"))
    size = f"{tokens:,.0f} tokens in {steps:,} updates, {seconds / 3600:.1f} hours"
    place = machine.get("gpu") or f"{machine['threads']} of {machine['cores']} cores of {machine['cpu']}"
    source = f"torch {machine['torch']}, commit {machine.get('commit', 'unknown')}, seed {results['seed']}"
    source += f"; its first part commit {before['commit']}, seed {before['seed']}" if before else ""
    lines += ["## Training", "", f"{size} on {place} ({source}). Settings that are not the paper's:", ""]
    recipe = load_recipe(run / "recipe.toml", PretrainConfig)
    lines += settings(PretrainConfig(), recipe)
    if before:
        rest = f"a second one continued from it for {results['tokens']:,.0f} tokens. Its settings that differ:"
        lines += [f"This run was stopped after {before['tokens']:,} tokens, at a constant learning rate; {rest}", ""]
        lines += settings(recipe, load_recipe(second, PretrainConfig))
    held_out = [
        (key.replace("mlm_", "masked-LM ").replace("nsp_", "next-sentence "), f"{value:.3f}")
        for key, value in metrics.items()
    ]
    held_out += [("masked-LM loss of word frequencies alone", f"{results['metrics']['unigram_entropy']:.2f}")]
    held_out += [("perplexity of masked tokens", f"{math.exp(metrics['mlm_loss']):.1f}")]
    held_out += [("BLiMP, accuracy", f"{100 * blimp['metrics']['accuracy']:.1f} %")] if blimp else []
    lines += ["On held-out documents, in sequences of 128 tokens:", "", *table(("metric", "value"), held_out)]
    trained = "trained on few tokens" if any(phase.length > 128 for phase in recipe.phases) else "not trained"
    lines += [f"In sequences of 512 tokens the masked-LM loss is {longest['mlm_loss']:.2f}: positions above 128 were "]
    lines[-1] += f"{trained}. Use texts of at most {LENGTH} tokens; `predict` and `features` read longer ones in "
    lines[-1] += "windows of that length, `finetune` and sentence embeddings truncate them.\n"
    if study:
        lines += [
            "## Scores",
            "",
            "Per cent on development data: mean, standard deviation and number of fine-tuning seeds.",
        ]
        missing = {one["name"] for one in study["columns"]} - {one["column"] for one in study["measured"] if one["n"]}
        lines += [note for note in study["notes"] if not any(name in note for name in missing)]
        lines += ["", *scores(study)]
    lines += ["## Limits", "", *(f"- {limit}" for limit in facts["limits"] + COMMON), ""]
    generated = (run / "model/README.md").read_text(encoding="utf-8").replace("this folder", name, 1).split("\n## ")
    return "\n".join(lines) + "".join(
        f"\n## {part.strip()}\n" for part in generated if part.startswith(("Shape", "Use"))
    )


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main(name: str, run: str, study: str = "", blimp: str = "") -> None:
    """Write the folder. config.json says float32, so that transformers computes in it."""
    model, out = Path(run) / "model", BUNDLED / name
    scored, pairs = study and read(Path(study) / "results.json"), blimp and read(Path(blimp))
    out.mkdir(exist_ok=True)
    for file in TOKENIZER:
        shutil.copyfile(model / file, out / file)
    settings = read(model / "tokenizer_config.json") | {"model_max_length": LENGTH}
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    config = read(model / "config.json") | {"dtype": "float32"}
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    weights = load_file(model / "model.safetensors")
    halved = {key: tensor.to(torch.bfloat16) for key, tensor in weights.items()}
    save_file(halved, out / "model.safetensors", metadata={"format": "pt"})
    (out / "README.md").write_text(card(name, Path(run), scored or None, pairs or None), encoding="utf-8")
    record = Path(__file__).parent / name
    record.mkdir(exist_ok=True)
    for file in RECORD:
        if (Path(run) / file).exists():
            shutil.copyfile(Path(run) / file, record / file)


if __name__ == "__main__":
    main(*sys.argv[1:])
