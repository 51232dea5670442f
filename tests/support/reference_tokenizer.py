"""The rules of the original tokenizer (google-research/bert, tokenization.py) in plain Python: slow, clear.

Only the tests use it: it equals the original on every recorded string, and a property test holds `bertworks.Tokenizer`
to it on text nobody has recorded.
"""

import unicodedata
from collections.abc import Mapping

# First and last code point of the blocks that the original calls Chinese characters: no kana, no Hangul.
CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)),
    *((0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_chinese(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in CJK)


def is_punctuation(char: str) -> bool:
    """Everything in ASCII that is no letter, digit, space or control counts, `$` too; beyond it, categories P*."""
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char).startswith("P")


def clean(text: str) -> str:
    kept = (char for char in text if ord(char) not in (0, 0xFFFD) and not is_control(char))
    return "".join(" " if is_whitespace(char) else char for char in kept)


def strip_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn")


def basic_words(text: str, lowercase: bool) -> list[str]:
    """Clean, set Chinese characters apart, split at whitespace, lower-case and strip accents, set punctuation apart."""
    spaced = "".join(f" {char} " if is_chinese(char) else char for char in clean(text))
    words = []
    for word in spaced.split():
        word = strip_accents(word.lower()) if lowercase else word
        words += "".join(f" {char} " if is_punctuation(char) else char for char in word).split()
    return words


def word_pieces(word: str, vocab: Mapping[str, int], max_input_chars_per_word: int = 200) -> list[str]:
    """Longest match first; a word that is too long or that cannot be spelled to its end is [UNK] as a whole."""
    if len(word) > max_input_chars_per_word:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in vocab), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


def tokenize(text: str, vocab: Mapping[str, int], lowercase: bool) -> list[str]:
    return [piece for word in basic_words(text, lowercase) for piece in word_pieces(word, vocab)]
