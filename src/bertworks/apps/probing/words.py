"""Whole words among token ids: where a word is, and which tokens make up each word of a text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...files import InputError
from ...tasks.rows import text_of
from ...tokenizer import Tokenizer, normalize

Span = tuple[int, int]  # first token, and the one after the last
Forms = list[list[int]]  # the subwords of a word inside a text, then at its beginning if they differ there


class WordFinder:
    """Finds words by their subwords."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.no_words = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id}
        self.continues = _continues(tokenizer)

    def subwords(self, word: str) -> Forms:
        """The ids of a word's subwords. Raises InputError if there are none, or one is [UNK]."""
        word = normalize("NFC", text_of(word, "the word"))
        forms = self.tokenizer.ids_of(list(dict.fromkeys([self.tokenizer.inside(word), word])))
        if not forms[0]:
            raise InputError(f"{word!r} is no word to this tokenizer; give another word")
        if self.tokenizer.unk_id in forms[0]:
            raise InputError(f"{word!r} has characters that the vocabulary lacks ([UNK]); give another word")
        return forms

    def find(self, ids: Sequence[int], word: Forms, beginning: bool = False) -> list[Span]:
        """The positions of a whole word among `ids`, from left to right.

        beginning: also of longer words that begin with it, as a Korean noun with its particle does.
        """
        spans = []
        for i, before in enumerate([self.tokenizer.cls_id, *ids[:-1]][: len(ids)]):
            for form in word if before in self.no_words else word[:1]:
                end = i + len(form)
                same = ids[i] == form[0] and list(ids[i:end]) == form  # the first test is quick
                if same and (beginning or end == len(ids) or not self.continues[ids[end]]):
                    spans.append((i, end))
                    break
        return spans

    def require(self, text: str, ids: Sequence[int], word: str, beginning: bool = False) -> Span:
        """The first position of `word` in a text. Raises InputError if it lacks the word."""
        forms = self.subwords(word)
        if spans := self.find(ids, forms, beginning):
            return spans[0]
        hint = "give sentences that have it as a word of its own"
        if self.find(ids, forms, beginning=True):
            hint = "a longer word begins with it: give that word, or --beginning"
        raise InputError(f"the word {word!r} is not in {text[:80]!r}; {hint}")

    def words(self, ids: Sequence[int]) -> list[Span]:
        """The words of a row: a token and those that continue it. [CLS], [SEP] and [UNK] are no words."""
        before = [self.tokenizer.cls_id, *ids[:-1]]
        starts = [i for i, token in enumerate(ids) if not self.continues[token] or before[i] in self.no_words]
        return [(a, b) for a, b in pairwise([*starts, len(ids)]) if ids[a] not in self.no_words]


def _continues(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """(V,) whether a token continues a word. A mark behind a word does not, whatever the vocabulary says."""
    continues = tokenizer.continuation.copy()
    if tokenizer.kind != "wordpiece":
        for token in np.flatnonzero(continues).tolist():
            first = tokenizer.readable(token)[0]
            continues[token] = first.isalnum() or first == "\ufffd"
    return continues
