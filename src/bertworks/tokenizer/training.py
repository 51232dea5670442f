"""What a vocabulary of any kind is trained with: settings, and an even sample of the text in bounded memory."""

import collections
import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from tokenizers import normalizers

from ..files import InputError
from .normalization import normalize

VocabModel = Literal["wordpiece", "bpe", "unigram"]
# In the order of their ids: BERT's, RoBERTa's (where <mask> has the last id), ALBERT's.
LAYOUTS: dict[str, tuple[str, ...]] = {
    "wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "bpe": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    "unigram": ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
}

ASCII = "".join(map(chr, range(33, 127)))  # printable, without the space
# The 2,350 Hangul syllables of KS X 1001.
SYLLABLES = "".join(bytes((row, column)).decode("euc_kr") for row in range(0xB0, 0xC9) for column in range(0xA1, 0xFF))


@dataclass(frozen=True)
class TokenizerConfig:
    """What a vocabulary is trained with."""

    algorithm: VocabModel = "wordpiece"  # wordpiece (BERT), byte-level bpe (RoBERTa) or unigram (ALBERT)
    vocab_size: int = 30_000  # tokens in all, special tokens included (the paper's "30,000 token vocabulary")
    lowercase: bool | None = None  # lower-case and strip accents; none: yes, but no for bpe
    max_chars: int = 200_000_000  # characters of text to train on; longer text is sampled evenly, by lines
    min_frequency: int = 2  # a pair of subwords seen less often is not merged; unigram merges nothing
    character_coverage: float = 0.9999  # fraction of the text's characters that get a token; no effect on bpe
    limit_alphabet: int = 0  # largest number of single characters; 0: a quarter of vocab_size, for Korean up to a third

    def __post_init__(self) -> None:
        if self.algorithm not in get_args(VocabModel):
            raise InputError(f"algorithm = {self.algorithm!r}; expected one of {', '.join(get_args(VocabModel))}")
        if self.vocab_size < 100 or not 0 < self.character_coverage <= 1 or self.max_chars < 10_000:
            raise InputError(
                f"vocab_size = {self.vocab_size}, max_chars = {self.max_chars}, character_coverage = "
                f"{self.character_coverage}; expected at least 100, at least 10,000, and a fraction above 0, at most 1"
            )
        if len(self.specials) + 2 * self.limit_alphabet > self.vocab_size:
            raise InputError(f"limit_alphabet = {self.limit_alphabet} is too large for vocab_size = {self.vocab_size}")

    @property
    def uncased(self) -> bool:
        """Whether text is lower-cased and loses its accents; RoBERTa's byte-level BPE alone is cased by default."""
        return self.algorithm != "bpe" if self.lowercase is None else self.lowercase

    @property
    def specials(self) -> tuple[str, ...]:
        """The special tokens in the order of their ids."""
        return LAYOUTS[self.algorithm]


def sample_lines(texts: Iterable[str], max_chars: int) -> list[str]:
    """Lines of at most `max_chars` characters in all, composed, drawn evenly from all of `texts` by their number."""
    sample: list[tuple[int, str]] = []
    size = total = mask = 0  # a line stays while the masked bits of its number's hash are zero
    for number, line in enumerate(line for text in texts for line in text.split("\n")):
        line = normalize("NFC", line[: max_chars // 100])  # one endless line must not be the whole sample
        total += len(line)
        if not _hash(number) & mask:
            sample.append((number, line))
            size += len(line)
        while size > max_chars:
            mask = 2 * mask + 1
            sample = [item for item in sample if not _hash(item[0]) & mask]
            size = sum(len(line) for _, line in sample)
    if size < total:
        logging.getLogger(__name__).warning(
            "vocabulary trained on %d of %d characters, an even sample of the lines (max_chars = %d)",
            *(size, total, max_chars),
        )
    return [line for _, line in sample]


def _hash(number: int) -> int:
    return zlib.crc32(number.to_bytes(8, "little"))


def alphabet_of(lines: list[str], normalizer: normalizers.Normalizer, config: TokenizerConfig) -> list[str]:
    """Printable ASCII and the most frequent characters up to coverage and limit, by code point.

    Korean text (half of its letters are Hangul) also gets the 2,350 syllables of KS X 1001, for which the limit may
    grow to a third of the vocabulary: without one of them a whole word becomes [UNK]. Both sets are left out where the
    limit is smaller. Raises InputError if the lines have no character.
    """
    raw: collections.Counter[str] = collections.Counter()
    for line in lines:
        raw.update(normalize("NFC", line) if config.uncased else line)
    counts: collections.Counter[str] = collections.Counter()
    for char, count in raw.items():
        for part in normalizer.normalize_str(char):
            counts[part] += 0 if part.isspace() else count
    ranked = sorted((char for char in counts if counts[char]), key=lambda char: (-counts[char], char))
    if not ranked:
        raise no_text()
    reached = np.cumsum([counts[char] for char in ranked])
    size = 1 + int(np.searchsorted(reached, config.character_coverage * reached[-1]))
    limit = config.limit_alphabet or config.vocab_size // 4
    always = {part for char in ASCII for part in normalizer.normalize_str(char)}
    always = always if len(always) <= limit else set()
    if _is_korean(raw):
        korean = always.union(*map(normalizer.normalize_str, SYLLABLES))
        most = config.limit_alphabet or config.vocab_size // 3
        always, limit = (korean, most) if len(korean) <= most else (always, limit)
    others = [char for char in ranked[:size] if char not in always]
    return sorted([*always, *others[: limit - len(always)]])


def _is_korean(counts: Mapping[str, int]) -> bool:
    """Whether more than half of the letters are Hangul syllables."""
    letters = sum(count for char, count in counts.items() if char.isalpha())
    return 2 * sum(count for char, count in counts.items() if "가" <= char <= "힣") > letters


def no_text() -> InputError:
    """The error for an input without a printable character."""
    return InputError("no text to train a vocabulary on: the input holds no printable character")
