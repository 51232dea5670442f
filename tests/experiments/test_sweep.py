"""Sweeps choose on dev, keep one model and resume; the suite takes what is there and goes on after a failure."""

import contextlib
import csv
import dataclasses
import json
import multiprocessing
import shutil
import statistics
from pathlib import Path

import pytest

from bertworks.apps.doctor.examination import of_finetuning
from bertworks.cli import main
from bertworks.cli.finetune import _parse
from bertworks.experiments import sweep as module
from bertworks.experiments.engine import ONE_PROCESS, Grid
from bertworks.experiments.grids import SWEEPS, Setting, own_grid
from bertworks.experiments.suite import PAPER, find_folders, run_suite, table
from bertworks.experiments.sweep import Elsewhere, RowFiles, Search, run_sweep
from bertworks.files import Diverged, InputError, OtherRun, read_json
from bertworks.finetuning import run as finetuning
from bertworks.finetuning.job import ExampleFeed
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.finetuning.run import finetune, joined_job
from bertworks.inference.evaluation import evaluate
from bertworks.tasks.catalogue import find_task
from bertworks.tasks.kinds import own_task
from bertworks.tokenizer import Tokenizer
from bertworks.training.config import LoopConfig
from support.loops import killed_at
from support.tiny_task import tiny_place, tiny_rows

CONFIG = FinetuneConfig(loop=LoopConfig(seed=1, precision="float32"), max_seq_length=16, seeds=(1, 2))
GRID = (Setting(16, 1e-9, 1), Setting(16, 3e-3, 6), Setting(32, 2e-3, 2))  # the first one learns nothing
GLUE = SWEEPS["glue"]
METRIC = "accuracy"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with model/, train.csv (200 rows) and dev.csv (60 rows)."""
    return tiny_place(tmp_path_factory.mktemp("sweep"), 200, 60)


@pytest.fixture(autouse=True)
def small_grid(monkeypatch):
    monkeypatch.setitem(SWEEPS, "glue", GRID)


def run(place, out, config=CONFIG, name="glue", keep_all=False):
    table = tiny_rows(place)
    with joined_job(config, *table, place / "model", quiet=True) as job:
        return run_sweep(job, out, name, keep_all)


@pytest.fixture(scope="module")
def swept(place):
    """A sweep left alone, its results, and how often texts were tokenized."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SWEEPS, "glue", GRID)
        ids_of = Tokenizer.ids_of
        patch.setattr(Tokenizer, "ids_of", lambda self, texts: calls.append(len(texts)) or ids_of(self, texts))
        return place / "swept", run(place, place / "swept"), calls


def each_run(out):
    """(folder, results) of every run of a sweep, in order."""
    for setting in GRID:
        for seed in (1, 2):
            folder = out / setting.name / f"seed-{seed}"
            yield folder, read_json(folder / "results.json")


def test_the_grids_are_the_papers():
    assert set(SWEEPS["paper"]) == {(b, r, e) for b in (16, 32) for r in (5e-5, 3e-5, 2e-5) for e in (2, 3, 4)}
    assert len(SWEEPS["paper"]) == 18 and SWEEPS["paper"][0].name == "b16-lr5e-05-e2"
    assert GLUE == ((32, 5e-5, 3), (32, 4e-5, 3), (32, 3e-5, 3), (32, 2e-5, 3))
    of = SWEEPS["paper"][5].of(CONFIG)
    assert (of.batch_size, of.optim.lr, of.epochs, of.optim.warmup) == (16, 3e-5, 4.0, 0.1)


def test_a_grid_of_ones_own(place, tmp_path):
    grid = own_grid("optim.lr=1e-9,3e-3 epochs=1 optim.rule=adamw")
    assert [one.name for one in grid] == [f"optim.lr={lr}-epochs=1-optim.rule=adamw" for lr in ("1e-9", "3e-3")]
    changed = grid[1].of(dataclasses.replace(CONFIG, min_steps=100))
    assert (changed.optim.lr, changed.epochs, changed.optim.rule, changed.min_steps) == (3e-3, 1.0, "adamw", 0)
    assert changed.optim.warmup == CONFIG.optim.warmup and own_grid("batch-size=8")[0].fields == {"batch_size": 8}
    results = run(place, tmp_path, dataclasses.replace(CONFIG, seeds=(1,)), "optim.lr=1e-9,3e-3 epochs=1")
    assert [entry["optim.lr"] for entry in results["settings"]] == [1e-9, 3e-3]
    assert {entry["name"] for entry in results["settings"]} == {path.name for path in tmp_path.glob("optim*")}
    assert read_json(tmp_path / "results.json")["chosen"] in ("optim.lr=1e-9-epochs=1", "optim.lr=3e-3-epochs=1")


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("glu", "--sweep 'glu': found 'glu'; expected paper, glue, or fields with their values"),
        ("optim.lr=", "found 'optim.lr='; expected"),
        (" ", "--sweep ' ': no field in it; expected paper, glue, or fields"),  # its runs would be outside --out
        ("../x=1", r"found '\.\./x=1'; expected"),
        ("optim..lr=1", r"found 'optim\.\.lr=1'; expected"),
        ("epochs=1 epochs=2", "found 'epochs=2'; expected"),
        ("epochs=1/2", "found 'epochs=1/2'; expected"),
        ("optim.lr=1e-4,0.0001", "'optim.lr=1e-4,0.0001' has equal values; give each value once"),
        ("patience=0,1", "--sweep patience=1: patience = 1 without loop.keep_best"),
        ("max-seq-length=8,16", "max_seq_length is the same in all runs of a sweep; start one run for each"),
        ("loop.seed=1,2", "loop.seed is the same in all runs of a sweep; give --seeds or --restarts"),
        ("optim.rate=1", r"unknown key optim\.rate; known keys: lr, rule"),
        ("epochs=many", "epochs = 'many'; expected a number"),
    ],
)
def test_grids_that_are_none(place, tmp_path, grid, message):
    with pytest.raises(InputError, match=message):
        run(place, tmp_path / "out", name=grid)


def test_what_a_sweep_tells(swept):
    out, results, _ = swept
    assert results == read_json(out / "results.json") and results["seeds"] == [1, 2]
    runs = list(each_run(out))
    for entry, setting, pair in zip(results["settings"], GRID, (runs[:2], runs[2:4], runs[4:]), strict=True):
        values = [found["metrics"][METRIC] for _, found in pair]
        assert entry["name"] == setting.name and entry["n"] == 2
        assert (entry["best"], entry["mean"]) == (max(values), pytest.approx(statistics.fmean(values)))
        assert entry["sd"] == pytest.approx(statistics.stdev(values))
        assert all((found["steps"], found["seed"]) == (int(200 / setting.batch_size * setting.epochs), seed)
                   for seed, (_, found) in zip((1, 2), pair, strict=True))  # fmt: skip
    chosen = max(results["settings"], key=lambda entry: entry["mean"])
    assert results["chosen"] == chosen["name"] and results["metrics"] == chosen["metrics"]
    best, found = max(runs, key=lambda pair: pair[1]["metrics"][METRIC])
    assert out / results["best"]["run"] == best and results["best"]["value"] == found["metrics"][METRIC] > 0.9


def test_data_is_read_once(swept):
    assert swept[2] == [200, 60]


def test_only_the_best_model_stays(swept, place):
    out, results, _ = swept
    best = read_json(out / "best.json")
    assert best == results["best"]
    assert [folder for folder, _ in each_run(out) if (folder / "model").exists()] == [out / best["run"]]
    assert all((folder / "predictions.jsonl").exists() for folder, _ in each_run(out))
    model = (out / "model/model.safetensors").read_bytes()
    assert model == (out / best["run"] / "model/model.safetensors").read_bytes()
    task, data = tiny_rows(place)
    assert evaluate(out, task, data.dev)["metrics"][METRIC] == best["value"]


def test_collapsed_runs_are_marked(swept):
    out, results, _ = swept
    first, second, _ = results["settings"]
    assert first["collapsed"] == 2 and first["mean_without_collapsed"] is None
    assert second["collapsed"] == 0 and second["mean_without_collapsed"] == second["mean"]
    rows = module.table(results).rows
    assert rows[0][5:] == ("2",) and rows[1][5:] == ("-",)  # no setting has sound seeds beside collapsed ones
    half = {**first, "collapsed": 1, "mean_without_collapsed": 0.5}
    shown = module.table({**results, "settings": [half, *results["settings"][1:]]})
    header = shown.header
    assert header[-3:] == ("collapsed", "mean of sound seeds", "sd of sound seeds")
    assert shown.rows[0][5:] == ("1", "50.00", "-") and shown.rows[1][5:] == ("-", "-", "-")
    assert "…" not in shown.text()  # the headings fit a terminal
    assert any(note.startswith("sound seeds: ") for note in shown.notes)
    assert len({*header}) == len(header)  # each heading says by itself what its column is
    assert sum(row[0].endswith(" *") for row in rows) == 1
    written = (out / "sweep.md").read_text()
    assert f"| {results['chosen']} * | 2 |" in written and results["best"]["run"] in written


def test_a_collapsed_run_is_the_best_one_only_among_its_like(swept, monkeypatch):
    """The paper's restarts choose by the score alone; a model with one answer for everything is of no use to anyone."""
    out, results, _ = swept
    search = Search("table", "", METRIC, FinetuneConfig(seeds=(1, 2)), Grid(out))
    monkeypatch.setattr(Search, "cells", property(lambda self: range(3)))
    monkeypatch.setattr(Grid, "path", lambda self, cell: out / f"run-{cell}")
    scores = {0: (0.9, True), 1: (0.6, False), 2: (0.7, False)}
    found = {cell: {"metrics": {METRIC: value}, "collapsed": lost} for cell, (value, lost) in scores.items()}
    monkeypatch.setattr(Grid, "results", lambda self, cell, form: found[cell])
    assert search.best()["run"] == "run-2"
    note = module.table({**results, "chosen": "another"}).notes[1]
    assert note.endswith(", of another setting than the chosen one; its model is in model/")
    assert "another setting" not in module.table({**results, "chosen": results["best"]["run"].split("/")[0]}).notes[1]
    found[1]["collapsed"] = found[2]["collapsed"] = True
    assert search.best()["run"] == "run-0"


def test_means_with_and_without_collapsed_runs(tmp_path):
    shared = dict.fromkeys(("kind", "task", "majority", "examples", "data", "model", "random_init", "machine"), "x")
    values = {1: (0.5, True), 2: (0.8, False), 3: (0.9, False)}
    runs = [shared | {"metrics": {"f1": f1}, "collapsed": c, "seconds": 1.0} for f1, c in values.values()]
    results = finetuning.summarise(CONFIG, runs, tmp_path, ONE_PROCESS)
    assert results["metrics"]["f1"] == pytest.approx(2.2 / 3) and results["collapsed"] == [True, False, False]
    assert results["without_collapsed"]["n"] == 2
    assert results["without_collapsed"]["metrics"]["f1"] == pytest.approx(0.85)
    assert results["without_collapsed"]["std"]["f1"] == pytest.approx(0.05 * 2**0.5)


@contextlib.contextmanager
def killed_after(updates):
    """The process is killed when all runs of the block have made so many updates."""
    feed, calls = ExampleFeed.__call__, []

    def killed(self, progress, share):
        calls.append(progress.step)
        if len(calls) > updates:
            raise KeyboardInterrupt
        return feed(self, progress, share)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ExampleFeed, "__call__", killed)
        yield


def test_a_sweep_stopped_again_and_again_goes_on_to_the_same_bytes(swept, place, tmp_path):
    """Killed in its first, second and fourth run: what is finished is left alone, the rest ends as undisturbed."""
    done = {}
    for updates, finished in ((2, 0), (19, 1), (97, 3)):  # of this start; runs so far
        with killed_after(updates):
            run(place, tmp_path / "out")
        assert all(path.stat().st_mtime_ns == when for path, when in done.items())
        done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/seed-*/results.json")}
        assert len(done) == finished
    results = run(place, tmp_path / "out")
    assert all(path.stat().st_mtime_ns == when for path, when in done.items())
    assert results["settings"][0]["metrics"] == swept[1]["settings"][0]["metrics"]
    assert results["best"] == swept[1]["best"]
    for name in ("model/model.safetensors", "best.json", "sweep.md"):
        assert (tmp_path / "out" / name).read_bytes() == (swept[0] / name).read_bytes()
    for (one, _), (other, _) in zip(each_run(tmp_path / "out"), each_run(swept[0]), strict=True):
        assert (one / "predictions.jsonl").read_bytes() == (other / "predictions.jsonl").read_bytes()
        assert (one / "model").exists() == (other / "model").exists() and not (one / "state").exists()


def test_a_sweep_killed_before_its_results_were_written_ends_all_the_same(swept, place, tmp_path):
    shutil.copytree(swept[0], tmp_path / "out")
    for name in ("results.json", "best.json"):  # written behind model/
        (tmp_path / "out" / name).unlink()
    assert run(place, tmp_path / "out")["best"] == swept[1]["best"]


def failing(monkeypatch, *names):
    """Let the runs in these folders end in an error."""
    run_seed = module.run_seed

    def failing(job, seed, out):
        if out.name in names or f"{out.parent.name}/{out.name}" in names:
            raise Diverged("loss or gradient not finite in 11 steps in a row")
        return run_seed(job, seed, out)

    monkeypatch.setattr(module, "run_seed", failing)


def test_a_run_that_fails_does_not_end_the_others(swept, place, tmp_path, monkeypatch):
    chosen = swept[1]["chosen"]
    with monkeypatch.context() as patch:
        failing(patch, f"{chosen}/seed-2")
        results = run(place, tmp_path / "out")
    assert [one["cell"] for one in results["failed"]] == [f"{chosen}/seed-2"]
    entries = {entry["name"]: entry for entry in results["settings"]}
    assert entries[chosen]["n"] == 1 and results["chosen"] != chosen  # whose other seed might be the better one
    assert f"{chosen}, seed 2 diverged: loss" in (tmp_path / "out/sweep.md").read_text()
    results = run(place, tmp_path / "out")  # what failed is run again
    assert (results["chosen"], results["best"]) == (chosen, swept[1]["best"]) and "failed" not in results
    failing(monkeypatch, "seed-1", "seed-2")
    with pytest.raises(InputError, match="no run of the sweep has finished; the first of 6: loss or gradient"):
        run(place, tmp_path / "none")


def share(place, out, log):
    """A sweep or a suite, in a process of its own; every run that it trains is a line of `log`."""
    SWEEPS["glue"], opened = GRID[1:], finetuning.opening

    def opening(job, config):
        with open(log, "a") as file:
            file.write(f"{job.task.name} {config.batch_size} {config.loop.seed}\n")
        return opened(job, config)

    finetuning.opening = opening
    if out.name == "sweep":
        run(place, out)
    else:
        config = dataclasses.replace(CONFIG, epochs=4)
        run_suite(lambda task: config, place / "two", place / "model", out)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["sweep", "suite"])
def test_two_processes_share_the_runs(place, glue, tmp_path, monkeypatch, kind):
    monkeypatch.setitem(SWEEPS, "glue", GRID[1:])
    monkeypatch.setattr(finetuning, "opening", finetuning.opening)  # to be put back
    for name in ("CoLA", "MRPC"):
        shutil.copytree(glue / name, place / "two" / name, dirs_exist_ok=True)
    context, log, out = multiprocessing.get_context("spawn"), tmp_path / "log", tmp_path / kind
    both = [context.Process(target=share, args=(place, out, log)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    trained = log.read_text().splitlines()
    assert len(trained) == len({*trained}) == 4  # none twice
    written = {path.name: path.read_bytes() for path in out.glob("*.md")}
    share(place, out, log)
    assert written == {path.name: path.read_bytes() for path in out.glob("*.md")} and len(written) == 1
    assert log.read_text().splitlines() == trained


def test_a_sweep_that_was_begun_with_other_settings_is_left_alone(place, tmp_path, monkeypatch):
    """Its first run has no results yet; no other one is trained with the new settings."""
    config = dataclasses.replace(CONFIG, loop=dataclasses.replace(CONFIG.loop, save_every=5))
    monkeypatch.setitem(SWEEPS, "glue", GRID[1:])
    with killed_at(20, ExampleFeed):
        run(place, tmp_path / "out", config)
    with pytest.raises(OtherRun, match="belongs to a run with other settings"):
        run(place, tmp_path / "out", dataclasses.replace(config, dropout=0.2))
    assert not [*(tmp_path / "out").rglob("failed.json")] and len([*(tmp_path / "out").rglob("recipe.toml")]) == 1


def test_more_restarts_use_the_runs_there_are(swept, place, tmp_path, monkeypatch):
    monkeypatch.setitem(SWEEPS, "glue", GRID[:2])
    run(place, tmp_path / "out", dataclasses.replace(CONFIG, seeds=(1,)), keep_all=True)
    assert len(list((tmp_path / "out").glob("*/seed-*/model"))) == 2
    results = run(place, tmp_path / "out")
    assert results["settings"] == [
        entry | {"seconds": pytest.approx(entry["seconds"], abs=60)} for entry in swept[1]["settings"][:2]
    ]
    assert len(list((tmp_path / "out").glob("*/seed-*/model"))) == 1  # without --keep-all the others go
    loser = next(f for f, r in each_run(tmp_path / "out") if r["seed"] == 1 and not (f / "model").exists())
    assert loser.parent.name == GRID[0].name


def test_a_best_run_that_has_lost_its_model(place, tmp_path, monkeypatch):
    monkeypatch.setitem(SWEEPS, "glue", GRID[2:])
    first = run(place, tmp_path / "out", dataclasses.replace(CONFIG, seeds=(1, 2, 3)))
    other = next(seed for seed in (1, 2, 3) if not first["best"]["run"].endswith(f"-{seed}"))
    with pytest.raises(InputError, match=f"seed-{other} has lost its model to a better run; remove the folder"):
        run(place, tmp_path / "out", dataclasses.replace(CONFIG, seeds=(other,)))


def test_blanks_beside_a_comma_are_ignored():
    assert own_grid("optim.lr=1e-4, 3e-4 epochs=2 ,3") == own_grid("optim.lr=1e-4,3e-4 epochs=2,3")
    with pytest.raises(InputError, match=r"found 'optim.lr=1e-4,'; expected paper"):
        own_grid("optim.lr=1e-4, ")


def test_what_is_refused(swept, place, tmp_path):
    with pytest.raises(InputError, match="--sweep 'x': found 'x'; expected paper, glue, or fields"):
        run(place, tmp_path / "out", name="x")
    steps = dataclasses.replace(CONFIG, loop=dataclasses.replace(CONFIG.loop, steps=3))
    with pytest.raises(InputError, match=r"the sweep paper varies epochs; leave loop.steps, .* out"):
        run(place, tmp_path / "out", steps, name="paper")
    with pytest.raises(InputError, match=r"results of something else \(sweep glue table\); give another --out"):
        run(place, swept[0], name="paper")
    task, data = tiny_rows(place)
    with pytest.raises(InputError, match="results of something else"):
        finetune(CONFIG, task, data, place / "model", swept[0], quiet=True)
    single = swept[0] / GRID[0].name / "seed-1"
    with pytest.raises(InputError, match=r"results of something else \(finetune table\)"):
        finetune(CONFIG, task, data, place / "model", single, quiet=True)
    with pytest.raises(InputError, match=r"results of something else \(finetune table\)"):
        run(place, single)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/rows.csv").write_text("text,label\n")
    with pytest.raises(InputError, match=r"other files than a run's, such as rows\.csv"):
        run(place, tmp_path / "texts")


def test_a_sweep_on_the_command_line(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SWEEPS, "glue", GRID[1:])
    line = ["finetune", "--train", str(place / "train.csv"), "--dev", str(place / "dev.csv"), "--sweep", "glue"]
    line += ["--model", str(place / "model"), "--out", str(tmp_path / "run"), "--max-seq-length", "16"]
    main([*line, "--restarts", "2", "--loop.seed", "4"])
    told = capsys.readouterr()
    assert "table: accuracy on 60 rows of dev" in told.out and "b16-lr0.003-e6" in told.out
    assert "[1/4] b16-lr0.003-e6, seed 4" in told.err
    chosen = read_json(tmp_path / "run/model/config.json")["bertworks_task"]
    assert chosen["text"] == ["text"] and chosen["choices"] == []  # where `predict` looks
    assert read_json(tmp_path / "run/results.json")["seeds"] == [4, 5]
    main(["evaluate", "--model", str(tmp_path / "run"), "--dev", str(place / "dev.csv")])
    assert json.loads(capsys.readouterr().out)["metrics"][METRIC] == read_json(tmp_path / "run/best.json")["value"]
    main(["compare", *(str(tmp_path / "run" / setting.name) for setting in GRID[1:]), "--samples", "200"])
    assert "seeds: 4, 5" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*line, "--restarts", "2", "--seeds", "1", "2"])
    assert "--restarts 2: expected 1 or more, and no --seeds beside it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("", "--sweep '': names no grid; expected paper, glue, or fields"),
        (" ", "names no grid"),
        ("nothing", "--sweep 'nothing': found 'nothing'; expected paper"),
        ("optim.lr=fast", "optim.lr = 'fast'; expected a number"),
        ("frozen_layers=99", "--sweep frozen_layers=99: frozen_layers = 99, but"),
    ],
)
def test_a_malformed_sweep_is_refused_before_any_row_is_read(place, tmp_path, capsys, monkeypatch, sweep, message):
    monkeypatch.setattr("bertworks.finetuning.run.joined_job", None)
    monkeypatch.setattr("bertworks.tasks.selection.DividedRows.read_data", None)
    line = ["finetune", "--train", str(place / "train.csv"), "--dev", str(place / "dev.csv"), "--sweep", sweep]
    with pytest.raises(SystemExit):
        main([*line, "--model", str(place / "model"), "--out", str(tmp_path / "run"), "--max-seq-length", "16"])
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_findings_of_a_sweep_name_its_runs(swept, tmp_path):
    shutil.copytree(swept[0], tmp_path / "sweep")
    report = of_finetuning(tmp_path / "sweep")
    assert report.kind == f"folder of {2 * len(GRID)} runs"
    found = {one.check: one.where for one in report.findings}
    assert found["score"] == f"4 of 6 runs ({GRID[0].name}, {GRID[2].name})"  # both seeds of each setting
    assert found["seeds"] == f"2 of 3 folders of seeds ({GRID[0].name}, {GRID[2].name})"


def test_collapsed_seeds_are_told_without_a_sweep_too(place, tmp_path, capsys):
    line = ["finetune", "--train", str(place / "train.csv"), "--dev", str(place / "dev.csv"), "--restarts", "2"]
    line += ["--model", str(place / "model"), "--out", str(tmp_path / "run"), "--max-seq-length", "16"]
    main([*line, "--optim.lr", "1e-9", "--loop.steps", "2"])
    told = capsys.readouterr()
    assert "2 of 2 runs collapsed" in told.out
    assert "collapsed: the same answer for every development row" in told.err
    assert "; the run had few updates (2); give more --epochs" in told.err


def test_a_sweep_advises_no_flag_that_it_refuses(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SWEEPS, "glue", (Setting(16, 1e-9, 0.1),))
    line = ["finetune", "--train", str(place / "train.csv"), "--dev", str(place / "dev.csv"), "--sweep", "glue"]
    main([*line, "--model", str(place / "model"), "--out", str(tmp_path / "run"), "--max-seq-length", "16"])
    said = capsys.readouterr().err
    assert "collapsed: the same answer for every development row" in said
    assert "--min-steps" not in said and "--epochs" not in said and "optim.lr (" not in said


def test_restarts_without_a_sweep_are_seeds_counted_up():
    line = ["--model", "m", "--out", "o", "--restarts", "3", "--loop.seed", "7"]
    assert _parse(line).config.seeds == (7, 8, 9)
    assert _parse(line[:4]).config.seeds == ()


def test_ctrl_c_between_two_runs_is_one_line(place, tmp_path, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_seed", interrupted)
    line = ["finetune", "--train", str(place / "train.csv"), "--dev", str(place / "dev.csv"), "--sweep", "glue"]
    with pytest.raises(SystemExit) as exit:
        main([*line, "--model", str(place / "model"), "--out", str(tmp_path / "o"), "--max-seq-length", "16"])
    assert exit.value.code == 3 and "stopped; rerun the command to resume" in capsys.readouterr().err


# ---- all tasks of the paper


def write_tsv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(cells) + "\n" for cells in [*([header] if header else []), *rows]))


@pytest.fixture(scope="module")
def glue(place) -> Path:
    """CoLA, MRPC and MNLI in small, under the folder names that people have; SST-2 is cut off, QQP has no dev."""
    folder = place / "GLUE"
    with open(place / "train.csv", newline="") as file:
        rows = [(row["text"], "01"[row["label"] == "good"]) for row in csv.DictReader(file)]
    for name, some in (("train", rows[:60]), ("dev", rows[60:])):
        write_tsv(folder / f"CoLA/{name}.tsv", [], [["x", label, "", text] for text, label in some])
        write_tsv(folder / f"MRPC/{name}.tsv", ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
                  [[label, "1", "2", text, "a film"] for text, label in some])  # fmt: skip
        write_tsv(folder / f"SST-2/{name}.tsv", ["sentence", "label"], [[text, label] for text, label in some])
    write_tsv(folder / "QQP/train.tsv", ["question1", "question2", "is_duplicate"], [["a", "b", "0"]])
    names = ["contradiction", "entailment", "neutral"]
    for name in ("train", "dev_matched", "dev_mismatched"):
        cells = [[text, "a film", names[int(label) + i % 2]] for i, (text, label) in enumerate(rows[:40])]
        write_tsv(folder / f"glue/mnli/{name}.tsv", ["sentence1", "sentence2", "gold_label"], cells)
    with open(folder / "SST-2/train.tsv", "a") as file:
        file.write("half a")
    return folder


def test_folders_are_found_by_their_names(glue):
    found, missing = find_folders(glue)
    assert list(found) == ["mnli", "sst2", "cola", "mrpc"] and found["mnli"] == glue / "glue/mnli"
    assert {"qqp (no dev.tsv in QQP)", "QNLI", "STS-B", "swag"} <= set(missing)


def test_every_entry_is_a_task_with_that_metric():
    printed = [figure for figures in PAPER.values() for figure in figures if figure.where == "test"][:9]
    assert statistics.fmean(figure.paper for figure in printed) == pytest.approx(79.6, abs=0.01)  # the paper's Average
    for (name, _), figures in PAPER.items():
        task = find_task(name)
        for figure in figures:
            metric, _, other = figure.metric.partition("_")
            assert metric in task.metrics and (not other or other in task.more)


def test_the_suite(glue, place, tmp_path, capsys):
    line = ["finetune", "--suite", "paper", "--data", str(glue), "--model", str(place / "model")]
    line += ["--out", str(tmp_path / "out"), "--max-seq-length", "16", "--epochs", "1", "--optim.lr", "1e-3"]
    with pytest.raises(SystemExit) as exit:
        main([*line, "--seeds", "1", "2"])
    told = capsys.readouterr()
    assert exit.value.code == 1 and "sst2, seed 1 failed: " in told.err and "is the line cut off?" in told.out
    results = read_json(tmp_path / "out/results.json")
    assert list(results["tasks"]) == ["mnli", "sst2", "cola", "mrpc"] and "error" in results["tasks"]["sst2"]
    rows = {row["name"]: row for row in results["rows"]}
    for name, task, metric in (("MNLI-mm", "mnli", "accuracy_mm"), ("MRPC", "mrpc", "f1")):
        scores = [read_json(tmp_path / f"out/{task}/seed-{s}/results.json")["metrics"][metric] for s in (1, 2)]
        assert (rows[name]["mean"], rows[name]["n"]) == (pytest.approx(statistics.fmean(scores)), 2)
        assert rows[name]["sd"] == pytest.approx(statistics.stdev(scores))
    assert rows["SST-2"]["mean"] is None and rows["MRPC"]["paper"] == 88.9
    average = results["average"]
    assert average["of"] == ["MNLI-m", "MNLI-mm", "CoLA", "MRPC"]
    assert average["mean"] == pytest.approx(statistics.fmean(rows[name]["mean"] for name in average["of"]))
    assert average["paper"] == pytest.approx((84.6 + 83.4 + 52.1 + 88.9) / 4)
    written = (tmp_path / "out/suite.md").read_text()
    assert "average, 4 of 9" in written and "88.9 test" in written and "Not there: qqp (no dev.tsv in QQP)" in written
    assert written.count("squad,") == 1  # a folder of two tasks
    repaired = glue / "SST-2/train.tsv"
    repaired.write_text(repaired.read_text().removesuffix("half a"))
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/seed-*/results.json")}
    main([*line, "--seeds", "1", "2"])
    assert len(done) == 6 and all(path.stat().st_mtime_ns == when for path, when in done.items())
    assert "error" not in read_json(tmp_path / "out/results.json")["tasks"]["sst2"]


def test_a_seed_that_fails_is_told_in_the_suite(place, glue, tmp_path, monkeypatch):
    shutil.copytree(glue / "MRPC", tmp_path / "data" / "MRPC")
    failing(monkeypatch, "seed-2")
    results = run_suite(lambda task: CONFIG, tmp_path / "data", place / "model", tmp_path / "out")
    assert results["rows"][0]["n"] == 1 and results["tasks"]["mrpc"]["seeds"] == [1]
    assert any("mrpc, seed 2 diverged: loss" in note for note in table(results).notes)


def test_a_suite_of_sweeps(glue, place, tmp_path, monkeypatch):
    monkeypatch.setitem(SWEEPS, "glue", GRID[1:])
    only = tmp_path / "data"
    (only / "MRPC").mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (only / "MRPC" / name).write_bytes((glue / "MRPC" / name).read_bytes())
    config = dataclasses.replace(CONFIG, seeds=(), epochs=1)
    results = run_suite(lambda task: config, only, place / "model", tmp_path / "out", "glue")
    assert results["tasks"]["mrpc"]["kind"] == "sweep" and (tmp_path / "out/mrpc/model").exists()
    assert results["rows"][0]["mean"] == results["tasks"]["mrpc"]["metrics"]["f1"] and results["rows"][0]["n"] == 1
    assert any("chosen on dev (sweep glue)" in note for note in table(results).notes)


def test_tasks_keep_their_defaults_under_the_line():
    line = ["--model", "m", "--out", "o", "--optim.lr", "1e-4"]
    for name, batch in (("squad2", 48), ("mrpc", 32)):
        recipe = _parse(line, find_task(name)).config
        assert (recipe.optim.lr, recipe.batch_size) == (1e-4, batch)


def test_a_suite_that_cannot_be(place, tmp_path, capsys):
    with pytest.raises(InputError, match="none of the paper's tasks is here; expected some of the folders MNLI, QQP"):
        run_suite(lambda task: CONFIG, tmp_path, place / "model", tmp_path / "out")
    (tmp_path / "rows.csv").touch()
    with pytest.raises(InputError, match=r"other files than a run's, such as rows\.csv"):
        run_suite(lambda task: CONFIG, tmp_path, place / "model", tmp_path)
    for more in (["--task", "mrpc", "--data", "d"], []):
        with pytest.raises(SystemExit):
            main(["finetune", "--suite", "paper", "--model", "m", "--out", "o", *more])
        assert "--suite takes --data DIR" in capsys.readouterr().err


@pytest.mark.heavy
def test_workers_of_a_scheduler_run_a_sweep(place, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setitem(SWEEPS, "glue", GLUE)  # the workers know no other
    monkeypatch.chdir(place)
    rows = RowFiles(own_task("", ("text",), "label"), (Path("train.csv"), Path("dev.csv")))
    with joined_job(dataclasses.replace(CONFIG, seeds=(1,)), *rows.read(), "model", quiet=True) as job:
        spread = run_sweep(job, tmp_path / "spread", "glue", elsewhere=Elsewhere("local", 2, rows))
        alone = run_sweep(job, tmp_path / "alone", "glue")
    assert spread["settings"] and [entry["mean"] for entry in spread["settings"]] == [
        entry["mean"] for entry in alone["settings"]
    ]
    assert (spread["chosen"], spread["best"]) == (alone["chosen"], alone["best"])
    assert (tmp_path / "spread" / "model" / "config.json").exists()


@pytest.mark.heavy
def test_workers_of_a_scheduler_run_a_suite(glue, place, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(place)
    data = tmp_path / "data"
    for task, files in (("MRPC", "MRPC"), ("CoLA", "CoLA"), ("RTE", "MRPC")):  # the last one has not RTE's columns
        shutil.copytree(glue / files, data / task)
    line = ["finetune", "--suite", "paper", "--data", str(data), "--model", "model", "--seeds", "1", "2"]
    line += ["--max-seq-length", "16", "--epochs", "1", "--optim.lr", "1e-3", "--loop.precision", "float32"]
    for name, more in (("alone", []), ("spread", ["--scheduler", "local", "--workers", "2"])):
        with pytest.raises(SystemExit):  # for the task that failed
            main([*line, "--out", str(tmp_path / name), *more])
    alone, spread = (read_json(tmp_path / name / "results.json") for name in ("alone", "spread"))
    assert [(row["task"], row["mean"], row["n"]) for row in spread["rows"]] == [
        (row["task"], row["mean"], row["n"]) for row in alone["rows"]
    ]
    assert spread["tasks"]["rte"] == alone["tasks"]["rte"] and "error" in spread["tasks"]["rte"]


def test_a_scheduler_without_a_sweep_is_refused(place, capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--task", "mrpc", "--data", ".", "--model", "m", "--out", "o", "--scheduler", "local"])
    assert (
        "--scheduler would have no effect: a scheduler spreads the runs of a sweep or a suite"
        in capsys.readouterr().err
    )
