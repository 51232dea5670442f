"""The model card: README.md of a model folder, with the front matter that model hubs read, from a run's own facts."""

import html
import json
import re
from pathlib import Path
from typing import Any

from ..model.config import ModelConfig
from .families import JINA, ROTARY
from .names import TOP

_PIPELINES = {  # by the end of a class's name
    "ForPreTraining": "fill-mask",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
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
    "flat": "predicted values that hardly vary",
    "random_init": "training began with random weights",
    "continued": "training began with the weights of another model",
}
# one name, or the first of a list
_BASE = r"""^base_model:\s*(?:-\s+|\[\s*)?["']?([\w.-]+(?:/[\w.-]+)?)["']?\s*(?:[],]|$)"""
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

    config: the folder's config.json, of an encoder of this `shape`. sizes: parameters of each part. facts: anything the
    run knows, values or tables of values, written as they are. Its `title`, `language` and `made` go into the heading,
    its `license`, `datasets`, `base_model` and, with `task` and `metrics`, a `model-index` into the front matter.
    """
    facts = dict(facts)
    facts.pop("reliability", None)  # a picture's numbers
    confused: dict[str, dict[str, int]] = facts.pop("confusion", {})
    title, language = facts.pop("title", "BERT encoder"), facts.pop("language", None)
    made = facts.pop("made", "trained with bertworks")
    architecture = config["architectures"][0]
    one_sided = "mlm" in sizes and shape.direction != "both"  # it fills no masks
    ending = next((end for end in _PIPELINES if architecture.endswith(end)), None)
    pipeline = "feature-extraction" if one_sided or ending is None else _PIPELINES[ending]
    transformers = config["model_type"] != "bertworks"
    front: dict[str, Any] = {
        **({"language": language} if language else {}),
        "library_name": "transformers" if transformers else "bertworks",
        "pipeline_tag": pipeline,
        "tags": [shape.family, "bertworks"],
        **{key: facts.pop(key) for key in ("license", "datasets", "base_model") if key in facts},
    }
    front |= _model_index(_words(title), pipeline, front.get("datasets", []), facts)
    plain = ModelConfig()
    rows = {name: getattr(shape, name) for name in _SHAPE}
    rows |= {name: value for name, value in vars(shape).items() if value != getattr(plain, name)}
    rows |= {"top": config[TOP]} if TOP in config else {}
    rows |= {f"parameters, {part}": n for part, n in sizes.items()}
    if "id2label" in config:
        rows["labels"] = ", ".join(config["id2label"].values())
    loose = {key: value for key, value in facts.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in facts.items() if isinstance(value, dict)}
    front_lines = (f"{key}: {_printable(json.dumps(value, ensure_ascii=False))}" for key, value in front.items())
    lines = ["---", *front_lines, "---", ""]
    alone = "**Load it with bertworks: no class of transformers computes this model, and none loads this folder.** "
    known = _class(config, sizes) if transformers else "`model_type` is `bertworks`."
    lines += [f"# {_plain(title)}", "", f"{'' if transformers else alone}An encoder {_plain(made)}; {known}", ""]
    lines += _section("Shape", rows)
    lines += _section("Run", loose) if loose else []
    for name, table in tables.items():
        lines += _section(name, table)
    lines += _confusion(confused)
    return "\n".join([*lines, "## Use", "", *_use(config)])


def origin_in_card(folder: Path) -> dict[str, Any]:
    """`license` and `base_model` of a folder's card, where it names them.

    A local folder's name is no model's name on a hub, so without a card that names one there is no `base_model`.
    """
    card = folder / "README.md"
    front = card.read_text(encoding="utf-8", errors="replace").split("---")[1:2] if card.is_file() else []
    patterns = {"license": r"^license: *[\"']?([\w.-]+)", "base_model": _BASE}
    found = {key: re.search(pattern, text, re.MULTILINE) for text in front for key, pattern in patterns.items()}
    return {key: match[1] for key, match in found.items() if match}


def _words(text: Any) -> str:
    """A text in UTF-8 on one line."""
    return re.sub(r"\s+", " ", str(text).encode("utf-8", "replace").decode())


def _printable(text: str) -> str:
    """A text that every YAML reader takes: what YAML calls not printable is replaced."""
    return re.sub("[^\\x20-\\x7e\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "\ufffd", text)


def _model_index(name: str, pipeline: str, datasets: list[str], facts: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a fine-tuned model in the form of model hubs; {} if the run has none."""
    task, metrics = facts.get("task"), facts.get("metrics")
    if not isinstance(task, str) or not isinstance(metrics, dict):
        return {}
    named = [
        {"type": _METRICS.get(key, key), "value": value, "name": f"{key} (dev)"}
        for key, value in metrics.items()
        if isinstance(value, int | float) and not key.startswith("loss")
    ]
    source = {"name": _words(task), "type": datasets[0] if datasets else "table", "split": "validation"}
    result = {"task": {"type": pipeline}, "dataset": source, "metrics": named}
    return {"model-index": [{"name": name, "results": [result]}]}


def _confusion(table: dict[str, dict[str, int]]) -> list[str]:
    """How often each true label, a row, was predicted as which; of several labels a row what was found and missed.

    Nothing of a table of another form, which a damaged results.json may have.
    """
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        return []
    columns = list(dict.fromkeys([*table, *(name for row in table.values() for name in row)]))
    several = bool(table) and all({*row} == {"found", "missed", "wrong"} for row in table.values())
    columns = ["found", "missed", "wrong"] if several else columns
    if not 1 <= len(table) <= _CELLS or len(columns) > _CELLS:
        return []
    head = ["label" if several else "true label; columns: predicted", *columns]
    rows = [[name, *(str(row.get(column, 0)) for column in columns)] for name, row in table.items()]
    lines = ["| " + " | ".join(_cell(cell) for cell in cells) + " |" for cells in (head, *rows)]
    lines.insert(1, f"|---|{'---:|' * len(columns)}")
    return ["## Confusion on the development rows", "", *lines, ""]


def _use(config: dict[str, Any]) -> list[str]:
    """How to load the folder, with bertworks and with transformers; or why transformers cannot."""
    if config["model_type"] == "roformer":
        name = config["architectures"][0]
        return _code("import transformers", "", f"model = transformers.{name}.from_pretrained(FOLDER)")
    lines = _code("import bertworks", "", "model = bertworks.load_model(FOLDER)")
    if config["model_type"] == "bertworks":
        return [
            *lines,
            "Transformers does not open this folder: it has no model type with these settings (Shape).",
            "",
        ]
    auto, call = _auto_class(config["architectures"][0])
    return [
        *lines,
        f"In transformers{' 5.4 and newer' if config['model_type'] == ROTARY else ''}:",
        "",
        *_code(
            f"from transformers import {auto}, AutoTokenizer",
            "",
            "tokenizer = AutoTokenizer.from_pretrained(FOLDER)",
            f"model = {auto}.from_pretrained(FOLDER)",
            *call,
        ),
    ]


def _auto_class(architecture: str) -> tuple[str, list[str]]:
    """The class of transformers that finds the folder's own class, and the lines that call its model."""
    call = 'outputs = model(**tokenizer("A sentence.", return_tensors="pt"))'
    if architecture.endswith("ForMultipleChoice"):
        pairs = (
            'inputs = tokenizer(["A beginning."] * 2, ["One end.", "Another end."], padding=True, return_tensors="pt")'
        )
        call = "outputs = model(**{name: value[None] for name, value in inputs.items()})"
        return "AutoModelForMultipleChoice", [pairs, call]
    if architecture.endswith("ForQuestionAnswering"):
        call = 'outputs = model(**tokenizer("A question?", "Its context.", return_tensors="pt"))'
    if architecture.endswith("ForPreTraining"):
        return "AutoModelForMaskedLM", [f"{call}  # AutoModelForPreTraining has the sentence-pair head too"]
    if architecture.endswith(("LMHeadModel", "ForCausalLM")):
        return "AutoModelForCausalLM", [call]
    ending = next((end for end in _PIPELINES if architecture.endswith(end)), "")
    return f"AutoModel{ending}", [call]


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
