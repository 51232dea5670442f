"""The rows of a fine-tuned run, examined where its files are still there."""

import json
import shutil

import pytest

import bertworks
from bertworks.apps.doctor import examine
from bertworks.apps.doctor.examination import Given
from bertworks.apps.doctor.finetuned import rows_trained_on
from bertworks.apps.doctor.tables import Columns
from bertworks.cli import main
from bertworks.files import read_json, write_json, write_text
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import load_data
from bertworks.tasks.table import TableForm
from support.planted import finetuned, hits
from support.tiny_task import tiny_folder, tiny_table


def test_rows_of_a_run_are_examined_where_they_are_still_there(tmp_path):
    files = tmp_path / "SST-2"
    files.mkdir()
    for name in ("train", "dev"):
        write_text(files / f"{name}.tsv", "sentence\tlabel\n" + "a fine film\t1\na bad film\t0\n" * 60)
    run = finetuned(tmp_path / "few", task="sst2", data=str(files), examples={"train": 40, "dev": 120})
    report = examine(run)  # of 40 rows that were drawn, of which it is not known which
    assert "train and dev" not in report.checked and "--train-rows or --group chose" in report.skipped["rows"]
    run = finetuned(tmp_path / "run", task="sst2", data=str(files), examples={"train": 120, "dev": 120})
    found = {check: severity for check, severity, _ in hits(examine(run))}
    assert found["train and dev"] == "error" and found["duplicate rows"] == "warning"
    task = find_task("sst2")  # whose development rows are what they are: examine says it, evaluate does not
    assert rows_trained_on(run, task, load_data(task, files).dev) == ""
    shutil.rmtree(files)
    report = examine(run)
    assert hits(report) == [] and "were not found" in report.skipped["rows"]


def test_rows_with_relative_paths_are_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "project/data/SST-2").mkdir(parents=True)
    for name in ("train", "dev"):
        write_text(tmp_path / f"project/data/SST-2/{name}.tsv", "sentence\tlabel\n" + "a fine film\t1\n" * 60)
    counts = {"train": 60, "dev": 60}
    run = finetuned(tmp_path / "project/runs/a", task="sst2", data="data/SST-2", examples=counts)
    monkeypatch.chdir(tmp_path)
    assert "duplicate rows" in examine("project/runs/a").checked
    run.rename(tmp_path / "a")  # from where the rows are not seen
    assert "the rows were not found as the run read them, data/SST-2" in examine("a").skipped["rows"]


def test_examples_of_a_tagger_are_windows_and_its_rows_are_examined_all_the_same(tmp_path):
    (tmp_path / "conll").mkdir()
    for name in ("eng.train", "eng.testa"):
        write_text(
            tmp_path / "conll" / name, "-DOCSTART- -X- -X- O\n\n" + f"{name} NN I-NP O\nSeoul NNP I-NP I-LOC\n\n" * 4
        )
    files = str(tmp_path / "conll")
    run = finetuned(tmp_path / "run", task="conll2003", data=files, examples={"train": 1, "dev": 1})
    report = examine(run)
    assert "rows" not in report.skipped and "number of rows" in report.checked


@pytest.mark.parametrize("how", ["divided", "two files"])
def test_rows_of_tables_of_ones_own_are_found_again(tmp_path, how, monkeypatch, capsys):
    tiny_folder(tmp_path / "model")
    tiny_table(tmp_path / "a.csv", 40, 1)
    given = {"dev_share": 0.25, "split_seed": 3} if how == "divided" else {"dev": tiny_table(tmp_path / "b.csv", 20, 2)}
    given |= {"loop": {"steps": 1}, "max_seq_length": 16, "quiet": True}
    run = bertworks.finetune(tmp_path / "model", tmp_path / "run", train=tmp_path / "a.csv", **given)
    report = examine(run.folder)
    assert "rows" not in report.skipped and {"number of rows", "train and dev"} <= {*report.checked}
    assert {"length", "vocabulary"} <= {*report.checked}  # by the run's own model
    evidence = [one.evidence for one in report.findings]
    assert f"{run.details['examples']['train']} training rows" in evidence
    own = f"on its own development rows it has accuracy {run.metrics['accuracy']:.4f} ({run.folder / 'results.json'})"
    tiny_table(tmp_path / "c.csv", 60, 3)
    told = f"warning: {30 if how == 'divided' else 40} of 40 rows are in the training rows of {run.folder}, so"
    monkeypatch.chdir(run.folder / "model")
    for folder in (run.folder, run.folder / "model", "."):
        for table in ("a", "c"):
            main(["evaluate", str(folder), str(tmp_path / f"{table}.csv")])
            printed = capsys.readouterr().err
            assert (told in printed) == (own in printed) == ("warning: " in printed) == (table == "a"), printed
    monkeypatch.chdir(tmp_path)
    results = read_json(run.folder / "results.json")
    write_json(run.folder / "results.json", {**results, "dev_texts": "of other rows"})  # of files with these names
    assert "other development rows than the run read" in examine(run.folder).skipped["rows"]
    write_json(run.folder / "results.json", results)
    (tmp_path / "a.csv").write_text("label,text\nbad,other\ngood,rows\n")
    assert "a.csv" in examine(run.folder).skipped["rows"]


def test_a_run_prints_each_warning_once(tmp_path, capsys):
    """That the model learned nothing, and that texts are cut."""
    tiny_folder(tmp_path / "model")
    words = "good film " * 20
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"{words}{i},{'xy'[i % 2]}\n" for i in range(40)))
    line = ["finetune", "--train", tmp_path / "a.csv", "--dev-share", 0.25, "--model", tmp_path / "model"]
    main([*map(str, [*line, "--out", tmp_path / "run", "--loop.steps", 1, "--max-seq-length", 16])])
    assert capsys.readouterr().err.count("collapsed: the same answer for every development row") == 1
    report = examine(tmp_path / "run")
    cut = [one for one in report.findings if "--max-seq-length" in one.advice]
    assert [one.evidence.split(" (")[0] for one in cut] == ["30 of 30 train rows", "10 of 10 dev rows"]
    assert all(one.advice.startswith("give --max-seq-length 48") for one in cut)


def test_rows_of_a_table_in_its_own_encoding_are_found_again(tmp_path):
    """results.json names the encoding; that of an older run is a flag, and the reason says which one."""
    tiny_folder(tmp_path / "model")
    table = tiny_table(tmp_path / "a.csv", 40, 1)
    table.write_text(table.read_text().replace("good", "긍정").replace("bad", "부정"), encoding="cp949")
    run = tmp_path / "run"
    line = ["finetune", "--train", table, "--dev-share", 0.25, "--model", tmp_path / "model", "--out", run]
    main([*map(str, [*line, "--encoding", "cp949", "--loop.steps", 1, "--max-seq-length", 16])])
    results = json.loads((run / "results.json").read_text())
    assert results["encoding"] == "cp949" and "sheet" not in results
    report = examine(run)
    assert "rows" not in report.skipped and "train and dev" in report.checked
    del results["encoding"]
    write_json(run / "results.json", results)
    assert "it looks like CP949" in examine(run).skipped["rows"]
    assert "give --encoding cp949" in examine(run).skipped["rows"]
    form = TableForm("cp949")
    assert "rows" not in examine(run, Given(columns=Columns((), "", form=form))).skipped


def test_rows_that_cannot_be_found_have_the_true_reason(tmp_path):
    tiny_folder(tmp_path / "model")
    frame = [{"text": f"river {i}", "label": ("a", "b")[i % 2]} for i in range(20)]
    given = {"train": frame, "dev": frame, "loop": {"steps": 1}, "max_seq_length": 16, "quiet": True}
    run = bertworks.finetune(tmp_path / "model", tmp_path / "run", **given).folder
    assert examine(run).skipped["rows"] == "the rows were in memory, and a run keeps no rows"
    (run / "results.json").unlink()
    assert examine(run).skipped["rows"].startswith("the run is not finished, results.json names its files when it ends")
