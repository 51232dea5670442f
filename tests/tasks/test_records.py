"""Rows in memory: each form gives what the same table in a file gives, and errors name row and column."""

import json

import datasets
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from bertworks.files import InputError
from bertworks.tasks.base import Example
from bertworks.tasks.kinds import own_task, read_rows
from bertworks.tasks.table import MissingColumn

TABLES = {
    "single": (("text",), "label", [{"text": "Good 영화", "label": "yes"}, {"text": "", "label": "no"}]),
    "pair": (("a", "b"), "label", [{"a": "One.", "b": "Two.", "label": 1}, {"a": "x", "b": "", "label": 0}]),
    "regression": (("text",), "score", [{"text": "a", "score": 2.5}, {"text": "b", "score": 3.0}]),
    "multilabel": (("text",), "tags", [{"text": "a", "tags": ["x", "y"]}, {"text": "b", "tags": []}]),
    "choice": (("text",), "label", [{"text": "a", "c": "one", "d": "two", "label": 1}]),
    "tagging": (("words",), "tags", [{"words": ["Ann", "ran"], "tags": ["B-PER", "O"]}]),
    "span": (("question", "context"), "answer", [{"question": "Who?", "context": "Ann ran.", "answer": "Ann"}]),
}
FORMS = {
    "list": list,
    "generator": iter,
    "pandas": pandas.DataFrame,
    "pandas by row name": lambda rows: pandas.DataFrame(rows, index=[f"row {i}" for i in range(len(rows))]),
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.Table.from_pylist,
    "datasets": datasets.Dataset.from_list,
    "datasets as numpy": lambda rows: datasets.Dataset.from_list(rows).with_format("numpy"),
    "dictionaries of numpy": lambda rows: [{k: np.array(v)[()] for k, v in row.items()} for row in rows],
}
PLAIN = own_task("", ("text",), "label")


def task_of(kind):
    text, label, rows = TABLES[kind]
    return own_task(kind, text, label, ("c", "d") if kind == "choice" else ()), rows


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_memory_are_those_of_a_file(form, tmp_path):
    for kind in TABLES:
        task, rows = task_of(kind)
        file = tmp_path / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        given = FORMS[form](rows)
        assert read_rows(task, given) == read_rows(task, file), kind
        unlabelled = [{name: cell for name, cell in row.items() if name != task.label} for row in rows]
        assert len(read_rows(task, FORMS[form](unlabelled), labelled=False)) == len(rows)


def test_class_labels_of_a_dataset_are_read_as_their_names():
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]))
    data = datasets.Dataset.from_list([{"text": "a", "label": 1}, {"text": "b", "label": 0}], features)
    assert [row.label for row in read_rows(PLAIN, data)] == ["good", "bad"]
    with pytest.raises(InputError, match=r"^train\[0\]: no label"):  # -1 is no label
        read_rows(PLAIN, datasets.Dataset.from_list([{"text": "a", "label": -1}], features), name="train")
    tags = datasets.Features(words=datasets.List(datasets.Value("string")),
                             tags=datasets.List(datasets.ClassLabel(names=["O", "B-PER"])))  # fmt: skip
    sentence = datasets.Dataset.from_list([{"words": ["Ann", "ran"], "tags": [1, 0]}], tags)
    assert read_rows(own_task("tagging", ("words",), "tags"), sentence)[0].tags == ("B-PER", "O")


@pytest.mark.parametrize("nothing", [None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT], ids=str)
def test_a_missing_cell_names_its_row(nothing):
    rows = [{"text": "a", "label": "x"}, {"text": nothing, "label": "x"}]
    for name, data in {"train[1]": rows, "train.iloc[1]": pandas.DataFrame(rows)}.items():
        with pytest.raises(InputError) as error:
            read_rows(PLAIN, data, name="train")
        assert str(error.value).startswith(f"{name}: 'text' is missing; expected a text"), error.value
    rows[1] = {"text": "b", "label": nothing}
    with pytest.raises(InputError, match=r"^train\[1\]: no label; remove the row"):
        read_rows(PLAIN, rows, name="train")


def test_missing_columns_are_named_with_those_that_there_are():
    for data in (pandas.DataFrame({"Text": ["a"]}), polars.DataFrame({"Text": ["a"]}), [{"Text": "a"}]):
        with pytest.raises(MissingColumn, match=r"^dev(\.iloc)?\[0\]: no column 'text'; found 'Text'"):
            read_rows(PLAIN, data, labelled=False, name="dev")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"text": ["a"], "label": ["b"]}, "^train is a dict; expected a path"),
        (polars.LazyFrame({"text": ["a"]}), "^train is a LazyFrame; expected a path"),
        (datasets.DatasetDict(dev=datasets.Dataset.from_list([{"a": 1}])), "^train is a DatasetDict; expected a path"),
        ("a,b\n" * 2_000, "^train is a text of 8,000 characters; expected a path"),
        (["one text"], r"^train\[0\] is a str \('one text'\); expected a dictionary, such as {'text': ...}"),
        (pandas.DataFrame([["a", "b"]], columns=["text", "text"]), "^train: several columns of one name among"),
        ([{"text": "a", "label": {}}], r"^train\[0\]: 'label' is {}; expected a string"),
        ([{"text": b"a", "label": "b"}], r"^train\[0\]: 'text' is b'a'; expected a string"),
        ([{"text": "a\ud800", "label": "b"}], r"^train\[0\]: 'text' has half a character"),
    ],
)
def test_what_is_no_table_is_refused_by_name(data, message):
    with pytest.raises(InputError, match=message):
        read_rows(PLAIN, data, name="train")


def test_rows_of_a_kind_are_taken_as_they_are():
    rows = [Example("a", label="x"), Example("b", label="y")]
    assert read_rows(PLAIN, rows) == rows
    with pytest.raises(InputError, match=r"^train\[0\].text is"):
        read_rows(PLAIN, [Example(1)], name="train")  # type: ignore[arg-type]  # that is what is tested
