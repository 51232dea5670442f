"""Each check of rows and tables finds its planted case, and leaves good rows alone."""

import json
import random
import unicodedata
from dataclasses import replace

import pyarrow
import pytest
from pyarrow import parquet

from bertworks.apps.doctor import examine
from bertworks.apps.doctor.alike import Shingles, find_alike, key_of
from bertworks.apps.doctor.examination import Given, of_rows
from bertworks.apps.doctor.tables import Columns, Table, find_columns
from bertworks.checkpoint.folder import save_folder
from bertworks.files import InputError
from bertworks.model.heads import build_model
from bertworks.tasks.base import Data, Example, Task
from bertworks.tasks.choice import Choice
from bertworks.tasks.draws import Division
from bertworks.tasks.kinds import divided_data, own_task, read_rows
from bertworks.tasks.questions import Question
from bertworks.tasks.table import TableForm
from bertworks.tokenizer import Tokenizer, TokenizerConfig
from conftest import WORDS
from support.tiny_task import TINY, tiny_folder

TASK = Task("own", ("text",))


def texts(count: int, seed: int = 1, words: int = 12) -> list[str]:
    """Texts that share hardly any two words in a row."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=words)) for _ in range(count)]


def rows(count: int, seed: int = 1, label=lambda i: ("good", "bad")[i % 2]) -> list[Example]:
    return [Example(text, label=label(i), line=i + 2) for i, text in enumerate(texts(count, seed))]


TRAIN, DEV = rows(240), rows(120, 2)


def found(train=TRAIN, dev=DEV, task=TASK, **reader):
    """(check, severity, evidence) of what is found."""
    report = of_rows(task, Data(train, dev), **reader)
    return [(one.check, one.severity, one.evidence) for one in report.sorted()]


def test_good_rows_are_left_alone(tmp_path):
    assert found() == []
    assert found(model=tiny_folder(tmp_path / "model"), max_seq_length=128) == []


PLANTED = {
    "few rows": (TRAIN[:150], DEV, "number of rows", "warning", "150 training rows"),
    "few development rows": (TRAIN, DEV[:50], "number of rows", "warning", "50 development rows: an accuracy near one "
                             "half is known within ± 14 points (95 %)"),
    "one label for nearly all": (rows(240, label=lambda i: "bad" if i % 24 else "good"), [], "labels", "warning",
                                 "96 % of the training rows have the label 'bad': always answering it has an accuracy "
                                 "of 0.958"),
    "unbalanced": (rows(240, label=lambda i: "bad" if i % 13 else "good"), [], "labels", "warning",
                   "label 'bad' has 221 training rows, 'good' has 19"),
    "a rare label": (rows(240, label=lambda i: "odd" if i < 3 else "ab"[i % 2]), [], "labels", "warning",
                     "1 of 3 labels has fewer than 10 training rows: 'odd' (3)"),
    "other shares in dev": (TRAIN, rows(120, 2, lambda i: "good" if i % 5 else "bad"), "labels", "warning",
                            "label 'good' has 50 % of the training rows and 80 % of the development rows"),
    "a label in dev alone": (TRAIN, rows(120, 2, lambda i: ("good", "bad", "fair")[i % 3]), "labels", "error",
                             "the development rows have labels that no training row has: 'fair'"),
    "labels in two spellings": (rows(240, label=lambda i: ("good", "Good ", "bad", "bad")[i % 4]), [],
                                "spelling of labels", "warning",
                                "labels that differ in case or blanks only: 'Good ', 'good'"),
    "labels in two Unicode forms": (rows(240, label=lambda i: ("\uac00", "\u1100\u1161", "bad")[i % 3]), [],
                                    "spelling of labels", "warning",
                                    "labels that differ in Unicode form only: '\\u1100\\u1161', '\\uac00'"),
    "empty": ([*TRAIN, *(Example(text, label="bad", line=900) for text in ("...", " ", "?!"))], [], "empty rows",
              "warning", "3 of 243 rows have a text without a letter or digit (lines 900, 900, 900)"),
    "without a label": ([*TRAIN, Example("new words here", line=900)], [], "empty rows", "error",
                        "1 of 241 rows has no label (line 900)"),
    "twice": ([*TRAIN, *(row._replace(text=row.text.upper() + "!", line=900) for row in TRAIN[:3])], [],
              "duplicate rows", "warning", "3 of 243 training rows repeat an earlier row with the same label (lines "
              "900, 900, 900; line 900 is like line 2)"),
    "nearly twice": ([*TRAIN, *(row._replace(text="now " + row.text) for row in TRAIN[:20])], [], "duplicate rows",
                     "warning", "20 of 260 training rows share most of their words with an earlier row (lines 2"),
    "two labels": ([*TRAIN, TRAIN[0]._replace(label="bad", line=900)], [], "conflicting labels", "note",
                   f"1 text has different labels in different rows: {TRAIN[0].text[:18]!r}"),
    "train in dev": (TRAIN, [*DEV, *TRAIN[:2]], "train and dev", "warning",
                     "2 of 122 development rows (1.6 %) are also in the training rows (lines 2, 3 of the "
                     "development rows; line 2 is like line 2 of the training rows)"),
    "dev is train": (TRAIN, TRAIN[:120], "train and dev", "error",
                     "120 of 120 development rows (100 %) are also in the training rows (lines 2, 3, 4, ... of the "
                     "development rows; line 2 is like line 2 of the training rows)"),
    "nearly train in dev": (TRAIN, [*DEV, TRAIN[0]._replace(text=TRAIN[0].text + " again")], "train and dev", "note",
                            "1 of 121 development rows (0.83 %) shares most of its words with rows in the training "
                            "rows (line 2 of the development rows, which is like line 2 of the training rows)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name):
    train, dev, check, severity, evidence = PLANTED[name]
    [(one, gravity, text), *others] = [hit for hit in found(train, dev) if hit[0] == check]
    assert (one, gravity) == (check, severity) and not others
    assert text.startswith(evidence.rstrip("'"))


def test_cut_texts_and_unknown_words_are_found_by_the_model_that_reads_them(tmp_path):
    model = tiny_folder(tmp_path / "model")
    few = [*TRAIN[:190], *(row._replace(text="good " * 120) for row in TRAIN[190:200])]  # a twentieth is cut
    [one] = [one for one in of_rows(TASK, Data(few, DEV, "x"), model, 96).findings if one.check == "length"]
    assert one.numbers["tokens"] <= 96 and "the longest 122)" in one.evidence
    assert one.advice.startswith("give --max-seq-length 128 if")
    [hit] = found(model=model, max_seq_length=32)
    assert hit[:2] == ("length", "warning") and "100 % of 240 training rows are longer than 32 tokens" in hit[2]
    korean = [row._replace(text=f"{row.text} 영화 아주") for row in TRAIN]
    assert ("vocabulary", "warning", "100% of the Hangul words are [UNK]: the vocabulary lacks them") in found(
        korean, model=model, max_seq_length=512
    )
    tokenizer = Tokenizer.train(["영화 아주 good bad"] * 20, TokenizerConfig(vocab_size=100, lowercase=False))
    save_folder(tmp_path / "ko", build_model(replace(TINY, vocab_size=tokenizer.vocab_size), seed=1), tokenizer)
    for more in (" 영화 아주", " ᅲᅲ"):  # decomposed text is composed before it is read; lone vowels never compose
        apart = [row._replace(text=unicodedata.normalize("NFD", f"good{more}")) for row in TRAIN]
        assert not [hit for hit in found(apart, model=tmp_path / "ko") if "NFD" in hit[2]], more
    whole = [row._replace(text=unicodedata.normalize("NFD", "영화 아주")) for row in TRAIN]
    assert not [hit for hit in found(whole, model=tmp_path / "ko") if hit[0] == "vocabulary"]


def test_questions_leak_by_their_contexts_and_choices_have_no_classes():
    span = Task("q", ("question", "context"), kind="span")
    asked = [Question(str(i), "Who?", text) for i, text in enumerate(texts(220))]
    other = [Question(str(i), "Who?", text) for i, text in enumerate(texts(110, 2))]
    assert found(asked, other, span) == []
    [hit] = found(asked, [*other, asked[3]._replace(question="Where?")], span)
    assert hit == ("train and dev", "note", "1 of 111 development paragraphs (0.9 %) is also in the training "
                   "paragraphs (line 0 of the development paragraphs, which is like line 0 of the training "
                   "paragraphs)")  # fmt: skip
    choice = Task("c", ("text",), kind="choice", choices=("a", "b"))
    some, many = ([Choice(text, ("one", "two"), 0) for text in texts(n, n)] for n in (110, 220))
    assert found(many, some, choice) == []


def test_a_regression_with_one_value_is_an_error():
    task = Task("r", ("text",), kind="regression")
    same = rows(240, label=lambda i: "1.5")
    assert found(same, [], task) == [("labels", "error", "every training row has the value 1.5")]
    assert found(rows(240, label=lambda i: str(i % 5)), [], task) == []


def test_alike_texts_are_those_of_the_jaccard_similarity():
    """Against the definition, on texts that share more and less."""
    rng = random.Random(3)
    base = [text.split() for text in texts(30, 4, 15)]
    changed = [[rng.choice(WORDS) if rng.random() < 0.08 else word for word in words] for words in base * 4]
    keys = [" ".join(words) for words in [*base, *changed]]
    shingles = Shingles.of_texts(keys, {})
    sets = [{*zip(key.split(), key.split()[1:], strict=False)} for key in keys]
    alike = {
        i: [j for j in range(i) if len(sets[i] & sets[j]) >= 0.8 * len(sets[i] | sets[j])] for i in range(len(keys))
    }
    assert find_alike(shingles, shingles) == {i: found[0] for i, found in alike.items() if found}
    assert 20 < len(find_alike(shingles, shingles)) < 110
    assert key_of("Ein  Café, «neu»!") == key_of("ein CAFE\u0301 neu") and key_of(" ?! ") == "?!"
    assert find_alike(Shingles.of_texts([], {}), shingles) == {}


# ---- tables


def table(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def good_lines(head="text,label"):
    return [head, *(f"{row.text},{row.label}" for row in TRAIN)]


def test_a_good_table_is_left_alone_and_its_columns_are_guessed(tmp_path):
    path = table(tmp_path / "a.csv", [f"{i or 'number'},{line}" for i, line in enumerate(good_lines("review,topic"))])
    report = examine(path)
    assert report.findings == []
    assert report.kind == "table, text in 'review', label in 'topic' (guessed; give --text and --label)"
    lines = [json.dumps({"words of it": row.text, "stars": row.label}) for row in TRAIN]
    assert examine(table(tmp_path / "b.jsonl", lines)).kind.startswith("table, text in 'words of it', label in 'stars'")
    named = examine(path, Given(columns=Columns(("review",), "topic")))
    assert named.kind == "table, text in 'review', label in 'topic'"
    half = examine(path, Given(columns=Columns((), "topic")))
    assert half.kind == "table, text in 'review' (guessed; give --text), label in 'topic'"
    half = examine(path, Given(columns=Columns(("review",), "")))
    assert half.kind == "table, text in 'review', label in 'topic' (guessed; give --label)"


@pytest.mark.parametrize(
    ("header", "text", "label"),
    [
        ("source,title,kind", ("title",), "kind"),  # of two columns with few values the last one
        ("kind,title,source", ("title",), "source"),
        ("kind,title1,title2", ("title1", "title2"), "kind"),
        ("kind,part_a,part_b", ("part_a", "part_b"), "kind"),
        ("kind,a,b", ("a", "b"), "kind"),
        ("kind,one,another", ("another",), "kind"),
    ],
)
def test_guesses_of_columns(tmp_path, header, text, label):
    cells = {"source": "web paper", "kind": "good bad"}
    rows = [
        ",".join(cells[name].split()[i % 2] if name in cells else f"{len(name) * 'word '}{i}" for name in names)
        for names in [header.split(",")]
        for i in range(40)
    ]
    found = find_columns(table(tmp_path / "a.csv", [header, *rows]), Columns((), ""))
    assert (found.text, found.label, found.guessed) == (text, label, ("--text", "--label"))


def test_advice_knows_whether_one_file_was_divided(tmp_path):
    path = table(tmp_path / "a.csv", good_lines()[:60])
    task = own_task("", ("text",), "label")
    advice = []
    for share in (0.1, 0.0):
        files = [path] if share else [path, path]
        report = of_rows(*divided_data(task, files, Division(dev_share=share)))
        advice += [one.advice for one in report.findings if "development rows: " in one.evidence]
    assert advice == [
        "judge on more rows: label more, or give a larger --dev-share",
        "judge on more rows: divide one labelled file with --train FILE --dev-share 0.2",
    ]


@pytest.mark.parametrize(
    ("name", "change", "check", "evidence"),
    [
        ("a.csv", lambda i, line: line.replace(" ", " \ufffd ", 1) if i == 5 else line, "encoding",
         "1 cell with the replacement character U+FFFD (line 6)"),
        ("a.csv", lambda i, line: line.replace(" ", " <br /> ", 1) if i else line, "markup",
         "100 % of the texts have HTML in them"),
        ("a.csv", lambda i, line: "same," + line.split(",")[1] if i else line, "columns",
         "column 'text' has the same cell in every row: 'same'"),
        ("a.tsv", lambda i, line: '"{}"\t{}'.format(*line.split(",")) if i else "text\tlabel", "markup",
         "100 % of the texts are in quotes, which are ordinary characters in a .tsv"),
        ("a.csv", lambda i, line: line if i else "0,label", "columns",
         "the first line seems to be a row, not the names of the columns: '0'"),
        ("a.csv", lambda i, line: line.split(",")[0] if i else "A fine film.", "columns",
         "the first line seems to be a row, not the names of the columns: 'A fine film.'"),
        ("a.csv", lambda i, line: line if i else "fine,good", "columns",
         "the first line may be a row, not the names of the columns: 'good' is also a cell of its column"),
        ("a.csv", lambda i, line: line.replace(",", ";"), "reading",
         "one column, 'text;label'; its cells seem to be separated by ';'"),
        ("a.csv", lambda i, line: '"{}";{}'.format(*line.split(",")) if i else "text;label", "reading",
         "one column, 'text;label'; its cells seem to be separated by ';'"),
        ("a.csv", lambda i, line: line.replace(",", "") if i == 7 else line, "reading",
         "line 8: 1 cell, but the header has 2"),
        ("a.csv", lambda i, line: '"{}" {}'.format(*line.split(",")) if i == 7 else line, "reading",
         "save it with commas as .csv, or with tabs as .tsv, and write a quote inside a quoted cell twice"),
        ("a.csv", lambda i, line: line if i < 3 else "", "number of rows", "2 training rows"),
        ("a.csv", lambda i, line: "" if i else line, "reading", "no rows"),
        ("a.csv", lambda i, line: line + ",more" if i == 7 else line, "reading", "line 8: 3 cells"),
    ],
)  # fmt: skip
def test_a_planted_fault_of_a_table_is_found(tmp_path, name, change, check, evidence):
    path = table(tmp_path / name, [change(i, line) for i, line in enumerate(good_lines())])
    hits = [one.evidence for one in examine(path).findings if one.check == check]
    assert len(hits) == 1 and evidence in hits[0], hits


@pytest.mark.parametrize("kind", ["", "multilabel"])
def test_labels_are_counted_as_fine_tuning_reads_them(tmp_path, kind):
    """Without the blanks around them; labels that differ in case are different ones."""
    ends = ("", " ", "\t", "  ")
    lines = [line + (ends[i % 4] if 0 < i < 5 else "") for i, line in enumerate(good_lines())]
    given = Given(columns=Columns(("text",), "label", kind))
    path = table(tmp_path / "a.csv", lines)
    assert examine(path, given).findings == []
    task = own_task(kind, ("text",), "label")
    read = {row.label for row in read_rows(task, path)}
    assert read == {"good", "bad"} == set(Table(path, given.columns).rows.labels(Table(path, given.columns).rows.train))
    cased = table(tmp_path / "b.csv", [line.replace("bad", "Bad ") if i == 2 else line for i, line in enumerate(lines)])
    found = {one.check: one.evidence for one in examine(cased, Given(columns=Columns(("text",), "label"))).findings}
    assert found == {
        "labels": "1 of 3 labels has fewer than 10 training rows: 'Bad' (1)",
        "spelling of labels": "labels that differ in case or blanks only: 'Bad', 'bad'",
    }


def test_columns_without_a_name_are_not_read(tmp_path):
    """Spreadsheets write empty columns behind the last one."""
    lines = [f"{line},," for line in good_lines()]
    assert examine(table(tmp_path / "a.csv", lines)).findings == []


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_fix_writes_a_copy_without_repeated_and_empty_rows_and_leaves_the_table(tmp_path, name):
    cells = [(row.text, row.label) for row in TRAIN[:3]]
    cells = [cells[0], (cells[1][0] + ' said "no",', "bad"), cells[0], ("", "bad"), cells[2]]
    if name == "a.csv":
        quoted = [(text.replace('"', '""'), label) for text, label in cells]
        lines = ["text,label", *(f'"{text}\nand more",{label}' if text else f",{label}" for text, label in quoted)]
    elif name == "a.tsv":
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in cells)]
    else:
        lines = [json.dumps({"text": text, "label": label}) for text, label in cells]
    path = table(tmp_path / name, lines)
    before = path.read_bytes()
    report = examine(path, fix=True)
    copy = path.with_name(path.name.replace("a.", "a.deduplicated."))
    left_out = "left out: 1 equal to an earlier row cell by cell, 1 without text"
    assert report.fixed == [f"wrote {copy}, 3 of 5 rows; {left_out}; {name} is as it was"]
    assert path.read_bytes() == before
    head = lines[: name != "a.jsonl"]
    body = lines[len(head) :]
    assert copy.read_text(encoding="utf-8") == "\n".join([*head, body[0], body[1], body[4]]) + "\n"
    assert not [one for one in examine(copy).findings if one.check in ("duplicate rows", "empty rows")]
    again = examine(path, fix=True)
    assert again.findings == report.findings and again.fixed == []
    reason = "a file of this name exists; move it away, so that --fix can write it"
    assert again.not_fixed == [f"{copy} is not written ({reason})"]
    again = examine(copy, fix=True)
    assert again.fixed == [] and len(again.not_fixed) == 1
    assert again.not_fixed[0].endswith(" is not written (no row is empty, and none equals an earlier one cell by cell)")


def test_fix_says_what_stays_in_the_copy_and_is_not_advised_again(tmp_path):
    """Findings and fix count differently: a finding compares words, the copy cells."""
    body = [*good_lines()[1:4], good_lines()[1].upper().replace(",BAD", ",bad").replace(",GOOD", ",good"), "!!,good"]
    path = table(tmp_path / "a.csv", ["text,label", *body, body[0], ",bad"])
    advice = {one.check: one.advice for one in examine(path).findings}["duplicate rows"]
    assert advice.startswith("look at them; `bertworks doctor TABLE --fix` writes")
    report = examine(path, fix=True)
    assert {one.check: one.advice for one in report.findings}["duplicate rows"] == "look at them"
    left_out = "left out: 1 equal to an earlier row cell by cell, 1 without text"
    kept = "kept: 1 with the words and the label of an earlier row, 1 without a letter or digit"
    assert f"5 of 7 rows; {left_out}; {kept}; " in report.fixed[0]


@pytest.mark.parametrize(("labels", "own"), [(240, True), (200, True), (120, False), (2, False)])
def test_a_column_of_ids_is_no_column_of_labels(labels, own):
    train = [row._replace(label=f"id {i % labels}") for i, row in enumerate(TRAIN)]
    hits = [hit for hit in found(train, [row._replace(label="id 999") for row in DEV]) if hit[0] == "labels"]
    said = f"column 'label': {labels} labels for 240 training rows: nearly every row has a label of its own"
    assert (hits == [("labels", "error", said)]) == own and hits
    few = [row._replace(label=f"id {i}") for i, row in enumerate(TRAIN[:15])]
    assert not [hit for hit in found(few, []) if "of its own" in hit[2]]


def test_fix_says_of_which_tables_it_writes_no_copy(tmp_path):
    path = table(tmp_path / "a.csv", [*good_lines(), good_lines()[1]])
    for given, target, reason in (
        (Given(), f"{path}#train", "whole .csv, .tsv, .txt and .jsonl files alone"),
        (Given(columns=Columns(("text",), "label", "multilabel")), path, "these are of the kind multilabel"),
    ):
        report = examine(target, given, fix=True)
        assert report.fixed == [] and len(report.not_fixed) == 1 and reason in report.not_fixed[0]
    advice = " ".join(one.advice for one in examine(f"{path}#train").findings)
    assert "equal" not in advice and "--fix" not in advice  # it cannot be followed there


def test_lines_of_one_file_that_was_divided_are_those_of_the_table(tmp_path):
    rows = [*good_lines(), *(f"{row.text} again,{row.label}" for row in TRAIN)]
    path = table(tmp_path / "a.csv", rows)
    report = of_rows(*divided_data(own_task("", ("text",), "label"), [path], Division(dev_share=0.2)))
    [one] = [one for one in report.findings if one.check == "train and dev"]
    assert one.evidence.endswith(", ... of the table, drawn as development rows; line 4 is like line 244)")
    assert one.advice.startswith("keep such rows on one side with --group COLUMN, or remove these lines from the table")


def test_a_table_in_utf_8_that_is_read_as_latin_1(tmp_path):
    path = tmp_path / "a.csv"
    lines = (f"좋은 영화 {i},긍정\n나쁜 영화 {i},부정\n" for i in range(120))
    path.write_text("text,label\n" + "".join(lines), encoding="utf-8")
    form = TableForm("latin-1")
    found = {one.check: one for one in examine(path, Given(columns=Columns((), "", form=form))).findings}
    assert found["encoding"].numbers == {"cells": 480}
    task = replace(own_task("", ("text",), "label"), form=form)
    rows = of_rows(*divided_data(task, [path], Division(dev_share=0.2)))
    [one] = [one for one in rows.findings if one.check == "encoding of the texts"]
    assert "UTF-8 that was read as" in one.evidence and one.advice == "give --encoding utf-8"
    right = {one.check for one in examine(path).findings}
    assert not {"encoding", "encoding of the texts"} & right


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a fine film\na bad one\n")
    with pytest.raises(InputError, match=r"a\.txt: lines of text, without columns; expected a table"):
        examine(tmp_path / "a.txt")
    vectors = pyarrow.table({"line": [1, 2], "vector": [[0.1, 1e-5], [0.3, 2e-5]]})
    parquet.write_table(vectors, tmp_path / "v.parquet")
    [one] = examine(tmp_path / "v.parquet").findings
    assert one.evidence == "no column of texts; give it with --text"


def test_two_tables_are_compared(tmp_path):
    path, dev = table(tmp_path / "a.csv", good_lines()), table(tmp_path / "b.csv", good_lines()[:121])
    [one] = [hit for hit in examine(path, Given(dev=dev, columns=Columns(("text",), ""))).findings]
    assert (one.check, one.severity, one.numbers["rows"]) == ("train and dev", "error", 120)


def test_a_column_that_is_not_there_is_refused_and_another_encoding_is_read(tmp_path):
    path = table(tmp_path / "a.csv", good_lines())
    for columns, name in ((Columns(("txet",), "label"), "txet"), (Columns(("text",), "lable"), "lable")):
        with pytest.raises(InputError, match=rf"no column '{name}'; found 'text', 'label' \(did you mean"):
            examine(path, Given(columns=columns))
    korean = [line.replace("good", "긍정").replace("bad", "부정") for line in good_lines()]
    path.write_text("\n".join([*korean, korean[1]]) + "\n", encoding="cp949")
    assert "is not UTF-8" in examine(path).findings[0].evidence
    report = examine(path, Given(columns=Columns((), "", form=TableForm("cp949"))), fix=True)
    assert [one.check for one in report.findings] == ["duplicate rows"]
    copy = tmp_path / "a.deduplicated.csv"
    assert copy.read_text(encoding="cp949") == "\n".join(korean) + "\n" and "240 of 241 rows" in report.fixed[0]


def test_fix_drops_only_rows_that_are_equal_cell_by_cell(tmp_path):
    """Symbols, vowel signs and the column of a text are part of a row; white space at its ends and composition not."""
    texts = ["I like C#", "I like C++", "5", "-5", "की", "के", "Caf\u00e9", " Cafe\u0301 ", "café"]
    path = table(tmp_path / "a.csv", ["text,label", *(f"{text},good" for text in texts)])
    examine(path, fix=True)
    kept = [line.split(",")[0] for line in (tmp_path / "a.deduplicated.csv").read_text("utf-8").splitlines()[1:]]
    assert kept == [*texts[:7], texts[8]]
    rows = ["x y,,a", ",x y,a", "x,y,a", "x,y,b", "x,y,a"]
    path = table(tmp_path / "b.csv", ["first,second,label", *rows])
    report = examine(path, Given(columns=Columns(("first", "second"), "label")), fix=True)
    assert [one.numbers for one in report.findings if one.check == "duplicate rows"] == [{"rows": 1, "share": 0.2}]
    assert (tmp_path / "b.deduplicated.csv").read_text().splitlines()[1:] == rows[:4]
    assert key_of("की") != key_of("के")


def test_fix_copies_cells_of_any_length_that_are_read(tmp_path):
    rows = ["a,good", f"{'x ' * 70_000},bad", "a,good", "b,bad"]
    path = table(tmp_path / "a.csv", ["text,label", *rows])
    assert examine(path, fix=True).fixed
    assert (tmp_path / "a.deduplicated.csv").read_text().splitlines()[1:] == [*rows[:2], rows[3]]


@pytest.mark.parametrize(("encoding", "mark"), [("utf-16", "utf-16-be"), ("utf-16-le", ""), ("utf-8", "utf-8")])
def test_a_copy_keeps_byte_order_and_mark(tmp_path, encoding, mark):
    lines = ["text,label", "문장,good", "문장,good", "another,bad"]
    path, codec = tmp_path / "a.csv", mark or encoding
    path.write_bytes((("\ufeff" if mark else "") + "\n".join(lines) + "\n").encode(codec))
    report = examine(path, Given(columns=Columns((), "", form=TableForm(encoding))), fix=True)
    expected = ("\ufeff" if mark else "") + "\n".join([*lines[:2], lines[3]]) + "\n"
    assert (tmp_path / "a.deduplicated.csv").read_bytes() == expected.encode(codec), report


def test_embedders_have_no_accuracy(tmp_path):
    lines = [f"{row.text},{row.text} more,0.{i % 9}" for i, row in enumerate(TRAIN)]
    path = table(tmp_path / "a.csv", ["a,b,score", *lines])
    given = Given(dev=path, columns=Columns(("a", "b"), "score", "embedding"))
    assert "labels" in examine(path, given).skipped
    report = of_rows(Task("e", ("a", "b"), label="score", kind="embedding"), Data(TRAIN, DEV[:50]))
    assert [one.evidence for one in report.findings if one.check == "number of rows"] == ["50 development rows"]


def test_users_are_no_labels_where_a_column_has_fewer_values(tmp_path):
    """A column of 40 users has few enough for labels, and is the last one."""
    lines = ["felt,wrote,user", *(f"{'yn'[i % 2]},words number {i} of many,user{i % 40}" for i in range(300))]
    assert "label in 'felt'" in examine(table(tmp_path / "a.csv", lines)).kind
    few = ["felt,wrote", *(f"{'xyz'[i % 3]},words number {i} of many" for i in range(24))]  # eight rows a label
    assert "label in 'felt'" in examine(table(tmp_path / "b.csv", few)).kind
