"""Studies beside plain variants: drawn rows, chosen settings, baselines, seeds of pre-training, held-out sets."""

import functools
import math
import shutil
from dataclasses import replace

import pytest

from bertworks.experiments import study
from bertworks.experiments.baselines import BaselineConfig
from bertworks.experiments.choices import best_setting, data_of_run
from bertworks.experiments.plan import make_plan
from bertworks.experiments.results import measure
from bertworks.experiments.scheduler import RunFolder
from bertworks.experiments.specs import Plan, StudyInputs, describe
from bertworks.experiments.study import Options, Runner, run_study
from bertworks.experiments.tables import tables
from bertworks.files import InputError, read_json, write_json
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.tasks.base import Data, Example
from support.studies import PRETRAIN, entry_of, write_task_files

HEAD = """
title = "Tiny"
base = "both"
pretrain = "pretrain.toml"
finetune = "finetune.toml"
seeds = [1, 2]
"""
EXAMPLES = f"""{HEAD}
axis = "labelled texts"
variants = [
    {{ name = "both", choose.optim.lr = [1e-3, 1e-4] }},
    {{ name = "words", baseline = "words" }},
    {{ name = "word2vec", static = {{ width = 8, epochs = 1, min_count = 1 }} }},
]
columns = [
    {{ name = "8", task = "sst2", data = "glue/SST-2", train_rows = 8, draw = true, panel = "SST-2", x = 8 }},
    {{ name = "24", task = "sst2", data = "glue/SST-2", train_rows = 24, draw = true, panel = "SST-2", x = 24 }},
]
"""
SEEDS = f"""{HEAD}
pretrain_seeds = [1, 2]
variants = [
    {{ name = "both" }},
    {{ name = "no pairs", pretrain.objective = "mlm" }},
    {{ name = "random", finetune.random_init = true }},
]
columns = [
    {{ name = "perplexity", pretrain = "mlm_perplexity" }},
    {{ name = "on pairs", pretrain = "mlm_perplexity", evaluate = {{ objective = "mlm" }} }},
    {{ name = "SST-2", task = "sst2", data = "glue/SST-2", train_rows = 8 }},
]
"""


def write_files(place):
    """The recipes and the data of the studies, in `place`."""
    (place / "pretrain.toml").write_text(PRETRAIN)
    (place / "finetune.toml").write_text("max_seq_length = 24\nbatch_size = 8\nepochs = 1.0\n")
    write_task_files(place / "data", ["glue/SST-2"])


def plan_in(place, text: str, store) -> Plan:
    (place / "tiny.toml").write_text(text)
    return make_plan(StudyInputs(place / "tiny.toml", store, place / "data"))


@pytest.fixture
def planned(tmp_path, tiny_store):
    """A function that plans a study, and its folder."""
    write_files(tmp_path)
    return lambda text: plan_in(tmp_path, text, tiny_store.path), tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_store):
    """A function that runs a study once: its plan, its results and the folder that has study/ and cells/."""

    @functools.cache
    def run(text: str):
        place = tmp_path_factory.mktemp("finished")
        write_files(place)
        plan = plan_in(place, text, tiny_store.path)
        return plan, run_study(plan, place / "study", place / "cells", Options(quiet=True)), place

    return run


def copy_runs(finished, root, *left):
    """Put the runs of the study of examples in `root`, except those that are left to be computed."""
    names = {run.name for run in left}
    shutil.copytree(finished(EXAMPLES)[2] / "cells", root, ignore=lambda _, files: names & {*files})


def test_a_study_of_examples_runs_with_all_its_rows(finished):
    plan, results, out = finished(EXAMPLES)
    assert results is not None and not results["left"] and not results["failed"]
    assert all(entry["n"] == 2 for entry in results["measured"])
    kinds = [name.split("-")[0] for name in results["cells"]]
    # two columns: two candidates and two seeds of `both`, two seeds of the others
    assert [kinds.count(kind) for kind in ("pretrain", "static", "baseline", "finetune")] == [1, 1, 4, 2 * (2 + 2 + 2)]
    assert {entry_of(results, "both", c)["chosen"] for c in ("8", "24")} <= {"optim.lr = 0.001", "optim.lr = 0.0001"}
    assert "chosen" not in entry_of(results, "words", "8")
    shown = {sheet.title: sheet for sheet in tables(results)}
    assert [row[0] for row in shown["Chosen settings"].rows] == ["both"]
    costs = {row[0]: row for row in shown["Costs"].rows}
    assert costs["words"][1] == "-" and costs["word2vec"][1] != "-"
    assert (out / "study" / "study.png").exists()
    times = {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("results.json")}
    again = run_study(plan, out / "study", out / "cells", Options(quiet=True))
    assert again["measured"] == results["measured"]
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())  # nothing was computed again


def test_each_run_draws_its_rows_and_a_candidate_is_judged_on_training_rows(planned):
    make, _ = planned
    runs = make(EXAMPLES).rows[0].tuned["24"]
    train = [Example(f"train {i}", None, "positive", i) for i in range(60)]
    data = Data(train, [Example("dev", None, "positive")], more={"test": [Example("test", None, "positive")]})
    one, other = (data_of_run(run.spec, data) for run in runs)
    assert len(one.train) == len(other.train) == 24 and one.train != other.train and one.dev == data.dev
    trial = data_of_run(runs[0].spec.candidates[0].spec, data)
    assert {*trial.train, *trial.dev} == {*one.train} and len(trial.dev) == 5 and not trial.more
    names = {run.name for run in (*runs, *runs[0].spec.candidates)}
    assert len(names) == 4  # drawn, kept back and chosen runs are runs of their own


def test_the_best_candidate_is_chosen_by_its_mean_over_the_choosing_seeds(planned):
    make, out = planned
    text = EXAMPLES.replace("draw = true, panel", "draw = true, choose_seeds = 2, choose.epochs = [1.0, 2.0], panel")
    spec, folder = make(text).rows[0].tuned["8"][1].spec, RunFolder(out / "cells")
    assert len(spec.candidates) == 2 * 2 * 2
    scores = {"optim.lr = 0.0001, epochs = 2": (0.5, 0.9), "optim.lr = 0.001, epochs = 1": (0.8, 0.5)}
    for run in spec.candidates:
        assert best_setting(spec, folder) is None  # some are left
        seed, name = run.spec.config.loop.seed, run.spec.setting
        found = next((s for key, s in scores.items() if {*key.split(", ")} == {*name.split(", ")}), (0.1, 0.2))
        finish(folder, run, found[seed - 1])
    name, config = best_setting(spec, folder)
    assert {*name.split(", ")} == {"optim.lr = 0.0001", "epochs = 2"}
    assert (config.optim.lr, config.epochs, config.loop.seed) == (1e-4, 2.0, 2)


def finish(folder, run, accuracy):
    """Results of a run that never was."""
    folder.path(run).mkdir(parents=True)
    metrics = {"metrics": {"accuracy": accuracy}, "seconds": 1.0, "collapsed": False}
    write_json(folder.path(run) / "results.json", metrics)


def test_a_candidate_that_diverges_loses_and_the_study_goes_on(planned, finished):
    make, out = planned
    plan, folder = make(EXAMPLES), RunFolder(out / "cells")
    final = plan.rows[0].tuned["8"][0]
    fast_one = final.spec.candidates[0]
    assert fast_one.spec.setting == "optim.lr = 0.001"
    copy_runs(finished, folder.root, *final.spec.candidates, *plan.rows[0].tuned["8"], *plan.rows[1].tuned["8"])
    folder.fail(fast_one, "its loss was not finite", "diverged")
    results = run_study(plan, out / "study", out / "cells", Options(quiet=True))
    entry = entry_of(results, "both", "8")
    assert (entry["n"], entry["failed"], entry["chosen"]) == (2, [], "optim.lr = 0.0001")
    assert [one["what"] for one in results["failed"]] == [fast_one.title]  # and it is reported


def test_a_choice_with_candidates_that_diverge_or_fail(planned):
    make, out = planned
    final = make(EXAMPLES).rows[0].tuned["8"][0]
    for name, outcomes in (("all", ["diverged", "diverged"]), ("one", ["failed", ""])):
        folder = RunFolder(out / name)
        for run, outcome in zip(final.spec.candidates, outcomes, strict=True):
            folder.fail(run, "no", outcome) if outcome else finish(folder, run, 0.5)
        assert folder.failure(final) == {"outcome": outcomes[0], "message": "no"}
        assert best_setting(final.spec, folder) is None and not folder.unfinished([final])
    final = make(EXAMPLES.replace("draw = true, panel", "draw = true, choose_seeds = 2, panel")).rows[0].tuned["8"][0]
    folder = RunFolder(out / "cells")
    one, other, *slow = final.spec.candidates
    finish(folder, one, 0.9)
    folder.fail(other, "no", "diverged")
    for run in slow:
        finish(folder, run, 0.5)
    assert best_setting(final.spec, folder)[0] == "optim.lr = 0.0001"  # the only setting with all its seeds
    shutil.rmtree(folder.path(slow[0]))
    folder.fail(slow[0], "no", "diverged")
    assert best_setting(final.spec, folder)[0] == "optim.lr = 0.001"


def test_the_table_has_the_setting_of_the_run_and_not_what_is_best_now(planned, finished):
    make, out = planned
    plan, folder = make(EXAMPLES), RunFolder(out / "cells")
    final = plan.rows[0].tuned["8"][0]
    copy_runs(finished, folder.root, *final.spec.candidates, *plan.rows[0].tuned["8"])
    for run, accuracy in zip(final.spec.candidates, (0.9, 0.1), strict=True):
        finish(folder, run, accuracy)
    results = run_study(plan, out / "study", out / "cells", Options(quiet=True))
    assert entry_of(results, "both", "8")["chosen"] == "optim.lr = 0.001"
    assert "lr = 0.001\n" in read_json(folder.path(final) / "cell.json")["recipe"]
    shutil.rmtree(folder.path(final.spec.candidates[0]))
    finish(folder, final.spec.candidates[0], 0.0)
    assert best_setting(final.spec, folder)[0] == "optim.lr = 0.0001"
    assert entry_of(measure(plan, folder), "both", "8")["chosen"] == "optim.lr = 0.001"


def test_a_started_run_keeps_its_setting(planned, monkeypatch):
    make, out = planned
    plan, folder = make(EXAMPLES), RunFolder(out / "cells")
    final = plan.rows[0].tuned["8"][0]
    for run, accuracy in zip(final.spec.candidates, (0.9, 0.1), strict=True):
        finish(folder, run, accuracy)
    describe(final, folder, chosen=("optim.lr = 0.0001", FinetuneConfig()))
    (folder.path(final) / "state").mkdir()
    rates = []
    monkeypatch.setattr(study, "finetune", lambda config, *_, **__: rates.append(config.optim.lr))
    Runner(plan, folder, Options(quiet=True)).compute(final)
    (folder.path(final) / "state").rmdir()
    Runner(plan, folder, Options(quiet=True)).compute(final)
    assert rates == [1e-4, 1e-3]


def test_variants_in_some_columns_and_columns_with_fewer_seeds(planned):
    make, out = planned
    text = EXAMPLES.replace('baseline = "words"', 'baseline = "overlap", columns = ["24"]')
    plan = make(text := text.replace("x = 8 ", "x = 8, seeds = 1 "))
    counts = {row.name: {column: len(runs) for column, runs in row.tuned.items()} for row in plan.rows}
    assert counts == {"both": {"8": 1, "24": 2}, "words": {"24": 2}, "word2vec": {"8": 1, "24": 2}}
    assert plan.rows[1].tuned["24"][1].spec.config == BaselineConfig(2, "overlap")
    assert entry_of(measure(plan, RunFolder(out)), "words", "8")["n"] == 0
    with pytest.raises(InputError, match="columns: '42' is no row or column of the study; expected one of '8', '24'"):
        make(text.replace('["24"]', '["42"]'))
    assert [variant.name for variant in plan.study.without(["24"]).variants] == ["both", "word2vec"]
    plan, folder = make(SEEDS.replace("train_rows = 8", "train_rows = 8, seeds = 1")), RunFolder(out / "cells")
    for row in plan.base.replicates:
        finish(folder, *row.tuned["SST-2"], 0.5)
    assert entry_of(measure(plan, folder), "both", "SST-2")["values"] == {"1": 0.5, "2": 0.5}


def test_pre_training_seeds_are_the_unit(finished):
    plan, results, out = finished(SEEDS)
    assert results is not None and not results["left"] and not results["failed"]
    assert (results["unit"], results["pretrain_seeds"]) == ("pre-training seeds", [1, 2])
    trained = [run for run in plan.runs if run.spec.kind == "pretrain"]
    assert sorted(run.spec.config.loop.seed for run in trained) == [1, 1, 2, 2]
    tuned = {row.name: [run for one in row.replicates for run in one.tuned["SST-2"]] for row in plan.rows}
    assert [run.spec.config.loop.seed for run in tuned["both"]] == [1, 2, 3, 4]  # none is used twice
    starts = [{run.spec.models[0].path for run in runs} for runs in tuned.values()]
    assert [len(some) for some in starts] == [2, 2, 1]  # random weights need a shape alone
    entry, folder = entry_of(results, "both", "SST-2"), RunFolder(out / "cells")
    scores = [folder.results(run)["metrics"]["accuracy"] for run in tuned["both"]]
    assert entry["values"] == {"1": sum(scores[:2]) / 2, "2": sum(scores[2:]) / 2} and entry["n"] == 2
    assert entry_of(results, "both", "perplexity")["values"].keys() == {"1", "2"}
    note = next(sheet for sheet in tables(results) if sheet.title == "Tiny").notes[0]
    assert "2 seeds of pre-training" in note and "pre-trained once" not in note


@pytest.mark.parametrize(("seeds", "tuned"), [([0], [0, 1]), ([0, 1], [0, 1, 2, 3]), ([2, 3], [2, 3, 5, 6])])
def test_each_pre_training_has_its_own_seeds_of_fine_tuning(planned, seeds, tuned):
    plan = planned[0](SEEDS.replace("\nseeds = [1, 2]", f"\nseeds = {seeds}"))
    runs = [run for one in plan.base.replicates for run in one.tuned["SST-2"]]
    assert [run.spec.config.loop.seed for run in runs] == tuned


def test_one_model_folder_is_not_several_pre_trainings(planned):
    make, out = planned
    with pytest.raises(InputError, match="model is one model folder, but n counts pretrain_seeds"):
        make(SEEDS.replace('"no pairs", pretrain.objective = "mlm"', '"no pairs", model = "there"'))
    with pytest.raises(InputError, match="'both': --model is one model folder"):
        make_plan(replace(make(SEEDS).inputs, model=out / "there"))


CLAIM = '[claim]\nrow = "both"\nagainst = "{}"\ncolumn = "{}"\nexpect = "higher"\nfinding = "it helps"\n'


@pytest.mark.parametrize("which", ["candidate", "another seed of pre-training"])
def test_every_finished_run_of_its_rows_makes_a_claim_late(planned, which):
    make, out = planned
    folder = RunFolder(out / "cells")
    if which == "candidate":
        plan = make(EXAMPLES + CLAIM.format("words", "8"))
        run = plan.base.tuned["8"][0].spec.candidates[0]
    else:
        plan = make(SEEDS + CLAIM.format("random", "SST-2"))
        run = plan.base.others[0].tuned["SST-2"][1]
    assert measure(plan, folder)["claim"]["named_before"]
    finish(folder, run, 0.5)
    assert not measure(plan, folder)["claim"]["named_before"]


def test_results_name_the_weights_of_each_row_and_what_is_drawn(planned):
    make, out = planned
    rows = {row["name"]: row["weights"] for row in measure(make(SEEDS), RunFolder(out))["rows"]}
    assert rows["random"] == "random" and len({*rows.values()}) == 3
    results = measure(make(EXAMPLES), RunFolder(out))
    rows = {row["name"]: row["weights"] for row in results["rows"]}
    assert rows["words"] == "none" and len({*rows.values()}) == 3
    assert all(column["draw"] for column in results["columns"])


def test_all_models_are_evaluated_on_one_held_out_set(finished):
    """Its metrics equal the pre-training's own where the recipe makes the same set."""
    results = finished(SEEDS)[1]
    same, own = (entry_of(results, "no pairs", column)["values"] for column in ("on pairs", "perplexity"))
    assert {*same} == {"1", "2"} and all(math.isclose(same[seed], own[seed], rel_tol=0.02) for seed in same)
    assert entry_of(results, "both", "on pairs")["n"] == 2
    assert not entry_of(results, "random", "on pairs")["values"]
