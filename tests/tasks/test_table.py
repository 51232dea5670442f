"""Reading tables: formats, quoting, line ends, and every fault named by file and line, for every kind of table."""

import csv
import json
import unicodedata

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bertworks.files import InputError
from bertworks.tasks.base import Task
from bertworks.tasks.choice import Choice
from bertworks.tasks.kinds import own_table, own_task, read_rows
from bertworks.tasks.labels import as_list
from bertworks.tasks.table import TableForm, locator, names_of, read_table

any_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
PLAIN = Task("plain", ("text",), "label", labels=("no", "yes"))


def table(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(path, *columns, **options):
    return [(row.line, *row.values) for row in read_table(path, columns, **options)]


# ---- formats


def test_csv_quoting_byte_order_mark_and_windows_line_ends(tmp_path):
    content = '﻿text,label\r\n"a, ""b""\r\nc",yes\r\n\r\n한국어,no\r\n'
    file = table(tmp_path / "a.csv", content)
    assert rows(file, "label", "text") == [(2, "yes", 'a, "b"\r\nc'), (5, "no", "한국어")]


@pytest.mark.parametrize("name", ["a.tsv", "a.txt"])
def test_tsv_takes_quotes_as_they_are(tmp_path, name):
    file = table(tmp_path / name, '﻿label\ttext\n1\t" He said\n0\t it\'s "so" \u2028 ok\r\n')
    assert rows(file, "text") == [(2, '" He said'), (3, ' it\'s "so" \u2028 ok')]


def test_tables_without_a_header(tmp_path):
    file = table(tmp_path / "a.tsv", "a\tyes\nb\tno\n")
    assert rows(file, "label", "text", header=("text", "label")) == [(1, "yes", "a"), (2, "no", "b")]
    assert rows(table(file, '"a"\tyes\nb\tno\n'), "text", header=("text", "label")) == [(1, '"a"'), (2, "b")]
    with pytest.raises(InputError, match=r"a\.tsv, line 1: 2 cells, but the header has 3"):
        rows(file, "text", header=("id", "text", "label"))
    with pytest.raises(InputError, match=r"a\.tsv, line 1: no column 'label'; found 'text', 'x'"):
        rows(file, "text", "label", header=("text", "x"))


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "a", "label": 1}, {"text": "b", "label": true, "more": [1]}]',
        '{"data": [{"text": "a", "label": 1}, {"text": "b", "label": true}]}',
    ],
)
def test_json(tmp_path, content):
    file = table(tmp_path / "a.json", content)
    assert [row[1:] for row in rows(file, "text", "label")] == [("a", "1"), ("b", "true")]
    assert names_of(file)[:2] == ("text", "label")


def test_json_lines(tmp_path):
    file = table(tmp_path / "a.jsonl", '{"text": "a", "label": 1}\n\n{"text": null, "label": 2.50}')
    assert rows(file, "text", "label") == [(1, "a", "1"), (3, "", "2.5")]
    assert rows(file, "text", optional=("start",)) == [(1, "a", ""), (3, "", "")]


def test_parquet_is_read_batch_by_batch(tmp_path):
    N = 2500
    columns = {"id": range(N), "text": [f"t{i}" for i in range(N)], "label": [i / 2 for i in range(N)]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=700)
    read = rows(tmp_path / "a.parquet", "label", "text", optional=("weight",))
    assert read == [(i + 1, str(i / 2), f"t{i}", "") for i in range(N)]


def test_parquet_cells(tmp_path):
    columns = {"text": pyarrow.array(["a", None, "c"]).dictionary_encode(), "label": [True, False, None]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet", "text", "label") == [(1, "a", "true"), (2, "", "false"), (3, "c", "")]
    with pytest.raises(InputError, match=r"a\.parquet, row 1: no column 'txt'; found 'text', 'label'"):
        rows(tmp_path / "a.parquet", "txt")
    with pytest.raises(InputError, match=r"a\.parquet, row 3: no label"):
        read_rows(Task("t"), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    table(tmp_path / "cut.parquet", whole[:-20])
    with pytest.raises(InputError, match=r"cut\.parquet: not a readable Parquet file \(.*is it cut off\?"):
        rows(tmp_path / "cut.parquet", "text")
    parquet.write_table(pyarrow.table({"text": [b"a"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet, row 1: 'text' is .*; expected a string"):
        rows(tmp_path / "b.parquet", "text")


def test_lists_where_they_are_asked_for(tmp_path):
    words, tags = [["New", "York"], ["1", '"']], [["B-LOC", "I-LOC"], ["O", "O"]]
    parquet.write_table(pyarrow.table({"words": words, "tags": tags}), tmp_path / "a.parquet")
    table(tmp_path / "a.jsonl", json.dumps({"words": words[0]}) + '\n{"words": [1, "\\""]}')
    for name in ("a.parquet", "a.jsonl"):
        assert [as_list(row[1]) for row in rows(tmp_path / name, "words", lists=("words",))] == words
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: 'words' is .*; expected a string$"):
        rows(tmp_path / "a.jsonl", "words")
    table(tmp_path / "b.jsonl", '{"words": ["a", null]}\n')
    with pytest.raises(InputError, match=r"'words' is .*; expected a string, or a list"):
        rows(tmp_path / "b.jsonl", "words", lists=("words",))
    assert [as_list(cell) for cell in ("[x]", "[[1]]", "a", "", "[" * 5000)] == [None] * 5


def test_a_row_that_line_ends_have_broken(tmp_path):
    """As in QQP's train.tsv: put together where that is asked for and the cells add up, else refused."""
    header, whole = "id\tone\ttwo\tlabel\n", "7\ta\tb\t1\n"
    file = table(tmp_path / "a.tsv", f"{header}{whole}8\tc\n\td\t0\n{whole}9\te\n\nf\tg\nh\t1\n")
    columns, good = ("id", "one", "two", "label"), ("7", "a", "b", "1")
    told = [(2, *good), (3, "8", "c\n", "d", "0"), (5, *good), (6, "9", "e\nf", "g\nh", "1")]
    assert rows(file, *columns, form=TableForm(official=True)) == told
    with pytest.raises(InputError, match=r"a\.tsv, line 3: 2 cells, but the header has 4"):
        rows(file, *columns)
    with pytest.raises(InputError, match="header has 4; does a text contain a comma"):
        rows(table(tmp_path / "a.csv", (header + "7\ta, b\tc\td\n").replace("\t", ",")), *columns)
    with pytest.raises(InputError, match=r"carriage return without a line feed; end lines with"):
        rows(table(tmp_path / "a.csv", "text,label\rgood,1\r"), "text")
    for rest, line in (("8\tc\n" + whole, 2), (whole + "8\tc\n", 3), ("8\tc\td\n9\tc\td\n", 2), ("8\n" + whole, 2)):
        with pytest.raises(InputError, match=rf"a\.tsv, line {line}: \d cells?, but the header has 4"):
            rows(table(file, header + rest), *columns, form=TableForm(official=True))


def test_one_table_for_both_sides(tmp_path):
    lines = [f"q{i % 300},{i},{i % 2}" for i in range(900)]
    file, task = table(tmp_path / "all.csv", "\n".join(["text,id,label", *lines])), own_task("", ("text",), "label")
    train, dev = (read_rows(task, f"{file}#{part}") for part in ("train", "dev"))
    assert sorted(train + dev, key=lambda row: row.line) == read_rows(task, file) and 120 < len(dev) < 240
    assert not {row.text for row in train} & {row.text for row in dev}  # a text is on one side only
    table(file, "\n".join(["label,id,text", *(",".join(line.split(",")[::-1]) for line in lines[::-1])]))
    assert {row.text for row in read_rows(task, f"{file}#dev")} == {row.text for row in dev}
    with pytest.raises(InputError, match=r"all\.csv#other: expected a file that ends in"):
        rows(f"{file}#other", "text")
    assert locator("a.parquet")(3) == "a.parquet, row 3" and locator("a.csv")(3) == "a.csv, line 3"


@given(st.lists(st.tuples(any_text, any_text), max_size=5))
def test_whatever_is_written_is_read(tmp_path_factory, cells):
    place, header = tmp_path_factory.mktemp("any"), ("one", "two")
    with open(place / "a.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *cells])
    lines = "".join(json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) + "\n" for row in cells)
    table(place / "a.jsonl", lines)
    columns = {name: pyarrow.array([row[i] for row in cells], pyarrow.string()) for i, name in enumerate(header)}
    parquet.write_table(pyarrow.table(columns), place / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert [(two, one) for _, one, two in rows(place / name, *header)] == [(two, one) for one, two in cells]


def test_long_cells_are_read(tmp_path):
    file = table(tmp_path / "a.csv", f"text,label\n{'x' * 300_000},yes\n")
    assert len(read_rows(PLAIN, file)[0].text) == 300_000


def test_names_of_columns_are_compared_composed(tmp_path):
    """A file written on a Mac, a flag typed elsewhere."""
    name = "후기"
    for written, asked in ((name, unicodedata.normalize("NFD", name)), (unicodedata.normalize("NFD", name), name)):
        parquet.write_table(pyarrow.table({written: ["a"]}), tmp_path / "a.parquet")
        files = [table(tmp_path / "a.csv", f"{written}\na\n"), table(tmp_path / "a.jsonl", json.dumps({written: "a"}))]
        for file in (*files, tmp_path / "a.parquet"):
            assert [row[1] for row in rows(file, asked)] == ["a"]


# ---- faults


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label,text\na,yes,b\n", r"a\.csv, line 1: several columns 'text'.*; rename one of them$"),
        ("a.csv", b"text,label\na,yes\n\xe9t\xe9,no\n", r"a\.csv, line 3: byte 0xE9 is not UTF-8"),
        ("a.csv", "text,label\na,yes\nb,maybe\n", r"a\.csv, line 3: label 'maybe'; expected one of 'no', 'yes'"),
        ("a.csv", "text,label\n", r"a\.csv: no rows"),
        ("a.jsonl", '{"text": "a", "label": "yes"}\n{"text": "b", "la', r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", '{"text": "a"}\n', r"a\.jsonl, line 1: no column 'label'; found 'text'"),
        ("a.jsonl", '{"text": ["a"], "label": "yes"}\n', r"a\.jsonl, line 1: 'text' is .*; expected a string"),
        ("a.jsonl", '{"text": "\\ud83d", "label": "yes"}\n', r"a\.jsonl, line 1: 'text' has half a character"),
        ("a.jsonl", '{"text": "a", "label": NaN}\n', r"a\.jsonl, line 1: 'label' is nan; expected a text or a finite"),
        ("a.json", '{"text": {"0": "a"}}', r"a\.json: found .*; expected a list of objects"),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', r"a\.json: not valid JSON.*; a file with an object per line is"),
    ],
)
def test_faults_by_file_and_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as error:
        read_rows(PLAIN, table(tmp_path / name, content))
    assert len(str(error.value)) < 1000


TABLES = {  # kind: the task, its header, two rows, a label that training has not (None: any number will do)
    "single": (own_task("", ("text",), "label"), "text,label", ("{},yes", "b,no"), "maybe"),
    "pair": (own_task("", ("text", "other"), "label"), "text,other,label", ("{},x,yes", "b,y,no"), "maybe"),
    "regression": (own_task("regression", ("text",), "label"), "text,label", ("{},1.5", "b,-2"), None),
    "multilabel": (own_task("multilabel", ("text",), "label"), "text,label", ("{},yes|no", "b,no"), "no|maybe"),
    "choice": (own_task("choice", ("text",), "label", ("c", "d")), "text,c,d,label", ("{},x,y,1", "b,x,y,0"), "2"),
}


@pytest.fixture(params=TABLES)
def kind(request):
    return request.param


def written(path, kind, first="a", more="", head=None, ends="\n"):
    """A table of that kind: `first` is the text of its first row, `more` stands after its two rows."""
    _, header, (one, two), _ = TABLES[kind]
    lines = [head or header, one.format(first), two]
    return table(path, ends.join(lines) + ends + more)


def test_right_whatever_its_quotes_marks_and_line_ends(tmp_path, kind):
    task = TABLES[kind][0]
    file = written(tmp_path / "a.csv", kind, '"a ""b"", 한글\nc"')
    plain, windows = read_rows(task, file), table(tmp_path / "w.csv", b"\xef\xbb\xbf" + file.read_bytes())
    assert plain[0].text == 'a "b", 한글\nc' and [row.line for row in plain] == [2, 4]
    assert read_rows(task, windows) == plain
    table(windows, file.read_bytes().replace(b"\n", b"\r\n").replace("글\r\n".encode(), "글\n".encode()))
    assert read_rows(task, windows) == plain
    assert read_rows(task, table(windows, file.read_bytes().rstrip(b"\n"))) == plain


def test_wrong_column_cut_off_line_no_label_in_every_kind(tmp_path, kind):
    task, header, (one, _), _ = TABLES[kind]
    for column in header.split(","):
        with pytest.raises(InputError, match=rf"a\.csv, line 1: no column '{column}'; found "):
            read_rows(task, written(tmp_path / "a.csv", kind, head=header.replace(column, column.upper())))
    row = one.format("z")
    for cut in (row[: row.rindex(",")], row[:1], '"z'):
        with pytest.raises(InputError, match=r"a\.csv, (the row that begins in )?line 4"):
            read_rows(task, written(tmp_path / "a.csv", kind, more=cut))
    if kind == "multilabel":  # no label is an answer too
        assert read_rows(task, written(tmp_path / "a.csv", kind, more="z,\n"))[-1].label == ""
    else:
        with pytest.raises(InputError, match=r"a\.csv, line 4: no label; "):
            read_rows(task, written(tmp_path / "a.csv", kind, more=row[: row.rindex(",")] + ",\n"))


def test_a_label_that_only_dev_has(tmp_path, kind):
    task, _, (one, _), unseen = TABLES[kind]
    train = written(tmp_path / "train.csv", kind)
    row = one.format("z")
    dev = written(tmp_path / "dev.csv", kind, more=f"{row[: row.rindex(',')]},{unseen or 'x'}\n")
    with pytest.raises(InputError, match=r"dev\.csv, line 4: label '(maybe|2|x)'; expected (one of|a number)"):
        own_table(task, train, dev)


# ---- labels


def test_several_labels_as_columns_of_0_and_1(tmp_path):
    task = own_task("multilabel", ("text",), "law,art,war")
    assert task.labels == ("law", "art", "war")
    file = table(tmp_path / "a.csv", "text,law,art,war\na,1,0,1\nb,0,0,0.0\nc,0,1.0,0\n")
    assert [row.label for row in read_rows(task, file)] == ["law|war", "", "art"]
    assert read_rows(task, [{"text": "a", "law": True, "art": 0, "war": 1}])[0].label == "law|war"
    for cells, shown in (("1,0,yes", "'yes'"), ("1,0,", "nothing")):
        with pytest.raises(InputError, match=rf"a\.csv, line 2: {shown} in column 'war'; expected 0 or 1, one column"):
            read_rows(task, table(file, f"text,law,art,war\na,{cells}\n"))


def test_numbers_of_a_regression(tmp_path):
    task = own_task("regression", ("text",), "label")
    file = table(tmp_path / "a.jsonl", '{"text": "a", "label": 2.5}\n{"text": "a", "label": "1e2"}\n')
    assert [row.label for row in read_rows(task, file)] == ["2.5", "1e2"]
    for value in ('"1,5"', "NaN", '"inf"', "true"):
        with pytest.raises(InputError, match=r"a\.jsonl, line 1: .*label.*; expected a .*number"):
            read_rows(task, table(file, f'{{"text": "a", "label": {value}}}\n'))


def test_choices(tmp_path):
    task = own_task("choice", ("begin", "go"), "label", ("c", "d"))
    file = table(tmp_path / "a.csv", "begin,go,c,d,label\nOne.,Two,ran,sat,1\n")
    assert read_rows(task, file) == [Choice("One.", ("Two ran", "Two sat"), 1, 2)]
    assert read_rows(task, table(file, "begin,go,c,d\nOne.,Two,ran,sat\n"), labelled=False)[0].label is None
    with pytest.raises(InputError, match=r"a\.csv, line 2: an empty choice; expected a text in each of"):
        read_rows(task, table(file, "begin,go,c,d,label\nOne.,Two,ran, ,1\n"))
