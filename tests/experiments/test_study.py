"""Studies: cells are shared, resumed and claimed; numbers are right; what is wrong is told before anything begins."""

import json
import math
import multiprocessing
import os
import random
import re
import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bertworks.cli import main
from bertworks.config import RECIPES, to_toml
from bertworks.experiments import figures as pictures
from bertworks.experiments import plan as planning
from bertworks.experiments import results as report
from bertworks.experiments import scheduler
from bertworks.experiments import study as running
from bertworks.experiments.plan import make_plan
from bertworks.experiments.recipe import load_study
from bertworks.experiments.rows import StudyInputs
from bertworks.experiments.scheduler import RunFolder
from bertworks.experiments.specs import Training, Tuning, study_run
from bertworks.experiments.study import Options, run_study
from bertworks.experiments.tables import tables
from bertworks.files import Diverged, InputError, NotWritten, read_json
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.model.config import ModelConfig
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.training.identity import without_intervals
from conftest import WORDS

STUDIES = RECIPES / "study"
BASE = """
title = "Tiny"
source = "a paper"
base = "both"
pretrain = "pretrain.toml"
finetune = "finetune.toml"
seeds = [1, 2]
variants = [
    { name = "both", snapshots = [2] },
    { name = "left", pretrain.objective = "ltr", pretrain.model.direction = "left" },
    { name = "right", pretrain.objective = "rtl", pretrain.model.direction = "right" },
    { name = "side by side", concat = ["left", "right"] },
    { name = "frozen", finetune = { trained = "head", top.layers = "concat-last-2" } },
    { name = "random", finetune.random_init = true },
]
columns = [
    { name = "perplexity", pretrain = "mlm_perplexity" },
    { name = "SST-2", task = "sst2", data = "glue/SST-2", train_rows = 24 },
    { name = "again", task = "sst2", data = "glue/SST-2", train_rows = 24, metric = "accuracy" },
]
[paper]
"both" = { perplexity = 4.0, SST-2 = 92.7 }
"left" = { SST-2 = 92.1 }
[claim]
row = "random"
column = "SST-2"
expect = "lower"
finding = "random weights are worse"
"""
PRETRAIN = """
snapshots = [2, 4]
eval_batches = 1
[model]
vocab_size = 100
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 32
[loop]
steps = 5
eval_every = 0
[[phases]]
length = 24
batch_size = 8
"""
FINETUNE = "max_seq_length = 24\nbatch_size = 8\nepochs = 1.0\noptim.lr = 1e-3\n"


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Look for work often."""
    monkeypatch.setattr(scheduler, "PAUSE", 0.05)


def write_study(folder: Path, text: str = BASE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pretrain.toml").write_text(PRETRAIN)
    (folder / "finetune.toml").write_text(FINETUNE)
    (folder / "tiny.toml").write_text(text)
    return folder / "tiny.toml"


def write_tables(folder: Path, name: str, header: str, row) -> None:
    """train.tsv and dev.tsv of rows that `row` draws."""
    rng = random.Random(name)
    (folder / name).mkdir(parents=True)
    for file, rows in (("train.tsv", 40), ("dev.tsv", 16)):
        lines = ["\t".join(row(rng, i)) for i in range(rows)]
        (folder / name / file).write_text("\n".join([header, *lines]) + "\n")


def words(rng, n=5) -> str:
    return " ".join(rng.choices(WORDS, k=n))


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory) -> Path:
    """Folders of the tasks that the recipes name, with texts of the tiny store's words."""
    folder = tmp_path_factory.mktemp("study_data")
    glue, label = folder / "glue", ("0", "1")
    write_tables(glue, "SST-2", "sentence\tlabel", lambda r, i: (words(r), label[i % 2]))
    pair = "index\tquestion\tsentence\tlabel"
    entailed = ("entailment", "not_entailment")
    write_tables(glue, "QNLI", pair, lambda r, i: (str(i), words(r), words(r), entailed[i % 2]))
    quality = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    write_tables(glue, "MRPC", quality, lambda r, i: (label[i % 2], "1", "2", words(r), words(r)))
    asked = "question1\tquestion2\tis_duplicate"
    write_tables(glue, "QQP", asked, lambda r, i: (words(r), words(r), label[i % 2]))
    three = ("contradiction", "entailment", "neutral")
    write_tables(glue, "MNLI", "sentence1\tsentence2\tgold_label", lambda r, i: (words(r), words(r), three[i % 3]))
    (glue / "MNLI" / "dev.tsv").rename(glue / "MNLI" / "dev_matched.tsv")
    (folder / "squad").mkdir()
    for name, rows in (
        ("train-v1.1-13pct", 12),
        ("train-v1.1", 12),
        ("dev-v1.1", 6),
        ("train-v2.0", 12),
        ("dev-v2.0", 6),
    ):
        (folder / "squad" / f"{name}.json").write_text(json.dumps(squad(random.Random(name), name, rows)))
    (folder / "conll2003").mkdir()
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (folder / "conll2003" / name).write_text(conll(random.Random(name)))
    write_korean(folder / "korean")
    return folder


def write_korean(folder: Path) -> None:
    """The five tasks of the study `korean`; KLUE-NER and KorQuAD as the one file that the study divides."""
    choices = "\t".join(f"choice{i}" for i in range(1, 5))
    write_tables(
        folder,
        "kobest-hellaswag",
        f"context\t{choices}\tlabel",
        lambda r, i: (*(words(r) for _ in range(5)), str(i % 4)),
    )
    write_tables(folder, "nsmc", "id\tdocument\tlabel", lambda r, i: (str(i), words(r), str(i % 2)))
    header = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2"
    write_tables(folder, "korsts", header, lambda r, i: ("g", "f", "y", str(i), str(float(i % 6)), words(r), words(r)))
    for name, old, new in (
        ("nsmc", "train.tsv", "ratings_train.txt"),
        ("nsmc", "dev.tsv", "ratings_test.txt"),
        ("korsts", "train.tsv", "sts-train.tsv"),
        ("korsts", "dev.tsv", "sts-dev.tsv"),
    ):
        (folder / name / old).rename(folder / name / new)
    for name in ("klue-ner", "korquad"):
        (folder / name).mkdir()
    rng, lines = random.Random(name), list[str]()
    for i in range(60):  # about a fifth of them are for development, by their text
        text = words(rng)
        lines += [f"## klue-ner-{i}\t{text}", *(f"{c}\t{'B-PS' if c == 'a' else 'O'}" for c in text), ""]
    (folder / "klue-ner" / "klue-ner-v1.1_dev.tsv").write_text("\n".join(lines))
    articles = [squad(rng, f"article {i}", 2)["data"][0] | {"title": f"article {i}"} for i in range(30)]
    (folder / "korquad" / "KorQuAD_v1.0_dev.json").write_text(json.dumps({"version": "1.0", "data": articles}))


def squad(rng, name, rows):
    questions = []
    for i in range(rows):
        context = words(rng, 12)
        answer = {"text": context.split()[i % 12], "answer_start": context.index(context.split()[i % 12])}
        questions.append(
            {"context": context, "qas": [{"id": f"{name}{i}", "question": words(rng), "answers": [answer]}]}
        )
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}


def conll(rng):
    lines = ["-DOCSTART- -X- -X- O", ""]
    for _ in range(20):
        for word in words(rng).split():
            lines.append(f"{word} NN I-NP {'I-PER' if word[0] in 'abcg' else 'O'}")
        lines.append("")
    return "\n".join(lines)


def sources(recipe, tiny_store, tiny_data, **more) -> StudyInputs:
    return StudyInputs(recipe, tiny_store.path, tiny_data, **more)


def line(recipe, tiny_store, tiny_data, out, *more):
    flags = {"--corpus": tiny_store.path, "--data": tiny_data, "--out": out}
    return ["study", "run", str(recipe), *(str(part) for pair in flags.items() for part in pair), *more]


@pytest.fixture(scope="module")
def finished(tiny_store, tiny_data, tmp_path_factory):
    """A study by the command line: its recipe and its folder."""
    folder = tmp_path_factory.mktemp("study")
    recipe = write_study(folder)
    main(line(recipe, tiny_store, tiny_data, folder / "out"))
    return recipe, folder / "out"


def begun(finished, plan, folder, without):
    """Put the finished study's cells in `folder`, except those that only the rows `without` need: these will be run."""
    kept = {cell.name for row in plan.rows if row.name not in without for cell in row.runs}
    for name in kept:
        shutil.copytree(finished[1] / "cells" / name, folder / name)
    assert {*without} < {row.name for row in plan.rows} and len(kept) < len(plan.runs)


def entry(results, row, column):
    return next(e for e in results["measured"] if (e["row"], e["column"]) == (row, column))


def test_what_a_study_leaves(finished):
    _, out = finished
    results = read_json(out / "results.json")
    assert (results["kind"], results["format"], results["study"], results["left"]) == ("study", 1, "tiny", [])
    assert {cell["state"] for cell in results["cells"].values()} == {"done"}
    kinds = [name.split("-")[0] for name in results["cells"]]
    # both, left and right; frozen and random begin with the same pre-training as both; 7 rows with 2 seeds
    assert (kinds.count("pretrain"), kinds.count("concat"), kinds.count("finetune")) == (3, 1, 14)
    assert sorted(path.name for path in out.iterdir()) == [
        "cells",
        "results.json",
        "study.md",
        "study.png",
        "study.svg",
    ]
    for cell in out.glob("cells/*-*"):
        assert (cell / "model").exists() == (not cell.name.startswith("finetune")) and not (cell / "state").exists()
        assert {"kind", "cell", "key", "recipe"} == read_json(cell / "cell.json").keys()
    assert len(list(out.glob("cells/pretrain-*/snapshots/step-2/config.json"))) == 3


def test_the_numbers_are_those_of_the_cells(finished, tiny_store, tiny_data):
    recipe, out = finished
    results, plan = read_json(out / "results.json"), make_plan(sources(recipe, tiny_store, tiny_data))
    grid = RunFolder(out / "cells")
    values = {}
    for row in plan.rows:
        found = [grid.results(cell) for cell in row.tuned["SST-2"]]
        assert [r["seed"] for r in found] == [1, 2] and all(r["examples"] == {"train": 24, "dev": 16} for r in found)
        values[row.name] = [r["metrics"]["accuracy"] for r in found]
        measured = entry(results, row.name, "SST-2")
        assert list(measured["values"].values()) == values[row.name]
        assert (measured["mean"], measured["sd"]) == (
            statistics.fmean(values[row.name]),
            pytest.approx(statistics.stdev(values[row.name])),
        )
        assert entry(results, row.name, "again")["values"] == measured["values"]
        spent = next(one["finetune_seconds"] for one in results["rows"] if one["name"] == row.name)
        assert spent == pytest.approx(sum(r["seconds"] for r in found))  # once, although two columns read these runs
    pretrained = grid.results(plan.base.trained[0])
    assert entry(results, "both", "perplexity")["mean"] == math.exp(pretrained["metrics"]["mlm_loss"])
    assert entry(results, "left", "perplexity")["mean"] is None  # it has no masked LM
    rows = {row["name"]: row for row in results["rows"]}
    assert rows["both, step 2"]["tokens"] == pytest.approx(pretrained["tokens"] * 2 / 5)
    assert rows["side by side"]["tokens"] == rows["left"]["tokens"] + rows["right"]["tokens"]
    assert rows["side by side"]["parameters"] > rows["left"]["parameters"] > 100 * 16
    assert entry(results, "left", "SST-2")["paper_difference"] == pytest.approx(-0.6)
    # random weights take their shape from the pre-training of "both" and nothing else
    assert (rows["random"]["tokens"], rows["random"]["pretrain_seconds"]) == (0, 0)
    assert entry(results, "random", "perplexity")["values"] == {} and rows["frozen"]["tokens"] == rows["both"]["tokens"]


def test_a_snapshot_is_compared_with_the_bases_of_the_same_step(tiny_store, tiny_data, tmp_path):
    recipe = write_study(tmp_path, BASE.replace('{ name = "left",', '{ name = "left", snapshots = [2, 4],'))
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    found = {row.name: report._against(row.name, plan) for row in plan.rows if row.line}
    assert found == {
        "both, step 2": "both",
        "both": "both",
        "left, step 2": "both, step 2",
        "left, step 4": "both",  # which has none of that step
        "left": "both",
    }


def test_a_claim_of_rows_that_were_run_before_says_so(finished, tiny_store, tiny_data, tmp_path, monkeypatch):
    """Runs shared with another study count, and so does a changed claim; the same claim keeps its answer."""
    _, out = finished
    monkeypatch.setattr(running, "pretrain", None)
    monkeypatch.setattr(running, "finetune", None)
    assert read_json(out / "results.json")["claim"]["named_before"]
    recipe = write_study(tmp_path / "late")
    late = run_study(make_plan(sources(recipe, tiny_store, tiny_data)), tmp_path / "late", out / "cells")
    assert late["claim"]["named_before"] is False
    shutil.copytree(out, tmp_path / "same")
    changed = write_study(tmp_path / "changed", BASE.replace('expect = "lower"', 'expect = "higher"'))
    for file, before in ((recipe, True), (changed, False)):
        plan = make_plan(sources(file, tiny_store, tiny_data))
        assert run_study(plan, tmp_path / "same", out / "cells")["claim"]["named_before"] is before


def test_the_same_line_runs_nothing_again(finished, tiny_store, tiny_data, monkeypatch):
    recipe, out = finished
    before = read_json(out / "results.json")
    monkeypatch.setattr(running, "pretrain", None)
    monkeypatch.setattr(running, "finetune", None)
    after = run_study(make_plan(sources(recipe, tiny_store, tiny_data)), out, out / "cells")
    assert after | {"machine": None} == before | {"machine": None}  # that of the process, whose commit may be newer


def test_a_model_that_was_asked_for_stays(finished, tiny_store, tiny_data, tmp_path):
    """A later command without --keep-models does not remove it, nor one that finds the run finished."""
    recipe, out = finished
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    tuned = plan.base.tuned["SST-2"]
    shutil.copytree(out / "cells", tmp_path / "cells")
    shutil.rmtree(tmp_path / "cells" / tuned[0].name)
    run_study(plan, tmp_path / "out", tmp_path / "cells", Options(keep_models=True, quiet=True))
    run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    assert [(tmp_path / "cells" / cell.name / "model").exists() for cell in tuned] == [True, False]


def test_a_study_goes_on_on_another_machine(finished, tiny_store, tiny_data, tmp_path, monkeypatch):
    """A half-finished study is its folder: moved, with corpus and data elsewhere, its cells are found."""
    recipe, out = finished
    shutil.copytree(out, tmp_path / "moved")
    shutil.copytree(tiny_store.path, tmp_path / "store")
    shutil.copytree(tiny_data, tmp_path / "data")
    monkeypatch.setattr(running, "pretrain", None)
    plan = make_plan(StudyInputs(recipe, tmp_path / "store", tmp_path / "data"))
    gone = plan.rows[-1].tuned["SST-2"][0]
    shutil.rmtree(tmp_path / "moved" / "cells" / gone.name)
    results = run_study(plan, tmp_path / "moved", tmp_path / "moved" / "cells", Options(quiet=True))
    assert results["measured"] == read_json(out / "results.json")["measured"] and results["left"] == []


def test_a_stopped_study_goes_on_to_the_same_figures(finished, tiny_store, tiny_data, tmp_path, monkeypatch):
    recipe, out = finished
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    begun(finished, plan, tmp_path / "cells", without=("right", "side by side", "frozen", "random"))
    left = [4]  # runs until the signal

    def stopping(work):
        def run(*arguments, **more):
            left[0] -= 1
            return work(*arguments, **more) if left[0] else None

        return run

    with monkeypatch.context() as patch:
        for name in ("pretrain", "finetune"):
            patch.setattr(running, name, stopping(getattr(running, name)))
        assert run_study(plan, tmp_path, tmp_path / "cells", Options(quiet=True)) is None
    half = read_json(tmp_path / "results.json")
    assert (
        0 < len(half["left"]) < len(half["cells"])
        and f"runs {len(half['left'])} have not been run" in (tmp_path / "study.md").read_text()
    )
    assert (tmp_path / "study.png").exists()  # what is known so far
    results = run_study(plan, tmp_path, tmp_path / "cells", Options(quiet=True))
    assert results["measured"] == read_json(out / "results.json")["measured"]


def test_a_diverged_run_is_marked_and_the_others_go_on(finished, tiny_store, tiny_data, tmp_path, monkeypatch, capsys):
    recipe = write_study(tmp_path)
    plan, finetune = make_plan(sources(recipe, tiny_store, tiny_data)), running.finetune
    begun(finished, plan, tmp_path / "out" / "cells", without=("frozen", "random"))

    def diverging(config, task, data, model, out, quiet):
        if config.loop.seed == 2 and "pretrain" in str(model) and config.trained == "head":
            raise Diverged("loss or gradient not finite in 11 steps in a row")
        return finetune(config, task, data, model, out, quiet)

    monkeypatch.setattr(running, "finetune", diverging)
    results = run_study(plan, tmp_path / "out", tmp_path / "out" / "cells", Options(quiet=True))
    found = entry(results, "frozen", "SST-2")
    assert found["n"] == 1 and found["failed"][0]["outcome"] == "diverged" and results["left"] == []
    assert found["difference"]["n"] == 1 and found["difference"]["interval"] is None
    table = {row[0]: row[2] for row in tables(results)[1].rows}
    assert "diverged (n 1)" in table["frozen"] and "diverged" not in table["random"]
    monkeypatch.setattr(running, "finetune", finetune)
    with pytest.raises(SystemExit) as end:  # it would diverge again
        main(line(recipe, tiny_store, tiny_data, tmp_path / "out"))
    assert end.value.code == 1 and "frozen: SST-2, seed 2 diverged" in capsys.readouterr().out
    next((tmp_path / "out" / "cells").glob("*/failed.json")).unlink()
    main(line(recipe, tiny_store, tiny_data, tmp_path / "out"))
    assert entry(read_json(tmp_path / "out" / "results.json"), "frozen", "SST-2")["n"] == 2


def break_pretraining(monkeypatch, objective, error):
    """Let every pre-training with this objective end in the error."""
    pretrain = running.pretrain

    def broken(config, *rest, **more):
        if config.objective == objective:
            raise error
        return pretrain(config, *rest, **more)

    monkeypatch.setattr(running, "pretrain", broken)


def test_a_base_that_fails_leaves_figures_without_differences(finished, tiny_store, tiny_data, tmp_path, monkeypatch):
    plan = make_plan(sources(write_study(tmp_path), tiny_store, tiny_data))
    begun(finished, plan, tmp_path / "cells", without=("both", "both, step 2", "frozen", "random"))
    break_pretraining(monkeypatch, "mlm+nsp", InputError("no memory"))
    results = run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    assert all(one["difference"] is None for one in results["measured"])
    assert entry(results, "left", "SST-2")["n"] == 2 and entry(results, "both", "SST-2")["n"] == 0
    told = (tmp_path / "out" / "study.md").read_text()
    assert "both: pre-training failed: no memory" in told
    assert "study.png" not in told and not (tmp_path / "out" / "study.png").exists()


def test_a_full_disk_marks_no_run(tiny_store, tiny_data, tmp_path, monkeypatch):
    """What could not be written is no fault of the cell at work, and those after it are not tried."""
    plan, tried = make_plan(sources(write_study(tmp_path), tiny_store, tiny_data)), []

    def full(*arguments, **more):
        tried.append(1)
        raise NotWritten("state: could not be written (No space left on device)")

    monkeypatch.setattr(running, "pretrain", full)
    with pytest.raises(NotWritten):
        run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    assert len(tried) == 1 and not [*(tmp_path / "cells").rglob("failed.json")]


def test_a_run_without_the_snapshot_another_study_wants(tiny_store, tiny_data, tmp_path):
    kept = [line for line in BASE.partition("[paper]")[0].splitlines() if "SST-2" not in line and "random" not in line]
    pretraining_alone = "\n".join(line for line in kept if "frozen" not in line).replace(", snapshots = [2] }", " }")
    recipe, cells = write_study(tmp_path, pretraining_alone), tmp_path / "cells"
    (tmp_path / "pretrain.toml").write_text(PRETRAIN.replace("snapshots = [2, 4]", "snapshots = []"))
    run_study(make_plan(sources(recipe, tiny_store, tiny_data)), tmp_path / "a", cells, Options(quiet=True))
    assert not [*cells.rglob("predictions.jsonl")]  # no fine-tuning is finished
    plan = make_plan(sources(write_study(tmp_path), tiny_store, tiny_data))
    with pytest.raises(InputError, match="step-2: no such snapshot"):
        run_study(plan, tmp_path / "b", cells, Options(quiet=True))
    assert not [*cells.rglob("failed.json")]


# ---- several processes


def work_on(recipe, store, data, out):
    scheduler.PAUSE = 0.05
    run_study(make_plan(StudyInputs(recipe, store, data)), out, out / "cells", Options(quiet=True))


@pytest.mark.heavy
def test_two_processes_share_a_study(finished, tiny_store, tiny_data, tmp_path):
    recipe, out = finished
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=work_on, args=(recipe, tiny_store.path, tiny_data, tmp_path)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    results = read_json(tmp_path / "results.json")
    if results["left"]:  # whoever ended last has seen everything
        results = run_study(make_plan(sources(recipe, tiny_store, tiny_data)), tmp_path, tmp_path / "cells")
    assert results["measured"] == read_json(out / "results.json")["measured"]


@pytest.mark.heavy
def test_workers_of_a_scheduler_run_a_study(finished, tiny_store, tiny_data, tmp_path, capfd):
    pytest.importorskip("distributed")
    recipe, out = finished
    main(line(recipe, tiny_store, tiny_data, tmp_path / "out", "--scheduler", "local", "--workers", "2"))
    results = read_json(tmp_path / "out" / "results.json")
    assert results["measured"] == read_json(out / "results.json")["measured"] and not results["left"]
    assert "random: SST-2, seed 2: done" in capfd.readouterr().err


def hold(folder, cell, held):
    with RunFolder(folder).claim(cell) as mine:
        held.put((mine, os.getpid()))
        time.sleep(60)


def test_a_claim_dies_with_its_process(tmp_path):
    cell, grid = study_run(Training(PretrainConfig(), "corpus"), "a cell"), RunFolder(tmp_path)
    context = multiprocessing.get_context("spawn")
    held = context.Queue()
    process = context.Process(target=hold, args=(tmp_path, cell, held))
    process.start()
    assert held.get(timeout=120)[0] and grid.busy(cell)
    with grid.claim(cell) as mine:
        assert not mine
    process.kill()
    process.join()
    assert not grid.busy(cell)
    with grid.claim(cell) as mine:
        assert mine


# ---- names of cells


def test_a_cell_is_named_by_what_determines_it(finished, tiny_store, tiny_data, tmp_path):
    def cell(text=BASE, pretrain=PRETRAIN, finetune=FINETUNE):
        recipe = write_study(tmp_path, text)
        (tmp_path / "pretrain.toml").write_text(pretrain)
        (tmp_path / "finetune.toml").write_text(finetune)
        base = make_plan(sources(recipe, tiny_store, tiny_data)).base
        return base.trained[0].name, base.tuned["SST-2"][0].name

    trained, tuned = cell()
    assert cell(pretrain=PRETRAIN.replace("eval_every = 0", "eval_every = 3\nsave_every = 7")) == (trained, tuned)
    assert cell(pretrain=PRETRAIN.replace("snapshots = [2, 4]", "snapshots = [2]")) == (trained, tuned)
    assert cell(text=BASE.replace("seeds = [1, 2]", "seeds = [1, 2, 3]")) == (trained, tuned)
    other = cell(pretrain=PRETRAIN.replace("batch_size = 8", "batch_size = 9"))
    assert other[0] != trained and other[1] != tuned
    for found in (
        cell(finetune=FINETUNE.replace("epochs = 1.0", "epochs = 2.0")),
        cell(text=BASE.replace("train_rows = 24", "train_rows = 23")),
        cell(text=BASE.replace("seeds = [1, 2]", "seeds = [2]")),
    ):
        assert found[0] == trained and found[1] != tuned


def test_a_name_has_every_setting():
    """Also those at their defaults: a default that changes later must not resume the wrong run."""
    config, explicit = PretrainConfig(), PretrainConfig(model=ModelConfig(hidden_size=768))
    assert Training(config, "c").key == Training(explicit, "c").key != Training(config, "d").key
    assert "masked_lm_prob = 0.15" in to_toml(without_intervals(config))


# ---- what is refused


MISTAKES = {  # message: what is written in the study, and the mistake
    "base: 'bth' is no row or column of the study": ('base = "both"', 'base = "bth"'),
    "unknown key traned; did you mean trained?": ('trained = "head"', 'traned = "head"'),
    "no task 'sst'; did you mean sst2": ('task = "sst2"', 'task = "sst"'),
    "step 3 is none of the recipe's snapshots [2, 4]": ("snapshots = [2]", "snapshots = [3]"),
    "variant 'frozen', column 'SST-2'": ("concat-last-2", "concat-last-9"),
    "glue/none: no such folder": ("glue/SST-2", "glue/none"),
    "paper: 'lefd' is no row or column": ('"left" = { SST-2', '"lefd" = { SST-2'),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_a_study_with_a_mistake_is_refused(tiny_store, tiny_data, tmp_path, capsys, said):
    old, new = MISTAKES[said]
    assert old in BASE
    recipe = write_study(tmp_path, BASE.replace(old, new))
    with pytest.raises(SystemExit) as end:
        main(line(recipe, tiny_store, tiny_data, tmp_path / "out"))
    told = capsys.readouterr().err
    assert end.value.code == 1 and said in told and "Traceback" not in told and not (tmp_path / "out").exists()


def test_a_store_that_does_not_fit_is_refused(tiny_store, tiny_data, tmp_path):
    recipe = write_study(tmp_path)
    (tmp_path / "pretrain.toml").write_text(PRETRAIN.replace("vocab_size = 100", "vocab_size = 101"))
    for minute in (False, True):  # what the study refuses --minute refuses too
        with pytest.raises(InputError, match=r"tiny.toml cannot run: variant 'both': model\.vocab_size is 101"):
            make_plan(sources(recipe, tiny_store, tiny_data, minute=minute))
    with pytest.raises(InputError, match="--corpus is missing"):
        make_plan(StudyInputs(recipe, None, tiny_data))


def test_a_copy_of_a_study_finds_our_recipes(tiny_store, tiny_data, tmp_path):
    """Its recipes are paths from our folder of studies; the user's folder does not have them."""
    (tmp_path / "runs").mkdir()
    for pretraining, tuning in (("../pretrain/study.toml", "../finetune/study.toml"), ("study", "study")):
        recipe = tmp_path / "runs" / "my.toml"
        text = BASE.replace('"pretrain.toml"', f'"{pretraining}"').replace('"finetune.toml"', f'"{tuning}"')
        recipe.write_text(text.replace(", snapshots = [2]", ""))
        with pytest.raises(InputError) as error:  # the store is of another vocabulary: our recipe was read
            make_plan(sources(recipe, tiny_store, tiny_data))
        assert "model.vocab_size is 8192" in str(error.value)


def test_a_folder_of_something_else_is_refused(finished, tiny_store, tiny_data, tmp_path):
    recipe, out = finished
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    for change, said in (
        ({"study": "other"}, "the results of something else"),
        ({"format": 2}, "'format': 2"),
        ({"minute": True}, "'minute': True"),
    ):
        (tmp_path / "results.json").write_text(json.dumps(read_json(out / "results.json") | change))
        with pytest.raises(InputError, match=said):
            run_study(plan, tmp_path, tmp_path / "cells")
    (tmp_path / "results.json").rename(tmp_path / "rows.jsonl")
    with pytest.raises(InputError, match=r"other files than a run's, such as rows\.jsonl"):
        run_study(plan, tmp_path, tmp_path / "cells")


def drawn(file):
    """What is written in an SVG: matplotlib draws letters as shapes, with the text as a comment."""
    return re.findall(r"<!-- (.*?) -->", file.read_text())


def test_seeds_are_drawn_from_what_their_row_is_compared_with(finished, tmp_path, monkeypatch):
    """A snapshot's seeds stand round its mean, which is a difference from the base's snapshot and not from its end."""
    results = read_json(finished[1] / "results.json")
    for one in results["measured"]:
        one |= {"values": {"1": 0.5, "2": 0.7}, "n": 2, "mean": 0.6, "difference": None}
    moved = next(one for one in results["measured"] if one["row"] == "left" and one["column"] == "SST-2")
    moved |= {"against": "both, step 2", "difference": {"mean": 0.2, "n": 2, "interval": [0.1, 0.3]}}
    against = next(one for one in results["measured"] if one["row"] == "both, step 2" and one["column"] == "SST-2")
    against["values"] = {"1": 0.3, "2": 0.5}
    drawn = []
    monkeypatch.setattr(pictures, "save_figure", lambda figure, out: drawn.extend(figure.axes) or [])
    pictures.plot_study(results, tmp_path / "study")
    ticks = [line.get_xdata() for line in drawn[0].get_lines() if line.get_marker() == "|"]
    assert len(ticks) == 1 and list(ticks[0]) == pytest.approx([20, 20])


# ---- the recipes in the repository


def test_a_dry_run_begins_nothing(finished, tiny_store, tiny_data, tmp_path, capsys):
    recipe, out = finished
    main(line(recipe, tiny_store, tiny_data, tmp_path / "new", "--dry-run"))
    said = capsys.readouterr()
    assert "both: pre-training" in said.out and "missing" in said.out and not (tmp_path / "new").exists()
    main(line(recipe, tiny_store, tiny_data, tmp_path / "new", "--dry-run", "--cells", str(out / "cells")))
    said = capsys.readouterr()
    assert said.out.count("done") == 18 and "missing" not in said.out


@pytest.fixture
def any_vocabulary(monkeypatch):
    """The recipes are written for a vocabulary of 30,522; here they run on one of 100."""
    monkeypatch.setattr(planning, "check_store", lambda *_: None)


@pytest.mark.parametrize("path", sorted(STUDIES.rglob("*.toml")), ids=lambda p: p.relative_to(STUDIES).as_posix())
def test_a_recipe_expands(path, tiny_store, tiny_data, any_vocabulary):
    """Every override is a field that exists, every task and layer is there, every concatenation fits."""
    study = load_study(path)
    if path.stem == "suite":  # which test_search.py runs, with the model that it needs
        return
    plan = make_plan(sources(path, tiny_store, tiny_data, minute=True))
    assert {row.name for row in plan.rows} >= {variant.name for variant in study.variants if variant.row}
    assert study.size == ("paper" if path.parent.name == "paper" else "cpu")
    if study.size == "cpu":
        assert all(cell.spec.config.loop.seed for cell in plan.runs if cell.spec.kind == "pretrain")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["features", "korean", "recurrent", "static-dynamic", "steps", "tasks"])
def test_a_recipe_runs_from_end_to_end(name, tiny_store, tiny_data, tmp_path, any_vocabulary):
    """Recipes that differ in kind; what `examples` and `pretraining-seeds` have runs in test_study_baselines.py."""
    plan = make_plan(sources(STUDIES / f"{name}.toml", tiny_store, tiny_data, minute=True))
    plan = replace(plan, seeds=plan.seeds[:1])
    for row in plan.rows:
        for column, cells in row.tuned.items():
            row.tuned[column] = cells[:1]
    results = run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    assert results["failed"] == results["left"] == [] and results["minute"]
    held_out = {column.name for column in plan.study.columns if column.pretrain}  # random weights have no such figure
    measured = [one for one in results["measured"] if one["row"] != "random weights" or one["column"] not in held_out]
    assert all(one["n"] == max(1, len(results["pretrain_seeds"])) for one in measured)
    assert (tmp_path / "out" / "study.png").stat().st_size > 5000


def test_the_runner_is_the_configurations_own(tiny_store, tiny_data, tmp_path):
    """A column's settings stand on the task's and the study's, a variant's on all of them."""
    text = BASE.replace("train_rows = 24", "train_rows = 24, finetune = { epochs = 4.0, batch_size = 4 }")
    text = text.replace("finetune.random_init = true", "finetune = { random_init = true, batch_size = 6 }")
    plan = make_plan(sources(write_study(tmp_path, text), tiny_store, tiny_data))
    configs = {row.name: row.tuned["SST-2"][0].spec.config for row in plan.rows}
    assert all(isinstance(config, FinetuneConfig) and config.epochs == 4 for config in configs.values())
    assert (configs["both"].batch_size, configs["random"].batch_size, configs["both"].max_seq_length) == (4, 6, 24)


def test_the_name_of_a_dataset_on_a_hub_is_no_part_of_a_cells_key(tiny_store, tiny_data, any_vocabulary):
    plans = [
        make_plan(sources(STUDIES / name, tiny_store, tiny_data, minute=True))
        for name in ("examples.toml", "size.toml")
    ]
    works = [cell.spec for plan in plans for cell in plan.runs if isinstance(cell.spec, Tuning)]
    assert {work.kind for work in works} == {"finetune", "baseline"}
    for work in works:
        renamed = replace(work, task=replace(work.task, dataset="somebody/elses"))
        other = replace(work, task=replace(work.task, metrics=("accuracy", "f1_test")))
        assert renamed.key == work.key != other.key
