"""WordPiece vocabularies: their training, and the tokenizer.json pipeline that applies one by the original's rules.

The program that made the published vocabularies was never released. The `tokenizers` library's trainer
stands in for it; it merges the most frequent pair of pieces, not the pair that raises the likelihood most.
"""

import collections
import json
import logging
import re
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from .files import InputError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_INPUT_CHARS_PER_WORD = 200  # the original's value; the library's own default is 100
SYLLABLE, JAMO = re.compile("[\uac00-\ud7a3]"), re.compile("[\u1100-\u11ff]")  # whole Hangul, its parts


@dataclass(frozen=True)
class TokenizerConfig:
    """What a vocabulary is trained with."""

    kind: Literal["wordpiece"] = "wordpiece"  # the model of the pieces
    vocab_size: int = 30_000  # pieces in all, special tokens included (the paper's "30,000 token vocabulary")
    lowercase: bool = True  # uncased: lower-case and strip accents, Hangul syllables stay whole
    max_chars: int = 200_000_000  # characters of text to train on; of more text an even sample of its lines is taken
    min_frequency: int = 2  # a pair of pieces seen less often is not merged
    character_coverage: float = 0.9999  # single characters are kept until they cover this share of the text
    limit_alphabet: int = 0  # at most so many single characters; 0: a quarter of vocab_size
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS  # ids 0, 1, 2, ... in this order

    def __post_init__(self) -> None:
        missing = [token for token in SPECIAL_TOKENS if token not in self.special_tokens]
        if missing:
            raise InputError(f"special_tokens lacks {', '.join(missing)}")
        if self.vocab_size < 100 or not 0 < self.character_coverage <= 1 or self.max_chars < 10_000:
            raise InputError(
                f"vocab_size = {self.vocab_size}, max_chars = {self.max_chars}, character_coverage = "
                f"{self.character_coverage}; expected at least 100, at least 10,000, and a share above 0, at most 1"
            )
        if len(self.special_tokens) + 2 * self.limit_alphabet > self.vocab_size:
            raise InputError(f"limit_alphabet = {self.limit_alphabet} leaves no room in vocab_size = {self.vocab_size}")


def learn(texts: Iterable[str], config: TokenizerConfig) -> str:
    """The tokenizer.json of a vocabulary trained on `texts`. Raises InputError if there is no text.

    The library's trainer merges the most frequent pair. It breaks ties by the pieces' ids, and gives "##" characters
    ids in the order of a hash table that differs from run to run: so the alphabet is chosen and ordered here.
    """
    lines = _sample(texts, config.max_chars)
    # Uncased: NFC after the original's rules (NFD, marks dropped) makes Hangul whole again and brings no accent back.
    normalizer = normalizer_of(config.lowercase, compose=config.lowercase)
    alphabet = _alphabet(lines, normalizer, config)
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.normalizer = normalizer  # type: ignore[assignment]
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=[*config.special_tokens, *alphabet, *("##" + c for c in alphabet if not _stands_alone(c))],
        limit_alphabet=0,
        show_progress=False,
    )
    learner.train_from_iterator(lines, trainer, length=len(lines))
    return pipeline_of(ordered(learner.get_vocab(), "training"), normalizer)


def _sample(texts: Iterable[str], max_chars: int) -> list[str]:
    """Lines of at most `max_chars` characters in all, drawn evenly from the whole of `texts` by their number."""
    kept: list[tuple[int, str]] = []
    size = total = mask = 0  # a line stays while the masked bits of its number's hash are zero
    for number, line in enumerate(line for text in texts for line in text.split("\n")):
        line = line[: max_chars // 100]  # one endless line must not be the whole sample
        total += len(line)
        if not _hash(number) & mask:
            kept.append((number, line))
            size += len(line)
        while size > max_chars:
            mask = 2 * mask + 1
            kept = [item for item in kept if not _hash(item[0]) & mask]
            size = sum(len(line) for _, line in kept)
    if size < total:
        logging.getLogger(__name__).warning(
            "vocabulary trained on %d of %d characters, an even sample of the lines (max_chars = %d)",
            *(size, total, max_chars),
        )
    return [line for _, line in kept]


def _hash(number: int) -> int:
    return zlib.crc32(number.to_bytes(8, "little"))


def _alphabet(lines: list[str], normalizer: normalizers.Normalizer, config: TokenizerConfig) -> list[str]:
    """The most frequent characters up to coverage and limit, by code point. Raises InputError if there are none."""
    raw: collections.Counter[str] = collections.Counter()
    for line in lines:
        raw.update(unicodedata.normalize("NFC", line) if config.lowercase else line)
    counts: collections.Counter[str] = collections.Counter()
    for char, count in raw.items():
        for part in normalizer.normalize_str(char):
            counts[part] += 0 if part.isspace() else count
    ranked = sorted((char for char in counts if counts[char]), key=lambda char: (-counts[char], char))
    if not ranked:
        raise InputError("no text to train a vocabulary on: the input holds no printable character")
    reached = np.cumsum([counts[char] for char in ranked])
    size = 1 + int(np.searchsorted(reached, config.character_coverage * reached[-1]))
    return sorted(ranked[: min(size, config.limit_alphabet or config.vocab_size // 4)])


def _stands_alone(char: str) -> bool:
    """Whether the rules split this character off as a word, so that it never continues one."""
    text = normalizers.BertNormalizer(lowercase=False).normalize_str("a" + char)
    return len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)) > 1


def normalizer_of(lowercase: bool, compose: bool, strip_accents: bool | None = None) -> normalizers.Normalizer:
    """The original's rules; `compose` puts NFC behind them."""
    bert = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    return normalizers.Sequence([bert, normalizers.NFC()]) if compose else bert  # type: ignore[list-item]


def pipeline_of(vocab: list[str], normalizer: normalizers.Normalizer) -> str:
    """The tokenizer.json of a WordPiece vocabulary."""
    ids = {piece: i for i, piece in enumerate(vocab)}
    model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=MAX_INPUT_CHARS_PER_WORD)
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizer  # type: ignore[assignment]
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    library.decoder = decoders.WordPiece(prefix="##")  # type: ignore[assignment]
    library.add_special_tokens([token for token in SPECIAL_TOKENS if token in ids])
    if "[CLS]" in ids and "[SEP]" in ids:
        library.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
        )
    return library.to_str()


def check_pipeline(pipeline: str, where: str) -> str:
    """`pipeline` as the library writes it, without padding and truncation (both are ours). Raises InputError."""
    try:
        kind = json.loads(pipeline)["model"]["type"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{where}: not a tokenizer.json (no model.type in it)") from None
    if kind != "WordPiece":
        raise InputError(f"{where}: its model is {kind}; expected WordPiece, the only kind supported so far")
    try:
        library = tokenizers.Tokenizer.from_str(pipeline)
    except Exception as error:  # the library raises nothing more special
        raise InputError(f"{where}: the tokenizers library cannot read this file ({error})") from None
    library.no_padding()
    library.no_truncation()
    return library.to_str()


def ordered(ids: dict[str, int], where: str) -> list[str]:
    """Pieces in the order of their ids. Raises InputError if an id is missing or used twice."""
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"{where}: the {len(ids)} pieces do not have the ids 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=ids.__getitem__)


def read_vocab(path: Path) -> list[str]:
    """The pieces of a vocab.txt, a line each, stripped as in the original. Raises InputError with the line."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected a folder, a tokenizer.json or a vocab.txt") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; expected one word piece a line in UTF-8") from None
    vocab = [line.strip() for line in lines]
    if vocab[-1] == "":  # after the last newline
        vocab.pop()
    seen: dict[str, int] = {}
    for number, piece in enumerate(vocab, 1):
        if not piece:
            raise InputError(
                f"{path}: line {number} is empty; every line is an id, so remove or fill it where it was made"
            )
        if piece in seen:
            raise InputError(f"{path}: line {number} repeats line {seen[piece]} ({piece!r}); every piece has one id")
        seen[piece] = number
    return vocab


def evidently_syllables(vocab: Iterable[str]) -> bool:
    """Whether a vocabulary was made of lower-cased whole Hangul (published uncased ones have jamo)."""
    pieces = [piece for piece in vocab if not (piece[0] == "[" and piece[-1] == "]")]
    text = " ".join(pieces)
    return bool(SYLLABLE.search(text)) and not JAMO.search(text) and text == text.lower()
