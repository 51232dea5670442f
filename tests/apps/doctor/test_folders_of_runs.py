"""Folders of runs: what several runs have in common is listed once, and what is true of one run is said of that one."""

import shutil

from bertworks.apps.doctor import examine
from bertworks.files import write_json
from support.planted import MACHINE, finetuned, pretrained, records


def test_seeds_and_folders_of_runs_are_examined_together(tmp_path):
    for seed in (1, 2, 3):
        finetuned(tmp_path / f"run/seed-{seed}", collapsed=seed > 1)
    metrics = [{"loss": 0.4, "accuracy": value} for value in (0.9, 0.7, 0.5)]
    seeds = {"kind": "finetune", "seeds": [1, 2, 3], "runs": metrics, "collapsed": [False, True, True]}
    write_json(tmp_path / "run/results.json", {"format": 2, "metrics": {"accuracy": 0.7}, **seeds})
    report = examine(tmp_path / "run")
    assert report.kind == "folder of 3 runs"
    said = f"examine a single run to check its rows: bertworks doctor {tmp_path / 'run/seed-1'}"
    assert report.skipped["rows"] == said
    found = {(one.check, one.where): one.evidence for one in report.findings}
    assert found == {
        ("seeds", ""): "2 of 3 seeds collapsed: 2, 3",
        ("score", "2 of 3 runs (seed-2, seed-3)"): "collapsed: the same answer for every development row, 'good'",
    }
    apart = {**seeds, "collapsed": [False] * 3}
    write_json(tmp_path / "run/results.json", {"format": 2, "metrics": {"accuracy": 0.7}, **apart})
    evidence = [one.evidence for one in examine(tmp_path / "run").findings if one.check == "seeds"]
    assert evidence == ["accuracy differs by a standard deviation of 20.0 points over 3 seeds (50.0 to 90.0)"]


def test_findings_in_every_run_and_in_some_of_a_folder_say_which(tmp_path):
    for name in ("a/seed-1", "a/seed-2", "b/seed-1", "b/seed-2", "b/seed-3"):
        finetuned(tmp_path / "runs" / name, collapsed=name != "b/seed-1")
    [one] = examine(tmp_path / "runs").findings
    assert one.where == "4 of 5 runs (a, b/seed-2, b/seed-3)"
    shutil.rmtree(tmp_path / "runs/b/seed-1")
    finetuned(tmp_path / "runs/b/seed-1", collapsed=True)
    [one] = examine(tmp_path / "runs").findings
    assert one.where == "all 5 runs"


def test_a_run_that_cannot_be_read_is_an_error_among_the_others(tmp_path):
    finetuned(tmp_path / "runs/a", collapsed=True)
    (finetuned(tmp_path / "runs/b") / "results.json").write_text("{")
    found = {(one.check, one.where): one for one in examine(tmp_path / "runs").findings}
    assert found["score", "a"].severity == "error" and found["results", "b"].severity == "error"
    assert "results.json: not valid JSON" in found["results", "b"].evidence
    (tmp_path / "runs/results.json").write_text("{")  # that of all runs, damaged too
    report = examine(tmp_path / "runs", fix=True)
    assert report.kind == "folder of 2 runs" and len(report.findings) == 3


def test_findings_of_one_kind_with_other_figures_name_each_run(tmp_path):
    """The evidence of the first run is false for the others, and its advice for runs of another kind."""
    few = {"steps": 90, "log": records(90)}
    pretrained(tmp_path / "runs/base", **few)
    for name, rows in (("b", 5000), ("c", 6000), ("d", 5000)):
        finetuned(tmp_path / "runs" / name, examples={"train": rows, "dev": 90}, **few)
    found = {(one.where, one.evidence) for one in examine(tmp_path / "runs").findings}
    read = "90 updates of 8 rows read 720 of the {} training rows, the others never"
    assert found == {
        ("base", "90 updates, 200,000 tokens"),
        ("3 of 4 runs (b, c, d)", "90 updates"),
        ("3 of 4 runs (b, c, d)", f"b, d: {read.format('5,000')}; c: {read.format('6,000')}"),
    }


def test_metrics_and_answers_of_several_runs_are_each_their_own(tmp_path):
    finetuned(tmp_path / "cola/seed-1", metrics={"loss": 0.7, "matthews": -0.064}, majority=0.0)
    finetuned(tmp_path / "rte/seed-1", metrics={"loss": 0.7, "accuracy": 0.495})
    [one] = examine(tmp_path).findings
    learned = "hardly anything was learned"
    assert one.where == "all 2 runs" and one.numbers == {"runs": 2}
    assert one.evidence == (
        f"cola: matthews -0.064 on 90 development rows; guessing has 0: {learned}; "
        f"rte: accuracy 0.495 on 90 development rows; guessing has 0.500: {learned}"
    )


def test_several_findings_of_one_check_in_one_run_are_all_listed(tmp_path):
    cut = {side: {"examples": 90, "tokens": 900} for side in ("train", "dev")}
    finetuned(tmp_path / "a", truncation=cut, examples={"train": 100, "dev": 90})
    finetuned(tmp_path / "b")
    assert [one.evidence[:11] for one in examine(tmp_path).findings] == ["90 of 100 t", "90 of 90 de"]


def test_more_than_a_few_findings_are_counted(tmp_path):
    for i in range(6):
        finetuned(tmp_path / f"run-{i}", metrics={"loss": 0.7, "accuracy": 0.4 + i / 100})
    [one] = examine(tmp_path).findings
    assert one.evidence.count("accuracy") == 4 and one.evidence.endswith("; and 2 more")


def test_seeds_of_settings_are_named_and_count_as_checked(tmp_path):
    """A sweep: one setting collapsed; the folder itself has no seeds, but the settings have."""
    write_json(tmp_path / "results.json", {"format": 2, "kind": "sweep", "sweep": "a", "machine": MACHINE})
    for name, fallen in (("lr=1", True), ("lr=2", False)):
        for seed in (1, 2):
            finetuned(tmp_path / name / f"seed-{seed}", collapsed=fallen)
        summary = {"seeds": [1, 2], "runs": [{"accuracy": 0.5}, {"accuracy": 0.9}], "collapsed": [fallen] * 2}
        write_json(tmp_path / name / "results.json", {"format": 2, "kind": "finetune", "metrics": {}, **summary})
    report = examine(tmp_path)
    seeds = {one.where: one.evidence for one in report.findings if one.check == "seeds"}
    assert seeds["lr=1"] == "2 of 2 seeds collapsed: 1, 2" and seeds["lr=2"].startswith("accuracy differs by")
    assert "seeds" in report.checked and "seeds" not in report.skipped
