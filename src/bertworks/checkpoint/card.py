"""The model card: README.md of a model folder, with the front matter that model hubs read, from a run's own facts."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.repocard import metadata_load
from huggingface_hub.repocard_data import ModelCardData

from ..files import to_json
from ..model.config import ModelConfig
from ..pretrained import name_of
from .families import JINA, ROTARY
from .names import TOP

Facts = Mapping[str, Any]
_CLASSES = {  # by the ends of classes' names: the task of model hubs, the class of transformers
    "ForPreTraining": ("fill-mask", "AutoModelForMaskedLM"),
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForCausalLM": ("feature-extraction", "AutoModelForCausalLM"),
    "LMHeadModel": ("feature-extraction", "AutoModelForCausalLM"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "ForMultipleChoice": ("multiple-choice", "AutoModelForMultipleChoice"),
    "": ("feature-extraction", "AutoModel"),
}
_FRONT = ("language", "license", "datasets", "base_model")  # facts of the front matter
_ELSEWHERE = ("title", "made", "confusion", "reliability", *_FRONT)  # facts that the section "Run" leaves out


def model_card(config: Facts, shape: ModelConfig, sizes: Mapping[str, int], facts: Facts) -> str:
    """The card as Markdown.

    config: the folder's config.json, of an encoder of this `shape`. sizes: parameters of each part. facts: values or
    tables of values of the run, as in results.json. `title` and `made` go into the heading, `language`, `license`,
    `datasets` and `base_model` into the front matter.
    """
    title, origin = facts.get("title", "BERT encoder"), facts.get("made", "trained with bertworks")
    run = {key: value for key, value in facts.items() if key not in _ELSEWHERE}
    lines = ["---", _front_matter(config, shape, facts), "---", "", f"# {_plain(title)}", ""]
    lines += [_opening(config, sizes, origin), "", *_section("Shape", _shape(config, shape, sizes))]
    lines += _section("Run", run) if run else []
    return "\n".join([*lines, "## Use", "", *_use(config)])


def _front_matter(config: Facts, shape: ModelConfig, facts: Facts) -> str:
    """What model hubs read."""
    pipeline = _class(config)[0]
    if pipeline == "fill-mask" and shape.direction != "both":
        pipeline = "feature-extraction"
    library = "bertworks" if config["model_type"] == "bertworks" else "transformers"
    named = {key: facts[key] for key in _FRONT if facts.get(key)}
    return ModelCardData(
        library_name=library, pipeline_tag=pipeline, tags=[shape.family, "bertworks"], **named
    ).to_yaml()


def origin_in_card(folder: Path) -> dict[str, Any]:
    """`license` and `base_model` (the first one) of a folder's card, where it names them.

    Of a download `base_model` is its own name. The name of another local folder is not the name of
    a model on a hub: without a card that names one there is no `base_model`.
    """
    try:
        front = metadata_load(folder / "README.md") or {}
    except Exception:  # no card, or one that another program or a person wrote: whatever yaml raises
        front = {}
    values = {key: front.get(key) for key in ("license", "base_model")}
    if (name := name_of(folder)) is not None and "/" in name:
        values["base_model"] = name.partition("@")[0]
    first = {key: value[0] if isinstance(value, list) and value else value for key, value in values.items()}
    return {key: value for key, value in first.items() if isinstance(value, str) and value}


def _opening(config: Facts, sizes: Mapping[str, int], origin: str) -> str:
    """How the model came about, and what loads the folder."""
    if config["model_type"] == "bertworks":
        alone = "**Load it with bertworks: no class of transformers computes this model, and none loads this folder.**"
        return f"{alone} An encoder {_plain(origin)}; `model_type` is `bertworks`."
    text = f"An encoder {_plain(origin)}; `{config['architectures'][0]}` in transformers"
    if config["model_type"] != ROTARY:
        return f"{text}."
    text += f" 5.4 and newer (BERT with rotary positions has the model type `{ROTARY}` there)."
    return text + "".join(
        f" Its head `{head}` is read by bertworks alone." for head in sorted(JINA.beside & sizes.keys())
    )


def _shape(config: Facts, shape: ModelConfig, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The settings of BERT's size, and all that are not BERT's; the sizes of the parts."""
    usual = vars(ModelConfig())
    size = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
    rows = {name: value for name, value in vars(shape).items() if name in size or value != usual[name]}
    rows |= {"top": config[TOP]} if TOP in config else {}
    rows |= {"parameters": dict(sizes)}
    return rows | ({"labels": [*config["id2label"].values()]} if "id2label" in config else {})


def _section(name: str, table: Facts) -> list[str]:
    """Facts as JSON: no line of it can end the block."""
    return [f"## {name}", "", "```json", to_json(table, indent=1), "```", ""]


def _use(config: Facts) -> list[str]:
    """How to load the folder, with bertworks and with transformers; or why transformers cannot."""
    usage = ["```python", "import bertworks", "", 'model = bertworks.load_model("this folder")', "```", ""]
    if config["model_type"] == "bertworks":
        return [*usage, "Transformers does not open this folder: it has no model type with these settings (Shape).", ""]
    auto, newer = _class(config)[1], " 5.4 and newer" if config["model_type"] == ROTARY else ""
    load = 'from_pretrained("this folder")'
    hf_usage = [f"from transformers import {auto}, AutoTokenizer", ""]
    hf_usage += [f"tokenizer = AutoTokenizer.{load}", f"model = {auto}.{load}"]
    return [*usage, f"In transformers{newer}:", "", "```python", *hf_usage, "```", ""]


def _class(config: Facts) -> tuple[str, str]:
    """The entry of `_CLASSES` for the class that a config.json names."""
    return next(entry for end, entry in _CLASSES.items() if config["architectures"][0].endswith(end))


def _plain(text: Any) -> str:
    """A text as one line of Markdown that shows it as it is, without markup or HTML of its own, in UTF-8."""
    line = re.sub(r"\s+", " ", str(text).encode("utf-8", "replace").decode())
    return html.escape(re.sub(r"[\\`*\[\]~$!#|]|(?<!\w)_|_(?!\w)", r"\\\g<0>", line), quote=False)
