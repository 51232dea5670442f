"""Reading tables: formats, quoting, line ends, and every fault named by file and line."""

import pytest

from bertworks.files import InputError
from bertworks.tasks.base import Example, Task
from bertworks.tasks.glue import MRPC, SST2
from bertworks.tasks.kinds import kind_of, load_data, own_table, own_task, read_rows
from bertworks.tasks.table import read_table
from shared_data import needs_shared, shared

PLAIN = Task("plain", ("text",), "label", labels=("no", "yes"))


def table(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path, *columns):
    return [(row.line, *row.values) for row in read_table(path, columns)]


def test_csv_quoting_byte_order_mark_and_windows_line_ends(tmp_path):
    content = '﻿text,label\r\n"a, ""b""\r\nc",yes\r\n\r\n한국어,no\r\n'
    file = table(tmp_path / "a.csv", content)
    assert rows(file, "label", "text") == [(2, "yes", 'a, "b"\r\nc'), (5, "no", "한국어")]


def test_tsv_takes_quotes_as_they_are(tmp_path):
    file = table(tmp_path / "a.tsv", '﻿label\ttext\n1\t" He said\n0\t it\'s "so" \u2028 ok\r\n')
    assert rows(file, "text") == [(2, '" He said'), (3, ' it\'s "so" \u2028 ok')]


def test_json_lines(tmp_path):
    file = table(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": true, "more": [1]}')
    assert rows(file, "text", "label") == [(1, "a", "1"), (3, "b", "true")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "txt,label\na,yes\n", r"a\.csv, line 1: no column 'text'; found 'txt', 'label'"),
        ("a.csv", "", r"a\.csv, line 1: no column 'text'; found nothing"),
        ("a.csv", "text,label\na,yes\nb", r"a\.csv, line 3: 1 cells, but the header has 2; is the line cut off\?"),
        ("a.tsv", "text\tlabel\na\tyes\nb", r"a\.tsv, line 3: 1 cells"),
        ("a.csv", 'text,label\na,yes\n"b,no\nc,no\n', r"a\.csv, the row that begins in line 3: .*quote may be missing"),
        ("a.csv", b"text,label\na,yes\n\xe9t\xe9,no\n", r"a\.csv, line 3: byte 0xE9 is not UTF-8"),
        ("a.csv", "text,label\na,yes\n".encode("utf-16"), r"a\.csv, line 1: byte 0xFF is not UTF-8"),
        ("a.csv", "text,label\na,yes\nb,\n", r"a\.csv, line 3: no label"),
        ("a.csv", "text,label\na,yes\nb,maybe\n", r"a\.csv, line 3: label 'maybe'; expected one of 'no', 'yes'"),
        ("a.csv", "text,label\n", r"a\.csv: no rows"),
        ("a.jsonl", '{"text": "a", "label": "yes"}\n{"text": "b", "la', r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", '["a"]\n', r"a\.jsonl, line 1: found a list; expected an object"),
        ("a.jsonl", '{"text": "a"}\n', r"a\.jsonl, line 1: no key 'label'; found 'text'"),
        ("a.jsonl", '{"text": "a", "label": null}\n', r"a\.jsonl, line 1: no label"),
        ("a.jsonl", '{"text": ["a"], "label": "yes"}\n', r"a\.jsonl, line 1: 'text' is a list; expected a string"),
        ("a.xlsx", "", r"a\.xlsx: expected a file that ends in \.csv"),
    ],
)
def test_faults_by_file_and_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        read_rows(PLAIN, table(tmp_path / name, content))


def test_long_cells_are_read(tmp_path):
    file = table(tmp_path / "a.csv", f"text,label\n{'x' * 300_000},yes\n")
    assert len(read_rows(PLAIN, file)[0].text) == 300_000


def test_own_table_has_the_labels_of_its_training_file(tmp_path):
    train = table(tmp_path / "a.csv", "question,answer,topic\na,b,x y\nc,d,law\n")
    dev = table(tmp_path / "b.jsonl", '{"question": "e", "answer": "f", "topic": "law"}\n')
    task, data = own_table(own_task("", ("question", "answer"), "topic"), train, dev)
    assert task.labels == ("law", "x y")
    assert list(data.train) == [Example("a", "b", "x y", 2), Example("c", "d", "law", 3)]
    table(dev, '{"question": "e", "answer": "f", "topic": "Law"}\n')
    with pytest.raises(InputError, match=r"b\.jsonl, line 1: label 'Law'; expected one of 'law', 'x y'"):
        own_table(own_task("", ("question", "answer"), "topic"), train, dev)


def test_numbers_as_labels_are_in_order_of_number(tmp_path):
    file = table(tmp_path / "a.csv", "text,label\n" + "".join(f"t,{i}\n" for i in (10, 9, 2)))
    assert own_table(own_task("", ("text",), "label"), file, file)[0].labels == ("2", "9", "10")


def test_a_wrong_task_literal_is_refused():
    with pytest.raises(ValueError, match="3 text columns"):
        Task("t", ("a", "b", "c"), "label")
    with pytest.raises(InputError, match="metric 'acc'; expected some of accuracy, macro_f1"):
        kind_of(Task("t", ("a",), "label", metrics=("acc",)))
    with pytest.raises(ValueError, match="2 text columns for the kind 'single'; expected 1"):
        Task("t", ("a", "b"), kind="single")


def test_missing_folder_and_file(tmp_path):
    with pytest.raises(InputError, match="no such folder; expected the one with train"):
        load_data(SST2, tmp_path / "none")
    with pytest.raises(InputError, match=r"train\.tsv: no such file"):
        load_data(SST2, tmp_path)


@needs_shared("data/glue")
def test_official_files():
    mrpc, sst2 = load_data(MRPC, shared("data/glue/MRPC")), load_data(SST2, shared("data/glue/SST-2"))
    assert (len(mrpc.train), len(mrpc.dev)) == (3668, 408)
    assert (len(sst2.train), len(sst2.dev)) == (67349, 872)
    assert mrpc.dev[0].text.startswith("He said the foodservice") and mrpc.dev[0].pair.startswith('" The foodservice')
    assert mrpc.dev[0].label == "equivalent" and mrpc.dev[1].label == "not_equivalent"
    assert sst2.dev[0] == Example("it 's a charming and often affecting journey . ", None, "positive", 2)
