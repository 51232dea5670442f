"""Text to ids and back: WordPiece, byte-level BPE and Unigram vocabularies, loaded or trained. In reading order:

tokenizer.py          `Tokenizer`: load, train, encode, decode
pipeline.py           a tokenizer.json as data: its kind, special tokens and layout of pairs
bert_rules.py         the original BERT's text rules as steps of a tokenizer.json
normalization.py      Unicode normalization in linear time, composing, offsets of tokens in the given text
training.py           settings of a training, and the sample of text it uses
wordpiece.py          WordPiece vocabularies (BERT), and a cache of the ids of words
byte_bpe.py           byte-level BPE vocabularies (RoBERTa)
unigram.py            Unigram vocabularies (ALBERT)
unigram_training.py   training of Unigram vocabularies
folder.py             reads and writes the files of a tokenizer
settings.py           tokenizer_config.json and similar files: supported and refused settings
check.py              does a vocabulary fit a text?
"""

from .check import unknown_fraction
from .normalization import Composed, compose, continues_letter, normalize
from .tokenizer import SPECIAL_TOKENS, Encoding, Tokenizer, TokenizerConfig, cut_lengths

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
    "unknown_fraction",
]
