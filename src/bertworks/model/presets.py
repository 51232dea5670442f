"""Named sizes: the paper's BASE and LARGE (section 3), Google's smaller ones (README of the original code), those of
BERT's relatives as published, and one that has every later option.
"""

from dataclasses import replace

from .config import ModelConfig


def _sized(layers: int, width: int, heads: int) -> ModelConfig:
    return ModelConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width
    )


def _roberta(shape: ModelConfig) -> ModelConfig:
    """Liu et al. (2019): byte-level BPE, no segments (a table of one row), positions from row 2 of 514."""
    return replace(
        shape,
        family="roberta",
        vocab_size=50265,
        max_position_embeddings=514,
        position_offset=2,
        pad_token_id=1,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )


def _albert(shape: ModelConfig) -> ModelConfig:
    """Lan et al. (2019), second version: no dropout but before a classifier."""
    return replace(
        shape,
        family="albert",
        vocab_size=30000,
        embedding_size=128,
        shared_layers="all",
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=0.1,
    )


_BASE, _LARGE = _sized(12, 768, 12), _sized(24, 1024, 16)
PRESETS = {
    "tiny": _sized(2, 128, 2),
    "mini": _sized(4, 256, 4),
    "small": _sized(4, 512, 8),
    "medium": _sized(8, 512, 8),
    "base": _BASE,
    "large": _LARGE,
    "roberta-base": _roberta(_BASE),
    "roberta-large": _roberta(_LARGE),
    "albert-base": _albert(_BASE),
    "albert-large": _albert(_LARGE),
    "albert-xlarge": _albert(_sized(24, 2048, 16)),
    "albert-xxlarge": _albert(_sized(12, 4096, 64)),
    "distilbert": replace(  # Sanh et al. (2019)
        _sized(6, 768, 12), family="distilbert", type_vocab_size=0, classifier_dropout=0.2
    ),
    "gpt": replace(  # Radford et al. (2018); its vocabulary has 40,478 tokens
        _BASE,
        vocab_size=40478,
        direction="left",
        hidden_act="gelu_new",
        type_vocab_size=0,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    ),
    "modern": replace(  # BASE's parameters a layer: a gated layer has three matrices, so each is two thirds as wide
        _BASE,
        family="modernbert",
        bias=False,
        intermediate_size=2048,
        feed_forward="geglu",
        norm="pre",
        position_embedding_type="rotary",
        rope_theta=160000.0,
        local_rope_theta=10000.0,
        max_position_embeddings=8192,
        attention_window=64,
        type_vocab_size=0,
        layer_norm_eps=1e-5,
    ),
}
