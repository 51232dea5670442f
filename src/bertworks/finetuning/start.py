"""The model that a fine-tuning run starts with: its weights, which of them are new, and which are trained."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..checkpoint.folder import parts_in, read_config
from ..checkpoint.start import initial_model
from ..model.config import HeadName
from ..model.heads import Model, build_model
from .recipe import FinetuneConfig


def start_model(
    config: FinetuneConfig, folder: Path, head: HeadName | None, labels: Sequence[str]
) -> tuple[Model, list[str]]:
    """The model to train, and which of its parts have new weights. head: none: the kind of task has none."""
    heads, seed, rate = (head,) if head else (), config.loop.seed, config.dropout
    if config.random_init:
        shape = replace(read_config(folder)[0], hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        model = build_model(shape, heads, len(labels), seed, top=config.top)
        fresh = ["encoder", *sorted(parts_in(model))]
    else:
        model, fresh, _ = initial_model(folder, heads, labels, seed, rate, config.top)
    model.freeze_unused_layers()
    if not heads and model.encoder.pooler is not None:
        model.encoder.pooler.requires_grad_(False)  # no vector of this kind passes through it
    if config.trained == "head":
        model.freeze()
    elif config.trained != "all":
        model.freeze_lowest(model.config.num_hidden_layers - config.trained)
    return model, fresh
