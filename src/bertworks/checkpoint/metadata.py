"""What a model folder says beside its encoder and weights, so that a folder made from it says the same."""

from pathlib import Path
from typing import Any, TypedDict

from ..files import read_table
from ..model.heads import Model
from . import hf
from .folder import CONFIG


class Kept(TypedDict):
    """Arguments of `save_folder`."""

    labels: list[str] | None
    max_length: int | None
    task: dict[str, Any] | None


def kept_of(folder: Path, settings: dict[str, Any], model: Model) -> Kept:
    """The labels, the longest input and the task of a folder, as far as `model` still has a place for them."""
    head = next((name for name in model.heads if name not in ("mlm", "nsp", "sop")), None)
    labels = hf.labels_from_hf(settings, str(folder / CONFIG)) if {"classifier", "tagger"} & {*model.heads} else None
    length = input_length(folder, model.config.max_length)
    return Kept(labels=labels, max_length=length, task=hf.task_of(settings, head) if head else None)


def input_length(folder: Path, positions: int) -> int:
    """How many tokens an input of this folder may have: what it was fine-tuned with, at most its positions.

    Raises InputError if its tokenizer_config.json is no table.
    """
    file = folder / "tokenizer_config.json"
    settings = read_table(file) if file.exists() else {}
    length = settings.get("model_max_length")
    return min(length, positions) if isinstance(length, int) and length > 2 else positions
