"""`bertworks doctor`: what it takes, what it prints, how it ends; and what runs report of their data."""

import json
import shutil

import pytest

import bertworks
from bertworks.apps.doctor.listing import print_warnings
from bertworks.cli import main
from bertworks.files import write_text
from support.planted import finetuned
from support.tiny_task import tiny_folder, tiny_table


def status(*words):
    try:
        main([*map(str, words)])
    except SystemExit as end:
        return end.code
    return 0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor")
    tiny_folder(folder / "model")
    tiny_table(folder / "train.csv", 240, 1)
    tiny_table(folder / "dev.csv", 110, 2)
    return folder


def test_the_exit_status_is_that_of_the_gravest_finding(place, tmp_path, capsys):
    assert status("doctor", place / "model") == 0
    assert capsys.readouterr().out == f"{place / 'model'}: model folder\nno findings\n"
    few = tiny_table(tmp_path / "few.csv", 30, 1)
    assert status("doctor", few) == 0
    shutil.copytree(place / "model", tmp_path / "model")
    (tmp_path / "model/vocab.txt").write_text("x\n")
    capsys.readouterr()
    assert status("doctor", tmp_path / "model") == 4
    assert "error: tokenizer\n  vocab.txt and tokenizer.json have different tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["empty"], "expected a run, a folder of runs, a corpus store, a model folder or a table"),
        (["tok"], "tok: a tokenizer; `bertworks tokenizer check tok TEXT` tells whether it fits a text"),
        (["a.csv", "--corpus", "store"], "a.csv cannot be combined with --corpus"),
    ],
)
def test_what_cannot_be_examined_is_refused(words, message, tmp_path, monkeypatch, capsys):
    for name in ("empty", "folder", "tok"):
        (tmp_path / name).mkdir()
    for name in ("a.csv", "folder/config.json", "tok/vocab.txt"):
        write_text(tmp_path / name, "{}")
    monkeypatch.chdir(tmp_path)
    assert status("doctor", *words) in (1, 4)
    shown = capsys.readouterr()
    assert message in " ".join((shown.out + shown.err).split())


def test_labelled_data_of_tables_tasks_and_columns_of_tags(place, tmp_path, capsys):
    for own in ([place / "train.csv"], ["--train", place / "train.csv"]):
        assert status("doctor", *own, "--dev", place / "train.csv", "--json") == 4
        report = json.loads(capsys.readouterr().out)
        assert report["worst"] == "error" and report["kind"] == "240 training and 240 development examples"
        leak = next(one for one in report["findings"] if one["check"] == "train/dev overlap")
        assert leak["severity"] == "error" and leak["evidence"].startswith("development examples that are also in")
    for name in ("train", "dev"):
        write_text(tmp_path / f"{name}.tsv", "sentence\tlabel\n" + "a fine film\t1\na bad film\t0\n" * 60)
    for words in ([tmp_path, "--task", "sst2"], ["--task", "sst2", "--data", tmp_path]):
        assert status("doctor", *words, "--model", place / "model") == 4
        shown = " ".join(capsys.readouterr().out.split())
        assert "repeat an earlier one with its label: 118 of 120" in shown
    sentences = "".join(f"Number NN O\n{word} NNP B-LOC\n\n" for word in ("Seoul", "Busan", "Jeju"))
    write_text(tmp_path / "a.conll", f"-DOCSTART- -X- O\n\n{sentences}")
    columns = ("--kind", "tagging", "--text", "word", "--label", "tag")
    assert status("doctor", tmp_path / "a.conll", *columns) == 0
    assert "3 training and 0 development examples" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "a.csv").write_text("text,label\ngood film\n")
    assert status("doctor", tmp_path / "a.csv") == 4 and "line 2: 1 cell" in " ".join(capsys.readouterr().out.split())


def test_an_examination_that_fails_costs_a_message_alone(capsys, monkeypatch):
    failed = print_warnings(lambda: 1 / 0)
    assert failed[0].startswith("not examined (ZeroDivisionError: division by zero); the run or store is complete")
    assert capsys.readouterr().err.splitlines() == failed
    monkeypatch.setenv("RANK", "1")
    assert print_warnings(lambda: 1 / 0) == []


def test_evaluate_recognises_the_training_examples_of_a_run(place, tmp_path, capsys, monkeypatch):
    """From any file and folder, under any task's name, in Python and in the shell."""
    table = tiny_table(tmp_path / "a.csv", 40, 1)
    given = {"dev_share": 0.25, "loop": {"steps": 1}, "max_seq_length": 16, "quiet": True}
    run = bertworks.finetune(place / "model", tmp_path / "run", train=table, **given)
    shutil.copy(table, tmp_path / "SST.csv")
    told = f"among the evaluated ones: {run.details['examples']['train']} of 40"
    for path, seen in ((tmp_path / "SST.csv", True), (place / "dev.csv", False)):
        results = bertworks.evaluate(run.folder, path)
        assert any(told in one for one in results.details.get("findings", ())) == seen
        monkeypatch.chdir(run.folder / "model")
        for folder in (run.folder, run.folder / "model", "."):
            main(["evaluate", str(folder), "--dev", str(path)])
            assert ("warning: training examples of" in capsys.readouterr().err) == seen


def test_a_run_reports_its_data_and_its_training(place, tmp_path, capsys):
    table = tiny_table(tmp_path / "few.csv", 40, 3)
    words = ["finetune", "--train", table, "--dev", table, "--model", place / "model", "--out", tmp_path / "run"]
    assert status(*words, "--max-seq-length", 16, "--loop.steps", 2, "--optim.lr", "1e-9") == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("warning: ", "error: "))]
    assert len([line for line in warnings if line.startswith("error: development examples that are also in ")]) == 1
    assert len([line for line in warnings if "few updates (2)" in line or "2 updates" in line]) == 1
    assert len(warnings) == len({*warnings})
    assert finetuned(tmp_path / "other") and status("doctor", tmp_path) in (0, 4)
