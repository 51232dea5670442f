"""Ids of texts, quickly, where the pipeline is the original BERT's: most words of most texts have been met before."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from .bert_rules import BertRules

KNOWN_WORDS = 1 << 18  # words whose ids a process that calls ids_of keeps: some 50 MB

_ASCII_WORDS = re.compile("[A-Za-z0-9]+|[^ A-Za-z0-9]")
# In mixed text: first all between two spaces if there is a character beyond ASCII in it, then as above. Looking ahead
# for that character makes it quadratic in the length of a chunk without spaces, so it is for short texts only.
_MIXED_WORDS = re.compile("[^ ]*[^\\x00-\\x7f][^ ]*|[A-Za-z0-9]+|[^ A-Za-z0-9]")


class KnownWords(dict[str, tuple[int, ...]]):
    """Ids of words already met; the first `KNOWN_WORDS` stay, among them nearly all frequent ones.

    Tuples, because the garbage collector would walk through that many lists again and again.
    """

    def __init__(self, library: tokenizers.Tokenizer, lowercase: bool):
        self._library, self._lowercase = library, lowercase

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._library.encode(word, add_special_tokens=False).ids)
        if len(self) < KNOWN_WORDS and len(word) < 40:
            self[word] = ids
        return ids

    def ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """What the library gives for each text.

        In printable text what stands between two spaces is tokenized by itself, and in ASCII every character that is no
        letter or digit is a word. So a regular expression finds the words, and a dictionary has the ids of most. Other
        text goes to the library: control characters, or not mostly ASCII (there, words repeat too seldom to gain).
        """
        known, join = self.__getitem__, itertools.chain.from_iterable
        out: list[list[int]] = [[]] * len(texts)
        rest = []
        for i, text in enumerate(texts):
            if text.isprintable() and text.isascii():
                words = _ASCII_WORDS.findall(text.lower() if self._lowercase else text)
                out[i] = list(join(map(known, words)))
            elif text.isprintable() and len(text) < 10_000 and 8 * len(text.encode()) < 9 * len(text):
                out[i] = list(join(map(known, _MIXED_WORDS.findall(text))))
            else:
                rest.append(i)
        encodings = self._library.encode_batch_fast([texts[i] for i in rest], add_special_tokens=False)
        for i, encoding in zip(rest, encodings, strict=True):
            out[i] = encoding.ids
        return out


def splits_like_bert(parts: Mapping[str, Any]) -> bool:
    """Whether a pipeline is one that `KnownWords.ids_of` can shortcut."""
    return (
        BertRules.of(parts) is not None
        and parts["model"]["type"] == "WordPiece"
        and all(token["special"] for token in parts["added_tokens"])
    )
