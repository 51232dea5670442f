"""Answers as spans of a text: windows, training places, evaluation (paper, sections 4.2 and 4.3; run_squad.py).

questions.py reads files, contexts.py tokenizes, sequences.py cuts windows, answers.py turns scores into answers, and
squad_scores.py scores them. If a question of the rows has no answer, they are evaluated as SQuAD 2.0 is: [CLS] means
no answer, and a threshold on the null odds, tuned on the development rows, decides between the two.

Shapes: Q questions, W windows, T tokens of all windows.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..batch import IGNORED
from ..files import InputError, shorten
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer
from ..training.task_objectives import SpanObjective
from .answers import NO_VALID_SPAN, Answer, Answers, Decoder
from .base import EvaluationResult, LengthLimits, Prepared, Task, TaskType
from .contexts import Contexts, answer_tokens, tokenize_contexts
from .inputs import Inputs
from .questions import Question, locate, read
from .sequences import Integers, Spans, Windows, distinct, frame, strided_windows, tokenize
from .squad_scores import Rule, Scores, grade_korquad, grade_v1, grade_v2, reachable_threshold, score

NO_ANSWER = -1


class Answered(TypedDict):
    """An answer in a context; the text is empty where the context has no answer."""

    text: str  # context[start:end]
    start: int  # characters of the context
    end: int
    score: float  # its probability among the n best, 0 to 1
    tokens: int  # tokens that the model read, overlaps of windows included
    cut: int  # tokens of the question that did not fit


@dataclass(frozen=True)
class SpanRows(Prepared):
    """Questions, ready for a model. A window is an example of `inputs`; `cut` counts tokens of the questions.

    Labels are the places of start and end, 0 = [CLS], -100 = not to be trained on.
    """

    rows: Sequence[Question]
    decoder: Decoder  # the contexts and their windows
    moved: list[Question]  # whose answer is not at its offset, but was found
    skipped: list[Question]  # that are not trained on, because their answer was not found

    def notes(self) -> list[str]:
        """A sentence for each thing that was left out."""
        skipped = "questions are not trained on: their answer is not at answer_start, nor exactly once in the context"
        moved = "answers are not at answer_start, but occur once in their context"
        notes = []
        for what, questions in ((skipped, self.skipped), (moved, self.moved)):
            if questions:
                text, start = questions[0].answers[0]
                first = f"{shorten(questions[0].id)} ({shorten(text)} at {start})"
                notes.append(f"{len(questions):,} of {len(self.rows):,} {what}; the first is {first}")
        if self.cut.any():
            number, cut, limit = (self.cut > 0).sum(), self.cut.sum(), self.decoder.limits.max_query_length
            notes.append(f"{number:,} questions are cut to {limit} tokens, by {cut:,} in all")
        return notes

    def answers(self, scores: Tensor, version_2: bool) -> list[Answers]:
        """The n best answers to each question from (T, 2) scores; version_2: one may be "", no answer."""
        return list(self.decoder.decode(scores.numpy(), self.inputs.edges, version_2))

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[list[Answered]]:
        """The answers to each question from (T, 2) scores: the chosen one, then the rest of the n best.

        settings: `version_2` and `null_score_diff_threshold`, as they are stored with a model.
        """
        threshold = float(settings.get("null_score_diff_threshold", 0.0))
        answers = self.answers(scores, bool(settings.get("version_2")))
        results = []
        for question, one, tokens, cut in zip(self.rows, answers, self.tokens.tolist(), self.cut.tolist(), strict=True):
            chosen = one.choose(threshold)
            best = [chosen, *(answer for answer in one.best if answer != chosen)]
            results.append([_result(answer, question.context, tokens, cut) for answer in best])
        return results

    def evaluate(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> EvaluationResult:
        """Metrics and the official files from (T, 2) scores of starts and ends.

        settings: `version_2` and `null_score_diff_threshold`, as they are stored with a model. None: the rows say
        whether there may be no answer, and the threshold is the best one for their F1.
        Raises InputError for a question without an answer that is not marked as one.
        """
        if unknown := [question.id for question in self.rows if not question.labelled]:
            raise InputError(f"question {shorten(unknown[0])}: no answer; give one, or is_impossible")
        version_2 = bool((settings or {}).get("version_2", self.some_impossible))
        answers = self.answers(scores, version_2)
        tuned: dict[str, Any] = {} if settings is not None else {"version_2": version_2}
        if version_2 and settings is None:
            tuned |= {"null_score_diff_threshold": self._best_threshold(answers), "tuned_on": len(answers)}
        threshold = (settings or tuned).get("null_score_diff_threshold", 0.0)
        chosen = [one.choose(threshold) for one in answers]
        texts = [one.text for one in chosen]
        graded = self._grade(texts)
        metrics = graded.summary() if self.some_impossible else {"exact": graded.exact.mean(), "f1": graded.f1.mean()}
        rows = [
            {"id": question.id, "answers": [text for text, _ in question.answers], "predicted": one.text}
            | {"start": one.start, "end": one.end, "exact": float(exact), "f1": float(f1)}
            for question, one, exact, f1 in zip(self.rows, chosen, graded.exact, graded.f1, strict=True)
        ]
        files = {"predictions.json": {row["id"]: row["predicted"] for row in rows}, PREDICTIONS: rows}
        if version_2:
            at_0 = self._grade([one.choose(0.0).text for one in answers])
            metrics |= {"exact_at_0": at_0.exact.mean(), "f1_at_0": at_0.f1.mean()}
            files["null_odds.json"] = {row.id: one.null_odds for row, one in zip(self.rows, answers, strict=True)}
        if any(name.startswith("character_") for name in self.task.metrics):
            by_character = self._grade(texts, grade_korquad)
            metrics |= {"character_exact": by_character.exact.mean(), "character_f1": by_character.f1.mean()}
        return EvaluationResult(
            metrics={"loss": self._loss(scores), **{name: float(value) for name, value in metrics.items()}},
            predicted=Counter("answer" if text else "no answer" for text in texts) if version_2 else {},
            majority=float(self._grade([""] * len(texts)).f1.mean()) if self.some_impossible else 0.0,
            constant_predictions=len({*texts}) == 1 < len({question.answers for question in self.rows}),
            settings=tuned,
            files=files,
        )

    # ---- inside

    @property
    def some_impossible(self) -> bool:
        """Whether the rows are evaluated as SQuAD 2.0 is."""
        return any(question.impossible for question in self.rows)

    def _grade(self, texts: list[str], rule: Rule | None = None) -> Scores:
        golds = [[text for text, _ in question.answers] for question in self.rows]
        return score(texts, golds, rule or (grade_v2 if self.some_impossible else grade_v1))

    def _best_threshold(self, answers: list[Answers]) -> float:
        """The null_score_diff_threshold with the best F1 on these rows."""
        odds = np.array([one.null_odds for one in answers], np.float64)
        answered, empty = (self._grade(texts).f1 for texts in ([a.answered.text for a in answers], [""] * len(answers)))
        valid = odds < NO_VALID_SPAN
        return reachable_threshold(answered[valid], empty[valid], odds[valid])[1] if valid.any() else 0.0

    def _loss(self, scores: Tensor) -> float:
        """Mean training loss of the windows: cross entropy of start and end, each over the tokens of a window."""
        windows = zip(itertools.pairwise(self.inputs.edges), torch.from_numpy(self.inputs.labels), strict=True)
        losses = [F.cross_entropy(scores[a:b].T.double(), at) for (a, b), at in windows if at[0] != IGNORED]
        return float(torch.stack(losses).mean()) if losses else 0.0


def _result(answer: Answer, context: str, tokens: int, cut: int) -> Answered:
    start, end = answer.start, answer.end
    nothing = bool(answer.text) and start == end  # the original then answers "empty", with probability 1
    score = 0.0 if nothing else answer.probability
    return Answered(text=context[start:end], start=start, end=end, score=score, tokens=tokens, cut=cut)


# ---- featurising


def prepare(tokenizer: Tokenizer, questions: Sequence[Question], task: Task, limits: LengthLimits) -> SpanRows:
    """The windows of each question. Raises InputError if a question leaves no space for its context."""
    texts, context = distinct([question.context for question in questions])
    contexts = tokenize_contexts(tokenizer, texts)
    whole = _tokens_of(tokenizer, [question.question for question in questions])
    queries = whole._replace(length=np.minimum(whole.length, limits.max_query_length))
    separators = tokenizer.layout.pair_separators
    offset = queries.length + 1 + separators
    for question, count in zip(questions, queries.length.tolist(), strict=True):
        if count + 2 + separators >= limits.max_seq_length:
            raise InputError(
                f"question {shorten(question.id)}: its {count} tokens and {2 + separators} special ones leave no space "
                f"for the context; raise max_seq_length = {limits.max_seq_length}, or lower max_query_length"
            )
    tokens = np.diff(contexts.edges)[context]
    windows = strided_windows(tokens, limits.max_seq_length - offset - 1, limits.doc_stride)
    spans, moved, skipped = _find_answers(tokenizer, questions, contexts, context)
    owner = windows.text
    shown = Spans(contexts.ids, contexts.edges[context[owner]] + windows.start, windows.length)
    cut = whole.length - queries.length
    frames, labels = frame(tokenizer, queries.of(owner), shown), _labels(windows, offset[owner], spans)
    once = np.where(windows.start == 0, cut[owner], 0)  # per question
    inputs = Inputs(*frames, labels, once, tokenizer.pad_id, limits.max_seq_length)
    decoder = Decoder(contexts, context, windows, offset[owner], tokenizer, limits)
    return SpanRows(inputs, task, questions, owner, cut, decoder, moved, skipped)


def _tokens_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Spans:
    """The tokens of each text; equal texts are tokenized once."""
    once, which = distinct(texts)
    return tokenize(tokenizer, once).of(which)


def _find_answers(
    tokenizer: Tokenizer, questions: Sequence[Question], contexts: Contexts, context: Integers
) -> tuple[Integers, list[Question], list[Question]]:
    """(Q, 2) first and last token of the first answers; then `moved` and `skipped` of SpanRows.

    -1: there is no answer; -100: it is not known, or not found.
    """
    spans = np.full((len(questions), 2), IGNORED, np.int64)
    answers = _tokens_of(tokenizer, [question.answers[0][0] if question.answers else "" for question in questions])
    moved, skipped = list[Question](), list[Question]()
    for i, question in enumerate(questions):
        if question.impossible:
            spans[i] = NO_ANSWER
        elif question.answers:
            text, start = question.answers[0]
            place, span = locate(question.context, text, start), None
            if place is not None:
                own = answers.tokens[answers.start[i] : answers.start[i] + answers.length[i]].tolist()
                span = answer_tokens(contexts, int(context[i]), place, own if tokenizer.kind == "wordpiece" else None)
            if place is None or span is None:
                skipped.append(question)
            else:
                spans[i] = span
                moved += [question] if place[0] != start else []
    return spans, moved, skipped


def _labels(windows: Windows, offset: Integers, answers: Integers) -> Integers:
    """(W, 2) where in each sequence the answer begins and ends; (0, 0) if its window does not show all of it."""
    answer = answers[windows.text]
    inside = (answer[:, 0] >= windows.start) & (answer[:, 1] < windows.start + windows.length)
    labels: Integers = np.where(inside[:, None], answer + (offset - windows.start)[:, None], 0)
    labels[answer[:, 0] == IGNORED] = IGNORED
    return labels


SPAN = TaskType("span", SpanObjective(), read, prepare, ("f1", "exact", "character_f1", "character_exact"))
