"""WordPiece vocabularies: training, the tokenizer.json that applies one by the original's rules, and a shortcut to ids.

The program that made the published vocabularies was never released. The `tokenizers` library's trainer
replaces it; it merges the most frequent pair of tokens, not the pair that raises the likelihood most.
"""

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, trainers

from .bert_rules import BertRules
from .pipeline import bert_template, read_id_lines, without_gaps
from .training import LAYOUTS, TokenizerConfig, alphabet_of, sample_lines

SPECIAL_TOKENS = LAYOUTS["wordpiece"]
MAX_INPUT_CHARS_PER_WORD = 200  # the original's value; the library's own default is 100
SYLLABLE, JAMO = re.compile("[\uac00-\ud7a3]"), re.compile("[\u1100-\u11ff]")  # whole Hangul, its parts


def learn(texts: Iterable[str], config: TokenizerConfig) -> str:
    """The tokenizer.json of a vocabulary trained on `texts`. Raises InputError if there is no text.

    The library's trainer merges the most frequent pair. It breaks ties by the tokens' ids, and gives "##" characters
    ids in the order of a hash table that differs from run to run: so the alphabet is chosen and ordered here.
    """
    lines = sample_lines(texts, config.max_chars)
    rules = BertRules(config.uncased, compose=config.uncased)
    learner = tokenizers.Tokenizer.from_str(pipeline_of({}, rules))
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
    return pipeline_of(learner.get_vocab(), rules)


def pipeline_of(ids: dict[str, int], rules: BertRules) -> str:
    """The tokenizer.json of a WordPiece vocabulary."""
    model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=MAX_INPUT_CHARS_PER_WORD)
    library = tokenizers.Tokenizer(model)
    library.decoder = decoders.WordPiece(prefix="##")  # type: ignore[assignment]
    library.add_special_tokens([token for token in SPECIAL_TOKENS if token in ids])
    if "[CLS]" in ids and "[SEP]" in ids:
        library.post_processor = bert_template(ids, "[CLS]", "[SEP]")  # type: ignore[assignment]
    return json.dumps({**json.loads(library.to_str()), **rules.steps}, ensure_ascii=False)


def read_vocab(path: Path) -> dict[str, int]:
    """The ids of a vocab.txt. Raises InputError if it cannot be read; see `ids_of_lines`."""
    return ids_of_lines(read_id_lines(path, "a folder, a tokenizer.json or a vocab.txt, in UTF-8"))


def ids_of_lines(lines: Iterable[str]) -> dict[str, int]:
    """The ids of tokens, one per line, by the original's rules (`load_vocab` in tokenization.py).

    A line's number is the id of its stripped text, so a blank line (line 344 of Google's Chinese vocabulary is U+2028)
    has an id that no text gets. Of equal lines the last one counts. The ids of the others are named by `without_gaps`.
    """
    return without_gaps({line.strip(): number for number, line in enumerate(lines)})


def evidently_syllables(vocab: Iterable[str]) -> bool:
    """Whether a vocabulary was made of lower-cased whole Hangul (published uncased ones have jamo)."""
    tokens = [token for token in vocab if not (token[:1] == "[" and token[-1:] == "]")]
    text = " ".join(tokens)
    return bool(SYLLABLE.search(text)) and not JAMO.search(text) and text == text.lower()


# ---- ids of cached words, quickly

CACHED_WORDS = 1 << 18  # words whose ids a process that calls ids_of keeps: some 50 MB

_ASCII_WORDS = re.compile("[A-Za-z0-9]+|[^ A-Za-z0-9]")
# In mixed text: first all between two spaces if there is a character beyond ASCII in it, then as above. Looking ahead
# for that character makes it quadratic in the length of a chunk without spaces, so it is for short texts only.
_MIXED_WORDS = re.compile("[^ ]*[^\\x00-\\x7f][^ ]*|[A-Za-z0-9]+|[^ A-Za-z0-9]")


class WordCache(dict[str, tuple[int, ...]]):
    """Ids of words already met; the first `CACHED_WORDS` stay, among them nearly all frequent ones.

    Tuples, because the garbage collector would walk through that many lists again and again.
    """

    def __init__(self, library: tokenizers.Tokenizer, lowercase: bool):
        self._library, self._lowercase = library, lowercase

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._library.encode(word, add_special_tokens=False).ids)
        if len(self) < CACHED_WORDS and len(word) < 40:
            self[word] = ids
        return ids

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """What the library gives for each text.

        In printable text what is between two spaces is tokenized by itself, and in ASCII every character that is no
        letter or digit is a word. So a regular expression finds the words, and a dictionary has the ids of most. Other
        text goes to the library: control characters, or not mostly ASCII (there, words repeat too seldom to gain).
        """
        lookup, join = self.__getitem__, itertools.chain.from_iterable
        out: list[list[int]] = [[]] * len(texts)
        rest = []
        for i, text in enumerate(texts):
            if text.isprintable() and text.isascii():
                words = _ASCII_WORDS.findall(text.lower() if self._lowercase else text)
                out[i] = list(join(map(lookup, words)))
            elif text.isprintable() and len(text) < 10_000 and 8 * len(text.encode()) < 9 * len(text):
                out[i] = list(join(map(lookup, _MIXED_WORDS.findall(text))))
            else:
                rest.append(i)
        encodings = self._library.encode_batch_fast([texts[i] for i in rest], add_special_tokens=False)
        for i, encoding in zip(rest, encodings, strict=True):
            out[i] = encoding.ids
        return out


def splits_like_bert(parts: Mapping[str, Any]) -> bool:
    """Whether a pipeline is one that `WordCache.ids_of` can shortcut if it has no added tokens."""
    return BertRules.of(parts) is not None and parts["model"]["type"] == "WordPiece"
