"""Fewer training rows, and one labelled file divided into training and development rows without a leak of a group."""

import json

import pytest

from bertworks.cli import main
from bertworks.files import InputError
from bertworks.tasks.base import Example
from bertworks.tasks.kinds import own_task, read_rows, split_data
from bertworks.tasks.questions import Question
from bertworks.tasks.sampling import Split, split_rows
from bertworks.tasks.sentences import Tagged

ROWS = [Example(f"text {i}", None, str(i % 2), i + 2) for i in range(200)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "own.csv"
    rows = [f"text {i % 50},{i % 2},u{i // 10}" for i in range(200)]  # every text occurs four times
    path.write_text("\n".join(["text,label,user", *rows]), encoding="utf-8")
    return path


def test_a_share_of_the_rows():
    train, dev = split_rows(ROWS, 0.1, 1)
    assert (len(train), len(dev)) == (180, 20) and sorted([*train, *dev], key=lambda row: row.line) == ROWS
    assert split_rows(ROWS, 0.1, 1) == (train, dev) != split_rows(ROWS, 0.1, 2)


@pytest.mark.parametrize(
    ("rows", "key"),
    [
        ([Example(f"t{i % 40}", None, "a", i) for i in range(200)], "text"),
        ([Tagged(f"t{i}", (), (), i, i // 5) for i in range(200)], "document"),
        ([Question(f"{i}", "q", f"context {i // 5}") for i in range(200)], "context"),
    ],
)
def test_what_belongs_together_stays_together(rows, key):
    train, dev = split_rows(rows, 0.2, 1)
    assert not {getattr(row, key) for row in train} & {getattr(row, key) for row in dev}
    assert len(dev) == 40


def test_a_column_of_groups(table):
    task, data = split_data(own_task("", ("text",), "label"), [table], Split(dev_share=0.2, group="user", seed=3))
    users = [{(row.line - 2) // 10 for row in rows} for rows in (data.train, data.dev)]
    assert not users[0] & users[1] and len(users[1]) == 4 and len(data.dev) == 40 and task.labels == ("0", "1")


def test_groups_of_a_part_of_a_file(table):
    """The texts decide what #train is, not the groups."""
    part, division = f"{table}#train", Split(dev_share=0.2, group="user")
    task, data = split_data(own_task("", ("text",), "label"), [part], division)
    assert sorted([*data.train, *data.dev], key=lambda row: row.line) == read_rows(task, part)
    users = [{(row.line - 2) // 10 for row in rows} for rows in (data.train, data.dev)]
    assert users[0] and users[1] and not users[0] & users[1]


def test_fewer_training_rows(table):
    def lines(count):
        task = own_task("", ("text",), "label")
        return {row.line for row in split_data(task, [table, table], Split(train_rows=count))[1].train}

    assert len(lines(30)) == 30 and lines(10) < lines(30) and len(lines(0)) == len(lines(900)) == 200


def test_what_cannot_be_divided(table):
    with pytest.raises(InputError, match="3 rows in 1 groups cannot be divided"):
        split_rows([Example("same", None, "a", i) for i in range(3)], 0.5, 1)
    with pytest.raises(InputError, match="no column 'patient'; found"):
        split_data(own_task("", ("text",), "label"), [table], Split(dev_share=0.2, group="patient"))
    for wrong in ({"dev_share": 1.0}, {"dev_share": -0.1}, {"train_rows": -1}, {"seed": -1}, {"group": "user"}):
        with pytest.raises(InputError, match=r"^(train_rows|dev_share|split_seed|group) "):
            Split(**wrong)


@pytest.mark.parametrize("marks", [1, 20])
def test_a_divided_document_is_reported(table, tmp_path, marks):
    """Sentences of one document in both parts make scores look better than they are."""
    sentences = [f"{'-DOCSTART- O' * (i < marks)}\n\nw{i} O\nB I-X\n" for i in range(20)]
    (tmp_path / "a.conll").write_text("\n".join(sentences))
    data = split_data(own_task("tagging", ("text",), "label"), [tmp_path / "a.conll"], Split(dev_share=0.2))[1]
    assert ("too few documents" in data.source) == (marks == 1)
    rows = split_data(own_task("", ("text",), "label"), [table], Split(dev_share=0.2))[1]  # have no documents
    assert "documents" not in rows.source


@pytest.mark.heavy
def test_runs_on_a_divided_table(table, tmp_path, capsys):
    from bertworks.tokenizer import Tokenizer

    (tmp_path / "t").mkdir()
    for i in range(6):
        (tmp_path / "t" / f"{i}.txt").write_text("text 1 2 3.\ntext 4 5 6.\n" * 9 + f"text {i} 7.", encoding="utf-8")
    run = ["--model.num-hidden-layers", "1", "--model.hidden-size", "16", "--model.num-attention-heads", "2"]
    run += ["--model.intermediate-size", "16", "--loop.hours", "0", "--loop.steps", "2"]
    texts, out = ["--texts", str(tmp_path / "t")], str(tmp_path / "pre")
    main(["pretrain", "cpu", *texts, "--corpus", str(tmp_path / "store"), "--out", out, *run])
    model = json.loads((tmp_path / "pre/model/config.json").read_text())
    assert model["vocab_size"] == Tokenizer.load(tmp_path / "store-tokenizer").vocab_size < 8192
    assert "which is the model's vocabulary" in capsys.readouterr().err
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/a.csv").touch()
    with pytest.raises(SystemExit):  # before minutes of building
        main(["pretrain", "cpu", *texts, "--corpus", str(tmp_path / "other"), "--out", str(tmp_path / "rows"), *run])
    assert "such as a.csv" in capsys.readouterr().err and not (tmp_path / "other").exists()
    line = ["finetune", out, "--train", str(table), "--dev-share", "0.2", "--group", "user", "--train-rows", "32"]
    main([*line, "--out", str(tmp_path / "run"), "--loop.steps", "2", "--max-seq-length", "16"])
    assert "32 rows to train on, 40 to evaluate on" in capsys.readouterr().err
    main([*line, "--out", str(tmp_path / "run"), "--loop.steps", "2", "--max-seq-length", "16"])
    assert "is finished" in capsys.readouterr().err
