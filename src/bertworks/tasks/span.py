"""Answers as spans of a text: windows, training places, judging (paper, sections 4.2 and 4.3; run_squad.py).

questions.py reads files, contexts.py tokenizes, sequences.py cuts windows, answers.py turns scores into answers, and
squad_scores.py scores them. If a question of the rows has no answer, they are judged as SQuAD 2.0 is: [CLS] stands for
no answer, and a threshold on the null odds, tuned on the development rows, decides between the two.

Shapes: Q questions, W windows, T tokens of all windows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..batch import IGNORED
from ..files import InputError, shorten
from ..reporting.run_files import PREDICTIONS
from ..tokenizer import Tokenizer
from ..training.task_objectives import SpanObjective
from .answers import NOTHING_FOUND, Answer, Answers, Decoder
from .base import Judged, Kind, Limits, Task, no_names
from .contexts import Contexts, answer_tokens, tokenize_contexts
from .inputs import Inputs
from .offsets import Unit, locate, unit_of_offsets
from .questions import Question, read
from .sequences import Integers, Spans, Windows, distinct, frame, strided_windows, tokenize, tokens_of_rows
from .squad_scores import Scores, grade_korquad, grade_v1, grade_v2, reachable_threshold, score

NO_ANSWER = -1


class Skipped(NamedTuple):
    """A question whose answer is not where it is said to be."""

    id: str
    answer: str
    start: int  # where it should begin in the context
    line: int = 0  # of a table


class Answered(TypedDict):
    """An answer in a context; an empty text says that there is none."""

    text: str  # context[start:end]
    start: int  # characters of the context
    end: int
    score: float  # its probability among the n best, 0 to 1
    tokens: int  # tokens that the model read, overlaps of windows included
    cut: int  # tokens of the question that did not fit


@dataclass(frozen=True)
class SpanRows:
    """Questions, ready for a model."""

    inputs: Inputs  # one example a window; labels: places of start and end, 0 = [CLS], -100 = not to be trained on
    questions: Sequence[Question]
    decoder: Decoder  # the contexts and their windows
    cut: Integers  # (Q,) tokens of each question beyond max_query_length
    found: "_Found"  # where the answers are in the contexts
    task: Task

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The questions that are not trained on: their answer was not found."""
        return self.found.skipped

    @property
    def tokens(self) -> Integers:
        """(Q,) tokens that the model reads for each question."""
        return tokens_of_rows(self.decoder.windows.text, self.inputs.edges, len(self.questions))

    def notes(self) -> list[str]:
        """What a user should hear about these rows: a sentence for each thing that was left out."""
        found = []
        if self.skipped:
            first = self.skipped[0]
            found.append(
                f"{len(self.skipped):,} of {len(self.questions):,} questions are not trained on: their answer is not "
                f"in its context at answer_start, nor near it; the first is {shorten(first.id)} "
                f"({shorten(first.answer)} at {first.start})"
            )
        if moved := self.found.moved:
            unit = "" if self.found.unit == "characters" else f" (answer_start counts {self.found.unit})"
            found.append(
                f"{len(moved):,} of {len(self.questions):,} answers are not at answer_start and were found near it"
                f"{unit}; the first is {shorten(moved[0].id)} ({shorten(moved[0].answer)} at {moved[0].start})"
            )
        if self.cut.any():
            number, cut, limit = (self.cut > 0).sum(), self.cut.sum(), self.decoder.limits.max_query_length
            found.append(f"{number:,} questions are cut to {limit} tokens, by {cut:,} in all")
        return found

    def answers(self, scores: Tensor, version_2: bool) -> list[Answers]:
        """The n best answers to each question from (T, 2) scores; version_2: one may be "", no answer."""
        return list(self.decoder.decode(scores.numpy(), self.inputs.edges, version_2))

    def decode(self, scores: Tensor, settings: Mapping[str, Any]) -> list[list[Answered]]:
        """The answers to each question from (T, 2) scores: the chosen one, then the rest of the n best.

        settings: `version_2` and `null_score_diff_threshold`, as they are stored with a model.
        """
        threshold = float(settings.get("null_score_diff_threshold", 0.0))
        all_answers = self.answers(scores, bool(settings.get("version_2")))
        results = []
        for question, answers, tokens, cut in zip(
            self.questions, all_answers, self.tokens.tolist(), self.cut.tolist(), strict=True
        ):
            chosen = answers.choose(threshold)
            best = [chosen, *(answer for answer in answers.best if answer != chosen)]
            results.append([_result(answer, question.context, tokens, cut) for answer in best])
        return results

    def judge(self, scores: Tensor, settings: Mapping[str, Any] | None = None) -> Judged:
        """Metrics and the official files from (T, 2) scores of starts and ends; no metrics for rows without answers.

        settings: `version_2` and `null_score_diff_threshold`, as they are stored with a model. None: the rows say
        whether there may be no answer, and the threshold is the best one for their F1.
        """
        labelled = all(question.labelled for question in self.questions)
        some_impossible = any(question.impossible for question in self.questions)
        stored = {} if settings is None else settings
        version_2 = bool(stored.get("version_2", some_impossible))
        answers = self.answers(scores, version_2)
        tuned: dict[str, Any] = {"version_2": version_2} if settings is None else {}
        if version_2 and settings is None and labelled:
            tuned |= {"null_score_diff_threshold": self._best_threshold(answers), "tuned_on": len(answers)}
        threshold = {**stored, **tuned}.get("null_score_diff_threshold", 0.0)
        chosen = [one.choose(threshold) for one in answers]
        files = self._files(answers, chosen)
        if not labelled:
            return Judged({}, settings=tuned, files=files)
        graded = self._grade([one.text for one in chosen])
        for row, exact, f1 in zip(files[PREDICTIONS], graded.exact.tolist(), graded.f1.tolist(), strict=True):
            row |= {"exact": exact, "f1": f1}
        metrics = {"loss": self._loss(scores.numpy()), **self._metrics(graded, answers, chosen)}
        counts = Counter("answer" if one.text else "no answer" for one in chosen)
        return Judged(
            metrics=metrics,
            predicted=dict(counts) if version_2 else {},
            majority=float(self._grade([""] * len(chosen)).f1.mean()) if some_impossible else 0.0,
            collapsed=len({one.text for one in chosen}) == 1 < len({question.answers for question in self.questions}),
            settings=tuned,
            files=files,
        )

    # ---- inside

    @property
    def _golds(self) -> list[list[str]]:
        return [[text for text, _ in question.answers] for question in self.questions]

    def _grade(self, texts: list[str]) -> Scores:
        rule = grade_v2 if any(question.impossible for question in self.questions) else grade_v1
        return score(texts, self._golds, rule)

    def _best_threshold(self, answers: list[Answers]) -> float:
        """The null_score_diff_threshold with the best F1 on these rows."""
        answered, empty = (self._grade(texts) for texts in ([a.answered.text for a in answers], [""] * len(answers)))
        odds = np.array([one.null_odds for one in answers], np.float64)
        found = odds < NOTHING_FOUND
        return reachable_threshold(answered.f1[found], empty.f1[found], odds[found]).threshold if found.any() else 0.0

    def _metrics(self, graded: Scores, answers: list[Answers], chosen: list[Answer]) -> dict[str, float]:
        means = graded.summary()
        if not any(question.impossible for question in self.questions):
            means = {key: means[key] for key in ("exact", "f1")}
        if answers and answers[0].null_odds is not None:
            at_0 = self._grade([one.choose(0.0).text for one in answers])
            means |= {"exact_at_0": float(at_0.exact.mean()), "f1_at_0": float(at_0.f1.mean())}
        if any(name.startswith("character_") for name in self.task.metrics):
            letters = score([one.text for one in chosen], self._golds, grade_korquad)
            means |= {"character_exact": float(letters.exact.mean()), "character_f1": float(letters.f1.mean())}
        return means

    def _files(self, answers: list[Answers], chosen: list[Answer]) -> dict[str, Any]:
        """The original's files by name, and predictions.jsonl with the answers' places in the contexts."""
        ids = [question.id for question in self.questions]
        keys = ("text", "probability", "start_logit", "end_logit")
        listed = [[{key: getattr(answer, key) for key in keys} for answer in one.best] for one in answers]
        rows = [
            {"id": name, "answers": gold, "predicted": one.text, "start": one.start, "end": one.end}
            for name, gold, one in zip(ids, self._golds, chosen, strict=True)
        ]
        files: dict[str, Any] = {
            "predictions.json": dict(zip(ids, (one.text for one in chosen), strict=True)),
            "nbest_predictions.json": dict(zip(ids, listed, strict=True)),
            PREDICTIONS: rows,
        }
        if answers and answers[0].null_odds is not None:
            files["null_odds.json"] = dict(zip(ids, (one.null_odds for one in answers), strict=True))
        return files

    def _loss(self, scores: NDArray[np.floating]) -> float:
        """Mean training loss of the windows: cross entropy of start and end, each over the tokens of a window."""
        scores, starts, places = scores.astype(np.float64), self.inputs.edges[:-1], self.inputs.labels
        top = np.maximum.reduceat(scores, starts)  # (W, 2)
        powers = np.exp(scores - np.repeat(top, np.diff(self.inputs.edges), axis=0))
        total = np.log(np.add.reduceat(powers, starts)) + top
        trained = places[:, 0] != IGNORED
        right = scores[starts[trained, None] + places[trained], [0, 1]]
        return float((total[trained] - right).mean()) if trained.any() else 0.0


def _result(answer: Answer, context: str, tokens: int, cut: int) -> Answered:
    start, end = answer.start, answer.end
    nothing = bool(answer.text) and start == end  # the original then answers "empty", with probability 1
    score = 0.0 if nothing else answer.probability
    return Answered(text=context[start:end], start=start, end=end, score=score, tokens=tokens, cut=cut)


# ---- featurising


def prepare(tokenizer: Tokenizer, questions: Sequence[Question], task: Task, limits: Limits) -> SpanRows:
    """The windows of each question. Raises InputError if a question leaves no room for its context."""
    texts, context = distinct([question.context for question in questions])
    contexts = tokenize_contexts(tokenizer, texts)
    whole = _tokens_of(tokenizer, [question.question for question in questions])
    queries = whole._replace(length=np.minimum(whole.length, limits.max_query_length))
    separators = tokenizer.layout.pair_separators
    offset = queries.length + 1 + separators
    _check_room(queries.length, questions, limits, 2 + separators)
    tokens = np.diff(contexts.edges)[context]
    windows = strided_windows(tokens, limits.max_seq_length - offset - 1, limits.doc_stride)
    found = _find_answers(tokenizer, questions, contexts, context)
    asked = windows.text
    shown = Spans(contexts.ids, contexts.edges[context[asked]] + windows.start, windows.length)
    cut = whole.length - queries.length
    inputs = Inputs(
        *frame(tokenizer, queries.of(asked), shown),
        labels=_labels(windows, offset[asked], found.spans),
        cut=np.where(windows.start == 0, cut[asked], 0),  # once a question
        pad_id=tokenizer.pad_id,
        limit=limits.max_seq_length,
    )
    decoder = Decoder(contexts, context, windows, offset[asked], tokenizer, limits)
    return SpanRows(inputs, questions, decoder, cut, found, task)


def _tokens_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Spans:
    """The tokens of each text; equal texts are tokenized once."""
    once, which = distinct(texts)
    found = tokenize(tokenizer, once)
    return found.of(which)


def _check_room(counts: Integers, questions: Sequence[Question], limits: Limits, specials: int) -> None:
    for count, question in zip(counts.tolist(), questions, strict=True):
        if count + specials >= limits.max_seq_length:
            where = f"line {question.line}, " if question.line else ""
            found = (
                f"{where}question {shorten(question.id)}: its {count} tokens and {specials} special ones leave no room"
            )
            sizes = f"max_seq_length = {limits.max_seq_length}, or lower max_query_length = {limits.max_query_length}"
            raise InputError(f"{found} for the context; raise {sizes}")


class _Found(NamedTuple):
    """The answers of Q questions in their contexts."""

    spans: Integers  # (Q, 2) first and last token; -1: there is no answer, -100: not known, or not found
    moved: tuple[Skipped, ...]  # questions whose answer is not at its offset, but was found
    skipped: tuple[Skipped, ...]  # questions whose answer was not found
    unit: Unit  # what the offsets count


def _find_answers(tokenizer: Tokenizer, questions: Sequence[Question], contexts: Contexts, context: Integers) -> _Found:
    """The tokens of each question's first answer."""
    spans = np.full((len(questions), 2), IGNORED, np.int64)
    answers = _tokens_of(tokenizer, [question.answers[0][0] if question.answers else "" for question in questions])
    unit = unit_of_offsets([(question.context, *question.answers[0]) for question in questions if question.answers])
    moved, skipped = list[Skipped](), list[Skipped]()
    for i, question in enumerate(questions):
        if question.impossible:
            spans[i] = NO_ANSWER
        elif question.answers:
            text, start = question.answers[0]
            place, span = locate(question.context, text, start, unit), None
            if place is not None:
                own = answers.tokens[answers.start[i] : answers.start[i] + answers.length[i]].tolist()
                span = answer_tokens(contexts, int(context[i]), place, own if tokenizer.kind == "wordpiece" else None)
            one = Skipped(question.id, text, start, question.line)
            if span is None:
                skipped.append(one)
            else:
                spans[i] = span
                moved += [one] if place and place.start != start else []
    return _Found(spans, tuple(moved), tuple(skipped), unit)


def _labels(windows: Windows, offset: Integers, answers: Integers) -> Integers:
    """(W, 2) where in each sequence the answer begins and ends; (0, 0) if its window does not show all of it."""
    answer = answers[windows.text]
    inside = (answer[:, 0] >= windows.start) & (answer[:, 1] < windows.start + windows.length)
    labels: Integers = np.where(inside[:, None], answer + (offset - windows.start)[:, None], 0)
    labels[answer[:, 0] == IGNORED] = IGNORED
    return labels


SPAN = Kind("span", SpanObjective(), read, no_names, prepare, ("f1", "exact", "character_f1", "character_exact"))
