"""Answers from the scores of starts and ends (run_squad.py, write_predictions and get_final_text).

Of every window the `n_best_size` best starts and ends are combined. A combination is dropped if it is no span of the
context, begins where another window has more context, or is longer than `max_answer_length`. The rest is ranked by
start + end over all windows of a question. Ties stay in the order in which the original meets them.

Each answer is given twice: as the text that the official files want, put together from words with single spaces between
them, and as the offsets of its tokens in the caller's context. The two agree, except where the text cannot be aligned
with its words: there the original, and so the text, falls back to the whole words.

Shapes: W windows, T scores of all windows, n candidates of a question.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tokenizer import Tokenizer, compose
from .base import LengthLimits
from .contexts import Contexts
from .sequences import Integers, Windows

NO_VALID_SPAN = 1e6  # null odds of a question for which no candidate is valid; there the original fails
Scores = NDArray[np.float64]
NormalForm = Callable[[str], str]  # of a word


class Answer(NamedTuple):
    """One of the n best."""

    text: str  # as predictions.json has it; "" = the context has none
    start: int = 0  # characters of the context; 0, 0 of an empty answer
    end: int = 0
    probability: float = 1.0  # among the n best
    start_logit: float = 0.0
    end_logit: float = 0.0


class Answers(NamedTuple):
    """What the scores say of one question."""

    best: list[Answer]  # the most probable first
    null_odds: float | None  # score of no answer minus that of the best answer; None: there must be one (version 1.1)

    @property
    def answered(self) -> Answer:
        """The best answer that is one."""
        return next((answer for answer in self.best if answer.text), Answer("", probability=0.0))

    def choose(self, null_score_diff_threshold: float = 0.0) -> Answer:
        """The best answer, or the empty one if its odds exceed the threshold."""
        if self.null_odds is None or self.null_odds <= null_score_diff_threshold:
            return self.answered
        return next(answer for answer in self.best if not answer.text)


class Candidates(NamedTuple):
    """Spans of a context, in the order in which the original meets them."""

    first: Integers  # (n,) tokens, counted through all contexts
    last: Integers
    start_logit: Scores
    end_logit: Scores


@dataclass(frozen=True)
class Decoder:
    """Turns scores into answers."""

    contexts: Contexts
    context: Integers  # (Q,) the number of each question's context
    windows: Windows
    offset: Integers  # (W,) where in each sequence the context begins
    tokenizer: Tokenizer
    limits: LengthLimits

    def decode(self, scores: NDArray[np.floating], edges: Integers, version_2: bool) -> Iterator[Answers]:
        """Answers to each question, in order.

        scores (T, 2): start and end. edges (W + 1,): where the scores of each window begin and end; there may be some
        of padding after those of its tokens. These take places among the n best, as in the original.
        """
        wide = scores.astype(np.float64)
        first_windows = np.flatnonzero(np.diff(self.windows.text, prepend=-1))  # of each question
        for first, beyond in itertools.pairwise([*first_windows.tolist(), len(self.windows.text)]):
            parts = [self._candidates(w, wide[edges[w] : edges[w + 1]]) for w in range(first, beyond)]
            candidates = Candidates(*(np.concatenate(part) for part in zip(*parts, strict=True)))
            of_cls = wide[edges[first:beyond]]  # [CLS] means no answer: the smallest of its scores
            null = tuple(of_cls[of_cls.sum(1).argmin()].tolist()) if version_2 else None
            yield self._rank(int(self.context[self.windows.text[first]]), candidates, null)

    @functools.cached_property
    def normal_form(self) -> NormalForm:
        return normal_forms(self.tokenizer)

    def _candidates(self, window: int, scores: Scores) -> Candidates:
        """The valid spans among the best starts and ends of one window."""
        limits, windows = self.limits, self.windows
        offset, count = self.offset[window], windows.length[window]
        starts, ends = (np.argsort(-scores[:, i], kind="stable")[: limits.n_best_size] - offset for i in (0, 1))
        starts, ends = (some[(some >= 0) & (some < count)] for some in (starts, ends))
        starts = starts[windows.max_context[windows.edges[window] + starts]]
        longer = ends - starts[:, None]
        i, j = np.nonzero((longer >= 0) & (longer < limits.max_answer_length))
        first, last = starts[i], ends[j]
        base = self.contexts.edges[self.context[windows.text[window]]] + windows.start[window]
        return Candidates(base + first, base + last, scores[offset + first, 0], scores[offset + last, 1])

    def _rank(self, context: int, spans: Candidates, null: tuple[float, float] | None) -> Answers:
        """The n best of one question, no text twice. null: scores of no answer, None if there must be one."""
        totals, no_answer = spans.start_logit + spans.end_logit, len(spans.first)  # "no answer" follows all spans
        best: dict[str, int] = {}  # number of the best candidate of each text
        for i in np.argsort(-(totals if null is None else np.append(totals, sum(null))), kind="stable").tolist():
            if len(best) == self.limits.n_best_size:
                break
            if i == no_answer:
                best[""] = no_answer
            else:
                best.setdefault(self._text(context, spans.first[i], spans.last[i]), i)
        if null is not None:
            best.setdefault("", no_answer)
        pairs = [*zip(spans.start_logit.tolist(), spans.end_logit.tolist(), strict=True), null or (0.0, 0.0)]
        logits = [pairs[i] for i in best.values()]
        offsets = [(0, 0) if i == no_answer else self._characters(spans.first[i], spans.last[i]) for i in best.values()]
        each = zip(best, offsets, softmax([sum(pair) for pair in logits]), logits, strict=True)
        answers = [Answer(text, *offset, probability, *pair) for text, offset, probability, pair in each]
        if null is None:
            return Answers(answers or [Answer("empty")], None)
        top = next((answer for answer in answers if answer.text), None)
        return Answers(answers, sum(null) - top.start_logit - top.end_logit if top else NO_VALID_SPAN)

    def _text(self, context: int, first: int, last: int) -> str:
        """A candidate as the original gives it, by aligning subwords; with other vocabularies as the context has it."""
        if self.tokenizer.kind != "wordpiece":
            return " ".join(self.contexts.texts[context][slice(*self._characters(first, last))].split())
        vocab, word = self.tokenizer.vocab, self.contexts.word
        subwords = " ".join([vocab[i] for i in self.contexts.ids[first : last + 1].tolist()])
        predicted = " ".join(subwords.replace(" ##", "").replace("##", "").split())
        words = " ".join(self.contexts.words[word[first] : word[last] + 1])
        composed = compose(words)
        return words[slice(*composed.span(*final_span(predicted, composed.text, self.normal_form)))]

    def _characters(self, first: int, last: int) -> tuple[int, int]:
        """Characters from the beginning of one token to the end of another."""
        return int(self.contexts.begin[first]), int(self.contexts.end[last])


def softmax(totals: list[float]) -> list[float]:
    """Probabilities, summed in the original's order."""
    top = max(totals, default=0.0)
    powers = [math.exp(total - top) for total in totals]
    whole = sum(powers)
    return [power / whole for power in powers]


# ---- the final text


def normal_forms(tokenizer: Tokenizer) -> NormalForm:
    """Words as the vocabulary has them: normalized, with spaces round punctuation. Each is computed once."""
    return functools.cache(lambda word: " ".join(tokenizer.split(tokenizer.normalize(word))))


def final_span(predicted: str, original: str, normal_form: NormalForm) -> tuple[int, int]:
    """Where the part of `original` begins and ends that `predicted`, a text of subwords, comes from; else all of it.

    It is looked for in the normalized form of `original`; then the two forms are matched character by character, spaces
    left out. So "zurich" in "(Zürich)," is Zürich.
    """
    normal = " ".join(filter(None, [normal_form(word) for word in original.split(" ")]))
    begin, is_aligned = normal.find(predicted), len(original.replace(" ", "")) == len(normal.replace(" ", ""))
    if begin < 0 or not predicted or not is_aligned:
        return 0, len(original)
    first = begin - normal.count(" ", 0, begin)
    last = first + len(predicted) - predicted.count(" ") - 1
    return _position(original, first), _position(original, last) + 1


def _position(text: str, number: int) -> int:
    """The index of a character that has this number when spaces are not counted."""
    index = -1
    while (further := number + text.count(" ", 0, index + 1)) != index:
        index = further
    return index
