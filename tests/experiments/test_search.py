"""Searches: they choose on development data, keep the best models, resume, and continue after a failure."""

import dataclasses
import json
import shutil
import statistics
from pathlib import Path

import pytest
import tomli_w

from bertworks.cli import main
from bertworks.config import RECIPES
from bertworks.experiments import study as running
from bertworks.experiments.choices import combinations
from bertworks.experiments.plan import make_plan
from bertworks.experiments.scheduler import RunFolder
from bertworks.experiments.search import SWEEPS, Search, grid_of, sweep_study
from bertworks.experiments.specs import StudyInputs
from bertworks.experiments.study import Options, run_study
from bertworks.files import InputError, read_json
from bertworks.finetuning.job import ExampleFeed
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune
from bertworks.inference.evaluation import evaluate
from bertworks.tasks.selection import DividedRows
from bertworks.training.config import LoopConfig
from support.studies import write_task_files
from support.tiny_task import tiny_place, tiny_rows

CONFIG = FinetuneConfig(loop=LoopConfig(seed=1, precision="float32"), max_seq_length=16, seeds=(1, 2), epochs=4.0)
GRID = "optim.lr=1e-9,3e-3 epochs=2,5"  # the first learning rate changes nothing
NAMES = list(combinations(grid_of(GRID)))
METRIC = "accuracy"
SUITE = RECIPES / "study/suite.toml"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with model/, train.csv (200 rows) and dev.csv (60 rows)."""
    return tiny_place(tmp_path_factory.mktemp("sweep"), 200, 60)


def plan_of(place, config=CONFIG, name=GRID):
    rows = DividedRows(train=place / "train.csv", dev=place / "dev.csv")
    return make_plan(sweep_study(config, rows, place / "model", name))


def run(place, out, config=CONFIG, name=GRID, keep_all=False):
    return run_study(plan_of(place, config, name), out, out / "cells", Options(keep_all, quiet=True))


@pytest.fixture(scope="module")
def swept(place):
    """The folder of a finished sweep, and its results."""
    return place / "swept", run(place, place / "swept")


def runs_of(place, out):
    """(setting, seed, folder, results) of each run, in order."""
    plan, folder = plan_of(place), RunFolder(out / "cells")
    for row in plan.rows:
        for one in row.tuned["table"]:
            yield row.name, one.spec.config.loop.seed, folder.path(one), read_json(folder.path(one) / "results.json")


# ---- grids


def test_the_grids_are_the_papers():
    found = [(one["batch_size"], one["optim"]["lr"], one["epochs"]) for one in combinations(SWEEPS["paper"]).values()]
    assert {*found} == {(b, r, e) for b in (16, 32) for r in (5e-5, 3e-5, 2e-5) for e in (2, 3, 4)} and len(found) == 18
    glue = [(one["batch_size"], one["optim"]["lr"], one["epochs"]) for one in combinations(SWEEPS["glue"]).values()]
    assert glue == [(32, rate, 3) for rate in (5e-5, 4e-5, 3e-5, 2e-5)]


def test_a_grid_of_ones_own(place):
    plan = plan_of(place, dataclasses.replace(CONFIG, min_steps=100), "optim.lr=1e-4, 3e-3 epochs=1 optim.rule=adamw")
    names = [f"optim.lr = {lr}, epochs = 1, optim.rule = adamw" for lr in ("0.0001", "0.003")]
    assert [row.name for row in plan.rows] == names
    config = plan.rows[1].tuned["table"][1].spec.config
    assert (config.optim.lr, config.epochs, config.optim.rule, config.min_steps) == (3e-3, 1.0, "adamw", 0)
    assert (config.loop.seed, config.optim.warmup) == (2, CONFIG.optim.warmup)
    assert grid_of("batch-size=8  max_seq_length=8 ,16") == {"batch_size": [8], "max_seq_length": [8, 16]}


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("glu", "grid 'glu': found 'glu'; expected paper, glue, or fields with their values"),
        ("optim.lr=1e-4,0.0001", "has equal values"),
        ("max_seq_length=99", "max_seq_length = 99, but the model has 32 positions"),
        ("optim.rate=1", r"unknown key .*optim\.rate"),
    ],
)
def test_grids_that_are_none(place, grid, message):
    with pytest.raises(InputError, match=message):
        plan_of(place, name=grid)


# ---- what is chosen


def test_the_numbers_of_a_sweep_are_those_of_its_runs(swept, place):
    out, results = swept
    assert results["measured"] == read_json(out / "results.json")["measured"] and results["seeds"] == [1, 2]
    runs = list(runs_of(place, out))
    for entry in results["measured"]:
        values = [found["metrics"][METRIC] for name, _, _, found in runs if name == entry["row"]]
        assert [*entry["values"].values()] == values and entry["n"] == 2 and entry["difference"] is None
        assert (entry["mean"], entry["sd"]) == pytest.approx((statistics.fmean(values), statistics.stdev(values)))
    assert [found["steps"] for *_, found in runs] == [int(200 / 32 * e) for e in (2, 2, 5, 5) * 2]
    chosen = max(results["measured"], key=lambda entry: entry["mean"])
    assert results["chosen"] == {"table": chosen["row"]}
    assert {e["row"]: e["collapsed"] for e in results["measured"]}[NAMES[0]] == 2
    best = max((found["metrics"][METRIC], folder) for _, _, folder, found in runs)
    assert results["best"]["table"]["value"] == best[0] > 0.9


def test_only_the_best_model_stays(swept, place):
    out, results = swept
    best = results["best"]["table"]
    assert best == read_json(out / "best.json")
    folders = [folder for _, _, folder, _ in runs_of(place, out)]
    assert [folder for folder in folders if (folder / "model").exists()] == [out / "cells" / best["run"]]
    assert all((folder / "predictions.jsonl").exists() for folder in folders)
    model = (out / "model/model.safetensors").read_bytes()
    assert model == (out / "cells" / best["run"] / "model/model.safetensors").read_bytes()
    task, data = tiny_rows(place)
    assert evaluate(out, task, data.dev)["metrics"][METRIC] == best["value"]


def test_a_run_of_a_sweep_is_that_of_a_fine_tuning_alone(swept, place, tmp_path):
    task, data = tiny_rows(place)
    name, seed, folder, found = list(runs_of(place, swept[0]))[3]
    assert (name, seed) == ("optim.lr = 1e-09, epochs = 5", 2)
    config = dataclasses.replace(CONFIG, seeds=(), epochs=5.0, loop=dataclasses.replace(CONFIG.loop, seed=2))
    config = dataclasses.replace(config, optim=dataclasses.replace(config.optim, lr=1e-9))
    alone = finetune(config, task, data, place / "model", tmp_path / "alone", quiet=True)
    assert (alone["metrics"], alone["recipe"]) == (found["metrics"], found["recipe"])
    assert (tmp_path / "alone/predictions.jsonl").read_bytes() == (folder / "predictions.jsonl").read_bytes()


def test_a_collapsed_run_is_the_best_one_only_among_its_like(swept, place, monkeypatch):
    """A model that gives one answer for every text is of no use, whatever its score."""
    plan = plan_of(place)
    search = Search(plan, RunFolder(swept[0] / "cells"), swept[0])
    names = [one.name for one in plan.runs]
    scores = dict.fromkeys(names, (0.5, False)) | {names[0]: (0.9, True), names[3]: (0.7, False)}
    results = lambda _, run: {"metrics": {METRIC: scores[run.name][0]}, "collapsed": scores[run.name][1]}  # noqa: E731
    monkeypatch.setattr(RunFolder, "results", results)
    assert search.best()["table"]["run"] == names[3]
    scores |= {name: (value, True) for name, (value, _) in scores.items()}
    assert search.best()["table"]["run"] == names[0]


# ---- resuming and failing


def test_a_sweep_stopped_again_and_again_continues_to_the_same_bytes(swept, place, tmp_path, monkeypatch):
    """Killed in its first, second and fifth run: finished runs are left alone, the others end as undisturbed."""
    make_batch, left, done = ExampleFeed.__call__, [0], {}

    def killed(self, progress, share):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return make_batch(self, progress, share)

    for updates, finished in ((2, 0), (18, 1), (80, 4)):  # updates until the kill; finished runs so far
        left[0] = updates
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(ExampleFeed, "__call__", killed)
            run(place, tmp_path / "out")
        assert all(path.stat().st_mtime_ns == when for path, when in done.items())
        done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("cells/*/results.json")}
        assert len(done) == finished
    results = run(place, tmp_path / "out")
    assert all(path.stat().st_mtime_ns == when for path, when in done.items())
    assert (results["measured"], results["best"]) == (swept[1]["measured"], swept[1]["best"])
    for name in ("model/model.safetensors", "best.json"):
        assert (tmp_path / "out" / name).read_bytes() == (swept[0] / name).read_bytes()
    for (*_, one, _), (*_, other, _) in zip(runs_of(place, tmp_path / "out"), runs_of(place, swept[0]), strict=True):
        assert (one / "predictions.jsonl").read_bytes() == (other / "predictions.jsonl").read_bytes()
        assert (one / "model").exists() == (other / "model").exists() and not (one / "state").exists()


def test_a_run_that_fails_does_not_end_the_others(swept, place, tmp_path, monkeypatch):
    chosen, tune = swept[1]["chosen"]["table"], running.finetune
    table = combinations(grid_of(GRID))[chosen]

    def broken(config, *arguments):
        if (config.loop.seed, config.optim.lr, config.epochs) == (2, table["optim"]["lr"], table["epochs"]):
            raise InputError("no memory")
        return tune(config, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(running, "finetune", broken)
        results = run(place, tmp_path / "out")
    assert [one["what"] for one in results["failed"]] == [f"{chosen}: table, seed 2"]
    entries = {entry["row"]: entry for entry in results["measured"]}
    assert entries[chosen]["n"] == 1  # its other seed might be the better one
    assert results["chosen"]["table"] not in (chosen, None)
    assert f"{chosen}: table, seed 2 failed: no memory" in (tmp_path / "out/study.md").read_text()
    results = run(place, tmp_path / "out")  # the failed run is repeated
    assert (results["chosen"], results["best"], results["failed"]) == (swept[1]["chosen"], swept[1]["best"], [])


# ---- the command line


def line_of(place, out, *more):
    tables = ["--train", str(place / "train.csv"), "--dev", str(place / "dev.csv"), "--max-seq-length", "16"]
    return ["study", "sweep", *tables, "--model", str(place / "model"), "--out", str(out), *more]


def test_a_sweep_on_the_command_line(place, tmp_path, capsys):
    line = line_of(place, tmp_path / "run", "--grid", "optim.lr=3e-3 epochs=2,6", "--seeds", "4", "5")
    main(line)
    printed = capsys.readouterr()
    assert "optim.lr = 0.003, epochs = 6" in printed.out and "chosen" in printed.out
    assert "[1/4] optim.lr = 0.003, epochs = 2: table, seed 4" in printed.err
    chosen = read_json(tmp_path / "run/model/config.json")["bertworks_task"]
    assert chosen["text"] == ["text"] and chosen["choices"] == []  # the columns that `predict` reads
    main(["evaluate", "--model", str(tmp_path / "run"), "--dev", str(place / "dev.csv")])
    assert json.loads(capsys.readouterr().out)["metrics"][METRIC] == read_json(tmp_path / "run/best.json")["value"]


# ---- all tasks of the paper


@pytest.fixture(scope="module")
def data(place) -> Path:
    """CoLA, MRPC and MNLI in small; SST-2 is cut off, QQP has no dev."""
    folder = place / "data"
    write_task_files(folder, [f"glue/{name}" for name in ("CoLA", "MRPC", "MNLI", "SST-2", "QQP")])
    shutil.copy(folder / "glue/MNLI/train.tsv", folder / "glue/MNLI/dev_mismatched.tsv")
    (folder / "glue/QQP/dev.tsv").unlink()
    with open(folder / "glue/SST-2/train.tsv", "a") as file:
        file.write("half a")
    return folder


def test_the_suite(data, place, tmp_path, capsys):
    recipe = tmp_path / "suite.toml"
    here = 'name = "here", finetune = { epochs = 1.0, max_seq_length = 16, optim.lr = 1e-3 }'
    text = SUITE.read_text().replace("seeds = [1, 2, 3]", "seeds = [1, 2]")
    recipe.write_text(text.replace('name = "here"', here))
    line = ["study", "run", str(recipe), "--data", str(data), "--model", str(place / "model")]
    line += ["--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as exit:
        main(line)
    printed = capsys.readouterr()
    assert exit.value.code == 1 and "SST-2, seed 1 failed: " in printed.err and "is the line cut off?" in printed.out
    results = read_json(tmp_path / "out/results.json")
    plan = make_plan(StudyInputs(recipe, data=data, model=place / "model"))
    entries, folder = {entry["column"]: entry for entry in results["measured"]}, RunFolder(tmp_path / "out/cells")
    for column, metric in (("MNLI-mm", "accuracy_mm"), ("MRPC", "f1")):
        cells = plan.rows[0].tuned[column]
        assert [one.spec.config.optim.lr for one in cells] == [1e-3, 1e-3]
        scores = [read_json(folder.path(one) / "results.json")["metrics"][metric] for one in cells]
        assert (entries[column]["mean"], entries[column]["n"]) == (pytest.approx(statistics.fmean(scores)), 2)
    names = [[one.name for one in plan.rows[0].tuned[column]] for column in ("MNLI-m", "MNLI-mm")]
    assert names[0] == names[1]  # one run has both figures
    assert entries["SST-2"]["mean"] is None and entries["MRPC"]["paper"] == 88.9
    written = (tmp_path / "out/study.md").read_text()
    assert "*88.9*" in written and "Not there: QQP, QNLI, STS-B, RTE, SQuAD 1.1, EM" in written
    assert sorted(path.parent.name for path in (tmp_path / "out").glob("*/model")) == ["cola", "mnli", "mrpc"]
    repaired = data / "glue/SST-2/train.tsv"
    repaired.write_text(repaired.read_text().removesuffix("half a"))
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("cells/*/results.json")}
    main(line)  # what failed is run again
    assert len(done) == 6 and all(path.stat().st_mtime_ns == when for path, when in done.items())
    assert not read_json(tmp_path / "out/results.json")["failed"]


def test_columns_of_one_task_with_other_rows_are_searched_by_themselves(data, place, tmp_path):
    """They are no second figure of the same runs, and read rows of their own."""
    recipe = tmp_path / "search.toml"
    table = {"finetune": {"epochs": 2.0, "max_seq_length": 16, "loop": {"precision": "float32"}}}
    model = str(place / "model")
    variants = [{"name": str(lr), "model": model, "finetune": {"optim": {"lr": lr}}} for lr in (1e-9, 3e-3)]
    columns = [
        {"name": str(rows), "task": "cola", "data": "glue/CoLA", "train_rows": rows, "metric": metric, **table}
        for rows, metric in ((40, ""), (8, ""))
    ]
    settings = {"title": "Two", "base": "", "finetune": "", "seeds": [1], "search": True}
    recipe.write_text(tomli_w.dumps({**settings, "variants": variants, "columns": columns}))
    plan = make_plan(StudyInputs(recipe, data=data))
    results = run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    runs = {row.name: {name: cells[0].name for name, cells in row.tuned.items()} for row in plan.rows}
    for column in ("40", "8"):
        found = [read_json(tmp_path / "cells" / one[column] / "results.json") for one in runs.values()]
        assert [one["examples"]["train"] for one in found] == [int(column)] * 2
        means = {e["row"]: e["mean"] for e in results["measured"] if e["column"] == column}
        assert means[results["chosen"][column]] == max(means.values())
    assert {key: best["model"] for key, best in results["best"].items()} == {"cola": "cola/model", "8": "8/model"}
    assert results["best"]["8"]["run"] in [one["8"] for one in runs.values()]
    assert (tmp_path / "out/8/model/config.json").exists()
