"""`build_model`: a model from its config, with the encoder, heads and feature head that it asks for.

heads.py and bert.py have BERT's own parts, comparators.py and recurrent.py what the paper compares with.
"""

from collections.abc import Sequence

import torch
from torch import nn

from .acceleration import accelerated
from .bert import Encoder, Layer, encoders_in
from .comparators import ConcatenatedEncoders, FeatureHead
from .config import NO_TOP, HeadName, ModelConfig, TopConfig
from .heads import TOKEN_HEADS, ClassificationHead, MaskedLMHead, Model, TokenHead
from .initialization import initialize, start_with_position_heads
from .recurrent import RecurrentLayer


def build_head(name: HeadName, config: ModelConfig, labels: int = 0, width: int = 0) -> nn.Module:
    """The head of that name. `labels`: K of a classifier or tagger. `width`: of its input vectors, D if left out."""
    if name == "mlm":
        return MaskedLMHead(config)
    kind = TokenHead if name in TOKEN_HEADS else ClassificationHead
    scores = {"nsp": 2, "sop": 2, "span": 2, "choice": 1}.get(name, labels)
    rate = 0.0 if name in ("nsp", "span") else config.head_dropout  # as in run_pretraining.py and run_squad.py
    return kind(config, scores, width or config.hidden_size, rate)


def needs_pooler(heads: Sequence[HeadName], top: TopConfig = NO_TOP) -> bool:
    """Whether one of these heads reads the pooler's output, or there is no head. Else nothing would train a pooler."""
    return not heads or (top.needs_pooler and any(name not in ("mlm", *TOKEN_HEADS) for name in heads))


def build_model(
    config: ModelConfig,
    heads: tuple[HeadName, ...] = ("mlm", "nsp"),
    labels: int = 0,
    seed: int | None = None,
    pooler: bool | None = None,
    top: TopConfig = NO_TOP,
) -> Model:
    """A model with these heads; randomly initialized if `seed` is given, else weights are to be loaded into it.

    pooler: whether the encoder has one. Left out, it has one if a head reads it, or if there is no head (DistilBERT:
    not then, because its pooler belongs to the heads). Raises InputError if `top` chooses layers that the encoder does
    not have, ValueError for a language model's head on concatenated encoders.
    """
    if config.direction == "pair" and {"mlm", "nsp", "sop"} & {*heads}:
        raise ValueError("direction = 'pair' cannot be pre-trained; pre-train 'left' and 'right' and concatenate them")
    if pooler is None:
        pooler = needs_pooler(heads, top) and (bool(heads) or config.rules.pooler_without_head)
    layer = Layer if config.layer_type == "attention" else RecurrentLayer
    encoder = (ConcatenatedEncoders if config.direction == "pair" else Encoder)(config, pooler, layer)
    feature_head = None if top == NO_TOP else FeatureHead(top, config, encoder.width)
    width = encoder.width if feature_head is None else feature_head.width
    modules = {name: build_head(name, config, labels, width) for name in heads}
    model = accelerated(Model(encoder, modules, feature_head))
    if seed is not None:
        initialize(model, config.initializer_range, torch.Generator().manual_seed(seed))
        if config.start == "position-heads":
            for part in encoders_in(model):
                start_with_position_heads(part)
    return model
