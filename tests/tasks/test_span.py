"""Questions read, contexts cut into windows, answers found in them: against the original's, against plain Python."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertworks.files import InputError
from bertworks.tasks.base import LengthLimits, Task
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.contexts import tokenize_contexts
from bertworks.tasks.kinds import own_task, read_rows
from bertworks.tasks.questions import Question, locate, read
from bertworks.tasks.span import SpanRows, prepare
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from support.shared_data import needs_shared, shared
from support.span_data import SETTINGS, WORDS, ask, recorded, recorded_rows, tokenizer_of

KORQUAD, SQUAD1, SQUAD2 = TASKS["korquad"], TASKS["squad1"], TASKS["squad2"]

TABLE = Task("own", ("question", "context"), "answer", "span", metrics=("f1",))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of([*WORDS, *(f"##{c}" for c in "abcs"), *"abcs", "\u0301"], tmp_path_factory.mktemp("vocab"))


def tokens_of(rows: SpanRows, window: int) -> list[str]:
    begin, end = rows.inputs.edges[window : window + 2]
    return [rows.decoder.tokenizer.vocab[i] for i in rows.inputs.ids[begin:end]]


# ---- the original's features


@pytest.mark.parametrize("setting", SETTINGS)
def test_windows_and_places_equal_the_original(setting: str) -> None:
    rows = recorded_rows(setting)
    expected = recorded(f"oracle/squad/features_{setting}.jsonl.gz")
    windows, contexts = rows.decoder.windows, rows.decoder.contexts
    assert len(rows.inputs) == len(expected) and not rows.skipped
    for w, feature in enumerate(expected):
        first, context = feature["first_doc_position"], rows.decoder.context[windows.text[w]]
        begin = contexts.edges[context] + windows.start[w]
        words = contexts.word[begin : begin + windows.length[w]] - contexts.word_edges[context]
        best = windows.max_context[windows.edges[w] : windows.edges[w + 1]]
        assert rows.rows[windows.text[w]].id == feature["qas_id"]
        assert " ".join(tokens_of(rows, w)) == feature["tokens"]
        assert (rows.inputs.first[w], rows.decoder.offset[w]) == (first, first)
        assert words.tolist() == feature["token_to_orig_map"]
        assert "".join("01"[int(flag)] for flag in best) == feature["token_is_max_context"]
        assert rows.inputs.labels[w].tolist() == [feature["start_position"], feature["end_position"]]
    lengths = [len(rows.decoder.tokenizer.tokenize(question.question)) for question in rows.rows]
    assert rows.cut.sum() == sum(max(0, length - SETTINGS[setting].max_query_length) for length in lengths)


# ---- windows


@given(st.lists(st.text("abc .,(\u202f \u00a0\n\t\u00ad\u0301\u2028é한", max_size=12), max_size=6))
def test_every_word_is_tokenized_by_itself(tokenizer: Tokenizer, texts: list[str]) -> None:
    contexts = tokenize_contexts(tokenizer, texts)
    for i, text in enumerate(texts):
        words, inside = [], False
        for char in text:  # as the original's reader goes
            space = char in " \t\r\n\u202f"
            words += [char] if not space and not inside else []
            if not space and inside:
                words[-1] += char
            inside = not space
        assert contexts.words[contexts.word_edges[i] : contexts.word_edges[i + 1]] == words
        begin, end = contexts.edges[i : i + 2]
        pieces = [tokenizer.tokenize(word) for word in words]
        assert [tokenizer.vocab[j] for j in contexts.ids[begin:end]] == [piece for word in pieces for piece in word]
        owners = [n for n, word in enumerate(pieces) for _ in word]
        assert (contexts.word[begin:end] - contexts.word_edges[i]).tolist() == owners
        for p in range(begin, end):
            assert contexts.begin[p] < contexts.end[p] <= len(text)
            assert text[contexts.begin[p]] in words[owners[p - begin]]


# ---- places to train on


def test_an_answer_at_the_border_of_a_window(tokenizer: Tokenizer) -> None:
    """Six pieces a window, three further: wholly inside one, cut by the other."""
    question = ask("a b c the cat sat on a mat", "sat on")
    rows = prepare(tokenizer, [question], SQUAD1, LengthLimits(max_seq_length=11, doc_stride=3))
    assert [tokens_of(rows, w)[4:-1] for w in range(2)] == [
        ["a", "b", "c", "the", "cat", "sat"],
        ["the", "cat", "sat", "on", "a", "mat"],
    ]
    assert rows.inputs.labels.tolist() == [[0, 0], [6, 7]]
    question = ask(question.context, "the cat sat")
    rows = prepare(tokenizer, [question], SQUAD1, LengthLimits(max_seq_length=11, doc_stride=3))
    assert rows.inputs.labels.tolist() == [[7, 9], [4, 6]]


def test_an_answer_is_brought_down_to_its_own_pieces(tokenizer: Tokenizer) -> None:
    rows = prepare(tokenizer, [ask("(40%) cats.", "40"), ask("(40%) cats.", "cat")], SQUAD1, LengthLimits())
    assert tokens_of(rows, 0)[4:] == ["(", "40", "%", ")", "cat", "##s", ".", "[SEP]"]
    assert rows.inputs.labels.tolist() == [[5, 5], [8, 8]]
    rows = prepare(tokenizer, [ask("the abc", "bc")], SQUAD1, LengthLimits())  # b, ##c are not there: the word
    assert rows.inputs.labels.tolist() == [[5, 7]]


def test_answers_that_are_not_where_they_should_be(tokenizer: Tokenizer) -> None:
    """They are counted and not trained on; the question keeps its window, and its answer is still judged."""
    context = "the cat  sat\non the\u00a0mat"
    good = Question("good", "who", context, (("cat sat on", 4),))  # white space aside
    hard_space = Question("hard", "who", context, (("the\u00a0mat", 16),))
    wrong = [Question(f"wrong {n}", "who", context, (("a", n),)) for n in (-1, 0, 4, 99)]  # it is there twice
    blank = Question("blank", "who", "    ", (("the", 0),))  # the next context begins so
    rows = prepare(tokenizer, [blank, good, hard_space, *wrong], SQUAD1, LengthLimits())
    assert rows.inputs.labels.tolist() == [[-100, -100], [4, 6], [7, 8], *[[-100, -100]] * 4]
    assert [(one.id, one.answers[0][1]) for one in rows.skipped] == [
        ("blank", 0),
        *((f"wrong {n}", n) for n in (-1, 0, 4, 99)),
    ]
    assert "5 of 7 questions are not trained on" in rows.notes()[0] and "'the' at 0" in rows.notes()[0]


def test_no_answer_and_unlabelled(tokenizer: Tokenizer) -> None:
    rows = prepare(tokenizer, [ask("the cat"), Question("x", "who", "the cat")], SQUAD2, LengthLimits())
    assert rows.inputs.labels.tolist() == [[0, 0], [-100, -100]]
    assert not rows.skipped and len(prepare(tokenizer, [], SQUAD2, LengthLimits()).inputs) == 0


def test_a_long_question_is_cut_and_counted_once(tokenizer: Tokenizer) -> None:
    long = Question("long", "a b c a b c", "the cat sat on a mat", (("cat", 4),), line=7)
    limits = LengthLimits(max_seq_length=9, doc_stride=2, max_query_length=4)
    rows = prepare(tokenizer, [long], SQUAD1, limits)
    assert tokens_of(rows, 0) == ["[CLS]", "a", "b", "c", "a", "[SEP]", "the", "cat", "[SEP]"]
    assert len(rows.inputs) == 3 and rows.cut.tolist() == [2]
    assert rows.inputs.truncation() == {"examples": 1, "tokens": 2}
    assert rows.notes() == ["1 questions are cut to 4 tokens, by 2 in all"]
    with pytest.raises(InputError, match=r"question 'long': its 6 tokens.* leave no space .*= 9"):
        prepare(tokenizer, [long], SQUAD1, LengthLimits(max_seq_length=9))


def test_a_batch_has_the_question_as_its_first_segment(tokenizer: Tokenizer) -> None:
    rows = prepare(tokenizer, [ask("the cat", "cat")], SQUAD1, LengthLimits())
    batch = rows.inputs.batch(np.array([0]))
    assert batch["token_type_ids"][0, :7].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch["labels"].tolist() == [[5, 5]] and batch["attention_mask"].sum() == 7


# ---- reading


def squad(path: Path, paragraphs: list) -> Path:
    path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_both_versions_of_the_layout(tmp_path: Path) -> None:
    sure = {"id": "a", "question": "who", "answers": [{"text": "cat", "answer_start": 4}]}
    none = {"id": 2, "question": "where", "answers": [], "is_impossible": True}
    plausible = {**none, "id": "c", "answers": [{"text": "cat", "answer_start": 4}]}
    file = squad(
        tmp_path / "a.json", [{"context": "the cat", "qas": [sure, none]}, {"context": "x", "qas": [plausible]}]
    )
    assert read(SQUAD2, file) == [
        Question("a", "who", "the cat", (("cat", 4),), title="T"),
        Question("2", "where", "the cat", (), True, title="T"),
        Question("c", "where", "x", (), True, title="T"),
    ]
    assert [question.labelled for question in read(SQUAD2, file, labelled=False)] == [False] * 3


ANSWER = {"text": "cat", "answer_start": 4}
GOOD = {"id": "a", "question": "who", "answers": [ANSWER]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            [{"context": "the cat", "qas": [GOOD]}, {"qas": []}],
            "paragraph 2: KeyError 'context'; expected SQuAD's layout",
        ),
        ([{"context": "the cat", "qas": [GOOD, GOOD]}], "paragraph 1: the id 'a' is there twice"),
        (["text"], "paragraph 1: TypeError .*; expected SQuAD's layout"),
        ([{"context": "x", "qas": [{**GOOD, "question": None}]}], "question 'a' is None; expected a text"),
        (
            [{"context": "x", "qas": [{**GOOD, "answers": [{"text": "x"}]}]}],
            "'a': answers .*; expected texts with their",
        ),
        ([{"context": "\ud800", "qas": [GOOD]}], "question 'a' has half a character"),
    ],
)
def test_faults_of_the_layout_by_place(tmp_path: Path, data: list[object], message: str) -> None:
    with pytest.raises(InputError, match=rf"a\.json.*{message}"):
        read(SQUAD1, squad(tmp_path / "a.json", data))


def test_a_table(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        'question,context,answer,more\nwho,"the cat,\nthe mat",the,x\nwhere,the cat,,x\nwho,the cat,dog,x\n'
    )
    assert read(TABLE, file) == [
        Question("2", "who", "the cat,\nthe mat", (("the", 0),), line=2),
        Question("4", "where", "the cat", (), True, 4),
        Question("5", "who", "the cat", (("dog", -1),), line=5),
    ]
    assert read(TABLE, file, labelled=False)[0] == Question("2", "who", "the cat,\nthe mat", line=2)


def test_a_table_with_places_and_ids(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    row = {"id": "x", "question": "who", "context": "the cat, the mat", "answer": "the", "answer_start": 9}
    text = json.dumps(row) + "\n" + json.dumps({**row, "id": None, "answer_start": None}) + "\n"
    file.write_text(text)
    first, second = read(TABLE, file)
    assert (first.id, first.answers, second.id, second.answers) == ("x", (("the", 9),), "2", (("the", 0),))
    file.write_text(text + json.dumps(row))
    with pytest.raises(InputError, match=r"a\.jsonl, line 3: the id 'x' is there twice"):
        read(TABLE, file)
    file.write_text(json.dumps({**row, "answer_start": -1}))
    with pytest.raises(InputError, match="line 1: answer_start '-1'; expected a whole number of characters"):
        read(TABLE, file)
    file.write_text(json.dumps({**row, "answer_start": None, "answer": ["mat", "dog"]}))
    with pytest.raises(InputError, match=r"line 1: answers .*; expected texts with their places"):
        read(TABLE, file)


@needs_shared("data/squad")
def test_official_files() -> None:
    one, two = read(SQUAD1, shared("data/squad/dev-v1.1.json")), read(SQUAD2, shared("data/squad/dev-v2.0.json"))
    assert (len(one), len(two), sum(question.impossible for question in two)) == (10_570, 11_873, 5_945)
    assert len(read(SQUAD1, shared("data/squad/train-v1.1-13pct.json"))) == 11_731
    korean = read(KORQUAD, shared("data/korean/korquad/KorQuAD_v1.0_dev.json"))
    assert len(korean) == 5_774 and korean[0].answers == (("1989년 2월 15일", 0),)
    assert unicodedata.is_normalized("NFC", korean[0].context)
    assert all(q.context[start:].startswith(text) for q in (*one, *two, *korean) for text, start in q.answers)


def test_a_divided_file_in_squads_layout_keeps_the_articles_whole(tmp_path):
    def article(i: int, title: str):
        paragraphs = [
            {"context": f"text {i} {j}", "qas": [{"id": f"{i}-{j}", "question": "q", "answers": []}]} for j in range(3)
        ]
        return {"title": title, "paragraphs": paragraphs}

    for titles in ("article {}", ""):  # not every file has titles
        articles = [article(i, titles.format(i)) for i in range(60)]
        (tmp_path / "all.json").write_text(json.dumps({"data": articles}))
        train, dev = ([q.id for q in read_rows(SQUAD1, tmp_path / f"all.json#{part}")] for part in ("train", "dev"))
        assert len(train) + len(dev) == 180 and 15 < len(dev) < 60
        assert not {name.split("-")[0] for name in train} & {name.split("-")[0] for name in dev}


# ---- offsets that are not exact


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    texts = ["Kim lives in Amsterdam, Holland. Who lives there? 서울은 대한민국의 수도이다 cafe\u0301 café"] * 50
    size = {"wordpiece": 160, "bpe": 420, "unigram": 120}[request.param]
    return Tokenizer.train(texts, TokenizerConfig(algorithm=request.param, vocab_size=size, lowercase=False))


def learned(rows: SpanRows, number: int = 0) -> str:
    """The characters of the context that a question's first window is trained on; "" if it is not trained on."""
    start, end = rows.inputs.labels[number].tolist()
    if start <= 0:
        return ""
    decoder, context = rows.decoder, int(rows.decoder.context[number])
    first = int(decoder.contexts.edges[context]) - int(decoder.offset[number])
    return decoder.contexts.texts[context][decoder.contexts.begin[first + start] : decoder.contexts.end[first + end]]


KIM = "Kim lives in Amsterdam, Holland."


@pytest.mark.parametrize(
    ("context", "text", "start", "expected"),
    [
        (f"😀😀😀 {KIM}", "Kim", 7, "Kim"),  # counted in UTF-16 units
        (f"서울은 {KIM}", "Amsterdam", 23, "Amsterdam"),  # in bytes of UTF-8
        (KIM, "Amsterdam", 15, "Amsterdam"),
        ("Kim  lives\nin Holland.", "Kim lives in", 2, "Kim  lives\nin"),
        ("lives there? Kim lives", "lives", 9, ""),  # twice
        (KIM, "Paris", 0, ""),
    ],
)
def test_a_text_that_is_there_once_is_found_for_every_vocabulary(
    any_tokenizer: Tokenizer, context: str, text: str, start: int, expected: str
) -> None:
    rows = prepare(any_tokenizer, [Question("x", "who", context, ((text, start),))], SQUAD1, LengthLimits())
    assert learned(rows) == expected
    if expected:
        assert not rows.skipped and "1 of 1 answers are not at answer_start, but occur once" in rows.notes()[0]
    else:
        assert "1 of 1 questions are not trained on" in rows.notes()[0] and rows.inputs.labels[0, 0] == -100


def test_places_of_texts() -> None:
    assert locate("a b a", "a", 4) == (4, 5) and locate("a  b", "a b", 0) == (0, 4)
    assert locate("a b", "b", 99) == (2, 3)
    assert locate("b a b", "b", 1) is locate("", "b", 0) is locate("a", " ", 0) is None


def test_forms_of_values_in_squads_layout(tmp_path: Path) -> None:
    def answers(**change: object) -> Question:
        item = {**GOOD, "answers": [{"text": "cat", "answer_start": change.pop("start", 4)}], **change}
        return read(SQUAD2, squad(tmp_path / "a.json", [{"context": "the cat", "qas": [item]}]))[0]

    for start in (4.0, "4", "4.0"):
        assert answers(start=start).answers == (("cat", 4),)
    for value in ("False", "false", "0", 0, None, ""):
        assert answers(is_impossible=value).answers == (("cat", 4),) and not answers(is_impossible=value).impossible
    for value in ("True", 1, "TRUE"):
        assert answers(is_impossible=value).impossible and not answers(is_impossible=value).answers
    assert answers(answers={"text": ["cat"], "answer_start": [4]}).answers == (("cat", 4),)  # as the Hub has them
    with pytest.raises(InputError, match=r"question 'a': 'is_impossible' is 'no'; expected true or false, or 1 or 0"):
        answers(is_impossible="no")
    for start in (True, 4.5, "four", None):
        with pytest.raises(InputError, match=r"question 'a': answer_start .*; expected a whole number"):
            answers(start=start)


@pytest.mark.parametrize("label", ["label", "answers"])
@pytest.mark.parametrize("form", ["jsonl", "list"])
def test_the_hubs_columns(tmp_path: Path, label: str, form: str) -> None:
    row = {"id": "a", "context": "the cat sat", "question": "who"}
    data = [
        row | {"answers": {"text": ["cat", "the cat"], "answer_start": [4, 0]}},
        row | {"id": "b", "answers": {"text": [], "answer_start": []}},
        row | {"id": "c", "answers": [{"text": "cat", "answer_start": 4.0}]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    task = own_task("span", ("question", "context"), label)
    questions = read_rows(task, data if form == "list" else tmp_path / "a.jsonl")
    assert [(q.answers, q.impossible) for q in questions] == [
        ((("cat", 4), ("the cat", 0)), False), ((), True), ((("cat", 4),), False)
    ]  # fmt: skip
    for damaged, message in (
        ({"text": ["cat"], "answer_start": []}, "expected texts with"),
        ("{'text'", "not valid JSON"),
    ):
        with pytest.raises(InputError, match=rf"rows\[0\]: answers.*{message}"):
            read_rows(task, [row | {"answers": damaged}])
