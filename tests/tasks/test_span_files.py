"""Texts with spans of characters, as annotation tools export them, become words with tags."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertworks.apps.probing.items import read_items
from bertworks.files import InputError
from bertworks.tasks.base import LengthLimits
from bertworks.tasks.kinds import KINDS, own_table, own_task, read_rows, with_labels
from bertworks.tasks.sentences import Tagged, from_texts
from bertworks.tasks.span_files import spans_of, tags_of
from bertworks.tokenizer import Tokenizer

TASK = own_task("tagging", ("text",), "label")
TEXT = "Kim, of  New York City's 서울에, left."
SPANS = [(0, 3, "PER"), (9, 22, "LOC"), (25, 27, "LOC")]
TAGS = [*"O" * len(TEXT)]
for start, end, kind in SPANS:
    TAGS[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
DICTS = [{"start": a, "end": b, "label": kind} for a, b, kind in SPANS]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FORMS = {
    "doccano": {"id": 1, "text": TEXT, "label": [list(span) for span in SPANS]},
    "doccano, relations": {
        "text": TEXT,
        "entities": [{"id": 1, "label": k, "start_offset": a, "end_offset": b} for a, b, k in reversed(SPANS)],
    },
    "Prodigy": {"text": TEXT, "spans": DICTS, "tokens": [], "answer": "accept"},
    "spaCy": {"text": TEXT, "ents": DICTS},
    "blanks at the ends": {"text": TEXT, "spans": [{"start": 8, "end": 22, "label": "LOC"}, *DICTS[::2]]},
}


@pytest.mark.parametrize("form", FORMS)
def test_exports(tmp_path: Path, form: str):
    file = write(tmp_path / "a.jsonl", {"text": "b"}, FORMS[form])  # the first row has no spans
    first, row = read_rows(TASK, file)
    assert first.tags == ("O",) and row.tags == tuple(TAGS) and row.text == TEXT
    assert row.units == tuple((i, i + 1) for i in range(len(TEXT))) and row.scheme == "spans of characters"
    assert read_rows(TASK, file, labelled=False)[-1] == row._replace(tags=None)


def test_spans_in_memory_and_parquet(tmp_path: Path):
    frame = pandas.DataFrame([{"text": TEXT, "spans": DICTS}])
    frame.to_parquet(tmp_path / "a.parquet")
    for data in ([FORMS["Prodigy"]], frame, datasets.Dataset.from_pandas(frame), tmp_path / "a.parquet"):
        assert read_rows(TASK, data)[0].tags == tuple(TAGS)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("[PAD] [UNK] [CLS] [SEP] [MASK] 서울 ##에서 在 北 京 Kim".replace(" ", "\n"))
    return Tokenizer.load(file, lowercase=False)


def made(tokenizer: Tokenizer, rows: Sequence[Tagged], column: str = "text") -> Any:
    task = with_labels(own_task("tagging", (column,), "label"), rows)
    return KINDS["tagging"].prepare(tokenizer, rows, task, LengthLimits(64))


@pytest.mark.parametrize(
    ("text", "spans", "words", "tags", "cut"),
    [
        (
            TEXT,
            SPANS,
            ["Kim", ",", "of", "New", "York", "City's", "서울에", ",", "left", "."],
            ["B-PER", "O", "O", "B-LOC", "I-LOC", "I-LOC", "B-LOC", "O", "O", "O"],
            ["New York City", "서울"],
        ),
        ("서울에서 서울", [(0, 2, "LOC")], ["서울에서", "서울"], ["B-LOC", "O"], ["서울"]),
        ("서울시장 Kim", [(0, 2, "LOC"), (2, 8, "PER")], ["서울시장", "Kim"], ["B-LOC", "B-PER"], ["서울", "시장 Kim"]),
        ("在北京。", [(1, 3, "LOC")], ["在", "北", "京", "。"], ["O", "B-LOC", "I-LOC", "O"], []),
        ("Jean's U.S. flat", [(7, 11, "LOC")], ["Jean's", "U.S", ".", "flat"], ["O", "B-LOC", "I-LOC", "O"], []),
        ("", [], [], [], []),
    ],
)
def test_words_are_those_of_prediction(
    tokenizer: Tokenizer, text: str, spans: list[Any], words: list[str], tags: list[str], cut: list[str]
):
    rows = read_rows(TASK, [{"text": text, "label": spans}, {"text": "Kim", "label": [(0, 3, "PER")]}])
    found = made(tokenizer, rows)
    assert [text[a:b] for a, b in found.rows[0].units] == words
    assert found.rows[0].units == from_texts(tokenizer, [text])[0].units
    assert found.rows[0].tags == tuple(tags) and found.rows[1].tags == ("B-PER",)
    assert found.cut_spans == cut
    assert made(tokenizer, found.rows).rows == found.rows
    noted = [note for note in found.notes() if "text = character" in note]
    assert len(noted) == bool(cut)
    assert all(f"{cut[0]!r}" in note and note.startswith(f"{len(cut)} spans") for note in noted)
    by_character = made(tokenizer, rows, "character")
    assert by_character.rows == rows and not by_character.cut_spans


def test_a_probe_takes_the_words(tokenizer: Tokenizer, tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps([FORMS["spaCy"]]))
    items = read_items(TASK, tmp_path / "a.json", tokenizer, LengthLimits(64), 0, 1)
    words = ["Kim", ",", "of", "New", "York", "City's", "서울에", ",", "left", "."]
    assert items.forms == words and [items.names[i] for i in items.labels][5:7] == ["I-LOC", "B-LOC"]


def test_rows_that_nobody_has_accepted_are_left_out(tmp_path: Path):
    rejected = {**FORMS["Prodigy"], "answer": "reject"}
    file = write(tmp_path / "a.jsonl", rejected, FORMS["Prodigy"], {"text": "b", "answer": "accept"})
    assert [(row.line, row.text) for row in read_rows(TASK, file)] == [(2, TEXT), (3, "b")]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[0, 3, "PER"], [2, 8, "LOC"]], "line 1: the spans PER 'Kim' and LOC 'm, of' overlap"),
        ([{"start": 0, "end": 3, "label": "PER", "text": "Ki"}], "the span 'Ki' is not at 0, where 'Kim' is"),
        ([[0, 99, "PER"]], "line 1: span 0 to 99; expected a word within the 35 characters"),
        ([[0, 3]], r"line 1: span \[0, 3\]; expected start, end and one label"),
        ([["a", 3, "PER"]], "offset of a span 'a'; expected a whole number"),
        ([{"start": 0, "end": 3, "labels": ["PER", "LOC"]}], "expected start, end and one label"),
    ],
)
def test_faults_by_line(tmp_path: Path, spans: list[Any], message: str):
    file = write(tmp_path / "a.jsonl", {"text": TEXT, "label": spans})
    with pytest.raises(InputError, match=rf"a\.jsonl, .*{message}"):
        read_rows(TASK, file)


def test_a_type_that_train_lacks(tmp_path: Path):
    train = write(tmp_path / "a.jsonl", FORMS["doccano"])
    with pytest.raises(InputError, match=r"b\.jsonl, line 1: 'ORG'; expected one of the types LOC, PER"):
        own_table(TASK, train, write(tmp_path / "b.jsonl", {"text": "a", "label": [[0, 1, "ORG"]]}))


@given(st.text("ab .-'가\u0301\n", max_size=20), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=3))
def test_tags_cover_exactly_the_spans(text: str, places: list[tuple[int, int]]):
    given, at = [], 0
    for start, length in sorted(places):
        if at <= start and start + length <= len(text) and text[start : start + length].strip():
            given.append((start, start + length, "X"))
            at = start + length
    spans = spans_of(text, given, "x")
    tags = tags_of([(i, i + 1) for i in range(len(text))], spans)
    assert {i for i, tag in enumerate(tags) if tag != "O"} == {i for a, b, _ in spans for i in range(a, b)}
    assert [tag for tag in tags if tag[0] == "B"] == ["B-X"] * len(spans)
