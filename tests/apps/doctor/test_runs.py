"""Each check of runs finds its planted case, and leaves a good run alone."""

import json
import random
import shutil
from dataclasses import replace

import pytest

from bertworks.apps.doctor import examine
from bertworks.apps.doctor.examination import Given, of_finetuning, of_pretraining
from bertworks.data.store import Store
from bertworks.files import write_json, write_text
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.pretraining.run import pretrain
from bertworks.training.config import LoopConfig, OptimConfig
from support.planted import MACHINE, changed, finetuned, hits, pretrained, records
from support.tiny_task import tiny_folder


def test_a_good_run_is_left_alone(tmp_path):
    report = of_pretraining(pretrained(tmp_path / "run"))
    assert hits(report) == [] and len(report.checked) > 8
    assert set(report.skipped) == {"predictions at [MASK]", "store of the run"}


PLANTED = {
    "frequencies": ({"metrics": {"mlm_loss": 6.97}}, "plateau", "held-out loss 6.97 nats, unigram entropy 7.00: the "
                    "model knows word frequencies at best"),
    "plateau": ({"metrics": {"mlm_loss": 6.4}}, "plateau", "held-out loss 6.40 nats is on the plateau: 6.30 is word "
                "frequencies (entropy 7.00)"),
    "pairs at chance": ({"metrics": {"nsp_loss": 0.692, "nsp_accuracy": 0.51}}, "next sentence",
                        "nsp_loss 0.692 nats and accuracy 0.510 are those of chance"),
    "few updates": ({"steps": 90, "log": records(90)}, "updates", "90 updates, 200,000 tokens"),
    "slower": ({"log": changed("train", 14, tokens_per_second=600.0)}, "throughput",
               "throughput fell from 1,000 to 600 tokens a second"),
    "no gradient": ({"log": changed("train", 5, grad_norm=1e-5)}, "gradients", "gradient norms of 1.0e-05"),
    "a jump of the gradient": ({"log": changed("train", 20, grad_norm=50.0)}, "gradients",
                               "a gradient norm of 50.0, the median of the second half is 1.00"),
    "a jump of the loss": ({"log": changed("train", 20, mlm_loss=7.2)}, "gradients",
                           "the training loss rose by 3.00 nats up to step 2,000 (mlm_loss)"),
    "held-out loss rose": ({"log": changed("eval", 20, mlm_loss=4.9)}, "held-out loss",
                           "the held-out loss rose from 4.200 at step 1,900 to 4.900 (mlm_loss)"),
    "skipped": ({"log": changed("train", 1, skipped=30)}, "finite numbers",
                "30 of 2,000 updates were skipped: the gradient was not finite"),
    "not finite": ({"metrics": {"mlm_loss": None}}, "finite numbers", "not finite: mlm_loss"),
    "no held-out losses": ({"log": changed("eval", 1, mlm_loss=None)}, "finite numbers",
                           "20 of 20 evaluations have a held-out loss that is no finite number (the first "),
    "a held-out loss is lost": ({"log": changed("eval", 20, mlm_loss=float("nan"))}, "finite numbers",
                                "1 of 20 evaluations has a held-out loss that is no finite number"),
    "a log that was cut": ({"log": records()[:21]}, "log", "log.jsonl ends at step 1,100, the run ended at step 2,000"),
    "rate 0": ({"log": changed("train", 15, lr=0.0), "config": PretrainConfig(loop=LoopConfig(hours=1.0))},
               "learning rate", "6 of 20 records of the log had the learning rate 0"),
    "other programs": ({"log": changed("train", 5, cores_used_by_others=1.25)}, "cores",
                       "other programs used 1.2 cores during the run"),
    "few threads": ({"machine": {**MACHINE, "threads": 1}}, "cores", "the run used 1 of 2 cores (50 %)"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("start", "positions"), [("normal", "learned"), ("position-heads", "learned"), ("normal", "rotary")]
)
def test_a_start_that_the_run_has_or_cannot_have_is_not_advised(tmp_path, start, positions):
    model = replace(PretrainConfig().model, start=start, position_embedding_type=positions)
    config = PretrainConfig(model=model)
    report = of_pretraining(pretrained(tmp_path / "run", metrics={"mlm_loss": 6.4}, config=config))
    (finding,) = report.findings
    advised = "--model.start position-heads --masking.masked-lm-prob 0.4" in finding.advice
    assert advised == ((start, positions) == ("normal", "learned"))
    results = tmp_path / "run" / "results.json"
    write_json(results, json.loads(results.read_text()) | {"continued": True})  # by --init
    (finding,) = of_pretraining(tmp_path / "run").findings
    assert "--model.start" not in finding.advice


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name, tmp_path):
    settings, check, evidence = PLANTED[name]
    found = hits(of_pretraining(pretrained(tmp_path / "run", **settings)))
    assert [one[0] for one in found] == [check] and found[0][2].startswith(evidence), found


def test_rates_follow_from_the_recipe_of_a_short_run(tmp_path):
    """A schedule with a warm-up begins at 0: that one update is as planned, unless the run has no other."""

    def found(name, steps, warmup):
        config = PretrainConfig(loop=LoopConfig(steps=steps), optim=OptimConfig(warmup=warmup))
        files = pretrained(tmp_path / name, config=config, steps=steps, log=records(20))
        return [one[1:] for one in hits(of_pretraining(files)) if one[0] == "learning rate"]

    assert found("one", 1, 0.2) == [("warning", "1 of 1 updates had the learning rate 0")]
    assert found("short", 10, 0.2) == found("long", 100, 0.1) == found("steady", 1, 0.0) == []


def test_an_unfinished_run_says_where_it_is(tmp_path):
    run = pretrained(tmp_path / "run")
    (run / "results.json").unlink()
    assert hits(examine(run))[0] == ("finished", "note", "no results.json: the run is at step 2,000 of 2,000, under "
                                     "way or stopped")  # fmt: skip


@pytest.fixture(scope="module")
def tiny_run(tiny_store, tmp_path_factory):
    """A real run of two updates, whose model answers the same everywhere."""
    from support.tiny_task import TINY

    model = replace(TINY, vocab_size=tiny_store.vocab_size, max_position_embeddings=32)
    plain = PretrainConfig()
    config = replace(
        plain,
        model=model,
        loop=LoopConfig(steps=2),
        eval_batches=2,
        phases=(replace(plain.phases[0], length=32, batch_size=8),),
    )
    out = tmp_path_factory.mktemp("pretrained") / "run"
    pretrain(config, tiny_store.path, out, quiet=True)
    return out


def test_the_model_is_asked_at_masks_where_the_store_is_given(tiny_run, tiny_store, tmp_path):
    from safetensors.torch import load_file, save_file

    given = Given(corpus=tiny_store.path)
    found = dict((check, text) for check, _, text in hits(examine(tiny_run, given)))
    assert {"plateau", "predictions at [MASK]", "updates"} <= {*found}
    assert (
        "nats, the unigram entropy" in found["predictions at [MASK]"] or "everywhere" in found["predictions at [MASK]"]
    )
    run = shutil.copytree(tiny_run, tmp_path / "run")
    tensors = load_file(run / "model/model.safetensors")
    tensors["cls.predictions.bias"][7] = 100.0
    save_file(tensors, run / "model/model.safetensors", {"format": "pt"})
    token = Store.open(tiny_store.path).load_tokenizer().vocab[7]
    evidence = dict((check, text) for check, _, text in hits(examine(run, given)))["predictions at [MASK]"]
    assert evidence.startswith("100 % of ") and f"as {token!r}: the model answers the same everywhere" in evidence
    report = examine(tiny_run)
    assert "needs the store" in report.skipped["predictions at [MASK]"]


def test_another_store_is_named(tiny_run, tiny_store, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    write_json(run / "results.json", results | {"corpus": "0" * 32})
    missing = hits(examine(run, Given(corpus=tmp_path / "nowhere")))[0]
    assert missing[:2] == ("files of the store", "error") and "no such folder" in missing[2]
    [one] = [hit for hit in hits(examine(run, Given(corpus=tiny_store.path))) if hit[0] == "store of the run"]
    assert one[1] == "warning" and "is not the store that the run was trained on" in one[2]


# ---- fine-tuned runs


def test_a_good_fine_tuned_run_is_left_alone(tmp_path):
    report = of_finetuning(finetuned(tmp_path / "run"))
    assert hits(report) == [] and {"score", "order of labels", "updates", "cut texts"} <= {*report.checked}


FINETUNED = {
    "collapsed": ({"collapsed": True, "predicted": {"good": 90, "bad": 0}}, "score", "error",
                  "collapsed: the same answer for every development row, 'good'"),
    "flat": ({"flat": True}, "score", "error", "the predicted values hardly vary"),
    "guessing": ({"metrics": {"loss": 0.7, "accuracy": 0.52}}, "score", "warning",
                 "accuracy 0.520 on 90 development rows; guessing has 0.500: hardly anything was learned"),
    "other names": ({"pairs": [(b, a) for a, b in [("good", "bad"), ("bad", "good")] * 45], "metrics": {"loss": 2.0}},
                    "order of labels", "error", "accuracy 0.000, but 1.000 if the labels had other names"),
    "few updates": ({"steps": 30, "log": records(30), "examples": {"train": 100, "dev": 90}}, "updates", "warning",
                    "30 updates"),
    "rows never read": ({"examples": {"train": 5000, "dev": 90}}, "updates", "warning",
                        "200 updates of 8 rows read 1,600 of the 5,000 training rows, the others never"),
    "cut": ({"truncation": {"train": {"examples": 300, "tokens": 6000}}}, "cut texts", "warning",
            "300 of 1,000 train rows (30 %) were cut, by 20 tokens on average"),
    "too sure": ({"metrics": {"loss": 2.1, "accuracy": 0.8}}, "certainty", "note",
                 "development loss 2.10, equal probabilities have 0.69: the model is sure of its errors"),
}  # fmt: skip


@pytest.mark.parametrize("name", FINETUNED)
def test_a_planted_fault_of_a_fine_tuned_run_is_found(name, tmp_path):
    settings, check, severity, evidence = FINETUNED[name]
    found = [one for one in hits(of_finetuning(finetuned(tmp_path / "run", **settings))) if one[0] == check]
    assert len(found) == 1 and found[0][1] == severity and found[0][2].startswith(evidence), found


def test_a_last_batch_that_is_not_full_is_left_out_by_design(tmp_path):
    """One epoch over 1,400 rows has 43 updates of 32 rows; here 200 of 8 rows."""
    for rows, found in ((1607, []), (1608, ["200 updates of 8 rows read 1,600 of the 1,608 training rows, the others "
                                            "never"])):  # fmt: skip
        run = finetuned(tmp_path / f"{rows}", examples={"train": rows, "dev": 90})
        assert [one[2] for one in hits(of_finetuning(run))] == found


def test_another_order_of_labels_is_no_chance(tmp_path):
    """Constant answers, few rows and many labels fit other names well, without any order."""
    rng = random.Random(1)
    names = [f"label {i:03}" for i in range(300)]
    harmless = {
        "constant": [("good", "bad")] * 62 + [("bad", "bad")] * 28,
        "few rows": [("good", "bad")] * 9 + [("bad", "bad")] * 4,
        "few rows, both answers": [("good", "bad")] * 8 + [("good", "good")] * 2 + [("bad", "good")] * 3,
        "many labels": [(rng.choice(names), rng.choice(names)) for _ in range(60)],
    }
    shifted = {
        "20 labels": [(names[i % 20], names[(i + 1) % 20]) for i in range(200)],
        "150 labels": [(names[i % 150], names[(i + 1) % 150]) for i in range(3000)],
        "30 rows": [("good", "bad"), ("bad", "good")] * 15,
    }
    for name, pairs in (harmless | shifted).items():
        run = finetuned(tmp_path / name, pairs=pairs)
        found = [one[1] for one in hits(of_finetuning(run)) if one[0] == "order of labels"]
        assert found == (["error"] if name in shifted else []), name


def test_few_updates_come_before_few_rows(tmp_path):
    few = {"steps": 3, "log": records(3), "examples": {"train": 50, "dev": 90}, "collapsed": True}
    found = of_finetuning(finetuned(tmp_path / "run", **few)).findings
    assert [one.advice for one in found if one.check == "score"] == [
        "the run had few updates (3); give more --epochs or --loop.steps, for at least 100 updates"
    ]


def test_few_updates_are_named_once(tmp_path):
    few = {"steps": 30, "log": records(30), "examples": {"train": 240, "dev": 90}}
    report = of_finetuning(finetuned(tmp_path / "run", metrics={"loss": 0.7, "accuracy": 0.52}, **few))
    assert [one[0] for one in hits(report)] == ["score"]
    assert [finding.advice for finding in report.findings if "few updates (30)" in finding.advice]
    assert "updates" not in report.checked and report.skipped["updates"].startswith("the finding of 'score' names")
    finetuned(tmp_path / "other")  # in a folder of runs as well, although the updates of one run are enough
    report = examine(tmp_path)
    assert [one.check for one in report.findings if "few updates (30)" in one.advice] == ["score"]
    assert "updates" not in report.checked and "updates" in report.skipped


def test_labels_that_config_does_not_name_are_an_error(tmp_path):
    run = finetuned(tmp_path / "run")
    (run / "model").mkdir()
    write_json(run / "model/config.json", {"id2label": {"0": "good", "1": "poor"}})
    [one] = hits(of_finetuning(run))
    assert one[:2] == ("order of labels", "error") and "does not name the labels 'bad'" in one[2]


def test_rows_of_several_labels_have_no_order(tmp_path):
    run = finetuned(tmp_path / "run", pairs=[("good|bad", "good"), ("", "good")] * 45, metrics={"loss": 0.4, "f1": 0.8})
    (run / "model").mkdir()
    labels = {"id2label": {"0": "good", "1": "bad"}}
    write_json(run / "model/config.json", labels)
    assert "order of labels" in {check for check, *_ in hits(of_finetuning(run))}
    write_json(run / "model/config.json", labels | {"problem_type": "multi_label_classification"})
    assert hits(of_finetuning(run)) == []


def test_a_run_on_few_rows_gets_one_advice(tmp_path):
    losses = [0.5, 0.6, 1.4]
    log = [*records(200), *({"kind": "eval", "step": 50 * i, "loss": loss} for i, loss in enumerate(losses, 1))]
    guessing = {"metrics": {"loss": 1.4, "accuracy": 0.52}, "log": log}
    for rows, advice in (
        (64, {"label more rows: 64 training rows are few, and no other setting replaces them"}),
        (1000, {"train for fewer updates, or keep the best weights: --loop.keep-best loss",
                "try another seed or a lower optim.lr, and label more rows"}),
    ):  # fmt: skip
        run = finetuned(tmp_path / f"{rows}", examples={"train": rows, "dev": 90}, **guessing)
        found = {one.check: one.advice for one in of_finetuning(run).findings}
        assert {found["score"], found["held-out loss"]} == advice
        assert all(one in found["certainty"] or rows == 1000 for one in advice)


def test_a_demo_names_its_parts(tmp_path):
    write_text(tmp_path / "demo.toml", "")
    assert examine(tmp_path).findings[0].advice == "rerun the demo to resume"
    write_json(tmp_path / "results.json", {"kind": "demo"})
    for name in ("store", "finetune/tags/pre-trained", "finetune/tags/locks", "pretrain"):
        (tmp_path / name).mkdir(parents=True)
    write_text(tmp_path / "pretrain/log.jsonl", "")
    report = examine(tmp_path)
    [one] = report.findings
    assert report.kind == "demo" and one.evidence == "a demo: its parts were not examined"
    parts = ("pretrain --corpus {}/store", "store", "finetune/tags")
    assert one.advice == "; ".join(f"bertworks doctor {tmp_path}/{part}".format(tmp_path) for part in parts)


def test_early_stopping_may_end_a_run_after_few_updates(tmp_path):
    run = finetuned(tmp_path / "run", steps=30, log=records(30), stopped_early=True)
    assert hits(of_finetuning(run)) == []


def test_the_step_of_a_stopped_run_is_that_of_its_state(tmp_path):
    """A run that was stopped between two records of its log."""
    import torch
    from safetensors.torch import save_file

    run = finetuned(tmp_path / "run", log=records(20)[:2])
    (run / "results.json").unlink()
    (run / "state").mkdir()
    header = {"progress": json.dumps({"step": 41, "of another version": 41}), "recipe": "0"}
    save_file({"model.a": torch.zeros(2)}, run / "state/state.safetensors", header)
    assert hits(examine(run))[0][2] == "no results.json: the run is at step 41 of 200, under way or stopped"
    (run / "state/state.safetensors").write_bytes(b"half")
    [(check, _, evidence)] = [one for one in hits(examine(run)) if one[1] == "error"]
    assert check == "finished" and "not a whole state" in evidence and "remove the run folder" in evidence


def test_what_a_killed_process_left_is_named_and_removed(tmp_path):
    run = finetuned(tmp_path / "run")
    dead = run / ".results.json.999999999.tmp"
    dead.write_text("half")
    (run / "state").mkdir()
    (run / "state/state.safetensors").write_bytes(b"x")
    [one] = hits(examine(run))
    assert one[:2] == ("leftovers", "note") and one[2].startswith("2 leftovers of a killed process")
    assert examine(run, fix=True).fixed == [f"removed {dead}", f"removed {run / 'state'}"]
    assert hits(examine(run)) == [] and sorted(path.name for path in run.iterdir()) == [
        "log.jsonl",
        "predictions.jsonl",
        "recipe.toml",
        "results.json",
    ]


def test_a_run_that_is_in_use_is_left_alone(tmp_path):
    from bertworks.files import try_lock

    run = finetuned(tmp_path / "run")
    (run / ".results.json.999999999.tmp").write_text("half")
    with try_lock(run / ".lock") as mine:
        assert mine and examine(run, fix=True).fixed == []
    assert (run / ".results.json.999999999.tmp").exists()


def test_a_damaged_line_of_a_log_is_reported_once(tmp_path):
    run = finetuned(tmp_path / "run")
    (run / "log.jsonl").write_text("{\n{}\n")
    report = examine(run)
    assert [one[:2] for one in hits(report)] == [("log", "error")]
    assert report.skipped["gradients"] == "the file that 'log' found damaged is needed"


def test_a_finished_run_without_a_log_is_noted(tmp_path):
    run = finetuned(tmp_path / "run")
    (run / "log.jsonl").write_text("")
    assert [one[:2] for one in hits(examine(run))] == [("log", "note")] and "is empty" in hits(examine(run))[0][2]
    (run / "log.jsonl").unlink()
    assert "is missing" in hits(examine(run))[0][2]


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_results_that_are_damaged_are_an_error_with_advice(tmp_path, content):
    run = finetuned(tmp_path / "run")
    tiny_folder(run / "model")
    (run / "results.json").write_text(content)
    report = examine(run)
    assert [(one.check, one.severity) for one in report.findings if one.severity != "note"] == [("results", "error")]
    assert report.findings[0].evidence.startswith(f"{run / 'results.json'}: ")
    assert report.findings[0].evidence.endswith("; restore the file")
    assert {"gradients", "values", "tokenizer"} <= {*report.checked}  # what does not need the results


def test_links_are_left_alone(tmp_path):
    run = finetuned(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.a.999999999.tmp").write_text("half")
    for name in ("state", "model", ".results.json.999999999.tmp"):
        (run / name).symlink_to(tmp_path / "other")
    report = examine(run, fix=True)
    assert hits(report) == [] and report.fixed == [] and report.not_fixed == []
    assert (run / "state").is_symlink() and (tmp_path / "other/.a.999999999.tmp").exists()


def test_what_cannot_be_removed_is_reported_with_the_reason(tmp_path, monkeypatch):
    run = finetuned(tmp_path / "run")
    (run / "state").mkdir()

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("bertworks.apps.doctor.fixes.shutil.rmtree", refused)
    report = examine(run, fix=True)
    assert report.not_fixed == [f"{run / 'state'} is not removed (Permission denied)"] and report.fixed == []
    monkeypatch.setattr("bertworks.apps.doctor.fixes.in_use", refused)  # the lock cannot be opened
    report = examine(run, fix=True)
    assert report.not_fixed == [f"leftovers in {run} (Permission denied)"]
    assert report.skipped["leftovers"].endswith("Permission denied") and hits(report) == []
