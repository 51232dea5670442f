"""Answers from scores against the original's; their places in the context; what a run is told and files."""

import json
import unicodedata
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bertworks.files import InputError
from bertworks.tasks.answers import NO_VALID_SPAN, Answer, Answers, final_span, normal_forms
from bertworks.tasks.base import LengthLimits
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.contexts import WORD
from bertworks.tasks.questions import read
from bertworks.tasks.span import SpanRows, prepare
from bertworks.tokenizer import Tokenizer
from support.shared_data import shared
from support.span_data import KOREAN, SETTINGS, WORDS, ask, one_hot, recorded, recorded_rows, tokenizer_of

KORQUAD, SQUAD1, SQUAD2 = TASKS["korquad"], TASKS["squad1"], TASKS["squad2"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of([*WORDS, "a", "##s", "b", "c"], tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="module")
def korean(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of([*KOREAN, "who", "?"], tmp_path_factory.mktemp("korean"))


# ---- the original's answers


def recorded_answers(setting: str, version_2: bool, limits: LengthLimits) -> tuple[SpanRows, list[Answers]]:
    """Ours from the recorded scores, which are padded to max_seq_length as they were there."""
    rows, stored = recorded_rows(setting, limits), np.load(shared(f"oracle/squad/logits_{setting}.npz"))
    scores = np.stack([stored["start_logits"], stored["end_logits"]], -1)  # (W, max_seq_length, 2)
    edges = np.arange(len(scores) + 1) * scores.shape[1]
    return rows, list(rows.decoder.decode(scores.reshape(-1, 2), edges, version_2))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["v1", "v2", "v1_nbest5_length8"])
def test_equal_to_the_original(setting: str, name: str) -> None:
    limits = SETTINGS[setting]
    if name == "v1_nbest5_length8":
        limits = replace(limits, n_best_size=5, max_answer_length=8)
    expected = recorded(f"oracle/squad/predictions_{setting}.json.gz")
    rows, found = recorded_answers(setting, name == "v2", limits)
    for question, answers in zip(rows.rows, found, strict=True):
        nbest = expected[f"nbest_{name}"][question.id]
        assert [[one.text, one.start_logit, one.end_logit] for one in answers.best] == [
            [a, c, d] for a, _, c, d in nbest
        ]
        assert [one.probability for one in answers.best] == pytest.approx([row[1] for row in nbest], rel=1e-12)
        if name == "v2":
            assert answers.null_odds == expected["null_odds_v2"][question.id]
            for threshold in (0, -1):
                text = expected[f"predictions_v2_threshold_{threshold}"][question.id]
                assert answers.choose(threshold).text == text
        else:
            assert answers.choose().text == expected[f"predictions_{name}"][question.id]


def test_places_say_what_the_texts_say() -> None:
    """In natural text, except where the text fell back to whole words, of which the place is then a part."""
    rows, found = recorded_answers("128", False, SETTINGS["128"])
    same = parts = 0
    for question, answers in zip(rows.rows, found, strict=True):
        for one in answers.best:
            words = " ".join(WORD.findall(question.context[one.start : one.end]))
            same += words == one.text
            parts += words != one.text and words in one.text
            assert words in one.text
    assert same > 2900 and parts < 60, (same, parts)


def test_final_text_equals_the_original() -> None:
    tokenizers = {
        lowercase: normal_forms(Tokenizer.load(shared("data/vocab/bert-base-uncased.txt"), lowercase))
        for lowercase in (True, False)
    }
    records = recorded("oracle/squad/final_text.jsonl.gz")
    for one in records:
        first, last = final_span(one["pred_text"], one["orig_text"], tokenizers[one["do_lower_case"]])
        assert one["orig_text"][first:last] == one["final_text"]
    assert len(records) == 852


def test_final_text(tokenizer: Tokenizer) -> None:
    forms = normal_forms(tokenizer)
    for predicted, original, expected in (
        ("zurich", "(Zürich),", "Zürich"),
        ("40 %", "in (40%) and", "40%"),
        ("the cat", "On The Cat's mat", "The Cat"),
        ("[UNK] cat", "dog cat", "dog cat"),
        ("cat", "the \u00adcat mat", "the \u00adcat mat"),  # one is longer than the other: not aligned
        ("", "the cat", "the cat"),
    ):
        assert original[slice(*final_span(predicted, original, forms))] == expected


# ---- places in the context

NFC = "서울은  대한민국의\n\t수도이다. 1989년 2월에 (한국어를 ,"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("answer", ["서울", "대한민국", "대한민국의\n\t수도", "1989년 2월", "한국어"])
def test_places_in_hangul(korean: Tokenizer, form: str, answer: str) -> None:
    """Particles are left out, spaces stay as they are, and the last syllable of decomposed text is whole."""
    context, answer = (unicodedata.normalize(form, text) for text in (NFC, answer))
    rows = prepare(korean, [ask(context, answer)], KORQUAD, LengthLimits())
    best = rows.answers(one_hot(rows), False)[0].choose()
    assert context[best.start : best.end] == answer
    if form == "NFC":
        assert best.text == " ".join(answer.split())


def test_decomposed_questions_and_answers_are_tokenized_composed(tmp_path: Path) -> None:
    """A decomposed question gives the tokens, and a decomposed row the labels, of the composed one."""
    korean = tokenizer_of([*KOREAN, "?"], tmp_path, lowercase=False)
    composed, apart = (
        [ask(unicodedata.normalize(form, NFC), unicodedata.normalize(form, "서울"))._replace(question=question)]
        for form in ("NFC", "NFD")
        for question in [unicodedata.normalize(form, "서울은 대한민국의 수도?")]
    )
    assert composed[0].question != apart[0].question and composed[0].answers != apart[0].answers
    one, other = (prepare(korean, rows, KORQUAD, LengthLimits()).inputs for rows in (composed, apart))
    assert one.ids.tolist() == other.ids.tolist() and one.labels.tolist() == other.labels.tolist()
    assert one.labels[0, 0] > 0


def test_places_of_stripped_accents_and_the_empty_answer(tokenizer: Tokenizer) -> None:
    context = "the  cafe\u0301 , Zu\u0308rich"
    questions = [ask(context, "cafe\u0301"), ask(context, "Zu\u0308rich"), ask(context)]
    rows = prepare(tokenizer, questions, SQUAD2, LengthLimits())
    chosen = [one.choose() for one in rows.answers(one_hot(rows), True)]
    assert [context[one.start : one.end] for one in chosen] == ["cafe\u0301", "Zu\u0308rich", ""]
    assert chosen[2][:3] == ("", 0, 0)


# ---- what is valid, and what nothing leaves


def scores_of(rows: SpanRows, starts: dict[int, float], ends: dict[int, float]) -> torch.Tensor:
    """(T, 2) scores by place, 0 elsewhere."""
    scores = torch.zeros(len(rows.inputs.ids), 2)
    for column, places in enumerate((starts, ends)):
        for place, value in places.items():
            scores[place, column] = value
    return scores


def test_no_valid_span(tokenizer: Tokenizer) -> None:
    """Both ends in the question: the word "empty" of version 1.1; no answer in 2.0, where the original fails."""
    rows = prepare(tokenizer, [ask("the cat sat", "cat")], SQUAD1, LengthLimits(n_best_size=1))
    scores = scores_of(rows, {1: 5.0, 0: 1.0}, {1: 5.0, 0: 2.0})
    assert rows.answers(scores, False)[0] == ([Answer("empty")], None)
    found = rows.answers(scores, True)[0]
    assert found == ([Answer("", 0, 0, 1.0, 1.0, 2.0)], NO_VALID_SPAN)
    assert found.choose(1e5).text == found.answered.text == ""


def test_equal_scores_and_a_context_without_pieces(tokenizer: Tokenizer) -> None:
    rows = prepare(tokenizer, [ask(" \u00ad ", name="a"), ask("the cat", "cat", name="b")], SQUAD2, LengthLimits())
    answers = rows.answers(torch.zeros(len(rows.inputs.ids), 2), True)
    # all scores are equal: in the order of starts, then of ends, no answer last
    assert [[one.text for one in found.best] for found in answers] == [[""], ["the", "the cat", "cat", ""]]


def test_the_null_score_is_the_smallest_of_the_windows(tokenizer: Tokenizer) -> None:
    rows = prepare(tokenizer, [ask("a b c a b c", "b")], SQUAD2, LengthLimits(max_seq_length=9, doc_stride=2))
    begin = rows.inputs.edges[:-1]
    assert len(begin) == 2
    scores = scores_of(rows, {begin[0]: 3.0, begin[1]: 1.0}, {begin[0]: 1.0, begin[1]: 2.0, begin[0] + 5: 7.0})
    found = rows.answers(scores, True)[0]
    assert found.null_odds == 3.0 - 7.0
    assert next(one for one in found.best if not one.text)[4:] == (1.0, 2.0)


# ---- judging


ANSWERS = ("cat", "", "mat", "on")


@pytest.fixture
def four(tokenizer: Tokenizer) -> tuple[SpanRows, torch.Tensor]:
    """Answerable with null odds 2 and 6, impossible with 4, answerable and answered wrongly with -5."""
    context = "the cat sat on a mat"
    questions = [ask(context, *answer.split(), name=name) for name, answer in zip("abcd", ANSWERS, strict=True)]
    rows = prepare(tokenizer, questions, SQUAD2, LengthLimits())
    odds, places = (2, 4, 6, -5), (5, 5, 9, 6)
    scores = torch.zeros(len(rows.inputs.ids), 2)
    for begin, value, place in zip(rows.inputs.edges[:-1], odds, places, strict=True):
        scores[begin + place] = 10.0
        scores[begin] = 10 + value / 2
    return rows, scores


def test_the_threshold_is_tuned_and_stored(four: tuple[SpanRows, torch.Tensor]) -> None:
    """The more are answered, in order of odds: F1 1/4, 1/4 (d, wrong), 2/4 (a), 1/4 (b, needless), 2/4 (c).

    The first best is reached between the odds of a, 2, and of b, 4.
    """
    rows, scores = four
    result = rows.evaluate(scores)
    assert result.settings == {"version_2": True, "null_score_diff_threshold": 3.0, "tuned_on": 4}
    expected = {"f1": 1 / 2, "exact": 1 / 2, "f1_at_0": 1 / 4, "exact_at_0": 1 / 4}
    expected |= {"has_answer_exact": 1 / 3, "has_answer_f1": 1 / 3, "no_answer_exact": 1.0, "no_answer_f1": 1.0}
    assert {key: result.metrics[key] for key in expected} == pytest.approx(expected)
    assert result.predicted == {"answer": 2, "no answer": 2}
    assert result.majority == 1 / 4 and not result.constant_predictions
    assert result.files["predictions.json"] == {"a": "cat", "b": "", "c": "", "d": "sat"}
    assert result.files["null_odds.json"] == {"a": 2.0, "b": 4.0, "c": 6.0, "d": -5.0}
    again = rows.evaluate(scores, result.settings)
    assert again.metrics == result.metrics and again.settings == {}
    other = rows.evaluate(scores, {"version_2": True, "null_score_diff_threshold": 6})
    assert other.metrics["f1"] == 1 / 2 and other.files["predictions.json"]["c"] == "mat"
    never = rows.evaluate(scores, {"version_2": True, "null_score_diff_threshold": -9})
    assert never.constant_predictions and never.metrics["f1"] == never.majority
    assert rows.evaluate(scores, {"version_2": False}).files["predictions.json"]["b"] == "cat"


def test_files(four: tuple[SpanRows, torch.Tensor]) -> None:
    rows, scores = four
    files = rows.evaluate(scores).files
    assert files["predictions.jsonl"] == [
        {"id": "a", "answers": ["cat"], "predicted": "cat", "start": 4, "end": 7, "exact": 1.0, "f1": 1.0},
        {"id": "b", "answers": [], "predicted": "", "start": 0, "end": 0, "exact": 1.0, "f1": 1.0},
        {"id": "c", "answers": ["mat"], "predicted": "", "start": 0, "end": 0, "exact": 0.0, "f1": 0.0},
        {"id": "d", "answers": ["on"], "predicted": "sat", "start": 8, "end": 11, "exact": 0.0, "f1": 0.0},
    ]
    assert json.loads(json.dumps(files)) == files
    unlabelled = [question._replace(answers=(), impossible=False) for question in rows.rows]
    with pytest.raises(InputError, match=r"question 'a': no answer; give one, or is_impossible"):
        prepare(rows.decoder.tokenizer, unlabelled, SQUAD2, LengthLimits()).evaluate(scores)


def test_version_1(tokenizer: Tokenizer) -> None:
    context = "the cat sat on a mat"
    rows = prepare(tokenizer, [ask(context, "sat on", name="a"), ask(context, "mat", name="b")], SQUAD1, LengthLimits())
    result = rows.evaluate(one_hot(rows))
    assert result.settings == {"version_2": False} and result.majority == 0 and not result.constant_predictions
    assert set(result.metrics) == {"loss", "f1", "exact"} and result.metrics["f1"] == result.metrics["exact"] == 1
    assert "null_odds.json" not in result.files
    same = scores_of(rows, {4: 5.0, rows.inputs.edges[1] + 4: 5.0}, {5: 5.0, rows.inputs.edges[1] + 5: 5.0})
    result = rows.evaluate(same)
    assert result.constant_predictions and result.metrics["f1"] == 0  # the cat
    letters = replace(rows, task=KORQUAD).evaluate(same).metrics
    assert letters["character_f1"] == pytest.approx((4 / 11 + 4 / 9) / 2)  # a and t are in all three


def test_the_loss_is_the_training_loss(four: tuple[SpanRows, torch.Tensor]) -> None:
    rows, scores = four
    places, edges = torch.from_numpy(rows.inputs.labels), rows.inputs.edges
    windows = [scores[a:b] for a, b in pairwise(edges)]
    losses = [F.cross_entropy(one.T, place) for one, place in zip(windows, places, strict=True)]
    assert rows.evaluate(scores).metrics["loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


# ---- whole data sets


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "file", "vocab", "exact", "places"),
    [
        (SQUAD1, "squad/dev-v1.1.json", "bert-base-uncased", 10_546, 10_545),
        (KORQUAD, "korean/korquad/KorQuAD_v1.0_dev.json", "bert-base-multilingual-cased", 4_830, 4_854),
    ],
)
def test_every_answer_that_pieces_can_spell_comes_back(task, file, vocab, exact, places) -> None:
    """The rest ends or begins inside a piece: 5 in 2015, a noun whose particle is no piece of its own."""
    tokenizer = Tokenizer.load(shared(f"data/vocab/{vocab}.txt"), lowercase="uncased" in vocab)
    limits = LengthLimits(max_seq_length=384, max_answer_length=400)
    rows = prepare(tokenizer, read(task, shared("data") / file), task, limits)
    result = rows.evaluate(one_hot(rows))
    told = result.files["predictions.jsonl"]
    golds = [{q.context[start : start + len(text)] for text, start in q.answers} for q in rows.rows]
    found = [q.context[row["start"] : row["end"]] in gold for q, row, gold in zip(rows.rows, told, golds, strict=True)]
    assert sum(row["exact"] == 1 for row in told) == exact
    assert sum(found) == places, sum(found)
