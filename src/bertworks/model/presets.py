"""Named sizes: the paper's BASE and LARGE (section 3) and Google's smaller ones (README of the original code)."""

from .encoder import ModelConfig


def _sized(layers: int, width: int, heads: int) -> ModelConfig:
    return ModelConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width
    )


PRESETS = {
    "tiny": _sized(2, 128, 2),
    "mini": _sized(4, 256, 4),
    "small": _sized(4, 512, 8),
    "medium": _sized(8, 512, 8),
    "base": _sized(12, 768, 12),
    "large": _sized(24, 1024, 16),
}
