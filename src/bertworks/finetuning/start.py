"""The model that a fine-tuning run starts with: its weights, which of them are new, and which are trained."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..checkpoint.folder import parts_in, read_config
from ..checkpoint.start import initial_model
from ..model.config import HeadName
from ..model.encoder import build_layer
from ..model.heads import Model, build_model
from ..model.prepare import initialise
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
        fresh = fresh + reinitialise_top(model, config.reinit_layers, seed)
    model.freeze_unused_layers()
    if not heads and model.encoder.pooler is not None:
        model.encoder.pooler.requires_grad_(False)  # no vector of this kind passes through it
    if config.trained == "head":
        model.freeze()
    elif config.trained != "all":
        model.freeze_lowest(model.config.num_hidden_layers - config.trained)
    return model, fresh


def reinitialise_top(model: Model, layers: int, seed: int) -> list[str]:
    """New weights for the pooler and that many top layers; returns the parts. Zhang et al. (2021)."""
    encoder, shape = model.encoder, model.config
    generator = torch.Generator().manual_seed(int(np.random.default_rng((seed, 2)).integers(2**62)))
    names = [f"layers.{shape.num_hidden_layers - 1 - i}" for i in range(layers)]
    for i in range(layers):
        encoder.layers[-1 - i] = build_layer(shape, shape.num_hidden_layers - 1 - i)
        initialise(encoder.layers[-1 - i], shape.initializer_range, generator)
    if layers and encoder.pooler is not None:
        initialise(encoder.pooler, shape.initializer_range, generator)
        names.append("pooler")
    return names
