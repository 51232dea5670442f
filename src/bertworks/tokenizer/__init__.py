"""Text to ids and back: WordPiece, byte-level BPE and Unigram vocabularies, loaded or trained."""

from .check import unknown_share
from .normalization import Composed, compose, normalize
from .tokenizer import SPECIAL_TOKENS, Encoding, Tokenizer, TokenizerConfig, continues_letter, cut_lengths

__all__ = [
    "SPECIAL_TOKENS",
    "Composed",
    "Encoding",
    "Tokenizer",
    "TokenizerConfig",
    "compose",
    "continues_letter",
    "cut_lengths",
    "normalize",
    "unknown_share",
]
