"""Texts with spans of characters, as annotation tools export them, become words with tags."""

import json
from pathlib import Path
from typing import Any

import datasets
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertworks.files import InputError
from bertworks.tasks.kinds import own_table, own_task, read_rows
from bertworks.tasks.span_files import spans_of, words_with_tags

TASK = own_task("tagging", ("text",), "label")
TEXT = "Kim, of  New York City's 서울에, left."
SPANS = [(0, 3, "PER"), (9, 22, "LOC"), (25, 27, "LOC")]
WORDS = ["Kim", ",", "of", "New", "York", "City", "'s", "서울", "에", ",", "left", "."]
TAGS = ["B-PER", "O", "O", "B-LOC", "I-LOC", "I-LOC", "O", "B-LOC", "O", "O", "O", "O"]
DICTS = [{"start": a, "end": b, "label": kind} for a, b, kind in SPANS]
VALUES = [
    {"value": {"start": a, "end": b, "text": TEXT[a:b], "labels": [kind]}, "type": "labels"} for a, b, kind in SPANS
]


def studio(result: list[Any], text: str = TEXT, **more: Any) -> dict[str, Any]:
    return {"id": 1, "data": {"text": text}, "annotations": [{"result": result, "was_cancelled": False}], **more}


def write(path: Path, *rows: Any) -> Path:
    path.write_text(json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    return path


FORMS = {
    "doccano": {"id": 1, "text": TEXT, "label": [list(span) for span in SPANS]},
    "doccano, labels": {"text": TEXT, "labels": [list(span) for span in reversed(SPANS)]},
    "doccano, relations": {
        "text": TEXT,
        "relations": [],
        "entities": [{"id": i, "label": k, "start_offset": a, "end_offset": b} for i, (a, b, k) in enumerate(SPANS)],
    },
    "Prodigy": {"text": TEXT, "spans": DICTS, "tokens": [], "answer": "accept"},
    "spaCy": {"text": TEXT, "ents": DICTS},
    "blanks at the ends": {"text": TEXT, "spans": [{"start": 8, "end": 23, "label": "LOC"} | {"end": 22}, *DICTS[::2]]},
    "Label Studio, short": {"text": TEXT, "label": [one["value"] for one in VALUES]},
    "Label Studio": studio(VALUES, predictions=[]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_exports(tmp_path: Path, form: str, name: str):
    empty = {"text": "", "label": []}
    for rows in ([FORMS[form]], [empty, FORMS[form]] if form.startswith("doccano") else [FORMS[form]]):
        row = read_rows(TASK, write(tmp_path / name, *rows))[-1]
        assert [row.text[a:b] for a, b in row.units] == WORDS and row.tags == tuple(TAGS) and row.text == TEXT
        assert row.scheme == "spans of characters"
        assert read_rows(TASK, tmp_path / name, labelled=False)[-1] == row._replace(tags=None)


def test_spans_in_memory_and_parquet(tmp_path: Path):
    row = FORMS["Prodigy"]
    frame = pandas.DataFrame([{"text": TEXT, "spans": DICTS}])
    frame.to_parquet(tmp_path / "a.parquet")
    for data in ([row], frame, datasets.Dataset.from_pandas(frame), tmp_path / "a.parquet"):
        assert read_rows(TASK, data)[0].tags == tuple(TAGS)


def test_characters_as_units(tmp_path: Path):
    row = read_rows(own_task("tagging", ("character",), "label"), write(tmp_path / "a.jsonl", FORMS["Prodigy"]))[0]
    assert len(row.units) == len(TEXT) and row.tags is not None
    assert [tag[0] for tag in row.tags[8:23]] == ["O", "B", *"I" * 12, "O"] and row.tags[25:28] == (
        "B-LOC",
        "I-LOC",
        "O",
    )


def test_rows_that_nobody_has_accepted_are_left_out(tmp_path: Path):
    rejected = {**FORMS["Prodigy"], "answer": "reject"}
    file = write(tmp_path / "a.jsonl", rejected, FORMS["Prodigy"], {"text": "b", "answer": "accept"})
    assert [(row.line, row.text) for row in read_rows(TASK, file)] == [(2, TEXT), (3, "b")]
    open_task = {"data": {"text": "c"}, "annotations": []}
    cancelled = {"data": {"text": "d"}, "annotations": [{"result": [], "was_cancelled": True}]}
    file = write(tmp_path / "a.json", open_task, cancelled, studio(VALUES), studio([], "nothing here"))
    assert [row.text for row in read_rows(TASK, file)] == [TEXT, "nothing here"]


def test_the_text_of_a_span_decides(tmp_path: Path):
    """JavaScript counts an emoji twice."""
    text = "😀😀 Kim lives, Kim"
    value = {"start": 5, "end": 8, "text": "Kim", "labels": ["PER"]}
    row = read_rows(TASK, write(tmp_path / "a.json", studio([{"value": value}], text)))[0]
    assert [row.text[a:b] for (a, b), tag in zip(row.units, row.tags or (), strict=True) if tag == "B-PER"] == ["Kim"]
    assert row.tags == ("O", "B-PER", "O", "O", "O")
    with pytest.raises(
        InputError, match=r"a\.json, line 1: the span 'Lee' is not at 5, where 'm l' is; expected offsets"
    ):
        read_rows(TASK, write(tmp_path / "a.json", studio([{"value": value | {"text": "Lee"}}], text)))


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (
            [[0, 3, "PER"], [2, 8, "LOC"]],
            "line 1: the spans PER 'Kim' and LOC 'm, of' overlap; expected one tag for each",
        ),
        ([[0, 3, "PER"], [0, 3, "LOC"]], "the spans LOC 'Kim' and PER 'Kim' overlap"),
        ([[0, 99, "PER"]], "line 1: span 0 to 99; expected a part of the text's 35 characters"),
        ([[3, 3, "PER"]], "line 1: span 3 to 3; expected a part"),
        ([[0, 3]], r"line 1: span \[0, 3\]; expected start, end and one label"),
        ([[0, 3, None]], "expected start, end and one label"),
        ([["a", 3, "PER"]], "start of a span 'a'; expected a whole number"),
        ([{"start": 0, "end": 3, "labels": ["PER", "LOC"]}], "expected start, end and one label"),
    ],
)
def test_faults_by_line(tmp_path: Path, spans: list[Any], message: str):
    file = write(tmp_path / "a.jsonl", {"text": TEXT, "label": spans})
    with pytest.raises(InputError, match=rf"a\.jsonl, .*{message}"):
        read_rows(TASK, file)


def test_annotations_that_differ_and_files_of_another_form(tmp_path: Path):
    twice = {**studio(VALUES), "annotations": [{"result": VALUES}, {"result": VALUES[:1]}]}
    with pytest.raises(InputError, match=r"a\.json, line 1: 2 annotations that differ; expected one"):
        read_rows(TASK, write(tmp_path / "a.json", twice))
    assert len(read_rows(TASK, write(tmp_path / "a.json", twice | {"annotations": [{"result": VALUES}] * 2}))) == 1
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(InputError, match=r"a\.json: expected a list of objects with a text and its spans"):
        read_rows(TASK, tmp_path / "a.json")
    _, data = own_table(
        TASK, write(tmp_path / "a.jsonl", FORMS["doccano"]), write(tmp_path / "b.jsonl", FORMS["spaCy"])
    )
    assert data.dev[0].tags == tuple(TAGS)
    with pytest.raises(InputError, match=r"b\.jsonl, line 1: 'ORG'; expected one of the types LOC, PER"):
        own_table(TASK, tmp_path / "a.jsonl", write(tmp_path / "b.jsonl", {"text": "a", "label": [[0, 1, "ORG"]]}))


def test_a_divided_file(tmp_path: Path):
    file = write(tmp_path / "a.jsonl", *({"text": f"text {i}", "label": [[0, 4, "X"]]} for i in range(50)))
    parts = [{row.text for row in read_rows(TASK, Path(f"{file}#{part}"))} for part in ("train", "dev")]
    assert all(parts) and not parts[0] & parts[1] and len(parts[0] | parts[1]) == 50


@given(st.text("ab .-'가\u0301\n", max_size=20), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=3))
def test_tags_cover_exactly_the_spans(text: str, places: list[tuple[int, int]]):
    given, at = [], 0
    for start, length in sorted(places):
        if at <= start and start + length <= len(text):
            given.append((start, start + length, "X"))
            at = start + length
    spans = spans_of(text, given, "x")
    units, tags = words_with_tags(text, spans, False)
    assert "".join(text[a:b] for a, b in units) == "".join(text.split())
    inside = {i for (a, b), tag in zip(units, tags, strict=True) if tag != "O" for i in range(a, b)}
    assert inside == {i for a, b, _ in spans for i in range(a, b) if not text[i].isspace()}
    assert [tag for tag in tags if tag[0] == "B"] == ["B-X"] * len(spans)
