"""Studies: runs are shared, resumed and claimed; numbers are right; mistakes are reported before a run begins."""

import json
import math
import multiprocessing
import random
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from bertworks.cli import main
from bertworks.config import RECIPES, load_recipe, to_toml
from bertworks.experiments import plan as planning
from bertworks.experiments import results as report
from bertworks.experiments import scheduler
from bertworks.experiments import study as running
from bertworks.experiments.plan import make_plan
from bertworks.experiments.recipe import Study
from bertworks.experiments.scheduler import RunFolder
from bertworks.experiments.specs import StudyInputs, Training
from bertworks.experiments.study import Options, run_study, show_runs
from bertworks.experiments.tables import tables
from bertworks.files import Diverged, InputError, NotWritten, read_json
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.model.config import ModelConfig
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.training.identity import reproducible_settings
from support.studies import PRETRAIN, entry_of, words, write_task_files

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


SQUAD = {"train-v1.1-13pct": 12, "train-v1.1": 12, "dev-v1.1": 6, "train-v2.0": 12, "dev-v2.0": 6}


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory) -> Path:
    """Folders of the tasks that the recipes name, with texts of the tiny store's words."""
    folder, rng = tmp_path_factory.mktemp("study_data"), random.Random(2)
    write_task_files(folder)
    for name in ("squad", "conll2003", "korean/klue-ner", "korean/korquad"):
        (folder / name).mkdir()
    for name, rows in SQUAD.items():
        (folder / "squad" / f"{name}.json").write_text(json.dumps(squad(rng, name, rows)))
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (folder / "conll2003" / name).write_text(conll(rng))
    lines = list[str]()
    for i in range(60):  # the study divides the file: about a fifth of them are for development, by their text
        text = words(rng)
        lines += [f"## klue-ner-{i}\t{text}", *(f"{c}\t{'B-PS' if c == 'a' else 'O'}" for c in text), ""]
    (folder / "korean/klue-ner/klue-ner-v1.1_dev.tsv").write_text("\n".join(lines))
    articles = [squad(rng, f"article {i}", 2)["data"][0] | {"title": f"article {i}"} for i in range(30)]
    (folder / "korean/korquad/KorQuAD_v1.0_dev.json").write_text(json.dumps({"version": "1.0", "data": articles}))
    return folder


def squad(rng, name, rows):
    questions = []
    for i in range(rows):
        context = words(rng, 12)
        answer = {"text": context.split()[i % 12], "answer_start": context.index(context.split()[i % 12])}
        asked = {"id": f"{name}{i}", "question": words(rng), "answers": [answer]}
        questions.append({"context": context, "qas": [asked]})
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


HALF = ("right", "side by side", "frozen", "random")  # rows whose runs are left to be computed


def copy_runs(finished, plan, folder, without):
    """Put the finished study's runs in `folder`, except those that only the rows `without` need."""
    names = {run.name for row in plan.rows if row.name not in without for run in row.runs}
    for name in names:
        shutil.copytree(finished[1] / "cells" / name, folder / name)
    assert {*without} < {row.name for row in plan.rows} and len(names) < len(plan.runs)


def test_what_a_study_leaves(finished):
    _, out = finished
    results = read_json(out / "results.json")
    assert (results["kind"], results["format"], results["study"], results["left"]) == ("study", 1, "tiny", [])
    assert {run["state"] for run in results["cells"].values()} == {"done"}
    kinds = [name.split("-")[0] for name in results["cells"]]
    # both, left and right; frozen and random begin with the same pre-training as both; 7 rows with 2 seeds
    assert (kinds.count("pretrain"), kinds.count("concat"), kinds.count("finetune")) == (3, 1, 14)
    assert {path.name for path in out.iterdir()} == {"cells", "results.json", "study.md", "study.png", "study.svg"}
    for run in out.glob("cells/*-*"):
        assert (run / "model").exists() == (not run.name.startswith("finetune")) and not (run / "state").exists()
        assert {"kind", "cell", "key", "recipe"} == read_json(run / "cell.json").keys()
    assert len(list(out.glob("cells/pretrain-*/snapshots/step-2/config.json"))) == 3


def test_the_numbers_are_those_of_the_cells(finished, tiny_store, tiny_data):
    recipe, out = finished
    results, plan = read_json(out / "results.json"), make_plan(sources(recipe, tiny_store, tiny_data))
    folder = RunFolder(out / "cells")
    rows = {row["name"]: row for row in results["rows"]}
    for row in plan.rows:
        tuned = [folder.results(run) for run in row.tuned["SST-2"]]
        assert [r["seed"] for r in tuned] == [1, 2] and all(r["examples"] == {"train": 24, "dev": 16} for r in tuned)
        values = [r["metrics"]["accuracy"] for r in tuned]
        measured = entry_of(results, row.name, "SST-2")
        assert list(measured["values"].values()) == values and measured["mean"] == statistics.fmean(values)
        assert measured["sd"] == pytest.approx(statistics.stdev(values))
        assert entry_of(results, row.name, "again")["values"] == measured["values"]
        seconds = sum(r["seconds"] for r in tuned)
        assert rows[row.name]["finetune_seconds"] == pytest.approx(seconds)  # once, although two columns read these
    pretrained = folder.results(plan.base.trained[0])
    assert entry_of(results, "both", "perplexity")["mean"] == math.exp(pretrained["metrics"]["mlm_loss"])
    assert entry_of(results, "left", "perplexity")["mean"] is None  # it has no masked LM
    assert rows["both, step 2"]["tokens"] == pytest.approx(pretrained["tokens"] * 2 / 5)
    assert rows["side by side"]["tokens"] == rows["left"]["tokens"] + rows["right"]["tokens"]
    assert rows["side by side"]["parameters"] > rows["left"]["parameters"] > 100 * 16
    assert entry_of(results, "left", "SST-2")["paper_difference"] == pytest.approx(-0.6)
    # random weights take their shape from the pre-training of "both" and nothing else
    assert (rows["random"]["tokens"], rows["random"]["pretrain_seconds"]) == (0, 0)
    assert entry_of(results, "random", "perplexity")["values"] == {}
    assert rows["frozen"]["tokens"] == rows["both"]["tokens"]


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


def test_a_study_continues_on_another_machine(finished, tiny_store, tiny_data, tmp_path, monkeypatch):
    """A half-finished study is its folder: moved, with corpus and data elsewhere, its runs are found."""
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


def test_a_stopped_study_resumes_to_the_same_figures(finished, tiny_store, tiny_data, tmp_path, monkeypatch):
    recipe, out = finished
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    copy_runs(finished, plan, tmp_path / "cells", HALF)
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
    assert 0 < len(half["left"]) < len(half["cells"]) and (tmp_path / "study.png").exists()
    assert f"runs {len(half['left'])} have not been run" in (tmp_path / "study.md").read_text()
    results = run_study(plan, tmp_path, tmp_path / "cells", Options(quiet=True))
    assert results["measured"] == read_json(out / "results.json")["measured"]


def test_a_diverged_run_is_marked_and_the_others_continue(
    finished, tiny_store, tiny_data, tmp_path, monkeypatch, capsys
):
    recipe = write_study(tmp_path)
    plan, finetune = make_plan(sources(recipe, tiny_store, tiny_data)), running.finetune
    copy_runs(finished, plan, tmp_path / "out" / "cells", without=("frozen", "random"))

    def diverging(config, task, data, model, out, quiet):
        if config.loop.seed == 2 and "pretrain" in str(model) and config.trained == "head":
            raise Diverged("loss or gradient not finite in 11 steps in a row")
        return finetune(config, task, data, model, out, quiet)

    monkeypatch.setattr(running, "finetune", diverging)
    results = run_study(plan, tmp_path / "out", tmp_path / "out" / "cells", Options(quiet=True))
    measured = entry_of(results, "frozen", "SST-2")
    assert measured["n"] == 1 and measured["failed"][0]["outcome"] == "diverged" and results["left"] == []
    assert measured["difference"]["n"] == 1 and measured["difference"]["interval"] is None
    table = {row[0]: row[2] for row in tables(results)[1].rows}
    assert "diverged (n 1)" in table["frozen"] and "diverged" not in table["random"]
    monkeypatch.setattr(running, "finetune", finetune)
    with pytest.raises(SystemExit) as end:  # it would diverge again
        main(line(recipe, tiny_store, tiny_data, tmp_path / "out"))
    assert end.value.code == 1 and "frozen: SST-2, seed 2 diverged" in capsys.readouterr().out
    next((tmp_path / "out" / "cells").glob("*/failed.json")).unlink()
    main(line(recipe, tiny_store, tiny_data, tmp_path / "out"))
    assert entry_of(read_json(tmp_path / "out" / "results.json"), "frozen", "SST-2")["n"] == 2


@pytest.mark.parametrize("error", [InputError("no memory"), NotWritten("no space left")])
def test_a_base_that_fails_leaves_figures_without_differences(
    finished, tiny_store, tiny_data, tmp_path, monkeypatch, error
):
    """A full disk is no fault of the run: no run is marked, and those after it are not tried."""
    plan, pretrain, tried = make_plan(sources(write_study(tmp_path), tiny_store, tiny_data)), running.pretrain, []
    without = ("both", "both, step 2", "left", "side by side", "frozen", "random")
    copy_runs(finished, plan, tmp_path / "cells", without)

    def broken(config, *rest, **more):
        tried.append(config.objective)
        if config.objective == "mlm+nsp":
            raise error
        return pretrain(config, *rest, **more)

    monkeypatch.setattr(running, "pretrain", broken)
    if isinstance(error, NotWritten):
        with pytest.raises(NotWritten):
            run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
        assert len(tried) == 1 and not [*(tmp_path / "cells").rglob("failed.json")]
        return
    results = run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    assert all(one["difference"] is None for one in results["measured"])
    assert entry_of(results, "left", "SST-2")["n"] == 2 and entry_of(results, "both", "SST-2")["n"] == 0
    text = (tmp_path / "out" / "study.md").read_text()
    assert "both: pre-training failed: no memory" in text
    assert "study.png" not in text and not (tmp_path / "out" / "study.png").exists()


def test_a_finished_run_without_a_snapshot_that_the_study_needs(finished, tiny_store, tiny_data, tmp_path):
    recipe, out = finished
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    shutil.copytree(out / "cells" / plan.base.trained[0].name, tmp_path / plan.base.trained[0].name)
    shutil.rmtree(tmp_path / plan.base.trained[0].name / "snapshots")
    with pytest.raises(InputError, match="step-2: no such snapshot"):
        run_study(plan, tmp_path / "out", tmp_path, Options(quiet=True))


# ---- several processes


def work_on(recipe, store, data, out, both):
    scheduler.PAUSE = 0.05
    plan = make_plan(StudyInputs(recipe, store, data))
    both.wait(300)
    run_study(plan, out, out / "cells", Options(quiet=True))


@pytest.mark.heavy
def test_two_processes_share_a_study(finished, tiny_store, tiny_data, tmp_path):
    recipe, out = finished
    copy_runs(finished, make_plan(sources(recipe, tiny_store, tiny_data)), tmp_path / "cells", HALF)
    context = multiprocessing.get_context("spawn")
    given = (recipe, tiny_store.path, tiny_data, tmp_path, context.Barrier(2))
    other = context.Process(target=work_on, args=given)
    other.start()
    work_on(*given)
    other.join()
    assert other.exitcode == 0
    results = read_json(tmp_path / "results.json")
    if results["left"]:  # whoever ended last has seen everything
        results = run_study(make_plan(sources(recipe, tiny_store, tiny_data)), tmp_path, tmp_path / "cells")
    assert results["measured"] == read_json(out / "results.json")["measured"]


@pytest.mark.heavy
def test_workers_of_a_scheduler_run_a_study(finished, tiny_store, tiny_data, tmp_path, capfd):
    pytest.importorskip("distributed")
    recipe, out = finished
    copy_runs(finished, make_plan(sources(recipe, tiny_store, tiny_data)), tmp_path / "out/cells", HALF)
    main(line(recipe, tiny_store, tiny_data, tmp_path / "out", "--scheduler", "local", "--workers", "2"))
    results = read_json(tmp_path / "out" / "results.json")
    assert results["measured"] == read_json(out / "results.json")["measured"] and not results["left"]
    assert "random: SST-2, seed 2: done" in capfd.readouterr().err


# ---- names of runs


def test_a_run_is_named_by_what_determines_it(finished, tiny_store, tiny_data, tmp_path):
    def names(text=BASE, pretrain=PRETRAIN, finetune=FINETUNE):
        recipe = write_study(tmp_path, text)
        (tmp_path / "pretrain.toml").write_text(pretrain)
        (tmp_path / "finetune.toml").write_text(finetune)
        base = make_plan(sources(recipe, tiny_store, tiny_data)).base
        return base.trained[0].name, base.tuned["SST-2"][0].name

    trained, tuned = names()
    assert names(pretrain=PRETRAIN.replace("eval_every = 0", "eval_every = 3\nsave_every = 7")) == (trained, tuned)
    assert names(pretrain=PRETRAIN.replace("snapshots = [2, 4]", "snapshots = [2]")) == (trained, tuned)
    assert names(text=BASE.replace("seeds = [1, 2]", "seeds = [1, 2, 3]")) == (trained, tuned)
    other = names(pretrain=PRETRAIN.replace("batch_size = 8", "batch_size = 9"))
    assert other[0] != trained and other[1] != tuned
    for other in (
        names(finetune=FINETUNE.replace("epochs = 1.0", "epochs = 2.0")),
        names(text=BASE.replace("train_rows = 24", "train_rows = 23")),
        names(text=BASE.replace("seeds = [1, 2]", "seeds = [2]")),
    ):
        assert other[0] == trained and other[1] != tuned


def test_a_name_has_every_setting():
    """Also those at their defaults: a default that changes later must not resume the wrong run."""
    config, explicit = PretrainConfig(), PretrainConfig(model=ModelConfig(hidden_size=768))
    assert Training(config, "c").key == Training(explicit, "c").key != Training(config, "d").key
    assert "masked_lm_prob = 0.15" in to_toml(reproducible_settings(config))


# ---- what is refused


MISTAKES = {  # message: what is written in the study, and the mistake
    "base: 'bth' is no row or column of the study": ('base = "both"', 'base = "bth"'),
    "paper.both.SST-2 = 'high'; expected a number or a list": ("SST-2 = 92.7", 'SST-2 = "high"'),
    "paper.both.SST-2 = [[1]]; expected a number or a list of 2": ("SST-2 = 92.7", "SST-2 = [[1]]"),
    "unknown key traned; did you mean trained?": ('trained = "head"', 'traned = "head"'),
    "no task 'sst'; expected one of cola, sst2": ('task = "sst2"', 'task = "sst"'),
    "step 3 is none of the recipe's snapshots [2, 4]": ("snapshots = [2]", "snapshots = [3]"),
    "variant 'frozen', column 'SST-2'": ("concat-last-2", "concat-last-9"),
    "glue/none/train.tsv: no such file; expected the training": ("glue/SST-2", "glue/none"),
    "paper: 'lefd' is no row or column": ('"left" = { SST-2', '"lefd" = { SST-2'),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_study_with_a_mistake_is_refused(tiny_store, tiny_data, tmp_path, message):
    old, new = MISTAKES[message]
    assert old in BASE
    recipe = write_study(tmp_path, BASE.replace(old, new))
    with pytest.raises(InputError, match=re.escape(message)):
        make_plan(sources(recipe, tiny_store, tiny_data))


def test_a_store_that_does_not_fit_is_refused(tiny_store, tiny_data, tmp_path):
    recipe = write_study(tmp_path)
    (tmp_path / "pretrain.toml").write_text(PRETRAIN.replace("vocab_size = 100", "vocab_size = 101"))
    for minute in (False, True):  # what the study refuses --minute refuses too
        with pytest.raises(InputError, match=r"tiny.toml .* variant 'both': the recipe has a vocabulary of 101"):
            make_plan(sources(recipe, tiny_store, tiny_data, minute=minute))
    with pytest.raises(InputError, match="--corpus is missing"):
        make_plan(StudyInputs(recipe, None, tiny_data))


def test_a_folder_of_something_else_is_refused(finished, tiny_store, tiny_data, tmp_path):
    recipe, out = finished
    plan = make_plan(sources(recipe, tiny_store, tiny_data))
    for change in ({"study": "other"}, {"format": 2}, {"minute": True}):
        (tmp_path / "results.json").write_text(json.dumps(read_json(out / "results.json") | change))
        for command in (run_study, show_runs):
            with pytest.raises(InputError, match="the results of something else"):
                command(plan, tmp_path, tmp_path / "cells")
    (tmp_path / "results.json").rename(tmp_path / "rows.jsonl")
    with pytest.raises(InputError, match=r"other files than a run's, such as rows\.jsonl"):
        run_study(plan, tmp_path, tmp_path / "cells")


# ---- the recipes in the repository


@pytest.fixture
def any_vocabulary(monkeypatch):
    """The recipes are written for a vocabulary of 30,522; here they run on one of 100."""
    monkeypatch.setattr(planning, "check_vocabulary", lambda *_: None)


@pytest.mark.parametrize("path", sorted(STUDIES.rglob("*.toml")), ids=lambda p: p.relative_to(STUDIES).as_posix())
def test_a_recipe_expands(path, tiny_store, tiny_data, any_vocabulary):
    """Every override is a field that exists, every task and layer is there, every concatenation fits."""
    study = load_recipe(path, Study)
    assert study.search or (study.claim is not None and study.claim.finding)
    if path.stem == "suite":  # which test_search.py runs, with the model that it needs
        return
    plan = make_plan(sources(path, tiny_store, tiny_data, minute=True))
    assert {row.name for row in plan.rows} >= {variant.name for variant in study.variants if variant.row}
    if path.parent.name != "paper":
        assert all(run.spec.config.loop.seed for run in plan.runs if run.spec.kind == "pretrain")


# columns that differ from another one of the recipe in their data alone
ALIKE = {
    "mini": ("NER 4,000", "NER 14,041", "SST-2 1,000", "SST-2", "CoLA", "QNLI", "RTE"),
    "tasks": ("MNLI", "next sentence"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["features", "mini", "mini-ko", "recurrent", "static-dynamic", "steps", "tasks"])
def test_a_recipe_runs_from_end_to_end(name, tiny_store, tiny_data, tmp_path, any_vocabulary):
    """Recipes that differ in kind."""
    plan, alike = make_plan(sources(STUDIES / f"{name}.toml", tiny_store, tiny_data, minute=True)), ALIKE.get(name, ())
    plan = replace(plan, seeds=plan.seeds[:1])
    for row in plan.rows:
        for column, cells in row.tuned.items():
            row.tuned[column] = () if column in alike else cells[:1]
    results = run_study(plan, tmp_path / "out", tmp_path / "cells", Options(quiet=True))
    assert results["failed"] == results["left"] == [] and results["minute"]
    held_out = {column.name for column in plan.study.columns if column.pretrain}  # random weights have no such figure
    measured = [one for one in results["measured"] if one["row"] != "random weights" or one["column"] not in held_out]
    partial = {variant.name: variant.columns for variant in plan.study.variants if variant.columns}
    measured = [one for one in measured if one["column"] in partial.get(one["row"], (one["column"],))]
    measured = [one for one in measured if one["column"] not in alike]
    assert all(one["n"] == max(1, len(results["pretrain_seeds"])) for one in measured)
    assert (tmp_path / "out" / "study.png").stat().st_size > 5000


def test_a_variant_overrides_a_column_and_a_column_the_task(tiny_store, tiny_data, tmp_path):
    text = BASE.replace("train_rows = 24", "train_rows = 24, finetune = { epochs = 4.0, batch_size = 4 }")
    text = text.replace("finetune.random_init = true", "finetune = { random_init = true, batch_size = 6 }")
    plan = make_plan(sources(write_study(tmp_path, text), tiny_store, tiny_data))
    configs = {row.name: row.tuned["SST-2"][0].spec.config for row in plan.rows}
    assert all(isinstance(config, FinetuneConfig) and config.epochs == 4 for config in configs.values())
    assert (configs["both"].batch_size, configs["random"].batch_size, configs["both"].max_seq_length) == (4, 6, 24)
