"""Answers as spans of a text: windows, training places, judging (paper, sections 4.2 and 4.3; run_squad.py).

questions.py reads, windows.py cuts, answers.py turns scores into answers, squad_scores.py says what they are worth.
If a question of the rows has no answer, they are judged as SQuAD 2.0 is: [CLS] stands for no answer, and a threshold on
the null odds, tuned on the development rows, decides between the two.

Shapes: Q questions, W windows, T tokens of all windows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..batch import IGNORED
from ..files import InputError, shorten
from ..tokenizer import Tokenizer
from ..training.objectives import SpanObjective
from .answers import NOTHING_FOUND, Answer, Answers, Decoder
from .base import Judged, Kind, Limits, Task, no_names
from .inputs import Inputs, Rows
from .questions import Question, read
from .squad_scores import Scores, grade_korquad, grade_v1, grade_v2, reachable_threshold, score
from .windows import (
    Contexts,
    Windows,
    cut_windows,
    edges_of,
    find_answer,
    improve_span,
    narrow_span,
    stretches,
    tokenize_contexts,
)

NO_ANSWER = -1


class Skipped(NamedTuple):
    """A question that is not trained on: its answer is not where it is said to be."""

    id: str
    answer: str
    start: int  # where it should begin in the context
    line: int = 0  # of a table


@dataclass(frozen=True)
class SpanRows:
    """Questions, ready for a model."""

    inputs: Inputs  # one example a window; labels: places of start and end, 0 = [CLS], -100 = not to be trained on
    questions: Sequence[Question]
    contexts: Contexts
    windows: Windows
    skipped: tuple[Skipped, ...]
    tokenizer: Tokenizer
    task: Task
    limits: Limits

    @property
    def cut(self) -> int:
        """Tokens of questions beyond max_query_length."""
        return int(self.inputs.cut.sum())

    def notes(self) -> list[str]:
        """What a user should hear about these rows: a sentence for each thing that was left out."""
        found = []
        if self.skipped:
            first = self.skipped[0]
            found.append(
                f"{len(self.skipped):,} of {len(self.questions):,} questions are not trained on: their answer is not "
                f"in its context at answer_start; the first is {shorten(first.id)} "
                f"({shorten(first.answer)} at {first.start})"
            )
        if self.cut:
            number = self.inputs.truncation()["examples"]
            found.append(
                f"{number:,} questions are cut to {self.limits.max_query_length} tokens, by {self.cut:,} in all"
            )
        return found

    def answers(self, scores: Tensor, version_2: bool) -> list[Answers]:
        """The n best answers to each question from (T, 2) scores; version_2: one may be "", no answer."""
        decoder = Decoder(self.contexts, self.windows, self.tokenizer, self.limits)
        return list(decoder.decode(scores.numpy(), self.inputs.edges, version_2))

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
        for row, exact, f1 in zip(files["predictions.jsonl"], graded.exact.tolist(), graded.f1.tolist(), strict=True):
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
            "predictions.jsonl": rows,
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


# ---- featurising


def prepare(tokenizer: Tokenizer, questions: Sequence[Question], task: Task, limits: Limits) -> SpanRows:
    """The windows of each question. Raises InputError if a question leaves no room for its context."""
    texts = list(dict.fromkeys(question.context for question in questions))
    numbers = {text: i for i, text in enumerate(texts)}
    contexts = tokenize_contexts(tokenizer, texts)
    context = np.array([numbers[question.context] for question in questions], np.int64)
    whole = _ids_of(tokenizer, [question.question for question in questions])
    queries = [ids[: limits.max_query_length] for ids in whole]
    separators = tokenizer.layout.pair_separators
    _check_room(queries, questions, limits, 2 + separators)
    lengths = np.array([len(ids) for ids in queries], np.int64)
    pieces = np.diff(contexts.edges)[context]
    windows = cut_windows(pieces, context, lengths, limits.max_seq_length, limits.doc_stride, separators)
    spans, skipped = _find_answers(tokenizer, questions, contexts, context)
    first_window = np.append(True, np.diff(windows.question) > 0)[: len(windows.question)]
    cut = np.array([len(ids) for ids in whole], np.int64) - lengths
    sequences = windows.first + windows.count + 1
    inputs = Inputs(
        ids=_sequences(tokenizer, queries, contexts, windows),
        edges=edges_of(sequences),
        first=windows.first if tokenizer.layout.segments else sequences,
        labels=_places(windows, spans),
        cut=np.where(first_window, cut[windows.question], 0),  # once a question
        pad_id=tokenizer.pad_id,
        limit=limits.max_seq_length,
    )
    return SpanRows(inputs, questions, contexts, windows, skipped, tokenizer, task, limits)


def _ids_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The pieces of each text; equal texts are tokenized once."""
    distinct = list(dict.fromkeys(texts))
    known = dict(zip(distinct, tokenizer.ids_of(distinct), strict=True))
    return [known[text] for text in texts]


def _check_room(queries: list[list[int]], questions: Sequence[Question], limits: Limits, specials: int) -> None:
    for ids, question in zip(queries, questions, strict=True):
        if len(ids) + specials >= limits.max_seq_length:
            where = f"line {question.line}, " if question.line else ""
            raise InputError(
                f"{where}question {shorten(question.id)}: its {len(ids)} tokens and {specials} special ones leave no "
                f"room for the context in max_seq_length = {limits.max_seq_length}; raise that, or lower "
                f"max_query_length = {limits.max_query_length}"
            )


def _find_answers(
    tokenizer: Tokenizer, questions: Sequence[Question], contexts: Contexts, context: Rows
) -> tuple[Rows, tuple[Skipped, ...]]:
    """(Q, 2) first and last piece of each first answer: -1 = there is none, -100 = it is not known where; and those."""
    spans = np.full((len(questions), 2), IGNORED, np.int64)
    first_answers = [question.answers[0][0] if question.answers else "" for question in questions]
    skipped = []
    for i, ids in enumerate(_ids_of(tokenizer, first_answers)):
        question, number = questions[i], int(context[i])
        if question.impossible:
            spans[i] = NO_ANSWER
        elif question.answers:
            text, start = question.answers[0]
            span = find_answer(contexts, number, text, start)
            if span is None:
                skipped.append(Skipped(question.id, text, start, question.line))
                continue
            if tokenizer.kind != "wordpiece":
                spans[i] = narrow_span(contexts, number, span, start, start + len(text))
                continue
            base = contexts.edges[number]
            pieces = contexts.ids[base + span.first : base + span.last + 1].tolist()
            spans[i] = improve_span(pieces, span, ids)
    return spans, tuple(skipped)


def _sequences(
    tokenizer: Tokenizer, queries: list[list[int]], contexts: Contexts, windows: Windows
) -> NDArray[np.int32]:
    """(T,) the tokens of all windows."""
    edges = edges_of(windows.first + windows.count + 1)
    lengths = np.array([len(ids) for ids in queries], np.int64)
    questions = np.array([piece for ids in queries for piece in ids], np.int32)
    begin, shown = edges[:-1], windows.first - 1 - tokenizer.layout.pair_separators
    ids = np.full(edges[-1], tokenizer.sep_id, np.int32)  # what is not overwritten
    ids[begin] = tokenizer.cls_id
    ids[stretches(begin + 1, shown)] = questions[stretches(edges_of(lengths)[windows.question], shown)]
    starts = contexts.edges[windows.context] + windows.start
    ids[stretches(begin + windows.first, windows.count)] = contexts.ids[stretches(starts, windows.count)]
    return ids


def _places(windows: Windows, spans: Rows) -> Rows:
    """(W, 2) where in each window the answer begins and ends; (0, 0) if it is not wholly inside."""
    span = spans[windows.question]
    inside = (span[:, 0] >= windows.start) & (span[:, 1] < windows.start + windows.count)
    places: Rows = np.where(inside[:, None], span + (windows.first - windows.start)[:, None], 0)
    places[span[:, 0] == IGNORED] = IGNORED
    return places


SPAN = Kind("span", SpanObjective(), read, no_names, prepare, ("f1", "exact", "character_f1", "character_exact"))
