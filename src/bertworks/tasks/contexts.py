"""Contexts of questions: their words, tokens and offsets, and the tokens of an answer (run_squad.py).

As in the original, a context is split into words at white space and every word is tokenized by itself. So each distinct
word is tokenized once, and all else is slicing of arrays. Where a token holds the space before it (byte-level BPE), the
first word of a context is tokenized differently from the same word further on. Words are composed (NFC) before they are
tokenized; all offsets count characters of the context as it was given.

Shapes: C contexts, X words, P tokens of all contexts.
"""

import functools
import itertools
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..files import InputError, shorten
from ..tokenizer import Tokenizer, compose
from .questions import Place
from .sequences import Integers, TokenIds, distinct, edges_of, ranges

WORD = re.compile("[^ \t\r\n\u202f]+")  # what the original's reader takes for a word: other spaces do not end one
GROUP = 256  # words a text, and texts at a time: as Python objects they take a hundred times the memory of the arrays
Offsets = NDArray[np.int32]


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
    """The words and tokens of every text, with their offsets. Raises InputError for added tokens of several words."""
    if tokenizer.over_words:
        token = shorten(tokenizer.over_words[0])
        raise InputError(f"the tokenizer has added tokens of several words ({token}); expected words alone")
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
    edges, ids, offsets = _tokenize_words(tokenizer, forms)
    lengths = np.diff(edges)[which]
    tokens = ranges(edges[which], lengths)
    word_begin = np.array(begins, np.int64)
    begin, end = (offsets[tokens] + np.repeat(word_begin.astype(np.int32), lengths)[:, None]).T
    return Contexts(texts, words, edges_of(counts), word_begin, edges_of(lengths), ids[tokens], begin, end)


def _tokenize_words(tokenizer: Tokenizer, words: list[str]) -> tuple[Integers, TokenIds, Offsets]:
    """Edges of the words' tokens, their ids, and (begin, end) of each token inside its word.

    GROUP words are joined with spaces and tokenized as one text, which saves small objects. Where the tokenizer keeps
    spaces in tokens, a word brings the space before it along; a word without one begins another text.
    """
    parts = [(np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, 2), np.int32))]
    between = "" if tokenizer.leading_space else " "
    cuts = [i for i, word in enumerate(words) if tokenizer.leading_space and word[0] != " "]
    groups = [
        words[i : min(i + GROUP, stop)]
        for start, stop in itertools.pairwise([0, *cuts, len(words)])
        for i in range(start, stop, GROUP)
    ]
    for start in range(0, len(groups), GROUP):
        chunk = groups[start : start + GROUP]
        composed = [[compose(word) for word in group] for group in chunk]
        joined = [between.join(word.text for word in group) for group in composed]
        for group, encoded in zip(composed, tokenizer.encode_batch(joined), strict=True):
            begins = edges_of([len(word.text) + len(between) for word in group])[:-1]
            begins = begins + np.array([word.text[0] == " " for word in group])  # its own space is no part of a word
            offsets = np.array(encoded.offsets[1:-1], np.int32).reshape(-1, 2)  # without [CLS] and [SEP]
            owner = np.searchsorted(begins, np.maximum(offsets[:, 0], offsets[:, 1] - 1), "right") - 1
            inside = np.maximum(offsets - begins[owner, None], 0).astype(np.int32)
            for i in (i for i, word in enumerate(group) if word.begin is not None):
                space = int(group[i].text[0] == " ")
                inside[owner == i] = group[i].spans(inside[owner == i] + space) - space
            parts.append((np.bincount(owner, minlength=len(group)), np.array(encoded.ids[1:-1], np.int32), inside))
    counts, ids, spans = (np.concatenate(part) for part in zip(*parts, strict=True))
    return edges_of(counts), ids, spans


# ---- answers


class Span(NamedTuple):
    """The first and the last token of an answer, counted from the first of its context."""

    first: int
    last: int


def answer_tokens(contexts: Contexts, context: int, place: Place, answer: list[int] | None) -> Span | None:
    """The tokens of the words at a place, narrowed to the answer; None if these words have no tokens.

    answer: the tokens of its text, which WordPiece looks for among those of its words, as the original does. None for
    vocabularies that mark the beginnings of words, where an answer is often tokenized differently by itself.
    """
    first, last = (contexts.word_at(context, character) for character in (place.start, place.end - 1))
    base = int(contexts.edges[context])
    span = Span(int(contexts.token_edges[first]) - base, int(contexts.token_edges[last + 1]) - 1 - base)
    if span.first > span.last:
        return None  # words of control characters alone
    tokens = slice(base + span.first, base + span.last + 1)
    if answer is None:
        inside = np.flatnonzero((contexts.end[tokens] > place.start) & (contexts.begin[tokens] < place.end))
        return Span(span.first + int(inside[0]), span.first + int(inside[-1])) if len(inside) else span
    ids, length = contexts.ids[tokens].tolist(), len(answer)
    if answer and ids != answer:  # the original's _improve_answer_span: 40 in "(40%)"
        for i in range(span.first, span.first + len(ids) - length + 1):
            if ids[i - span.first : i - span.first + length] == answer:
                return Span(i, i + length - 1)
    return span
