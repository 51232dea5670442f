"""Contexts of questions: their words, tokens and offsets, and the tokens of an answer (run_squad.py).

As in the original, a context is split into words at white space and every word is tokenized by itself. So each distinct
word is tokenized once, and all else is slicing of arrays. Where a token holds the space before it (byte-level BPE), the
first word of a context is tokenized differently from the same word further on. Words are composed (NFC) before they are
tokenized; all offsets count characters of the context as it was given.

Shapes: C contexts, X words, P tokens of all contexts.
"""

import functools
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..tokenizer import Tokenizer
from .sequences import Integers, TokenIds, distinct, edges_of, ranges, tokenize_with_offsets

Offsets = NDArray[np.int32]
WORD = re.compile("[^ \t\r\n\u202f]+")  # what the original's reader takes for a word: other spaces do not end one


@dataclass(frozen=True)
class Contexts:
    """Texts, their words and their tokens, end to end."""

    texts: list[str]
    words: list[str]  # X
    word_edges: Integers  # (C + 1,) the first word of each text
    word_begin: Integers  # (X,) the character of its text where each word begins
    token_edges: Integers  # (X + 1,) the first token of each word
    ids: TokenIds  # (P,)
    begin: Offsets  # (P,) the character of its text where each token begins
    end: Offsets  # (P,) and the one after its last

    @functools.cached_property
    def edges(self) -> Integers:
        """(C + 1,) the first token of each text."""
        edges: Integers = self.token_edges[self.word_edges]
        return edges

    @functools.cached_property
    def word(self) -> Integers:
        """(P,) the word of each token."""
        return np.repeat(np.arange(len(self.words)), np.diff(self.token_edges))

    def word_at(self, context: int, character: int) -> int:
        """The word at a character of a text; white space belongs to the word before."""
        first, last = self.word_edges[context : context + 2]
        return max(int(first), int(first + np.searchsorted(self.word_begin[first:last], character, "right")) - 1)


def tokenize_contexts(tokenizer: Tokenizer, texts: list[str]) -> Contexts:
    """The words and tokens of every text, with their offsets."""
    words: list[str] = []
    begins: list[int] = []
    counts = []
    written: list[str] = []  # the words as they are to be tokenized
    for text in texts:
        matches = list(WORD.finditer(text))
        words += [match[0] for match in matches]
        begins += [match.start() for match in matches]
        written += [match[0] if match.start() == 0 else tokenizer.inside(match[0]) for match in matches]
        counts.append(len(matches))
    forms, which = distinct(written)
    ids, offsets, each = tokenize_with_offsets(tokenizer, forms)
    # where each form begins in all of them; its own space is no part of a word
    starts = edges_of([len(form) + 1 for form in forms])[:-1] + np.array([form[0] == " " for form in forms], np.int64)
    inside = np.maximum(offsets - np.repeat(starts, each)[:, None], 0).astype(np.int32)  # characters of the form
    lengths = each[which]
    tokens = ranges(edges_of(each)[which], lengths)
    word_begin = np.array(begins, np.int64)
    begin, end = (inside[tokens] + np.repeat(word_begin.astype(np.int32), lengths)[:, None]).T
    return Contexts(texts, words, edges_of(counts), word_begin, edges_of(lengths), ids[tokens], begin, end)


# ---- answers


def answer_tokens(
    contexts: Contexts, context: int, place: tuple[int, int], answer: list[int] | None
) -> tuple[int, int] | None:
    """The first and the last token of the words at a place, narrowed to the answer; None if these words have no tokens.

    Tokens are counted from the first of the context. answer: the tokens of its text, which WordPiece looks for among
    those of its words, as the original does. None for vocabularies that mark the beginnings of words, where an answer
    is often tokenized differently by itself.
    """
    begin, end = place
    words = [contexts.word_at(context, character) for character in (begin, end - 1)]
    base = int(contexts.edges[context])
    first, last = int(contexts.token_edges[words[0]]) - base, int(contexts.token_edges[words[1] + 1]) - 1 - base
    if first > last:
        return None  # words of control characters alone
    tokens = slice(base + first, base + last + 1)
    if answer is None:
        inside = np.flatnonzero((contexts.end[tokens] > begin) & (contexts.begin[tokens] < end))
        return (first + int(inside[0]), first + int(inside[-1])) if len(inside) else (first, last)
    ids, length = contexts.ids[tokens].tolist(), len(answer)
    if answer and ids != answer:  # the original's _improve_answer_span: 40 in "(40%)"
        for i in range(len(ids) - length + 1):
            if ids[i : i + length] == answer:
                return first + i, first + i + length - 1
    return first, last
