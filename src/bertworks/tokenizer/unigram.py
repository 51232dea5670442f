"""Unigram vocabularies (SentencePiece; ALBERT): training, and the tokenizer.json of a trained one.

A word is cut into subwords in the most probable way. It begins with \u2581, which marks the space before it.
Characters that no subword spells are unknown.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ..files import InputError
from .pipeline import METASPACE, bert_template
from .training import TokenizerConfig, alphabet_of, no_text, sample_lines
from .unigram_training import Trainer

# Subwords learned here have only letters, only digits or one mark, each perhaps with the space before. So none holds
# both the end of a word and the comma behind it, as in SentencePiece's split_by_unicode_script and split_by_number.
_LEARNED_FROM = Regex("\u2581?[\\p{L}\\p{M}]+|\u2581?\\p{N}+|\u2581?[^\\p{L}\\p{M}\\p{N}\u2581]|\u2581")


def _pipeline(subwords: list[tuple[str, float]], steps: list[Any], specials: tuple[str, ...]) -> str:
    """The tokenizer.json of subwords with their scores, the special tokens among them."""
    ids = {subword: i for i, (subword, _) in enumerate(subwords)}
    library = tokenizers.Tokenizer(models.Unigram(subwords, ids["<unk>"]))
    library.normalizer = normalizers.Sequence(steps)  # type: ignore[assignment]
    library.pre_tokenizer = _words()  # type: ignore[assignment]
    library.decoder = decoders.Metaspace()  # type: ignore[assignment]
    library.post_processor = bert_template(ids, "[CLS]", "[SEP]")  # type: ignore[assignment]
    library.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in specials])
    return library.to_str()


def _words(*more: Any) -> pre_tokenizers.PreTokenizer:
    steps: list[Any] = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(METASPACE, "always"), *more]
    return pre_tokenizers.Sequence(steps)


def learn(texts: Iterable[str], config: TokenizerConfig) -> str:
    """The tokenizer.json of a vocabulary trained on `texts`. Raises InputError if there is no text.

    Text is treated as ALBERT treats it, but for Korean: NFKC at the end makes Hangul whole again, and only marks (not
    the vowel signs of Indian scripts) are stripped as accents. Cased text keeps its accents.
    """
    lines = sample_lines(texts, config.max_chars)
    strip: Any = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=config.uncased, lowercase=config.uncased
    )
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [*([normalizers.NFKD()] if config.uncased else []), strip, normalizers.NFKC()]
    normalizer = normalizers.Sequence(steps)  # type: ignore[arg-type]
    alphabet = alphabet_of(lines, normalizer, config)
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizer  # type: ignore[assignment]
    library.pre_tokenizer = _words(pre_tokenizers.Split(_LEARNED_FROM, "isolated"))  # type: ignore[assignment]
    counts = _count_words(lines, library)
    size = config.vocab_size - len(config.specials)
    if len(alphabet) + 1 > size:
        raise InputError(f"vocab_size = {config.vocab_size}; {len(alphabet)} characters alone need more")
    learned = Trainer(counts, {METASPACE, *alphabet}).train(size)
    specials = [(token, 0.0) for token in config.specials]
    return _pipeline([*specials, *learned], steps, config.specials)


def _count_words(lines: list[str], library: tokenizers.Tokenizer) -> dict[str, int]:
    """How often each word occurs in the lines. Raises InputError if there are no words."""
    counts: dict[str, int] = {}
    normalize, split = library.normalizer, library.pre_tokenizer
    assert normalize is not None and split is not None
    chunks = Counter(chunk for line in lines for chunk in line.split())
    for chunk, count in chunks.items():  # every step works on what is between white space, so each is looked at once
        for word, _ in split.pre_tokenize_str(normalize.normalize_str(chunk)):
            counts[word] = counts.get(word, 0) + count
    if not counts:
        raise no_text()
    return counts
