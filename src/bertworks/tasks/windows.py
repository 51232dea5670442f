"""Contexts as word pieces, and the windows that a model sees of them (run_squad.py, convert_examples_to_features).

A window is [CLS] question [SEP] piece of the context [SEP]. Each begins `doc_stride` pieces after the one before, until
one reaches the end of the context. As in the original, a context is split into words at white space and every word is
tokenized by itself: so each distinct word is tokenized once, and all else is slicing of arrays. Where a piece holds the
space before it (byte-level BPE), a word at the beginning of a context is another one than the same word further on.
Words are composed (NFC) before they are tokenized; all places count characters of the context as it was given.

Shapes: Q questions, C contexts, X words, P pieces of all contexts, W windows, A pieces of all windows.
"""

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tokenizer import Tokenizer, compose
from .inputs import Rows

WORD = re.compile("[^ \t\r\n\u202f]+")  # what the original's reader takes for a word: other spaces do not end one
GROUP = 256  # words a text, and texts at a time: as Python objects they take a hundred times the room of the arrays

Ints = NDArray[np.int32]


def edges_of(lengths: Sequence[int] | Rows) -> Rows:
    """Where stretches of these lengths begin and end if they lie end to end."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def stretches(starts: Rows, lengths: Rows) -> Rows:
    """start, start + 1, ... of each stretch, one stretch after the other."""
    edges = edges_of(lengths)
    return np.arange(edges[-1]) + np.repeat(starts - edges[:-1], lengths)


# ---- contexts


@dataclass(frozen=True)
class Contexts:
    """Texts, their words and their pieces, end to end."""

    texts: list[str]
    words: list[str]  # X
    word_edges: Rows  # (C + 1,) the first word of each text
    word_begin: Rows  # (X,) the character of its text where each word begins
    piece_edges: Rows  # (X + 1,) the first piece of each word
    ids: Ints  # (P,)
    begin: Ints  # (P,) characters of the text
    end: Ints  # (P,)

    @functools.cached_property
    def edges(self) -> Rows:
        """(C + 1,) the first piece of each text."""
        edges: Rows = self.piece_edges[self.word_edges]
        return edges

    @functools.cached_property
    def word(self) -> Rows:
        """(P,) the word of each piece."""
        return np.repeat(np.arange(len(self.words)), np.diff(self.piece_edges))

    def word_at(self, context: int, place: int) -> int:
        """The word at a character of a text; white space belongs to the word before."""
        first, last = self.word_edges[context : context + 2]
        return max(int(first), int(first + np.searchsorted(self.word_begin[first:last], place, "right")) - 1)


def tokenize_contexts(tokenizer: Tokenizer, texts: list[str]) -> Contexts:
    """Every text as pieces with their places in it."""
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
    numbers: dict[str, int] = {}
    which = np.fromiter((numbers.setdefault(word, len(numbers)) for word in written), np.int64, len(words))
    edges, ids, places = _tokenize_words(tokenizer, list(numbers))
    lengths = np.diff(edges)[which]
    pieces = stretches(edges[which], lengths)
    word_begin = np.array(begins, np.int64)
    begin, end = (places[pieces] + np.repeat(word_begin.astype(np.int32), lengths)[:, None]).T
    return Contexts(texts, words, edges_of(counts), word_begin, edges_of(lengths), ids[pieces], begin, end)


def _tokenize_words(tokenizer: Tokenizer, words: list[str]) -> tuple[Rows, Ints, Ints]:
    """Where the pieces of each word begin and end, their ids, and their (begin, end) inside the word.

    Many words make one text, with a space between each two: so no time is spent on small objects. A word that has its
    own space before it brings that; one without, where the tokenizer keeps spaces in pieces, begins a text.
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
            places = np.array(encoded.offsets[1:-1], np.int32).reshape(-1, 2)  # without [CLS] and [SEP]
            owner = np.searchsorted(begins, np.maximum(places[:, 0], places[:, 1] - 1), "right") - 1
            inside = np.maximum(places - begins[owner, None], 0).astype(np.int32)
            for i in (i for i, word in enumerate(group) if word.begin is not None):
                space = int(group[i].text[0] == " ")
                inside[owner == i] = group[i].spans(inside[owner == i] + space) - space
            parts.append((np.bincount(owner, minlength=len(group)), np.array(encoded.ids[1:-1], np.int32), inside))
    counts, ids, places = (np.concatenate(part) for part in zip(*parts, strict=True))
    return edges_of(counts), ids, places


# ---- answers


class Span(NamedTuple):
    """Pieces of a context, the first and the last, counted from its own first."""

    first: int
    last: int


def find_answer(contexts: Contexts, context: int, text: str, start: int) -> Span | None:
    """The pieces of the words that hold an answer; None if it is not where it is said to be.

    As in the original it is enough that the words from its first to its last character contain it, white space aside.
    """
    whole, stop = contexts.texts[context], start + len(text)
    if start < 0 or stop > len(whole) or not text.strip() or not WORD.search(whole):
        return None
    first, last = (contexts.word_at(context, place) for place in (start, stop - 1))
    if whole[start:stop] != text and " ".join(text.split()) not in " ".join(contexts.words[first : last + 1]):
        return None
    base = int(contexts.edges[context])
    span = Span(int(contexts.piece_edges[first]) - base, int(contexts.piece_edges[last + 1]) - 1 - base)
    return span if span.first <= span.last else None  # words of control characters alone have no pieces


def improve_span(pieces: list[int], span: Span, answer: list[int]) -> Span:
    """The first stretch within `span` whose pieces are the answer's: 40 in "(40%)". Else `span` itself.

    This is the original's _improve_answer_span; `pieces` are those of `span`.
    """
    length = len(answer)
    if length and pieces != answer:
        for i in range(len(pieces) - length + 1):
            if pieces[i : i + length] == answer:
                return Span(span.first + i, span.first + i + length - 1)
    return span


def narrow_span(contexts: Contexts, context: int, span: Span, start: int, stop: int) -> Span:
    """The pieces within `span` that have a part of these characters.

    For vocabularies that mark the beginnings of words: there an answer's pieces by themselves are often other ones.
    """
    pieces = slice(contexts.edges[context] + span.first, contexts.edges[context] + span.last + 1)
    there = np.flatnonzero((contexts.end[pieces] > start) & (contexts.begin[pieces] < stop))
    return Span(span.first + int(there[0]), span.first + int(there[-1])) if len(there) else span


# ---- windows


@dataclass(frozen=True)
class Windows:
    """Which pieces of its context each window shows."""

    question: Rows  # (W,) the question, counted from 0
    context: Rows  # (W,) its context
    first: Rows  # (W,) tokens before the piece of context: the place in the sequence where that begins
    start: Rows  # (W,) the first piece shown, counted from the first of the context
    count: Rows  # (W,) pieces shown

    @functools.cached_property
    def edges(self) -> Rows:
        """(W + 1,) where the windows begin if their pieces lie end to end."""
        return edges_of(self.count)

    @functools.cached_property
    def max_context(self) -> NDArray[np.bool_]:
        """(A,) for each piece of each window, whether no window shows more of what is around it.

        The score of a piece is the original's, min(pieces before, pieces after) + 0.01 * pieces in all; of equal ones
        the first window counts. Over the windows of a question it rises, then falls: comparing neighbours is enough.
        """
        best = np.ones(self.edges[-1], np.bool_)
        neighbours = self.question[1:] == self.question[:-1]
        shared = np.flatnonzero(np.append(neighbours, False) | np.append(False, neighbours))
        owner = np.repeat(shared, self.count[shared])
        place = stretches(self.start[shared], self.count[shared])  # in the context
        own = self._score(owner, place, owner)
        before, after = (self._score(owner + step, place, owner) for step in (-1, 1))
        best[stretches(self.edges[shared], self.count[shared])] = (own > before) & (own >= after)
        return best

    def _score(self, window: Rows, place: Rows, owner: Rows) -> NDArray[np.float64]:
        """Scores of pieces in windows; -inf where a window does not show them, or is of another question."""
        there = (window >= 0) & (window < len(self.question))
        window = np.where(there, window, 0)
        before = place - self.start[window]
        after = self.count[window] - 1 - before
        there &= (before >= 0) & (after >= 0) & (self.question[window] == self.question[owner])
        return np.where(there, np.minimum(before, after) + 0.01 * self.count[window], -np.inf)


def cut_windows(
    lengths: Rows, context: Rows, queries: Rows, max_seq_length: int, doc_stride: int, separators: int = 1
) -> Windows:
    """The windows of each question.

    lengths, context, queries (Q,): pieces of its context, the number of that, tokens of the question itself.
    separators: special tokens between question and context. A context without pieces has one window, which is empty.
    """
    room = max_seq_length - queries - 2 - separators
    step = np.minimum(room, doc_stride)
    number = 1 + np.maximum(0, -(-(lengths - room) // step))
    question = np.repeat(np.arange(len(lengths)), number)
    start = stretches(np.zeros_like(number), number) * step[question]
    count = np.minimum(room[question], lengths[question] - start)
    return Windows(question, context[question], queries[question] + 1 + separators, start, count)
