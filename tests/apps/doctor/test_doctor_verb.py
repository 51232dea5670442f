"""`bertworks doctor`: what it prints, how it ends, and what the other verbs print of it."""

import json
import os
import shutil

import pytest

from bertworks.apps.doctor import examine
from bertworks.apps.doctor.examination import Given
from bertworks.apps.doctor.findings import Finding, Report
from bertworks.apps.doctor.listing import brief, show
from bertworks.cli import main
from bertworks.cli.doctor import print_findings
from bertworks.files import InputError, write_text
from conftest import tiny_texts
from support.planted import finetuned, pretrained
from support.tiny_task import tiny_folder, tiny_table


def status(*words):
    try:
        main([*map(str, words)])
    except SystemExit as end:
        return end.code
    return 0


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verb")
    tiny_folder(folder / "model")
    tiny_table(folder / "train.csv", 240, 1)
    tiny_table(folder / "dev.csv", 110, 2)
    return folder


def test_the_exit_status_says_how_grave_the_findings_are(place, tmp_path, capsys):
    assert status("doctor", place / "model", "--strict") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{place / 'model'}: model folder") and "nothing found: config and weights" in " ".join(
        shown.out.split()
    )
    few = tiny_table(tmp_path / "few.csv", 30, 1)
    assert status("doctor", few) == 0 and status("doctor", few, "--strict") == 1
    shutil.copytree(place / "model", tmp_path / "model")
    (tmp_path / "model/vocab.txt").write_text("x\n")
    capsys.readouterr()
    assert status("doctor", tmp_path / "model") == 4
    assert "error: tokenizer\n  vocab.txt and tokenizer.json have different tokens" in capsys.readouterr().out
    assert status("doctor", tmp_path / "model", "--fix") == 4 and status("doctor", tmp_path / "model") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x" * 300], "no such file or folder; expected a run"),
        (["--text", "x"], "doctor without a path cannot be combined with --text"),
        (["--max-seq-length", "8"], "doctor without a path cannot be combined with --max-seq-length"),
        (["nothing"], "nothing: no such file or folder; expected a run"),
        (["empty"], "neither a run, a corpus store, a model folder nor a folder of runs"),
        (["--corpus", "store"], "doctor without a path cannot be combined with --corpus"),
        (["empty", "--task", "sst2", "--dev", "b.csv"], "--task cannot be combined with --dev"),
        (["empty", "--task", "sst3"], "sst3"),
        (["vocab.txt"], "vocab.txt: a vocabulary; expected a table; `bertworks tokenizer check --uncased` (or"),
        (["a.csv", "--corpus", "store"], "a table is examined without --corpus; leave --corpus out"),
        (["a.csv", "--data", "x"], "--data x: the folder of a known task's files; give --task NAME with it"),
        (["folder", "--text", "a"], "a model folder is examined without --text; leave --text out"),
        (["demo", "--max-seq-length", "64"], "a demo is examined without --max-seq-length"),
        (["store", "--model", "folder"], "a corpus store is examined without --model"),
        (["runs/a", "--model", "folder"], "a pre-training run is examined without --model"),
        (
            ["runs/b", "--kind", "pair", "--dev", "a.csv"],
            "a fine-tuned run is examined without --dev and --kind",
        ),
        (["runs", "--model", "folder"], "a folder of runs is examined without --model"),
        (
            ["data", "--task", "sst2", "--corpus", "store", "--label", "x"],
            "a task's data is examined without --corpus",
        ),
        (["--task", "sst2", "--data", "data", "--corpus", "store"], "a task's data is examined without --corpus"),
        (["--label", "x"], "doctor without a path cannot be combined with --label"),
    ],
)
def test_what_cannot_be_examined_is_refused(words, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    for name in ("folder", "demo", "store", "data"):
        (tmp_path / name).mkdir()
    pretrained(tmp_path / "runs/a")
    finetuned(tmp_path / "runs/b")
    for name, text in {
        "a.csv": "text\na\n",
        "vocab.txt": "[PAD]\n[UNK]\n",
        "folder/config.json": "{}",
        "demo/demo.toml": "",
        "store/manifest.json": "{}",
        "data/train.tsv": "sentence\tlabel\na\t1\n",
        "data/dev.tsv": "sentence\tlabel\na\t1\n",
    }.items():
        write_text(tmp_path / name, text)
    monkeypatch.chdir(tmp_path)
    assert status("doctor", *words) == 1
    assert message in capsys.readouterr().err


def test_rows_that_are_given_with_a_run_are_examined(place, tmp_path, capsys):
    finetuned(tmp_path / "run")
    own = ("--train", place / "train.csv", "--dev", place / "train.csv", "--text", "text", "--label", "label")
    status("doctor", tmp_path / "run", *own, "--model", place / "model")
    assert "240 of 240 development rows" in " ".join(capsys.readouterr().out.split())


def test_json_has_the_numbers(place, capsys):
    command = ("doctor", place / "train.csv", "--dev", place / "train.csv", "--label", "label", "--json")
    assert status(*command) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["worst"] == "error" and report["kind"] == "table, text in 'text', label in 'label'"
    leak = next(one for one in report["findings"] if one["check"] == "train and dev")
    assert leak["severity"] == "error" and leak["numbers"] == {"rows": 240, "share": 1.0} and leak["advice"]


def test_the_list_fits_80_columns_and_keeps_every_word(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = "한국어 문장과 [bold]English[/] words " * 12
    report = Report("runs/x", "run", [Finding("note", "few"), Finding("error", words, words, check="one")])
    report.checked, report.skipped, report.fixed = ["one", "two"], {"three": "no store"}, ["removed a"]
    report.not_fixed = ["b (why)"]
    show(report)
    lines = capsys.readouterr().out.splitlines()
    width = max(sum(2 if "가" <= char <= "힣" else 1 for char in line) for line in lines)
    assert 70 < width <= 80 and not any(line != line.rstrip() for line in lines)
    text = " ".join(" ".join(lines).split())
    assert text.count("[bold]English[/]") == 24 and text.index("error: one") < text.index("note: ")
    assert text.endswith("nothing found: two not checked: three (no store) fixed: removed a not fixed: b (why)")
    assert brief(report, advise=False) == [f"error: {words}"]
    show(Report("this machine", "machine"))
    assert capsys.readouterr().out == "this machine\n"
    show(Report("a", "b"), fix=True)
    assert capsys.readouterr().out.splitlines()[1].startswith("fixed: nothing; --fix mends leftovers")


def test_an_examination_that_fails_costs_a_message_alone(capsys, monkeypatch):
    def broken():
        raise InputError("no such thing")

    print_findings(broken)
    assert capsys.readouterr().err == "not examined (no such thing); what was made is complete\n"
    print_findings(broken, unharmed="the run starts all the same")
    assert capsys.readouterr().err == "not examined (no such thing); the run starts all the same\n"
    print_findings(lambda: 1 / 0)
    assert capsys.readouterr().err.startswith("not examined (ZeroDivisionError: division by zero); ")
    monkeypatch.setenv("RANK", "1")
    print_findings(broken)
    assert capsys.readouterr().err == ""


def test_finetune_says_what_is_wrong_with_rows_and_run_once_each(place, tmp_path, capsys):
    tiny_table(tmp_path / "few.csv", 40, 3)
    line = ["finetune", "--train", tmp_path / "few.csv", "--dev", place / "dev.csv", "--model", place / "model"]
    line += ["--out", tmp_path / "run", "--max-seq-length", 16, "--loop.steps", 2, "--optim.lr", "1e-9"]
    assert status(*line) == 0
    told = capsys.readouterr().err.splitlines()
    warnings = [one for one in told if one.startswith(("warning: ", "error: "))]
    before, after = (told.index(one) for one in (warnings[0], warnings[-1]))
    assert warnings[0].startswith("warning: 40 training rows; label more rows")
    assert before < next(i for i, one in enumerate(told) if "training rows, 110 development rows" in one) < after
    assert [one for one in warnings if "; the run had few updates (2); give more --epochs" in one]
    assert len(warnings) == len({*warnings})
    status(*line)  # a finished run reads no rows again
    assert not [one for one in capsys.readouterr().err.splitlines() if "training rows; label more" in one]
    assert status("doctor", tmp_path / "run") in (0, 4)


def test_corpus_build_and_pretrain_say_what_is_wrong(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [f"{text.split('.')[0]}." for text in tiny_texts(60)]
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    assert status(*["tokenizer", "train", "text.txt", "--out", "tok", "--vocab-size", "100"]) == 0
    capsys.readouterr()
    line = "corpus build text.txt --tokenizer tok --out store --input.documents blank-line --workers 1"
    assert status(*line.split()) == 0
    told = capsys.readouterr().err
    assert "warning: 100 % of 58 documents have one sentence" in told
    tiny = "--model.vocab-size 100 --model.hidden-size 16 --model.num-hidden-layers 1 --model.num-attention-heads 2"
    tiny += " --model.intermediate-size 16 --phases.0.length 16 --phases.0.batch-size 4 --loop.steps 2 --eval-batches 2"
    assert status("pretrain", "cpu", "--corpus", "store", "--out", "run", *tiny.split(), "--loop.tokens", 0) == 0
    told = capsys.readouterr().err
    assert "warning: 2 updates, " in told and "not examined" not in told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    path = tiny_table(tmp_path / "a.csv", 40, 1)
    for words in ((tmp_path / "pipe.csv",), (path, Given(dev=tmp_path / "pipe.csv"))):
        with pytest.raises(InputError, match="a pipe or a device; expected a file or a folder"):
            examine(*words)
