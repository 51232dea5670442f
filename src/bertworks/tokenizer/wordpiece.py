"""WordPiece vocabularies: their training, and the tokenizer.json pipeline that applies one by the original's rules.

The program that made the published vocabularies was never released. The `tokenizers` library's trainer
stands in for it; it merges the most frequent pair of pieces, not the pair that raises the likelihood most.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, processors, trainers

from ..files import InputError, read_lines
from .bert_rules import BertRules
from .pipeline import ordered
from .training import LAYOUTS, TokenizerConfig, alphabet_of, sample_lines

SPECIAL_TOKENS = LAYOUTS["wordpiece"]
MAX_INPUT_CHARS_PER_WORD = 200  # the original's value; the library's own default is 100
SYLLABLE, JAMO = re.compile("[\uac00-\ud7a3]"), re.compile("[\u1100-\u11ff]")  # whole Hangul, its parts


def learn(texts: Iterable[str], config: TokenizerConfig) -> str:
    """The tokenizer.json of a vocabulary trained on `texts`. Raises InputError if there is no text.

    The library's trainer merges the most frequent pair. It breaks ties by the pieces' ids, and gives "##" characters
    ids in the order of a hash table that differs from run to run: so the alphabet is chosen and ordered here.
    """
    lines = sample_lines(texts, config.max_chars)
    rules = BertRules(config.uncased, compose=config.uncased)
    learner = tokenizers.Tokenizer.from_str(pipeline_of([], rules))
    normalizer, split = learner.normalizer, learner.pre_tokenizer
    assert normalizer is not None and split is not None
    alphabet = alphabet_of(lines, normalizer, config)
    # A character that the rules split off as a word never continues one.
    inner = [char for char in alphabet if len(split.pre_tokenize_str("a" + char)) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=[*config.specials, *alphabet, *("##" + char for char in inner)],
        limit_alphabet=0,
        show_progress=False,
    )
    learner.train_from_iterator(lines, trainer, length=len(lines))
    return pipeline_of(ordered(learner.get_vocab(), "training"), rules)


def pipeline_of(vocab: list[str], rules: BertRules) -> str:
    """The tokenizer.json of a WordPiece vocabulary."""
    ids = {piece: i for i, piece in enumerate(vocab)}
    model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=MAX_INPUT_CHARS_PER_WORD)
    library = tokenizers.Tokenizer(model)
    library.decoder = decoders.WordPiece(prefix="##")  # type: ignore[assignment]
    library.add_special_tokens([token for token in SPECIAL_TOKENS if token in ids])
    if "[CLS]" in ids and "[SEP]" in ids:
        library.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
        )
    return json.dumps({**json.loads(library.to_str()), **rules.steps}, ensure_ascii=False)


def read_vocab(path: Path) -> list[str]:
    """The pieces of a vocab.txt, a line each, stripped as in the original. Raises InputError with the line."""
    vocab = [line.strip() for line in read_lines(path, "a folder, a tokenizer.json or a vocab.txt, in UTF-8")]
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
    pieces = [piece for piece in vocab if not (piece[:1] == "[" and piece[-1:] == "]")]
    text = " ".join(pieces)
    return bool(SYLLABLE.search(text)) and not JAMO.search(text) and text == text.lower()
