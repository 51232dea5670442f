"""The forms of labels and values in cells: the clear ones are read, the others are refused with what to write."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import openpyxl
import pandas
import pytest

from bertworks.files import InputError
from bertworks.inference.evaluation import _match_labels
from bertworks.tasks.base import Example, Task
from bertworks.tasks.catalogue import TASKS
from bertworks.tasks.kinds import own_table, own_task, read_rows
from bertworks.tasks.labels import as_list, truth, whole_number
from bertworks.tasks.table import read_table

SEVERAL = own_task("multilabel", ("text",), "labels")
ONE = own_task("", ("text",), "labels")
KNOWN = Task("t", ("text",), "labels", "multilabel", ("art", "law", "war"))


def write(path, cells):
    """A file of rows with these cells of labels, in the format of its name."""
    rows = [{"text": f"t{i}", "labels": cell} for i, cell in enumerate(cells)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in (("text", "labels"), *((row["text"], row["labels"]) for row in rows)):
            book.active.append(row)
        book.save(path)
    else:
        pandas.DataFrame(rows).to_csv(path, index=False)
    return path


def labels_of(path, task=SEVERAL):
    return [row.label for row in read_rows(task, path)]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["['law']", "['law', 'art']", "[]"], ["law", "law|art", ""]),
        (['["law"]', '["law", "it\'s"]'], ["law", "law|it's"]),
        (["Arts, Crafts|law", "law"], ["Arts, Crafts|law", "law"]),
        (["[3, 17]", "[1, 2]", "[5]"], ["3|17", "1|2", "5"]),  # numbers of classes
        (["[1]", "[0]"], ["1", "0"]),
        (["['law']", "[]", ""], ["law", "", ""]),
        (["['law ', 'art']", "Other(s)|law", "Other(s)"], ["law|art", "Other(s)|law", "Other(s)"]),
        (["0|1", "1|0", ""], ["0|1", "1|0", ""]),
        (["3|3|17", "5", "1|0|1|7"], ["3|3|17", "5", "1|0|1|7"]),
    ],
)
def test_several_labels_in_a_cell(tmp_path, cells, expected):
    for name in ("a.csv", "a.xlsx", "a.jsonl"):
        assert labels_of(write(tmp_path / name, cells)) == expected, name
    assert [row.label for row in read_rows(SEVERAL, pandas.read_json(tmp_path / "a.jsonl", lines=True))] == expected


@pytest.mark.parametrize("form", [list, np.array, lambda values: [np.int64(value) for value in values]])
def test_vectors_and_names_in_memory(form):
    assert [row.label for row in read_rows(SEVERAL, [{"text": "a", "labels": form([3, 17])}])] == ["3|17"]
    with pytest.raises(InputError, match="may be 0 or 1 for each label"):
        read_rows(SEVERAL, pandas.DataFrame([{"text": "a", "labels": form([1, 0, 1])}]))


def test_numbers_of_classes_in_development_rows_are_names(tmp_path):
    """A list of 0 and 1 has names if the training rows have both."""
    train = write(tmp_path / "a.csv", ["[0]", "[1]", "[2, 5]"])
    assert own_table(SEVERAL, train, write(tmp_path / "b.csv", ["[0, 1]"]))[1].dev[0].label == "0|1"
    with pytest.raises(InputError, match=r"line 2: label '\[0, 1, 1\]' may be 0 or 1 for each label"):
        own_table(SEVERAL, train, write(tmp_path / "b.csv", ["[0, 1, 1]"]))


UNCLEAR = ["law, sea", "law;art", "[law, art]", "['law', None]", "['law' 'art']"]
UNCLEAR += ["[1. 0. 1.]", "1 0 1", "array(['law'])", "{'law'}"]


@pytest.mark.parametrize(
    ("cells", "task", "message"),
    [
        *[([odd], SEVERAL, "line 2: label .* may be one name or several; write several labels as") for odd in UNCLEAR],
        (['["a|b"]'], SEVERAL, r"expected names without \|"),
        *[
            (cells, SEVERAL, r"line 2: label .* may be 0 or 1 for each label, without their names; give one column per")
            for cells in (["[1, 0, 1]", "[0, 0, 0]"], ["[True, False]", "[False, True]"], ["[1, 0, 1]", "['law']"])
        ],
        (["", "[0, 1]", ""], SEVERAL, r"line 3: label '\[0, 1\]' may be 0 or 1 for each label"),
        (["[1, 0, 0, 1]"], KNOWN, r"line 2: label '\[1, 0, 0, 1\]' may be 0 or 1 for each label"),
        (["['law', 'art']"], ONE, r"label \"\['law', 'art'\]\" is a list; expected one name; .* kind multilabel"),
    ],
)
def test_forms_that_could_mean_two_things_are_refused(tmp_path, cells, task, message):
    with pytest.raises(InputError, match=rf"a\.csv, .*{message}"):
        labels_of(write(tmp_path / "a.csv", cells), task)


def test_names_with_brackets_stay_names(tmp_path):
    for cells in (["[1]", "(1)", "[x]", "f(a, b)"], ["(old) law (new)", "law (new)"]):
        assert labels_of(write(tmp_path / "a.csv", cells), ONE) == cells
    assert labels_of(write(tmp_path / "a.csv", ['["(old) law (new)"]'])) == ["(old) law (new)"]


def test_spellings_of_one_number_or_boolean(tmp_path):
    task, data = own_table(ONE, write(tmp_path / "a.csv", [1.0, 0.0]), write(tmp_path / "b.csv", [1, 0]))
    assert task.labels == ("0.0", "1.0") and [row.label for row in data.dev] == ["1.0", "0.0"]
    task, data = own_table(ONE, write(tmp_path / "a.csv", [True, False]), write(tmp_path / "b.jsonl", [True, False]))
    assert task.labels == ("False", "True") and [row.label for row in data.dev] == ["True", "False"]
    for cells in (["1", "1.0", "0"], ["True", "true"]):
        with pytest.raises(InputError, match="are one value in two spellings; expected one of them"):
            own_table(ONE, write(tmp_path / "a.csv", cells), tmp_path / "b.csv")
    rows = write(tmp_path / "c.csv", ["1.0", "1.10"])  # versions: only 1.0 is a whole number
    assert own_table(ONE, rows, rows)[0].labels == ("1.0", "1.10")
    choice = own_task("choice", ("text",), "label", ("c", "d"))
    assert read_rows(choice, [{"text": "a", "c": "x", "d": "y", "label": 1.0}])[0].label == 1
    number = own_task("regression", ("text",), "label")
    with pytest.raises(InputError, match=r"label '1_0'; expected a number .*, written as in 1234.5"):
        read_rows(number, [{"text": "a", "label": "1_0"}])


def test_booleans_and_integers():
    assert all(truth(value, "x") for value in (True, "TRUE", "1.0"))
    assert not any(truth(value, "x") for value in (0, "False", " false ", "", None))
    for value in ("no", 2, [True], "nan"):
        with pytest.raises(InputError, match=r"^x is .*; expected true or false, or 1 or 0"):
            truth(value, "x")
    assert [whole_number(value, "x") for value in (7, 7.0, "7", "7.0", " 7 ", -1)] == [7, 7, 7, 7, 7, -1]
    for value in (True, 7.5, "7.5", "seven", None, [7], float("nan")):
        with pytest.raises(InputError, match=r"^x .*; expected a whole number"):
            whole_number(value, "x")
    assert as_list("[1, true, 2.5]") == ["1", "true", "2.5"] and as_list("['a''b']") is None


# ---- tables with tabs


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("text", ['He said "hi"', "a\tb", "c\nd"])
def test_quoted_tables_with_tabs_are_refused(tmp_path, quoting, text):
    frame = pandas.DataFrame({"text": [text, "plain"], "labels": ["x", "y"]})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False, quoting=quoting)
    with pytest.raises(InputError, match=r"a\.tsv, line \d: (a quoted cell; .* as \.csv|\d cells?, but|no column)"):
        read_rows(ONE, tmp_path / "a.tsv")
    if "\t" not in text:
        frame[["text"]].to_csv(tmp_path / "b.tsv", sep="\t", index=False)
        with pytest.raises(InputError, match="a quoted cell"):
            list(read_table(tmp_path / "b.tsv", ["text"]))


@pytest.mark.parametrize("texts", [['"Hello"', "a"], ['"He said "hi""', 'he said "no"'], ['"open', '"']])
def test_quotes_of_a_text_stay(tmp_path, texts):
    (tmp_path / "a.tsv").write_text("text\tlabels\n" + "".join(f"{text}\tx\n" for text in texts))
    assert [row.text for row in read_rows(ONE, tmp_path / "a.tsv")] == texts


def test_the_files_of_a_known_task_are_never_quoted(tmp_path):
    (tmp_path / "dev.tsv").write_text('sentence\tlabel\n"He said ""hi"""\t1\n')
    assert read_rows(TASKS["sst2"], tmp_path / "dev.tsv") == [Example('"He said ""hi"""', None, "positive", 2)]


# ---- labels of data and of a model


@pytest.mark.parametrize(
    ("kind", "labels", "names", "expected", "order"),
    [
        ("single", ("false", "true"), ("True", "False"), ("false", "true"), [1, 0]),
        ("single", ("1",), ("0.0", "1.0"), ("1", "0.0"), [1, 0]),
        ("tagging", ("O", "B-PER", "I-PER"), ("PER", "O", "LOC"), ("PER", "O", "LOC"), []),
        ("tagging", ("O", "B-entity", "I-entity"), ("B", "I", "O"), ("B", "I", "O"), []),
        ("tagging", ("NOUN", "VERB"), ("VERB", "DET", "NOUN"), ("NOUN", "VERB", "DET"), [2, 0, 1]),
    ],
)
def test_labels_are_those_of_the_model_in_another_form(kind, labels, names, expected, order):
    model = SimpleNamespace(labels=names, folder="m")
    task, found = _match_labels(model, Task("t", kind=kind, labels=labels))
    assert (task.labels, found) == (expected, order)


def test_labels_that_the_model_lacks():
    model = SimpleNamespace(labels=("PER", "O"), folder="m")
    for labels in (("O", "B-LOC", "I-LOC"), ("NOUN", "VERB")):
        with pytest.raises(InputError, match="m knows the labels PER, O; the data of t also has"):
            _match_labels(model, Task("t", kind="tagging", labels=labels))
