"""The model card: README.md of a model folder, with the front matter that model hubs read, from a run's own facts."""

import html
import re
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.repocard_data import EvalResult, ModelCardData

from ..model.config import ModelConfig
from .families import JINA, ROTARY
from .names import TOP

_SENTENCE = '"A sentence."'
_ENDINGS = {  # of classes' names: what model hubs call the task, the class of transformers that finds it, its input
    "ForPreTraining": ("fill-mask", "AutoModelForMaskedLM", _SENTENCE),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM", _SENTENCE),
    "ForCausalLM": ("feature-extraction", "AutoModelForCausalLM", _SENTENCE),
    "LMHeadModel": ("feature-extraction", "AutoModelForCausalLM", _SENTENCE),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification", _SENTENCE),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification", _SENTENCE),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering", '"A question?", "Its context."'),
    "ForMultipleChoice": (
        "multiple-choice",
        "AutoModelForMultipleChoice",
        '["A beginning."] * 2, ["One end.", "Another end."], padding=True',
    ),
    "": ("feature-extraction", "AutoModel", _SENTENCE),  # any other class
}
_METRICS = {  # ours by the names that model hubs have
    "macro_f1": "f1",
    "micro_f1": "f1",
    "character_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact": "exact_match",
    "character_exact": "exact_match",
}
_MEANINGS = {  # of facts that are true or false
    "collapsed": "the same answer for every development row",
    "random_init": "training began with random weights",
    "continued": "training began with the weights of another model",
}
_CELLS = 12  # classes of the largest confusion table on a card
_SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


def model_card(config: dict[str, Any], shape: ModelConfig, sizes: dict[str, int], facts: dict[str, Any]) -> str:
    """The card as Markdown.

    config: the folder's config.json, of an encoder of this `shape`. sizes: parameters of each part. facts: values or
    tables of values of the run, written as they are. `title` and `made` go into the heading, `language`, `license`,
    `datasets`, `base_model` and, with `task` and `metrics`, a `model-index` into the front matter.
    """
    facts = {key: value for key, value in facts.items() if key != "reliability"}  # the numbers of a figure
    confusion, title = facts.pop("confusion", {}), facts.pop("title", "BERT encoder")
    made = facts.pop("made", "trained with bertworks")
    front = _front_matter(config, shape, sizes, facts, _words(title))
    known, alone = _class(config, sizes), ""
    if config["model_type"] == "bertworks":
        known = "`model_type` is `bertworks`."
        alone = "**Load it with bertworks: no class of transformers computes this model, and none loads this folder.** "
    lines = ["---", front.to_yaml(), "---", "", f"# {_plain(title)}", ""]
    lines += [f"{alone}An encoder {_plain(made)}; {known}", ""]
    lines += _section("Shape", _shape_rows(config, shape, sizes))
    values = {key: value for key, value in facts.items() if not isinstance(value, dict)}
    lines += _section("Run", values) if values else []
    for name, table in facts.items():
        lines += _section(name, table) if isinstance(table, dict) else []
    return "\n".join([*lines, *_confusion(confusion), "## Use", "", *_use(config)])


def _front_matter(
    config: dict[str, Any], shape: ModelConfig, sizes: dict[str, int], facts: dict[str, Any], title: str
) -> ModelCardData:
    """What model hubs read. Takes its keys out of `facts`."""
    fills_no_masks = "mlm" in sizes and shape.direction != "both"
    pipeline = "feature-extraction" if fills_no_masks else _ending(config)[0]
    named = {key: facts.pop(key) for key in ("language", "license", "datasets", "base_model") if facts.get(key)}
    task, metrics = facts.get("task"), facts.get("metrics")
    results = [
        EvalResult(
            task_type=pipeline,
            dataset_type=named.get("datasets", ["table"])[0],
            dataset_name=_words(task),
            dataset_split="validation",
            metric_type=_METRICS.get(str(key), str(key)),
            metric_name=f"{key} (dev)",
            metric_value=value,
        )
        for key, value in (metrics.items() if isinstance(task, str) and isinstance(metrics, dict) else ())
        if isinstance(value, int | float) and not key.startswith("loss")
    ]
    return ModelCardData(
        library_name="bertworks" if config["model_type"] == "bertworks" else "transformers",
        pipeline_tag=pipeline,
        tags=[shape.family, "bertworks"],
        model_name=title if results else None,
        eval_results=results or None,
        **named,
    )


def _shape_rows(config: dict[str, Any], shape: ModelConfig, sizes: dict[str, int]) -> dict[str, Any]:
    plain = ModelConfig()
    rows = {name: getattr(shape, name) for name in _SHAPE}
    rows |= {name: value for name, value in vars(shape).items() if value != getattr(plain, name)}
    rows |= {"top": config[TOP]} if TOP in config else {}
    rows |= {f"parameters, {part}": n for part, n in sizes.items()}
    return rows | ({"labels": ", ".join(config["id2label"].values())} if "id2label" in config else {})


def origin_in_card(folder: Path) -> dict[str, Any]:
    """`license` and `base_model` (the first one) of a folder's card, where it names them.

    A local folder's name is not the name of a model on a hub: without a card that names one there is no `base_model`.
    """
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8-sig", errors="replace") if card.is_file() else ""
    block = re.match(r"---[ \t]*\n(.*?)\n---[ \t]*(\n|$)", text, re.DOTALL)
    try:
        front = yaml.safe_load(block[1]) if block else {}
    except (ValueError, RecursionError, yaml.YAMLError):
        return {}
    found = {key: front.get(key) for key in ("license", "base_model")} if isinstance(front, dict) else {}
    first = {key: value[0] if isinstance(value, list) and value else value for key, value in found.items()}
    return {key: value for key, value in first.items() if isinstance(value, str) and value}


def _words(text: Any) -> str:
    """A text in UTF-8 on one line."""
    return re.sub(r"\s+", " ", str(text).encode("utf-8", "replace").decode())


def _confusion(table: Any) -> list[str]:
    """How often each true label was predicted as which; of several labels per example what was found and missed.

    Nothing of more than `_CELLS` labels, or of another form, which a damaged results.json may have.
    """
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        return []
    columns = list(dict.fromkeys(name for row in table.values() for name in row))
    if table.keys() & {*columns}:  # else: found, missed, wrong
        columns = list(dict.fromkeys([*table, *columns]))
    if not 1 <= len(table) <= _CELLS or not 1 <= len(columns) <= _CELLS:
        return []
    rows = [[name, *(str(row.get(column, 0)) for column in columns)] for name, row in table.items()]
    lines = [
        "| " + " | ".join(map(_cell, cells)) + " |" for cells in (["true label; columns: predicted", *columns], *rows)
    ]
    lines.insert(1, f"|---|{'---:|' * len(columns)}")
    return ["## Confusion on the development rows", "", *lines, ""]


def _use(config: dict[str, Any]) -> list[str]:
    """How to load the folder, with bertworks and with transformers; or why transformers cannot."""
    ours = _code("import bertworks", "", "model = bertworks.load_model(FOLDER)")
    if config["model_type"] == "bertworks":
        why = "Transformers does not open this folder: it has no model type with these settings (Shape)."
        return [*ours, why, ""]
    _, auto, texts = _ending(config)
    each = "value[None]" if auto.endswith("MultipleChoice") else "value"  # choices are an axis of their own
    theirs = _code(
        f"from transformers import {auto}, AutoTokenizer",
        "",
        "tokenizer = AutoTokenizer.from_pretrained(FOLDER)",
        f"model = {auto}.from_pretrained(FOLDER)",
        f'inputs = tokenizer({texts}, return_tensors="pt")',
        f"outputs = model(**{{name: {each} for name, value in inputs.items()}})",
    )
    return [*ours, f"In transformers{' 5.4 and newer' if config['model_type'] == ROTARY else ''}:", "", *theirs]


def _ending(config: dict[str, Any]) -> tuple[str, str, str]:
    """The entry of `_ENDINGS` for the class that a config.json names."""
    return next(entry for end, entry in _ENDINGS.items() if config["architectures"][0].endswith(end))


def _code(*lines: str) -> list[str]:
    """A block of Python; FOLDER in it is the folder that the card is in."""
    return ["```python", *(line.replace("FOLDER", '"this folder"') for line in lines), "```", ""]


def _class(config: dict[str, Any], sizes: dict[str, int]) -> str:
    """The class of transformers that loads the folder, and what it leaves out."""
    known = f"`{config['architectures'][0]}` in transformers"
    if config["model_type"] != ROTARY:
        return f"{known}."
    known = f"{known} 5.4 and newer (BERT with rotary positions has the model type `{ROTARY}` there)."
    for head in sorted(JINA.beside & sizes.keys()):
        known += f" Its head `{head}` is read by bertworks alone; transformers lists its tensors as unexpected."
    return known


def _section(name: str, table: dict[str, Any]) -> list[str]:
    rows = [_row(key, value) for key, value in _flat(table).items() if value is not None]
    return [f"## {_plain(name[:1].upper() + name[1:])}", "", "| | |", "|---|---|", *rows, ""]


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables in tables as dotted keys."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def _row(key: str, value: Any) -> str:
    """The row of a fact. A seed is a name, without separators; a fact that is true or false has its meaning."""
    name = key.rpartition(".")[2]
    if isinstance(value, bool):
        meaning = f" ({_MEANINGS[name]})" if name in _MEANINGS else ""
        key, value = f"{key}{meaning}", "yes" if value else "no"
    return f"| {_cell(key)} | {_cell(str(value) if name == 'seed' else value)} |"


def _cell(value: Any) -> str:
    """One table cell: numbers with separators, nothing that would end the cell."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10000:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    return _plain(value).replace("|", "\\|")


def _plain(value: Any) -> str:
    """A value as one line of Markdown that shows it as it is, without markup or HTML of its own."""
    text = str(value).encode("utf-8", "replace").decode()  # the name of a folder need not be UTF-8
    line = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]", " ", text)
    marked = re.sub(r"[\\`*\[\]~$!#]|(?<!\w)_|_(?!\w)", r"\\\g<0>", line)
    return html.escape(marked, quote=False)
