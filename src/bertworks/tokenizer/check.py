"""Does a vocabulary fit a text and its own normalizer? Subwords per word, fraction of [UNK], missing characters."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .tokenizer import Tokenizer
from .training import ASCII

MAX_CHARS = 10_000_000  # of text that is examined
MAX_UNKNOWN = 0.02  # fraction of [UNK] above which a vocabulary does not fit
MAX_DEAD = 0.01  # fraction of subwords that the normalizer may exclude


@dataclass(frozen=True)
class CheckReport:
    """How a vocabulary divides a text. A word is what is between white space."""

    chars: int  # characters examined
    words: int
    subwords: int
    unknown: int  # subwords that are [UNK]
    missing: list[str]  # characters without a subword: the text's, the most frequent first, then those of ASCII

    @property
    def reason(self) -> str:
        """Why the vocabulary does not fit the text; "" if it does."""
        if self.unknown <= MAX_UNKNOWN * self.subwords:
            return ""
        missing = f"; missing characters: {' '.join(self.missing[:10])}" if self.missing else ""
        return f"{self.unknown / self.subwords:.1%} of the subwords are [UNK]{missing}"


def check(tokenizer: Tokenizer, texts: Iterable[str], max_chars: int = MAX_CHARS) -> CheckReport:
    """Tokenize the words in the first `max_chars` characters of `texts`."""
    words, letters = Counter[str](), Counter[str]()  # subwords never cross white space: each word is encoded once
    chars = 0
    for line in itertools.chain.from_iterable(text.split("\n") for text in texts):
        words.update(line.split())
        letters.update(line)
        chars += len(line)
        if chars >= max_chars:
            break
    ids = tokenizer.ids_of([tokenizer.inside(word) for word in words])
    subwords = sum(count * len(word) for count, word in zip(words.values(), ids, strict=True))
    unknown = sum(count * word.count(tokenizer.unk_id) for count, word in zip(words.values(), ids, strict=True))
    alphabet = [*dict.fromkeys([*sorted(letters, key=lambda char: (-letters[char], char)), *ASCII])]
    missing = [char for char, ids in zip(alphabet, tokenizer.ids_of(alphabet), strict=True) if tokenizer.unk_id in ids]
    return CheckReport(chars, words.total(), subwords, unknown, missing)


def unknown_fraction(tokenizer: Tokenizer, counts: Sequence[int] | NDArray[Any]) -> float:
    """Fraction of [UNK] among counted tokens, 0.0 to 1.0; 0.0 if there is no token.

    counts (V,): how often each id occurs, special tokens of the layout not counted (a store's unigrams.npy).
    """
    total = int(sum(counts))
    return int(counts[tokenizer.unk_id]) / total if total else 0.0


def normalizer_mismatch(tokenizer: Tokenizer) -> str:
    """A message if the normalizer excludes many subwords, so that they match no text; "" if it does not."""
    special = {*tokenizer.roles.values(), *tokenizer.added}
    subwords = [tokenizer.readable(i) for i, token in enumerate(tokenizer.vocab) if token not in special]
    subwords = [subword for subword in subwords if "\ufffd" not in subword]  # parts of characters
    dead = [subword for subword in subwords if tokenizer.normalize(subword).strip() != subword]
    if len(dead) <= MAX_DEAD * len(subwords):
        return ""
    other = "cased (lowercase=False)" if tokenizer.lowercase else "uncased (lowercase=True)"
    return (
        f"{len(dead):,} of {len(subwords):,} subwords match no text, because the normalizer changes them "
        f"({', '.join(dead[:5])}): load the vocabulary as {other}"
    )
