"""Each check of runs finds its planted case, and a good run has no findings."""

import json
import random
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertworks.apps.doctor import examine
from bertworks.apps.doctor.examination import of_finetuning, of_pretraining
from bertworks.files import InputError, read_json, write_json
from bertworks.pretraining.job import pretrain
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.training.config import LoopConfig
from support.planted import MACHINE, changed, finetuned, hits, pretrained, records
from support.tiny_task import TINY, tiny_folder


def test_good_runs_have_no_findings(tmp_path):
    assert hits(examine(pretrained(tmp_path / "pretrained"))) == []
    assert hits(examine(finetuned(tmp_path / "finetuned"))) == []
    early = finetuned(tmp_path / "early", steps=30, log=records(30), stopped_early=True)
    assert hits(examine(early)) == []  # early stopping may end a run after few updates
    assert examine(tmp_path).kind == "folder of 3 runs" and hits(examine(tmp_path)) == []


PRETRAINED = {
    "frequencies": ({"metrics": {"mlm_loss": 6.97}}, "plateau", "warning",
                    "held-out loss 6.97 nats, unigram entropy 7.00: the model has learned at most word frequencies"),
    "plateau": ({"metrics": {"mlm_loss": 6.4}}, "plateau", "warning",
                "held-out loss 6.40 nats, unigram entropy 7.00: the model has learned word frequencies and copies "
                "unmasked tokens (6.30 nats)"),
    "pairs at chance": ({"metrics": {"nsp_loss": 0.692, "nsp_accuracy": 0.51}}, "sentence pairs", "warning",
                        "nsp_loss 0.692 nats, accuracy 0.510: no better than random answers"),
    "few updates": ({"steps": 90, "log": records(90)}, "updates", "warning", "few updates: 90, 200,000 tokens"),
    "slower": ({"log": changed("train", 14, tokens_per_second=600.0)}, "speed", "warning",
               "throughput fell from 1,000 to 600 tokens/s"),
    "no gradient": ({"log": changed("train", 5, grad_norm=1e-5)}, "gradients", "warning", "gradient norms of 1.0e-05"),
    "a jump of the gradient": ({"log": changed("train", 20, grad_norm=50.0)}, "gradients", "warning",
                               "a gradient norm of 50.0; the median of the second half is 1.00"),
    "a jump of the loss": ({"log": changed("train", 20, mlm_loss=7.2)}, "gradients", "warning",
                           "the training loss rose by 3.00 nats up to step 2,000 (mlm_loss)"),
    "held-out loss rose": ({"log": changed("eval", 20, mlm_loss=4.9)}, "held-out loss", "warning",
                           "the held-out loss rose from 4.200 at step 1,900 to 4.900 (mlm_loss)"),
    "skipped": ({"log": changed("train", 1, skipped=30)}, "not finite", "warning",
                "updates that were skipped because the gradient was not finite: 30 of 2,000"),
    "not finite": ({"metrics": {"mlm_loss": None}}, "not finite", "error", "metrics that are not finite: mlm_loss"),
    "a held-out loss is lost": ({"log": changed("eval", 20, mlm_loss=None)}, "not finite", "error",
                                "evaluations with a loss that is not finite: 1 of 20"),
    "a log that was cut": ({"log": records()[:21]}, "log", "warning", "log.jsonl ends at step 1,100, the run at step"),
    "rate 0": ({"log": changed("train", 15, lr=0.0)}, "learning rate", "warning",
               "records of the log with learning rate 0: 6 of 20"),
    "other programs": ({"log": changed("train", 5, cores_used_by_others=1.25)}, "speed", "note",
                       "other programs used 1.2 cores during the run"),
    "few threads": ({"machine": {**MACHINE, "threads": 1}}, "speed", "note", "the run used 1 of 2 cores"),
}  # fmt: skip
FINETUNED = {
    "collapsed": ({"collapsed": True, "predicted": {"good": 90, "bad": 0}}, "score", "error",
                  "collapsed: the same answer for every development row, 'good'"),
    "baseline": ({"metrics": {"loss": 0.7, "accuracy": 0.52}}, "score", "warning",
                 "accuracy 0.520 on 90 development examples; the majority-class baseline has 0.500"),
    "other names": ({"pairs": [("good", "bad"), ("bad", "good")] * 45, "metrics": {"loss": 2.0, "accuracy": 0.9}},
                    "label order", "error", "accuracy 0.000, but 1.000 with other names of the labels"),
    "few updates": ({"steps": 30, "log": records(30), "examples": {"train": 100, "dev": 90}}, "updates", "warning",
                    "30 updates"),
    "examples never read": ({"examples": {"train": 1608, "dev": 90}}, "updates", "warning",
                            "200 updates of 8 examples: 8 of 1,608 were never read"),
    "truncated": ({"truncation": {"train": {"examples": 300, "tokens": 6000}}}, "truncation", "warning",
                  "truncated train examples: 300 of 1,000 (30 %), by 20 tokens on average"),
}  # fmt: skip


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_planted_fault_of_pretraining_is_found(name, tmp_path):
    settings, *expected = PRETRAINED[name]
    check_one(of_pretraining(pretrained(tmp_path / "run", **settings)), *expected)


@pytest.mark.parametrize("name", FINETUNED)
def test_a_planted_fault_of_finetuning_is_found(name, tmp_path):
    settings, *expected = FINETUNED[name]
    check_one(of_finetuning(finetuned(tmp_path / "run", **settings)), *expected)


def check_one(report, check, severity, evidence):
    [found] = hits(report)
    assert found[:2] == (check, severity) and found[2].startswith(evidence)
    assert report.findings[0].advice


@pytest.mark.parametrize(
    ("start", "positions"), [("normal", "learned"), ("position-heads", "learned"), ("normal", "rotary")]
)
def test_an_initialization_that_the_run_has_or_cannot_have_is_not_advised(tmp_path, start, positions):
    model = replace(PretrainConfig().model, start=start, position_embedding_type=positions)
    run = pretrained(tmp_path / "run", metrics={"mlm_loss": 6.4}, config=PretrainConfig(model=model))
    advised = "model.start = position-heads and masking.masked_lm_prob = 0.4" in of_pretraining(run).findings[0].advice
    assert advised == ((start, positions) == ("normal", "learned"))
    write_json(run / "results.json", read_json(run / "results.json") | {"continued": True})  # by --init
    assert "model.start" not in of_pretraining(run).findings[0].advice


@pytest.fixture(scope="module")
def tiny_run(tiny_store, tmp_path_factory):
    """A real run of two updates, whose model predicts the same everywhere."""
    model = replace(TINY, vocab_size=tiny_store.vocab_size, max_position_embeddings=32)
    phase = replace(PretrainConfig().phases[0], length=32, batch_size=8)
    config = replace(PretrainConfig(), model=model, loop=LoopConfig(steps=2), eval_batches=2, phases=(phase,))
    out = tmp_path_factory.mktemp("pretrained") / "run"
    pretrain(config, tiny_store.path, out, quiet=True)
    return out


def test_the_model_predicts_masks_where_the_store_is_given(tiny_run, tiny_store, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    tensors = load_file(run / "model/model.safetensors")
    tensors["cls.predictions.bias"][7] = 100.0
    save_file(tensors, run / "model/model.safetensors", {"format": "pt"})
    [evidence] = [text for check, _, text in hits(examine(run, tiny_store.path)) if check == "[MASK]"]
    assert "100 % of" in evidence and evidence.endswith("predictions are constant")
    results = read_json(run / "results.json")
    write_json(run / "results.json", results | {"corpus": "0" * 32})
    with pytest.raises(InputError, match=r"is not the store that .* was trained on"):
        examine(run, tiny_store.path)
    assert {"plateau", "updates"} <= {check for check, *_ in hits(examine(tiny_run))}  # without the store


def test_another_order_of_labels_is_no_chance(tmp_path):
    """Constant answers, few examples and many labels fit other names well, without any order."""
    rng = random.Random(1)
    names = [f"label {i:03}" for i in range(300)]
    harmless = {
        "constant": [("good", "bad")] * 62 + [("bad", "bad")] * 28,
        "few examples": [("good", "bad")] * 9 + [("bad", "bad")] * 4,
        "few, both answers": [("good", "bad")] * 8 + [("good", "good")] * 2 + [("bad", "good")] * 3,
        "many labels": [(rng.choice(names), rng.choice(names)) for _ in range(60)],
    }
    shifted = {
        "20 labels": [(names[i % 20], names[(i + 1) % 20]) for i in range(200)],
        "150 labels": [(names[i % 150], names[(i + 1) % 150]) for i in range(3000)],
        "30 examples": [("good", "bad"), ("bad", "good")] * 15,
    }
    for name, pairs in (harmless | shifted).items():
        run = finetuned(tmp_path / name, pairs=pairs)
        found = [one[1] for one in hits(of_finetuning(run)) if one[0] == "label order"]
        assert found == (["error"] if name in shifted else []), name


def test_labels_that_config_lacks_are_an_error_and_several_labels_have_no_order(tmp_path):
    run = finetuned(tmp_path / "run")
    (run / "model").mkdir()
    write_json(run / "model/config.json", {"id2label": {"0": "good", "1": "poor"}})
    [one] = hits(of_finetuning(run))
    assert one == ("label order", "error", "labels that config.json lacks: 'bad'")
    run = finetuned(tmp_path / "several", pairs=[("good|bad", "good"), ("", "good")] * 45, metrics={"f1": 0.8})
    (run / "model").mkdir()
    names = {"0": "good", "1": "bad"}
    write_json(run / "model/config.json", {"id2label": names, "problem_type": "multi_label_classification"})
    assert hits(of_finetuning(run)) == []


def test_a_stopped_run_has_the_step_of_its_state(tmp_path):
    """Also if it was stopped between two records of its log; a damaged state is an error."""
    run = finetuned(tmp_path / "run", log=records(20)[:2])
    (run / "results.json").unlink()
    (run / "state").mkdir()
    header = {"progress": json.dumps({"step": 41, "of another version": 41}), "recipe": "0"}
    save_file({"model.a": torch.zeros(2)}, run / "state/state.safetensors", header)
    assert hits(examine(run))[0] == ("unfinished", "note", "no results.json: the run is at step 41 of 200")
    (run / "state/state.safetensors").write_bytes(b"half")
    [(check, _, evidence)] = [one for one in hits(examine(run)) if one[1] == "error"]
    assert check == "files" and "not a whole state" in evidence


@pytest.mark.parametrize(("name", "content"), [("results.json", "{"), ("results.json", "[]"), ("log.jsonl", "{\n{}\n")])
def test_damaged_files_are_one_error(tmp_path, name, content):
    run = finetuned(tmp_path / "run")
    tiny_folder(run / "model")
    (run / name).write_text(content)
    [one] = [hit for hit in hits(examine(run)) if hit[1] == "error"]
    assert one[0] == "files" and one[2].startswith(str(run / name)) and "restore the file" in one[2]
    run = finetuned(tmp_path / "without")
    (run / "log.jsonl").unlink()
    assert [one[:2] for one in hits(examine(run))] == [("log", "warning")]


def test_seeds_and_folders_of_runs_are_examined_together(tmp_path):
    for seed in (1, 2, 3):
        finetuned(tmp_path / f"run/seed-{seed}", collapsed=seed > 1)
    summary = {"format": 2, "kind": "finetune", "metrics": {"accuracy": 0.7}, "seeds": [1, 2, 3]}
    summary["runs"] = [{"loss": 0.4, "accuracy": value} for value in (0.9, 0.7, 0.5)]
    write_json(tmp_path / "run/results.json", summary | {"collapsed": [False, True, True]})
    for report in (examine(tmp_path / "run"), of_finetuning(tmp_path / "run")):
        assert report.kind == "folder of 3 runs" and report.worst == "error"
        assert [(one.check, one.where) for one in report.findings] == [
            ("score", "seed-2"), ("score", "seed-3"), ("seeds", ""),
        ]  # fmt: skip
        assert report.findings[-1].evidence == "collapsed seeds: 2 of 3 (2, 3)"
    write_json(tmp_path / "run/results.json", summary | {"collapsed": [False] * 3})
    found = [one.evidence for one in examine(tmp_path).findings if one.check == "seeds"]
    assert found == ["accuracy has a standard deviation of 20.0 points over 3 seeds"]
    (tmp_path / "run/seed-1/results.json").write_text("{")  # one that cannot be read is an error among the others
    found = {(one.check, one.where): one.severity for one in examine(tmp_path).findings}
    assert found["files", "run/seed-1"] == "error" and found["score", "run/seed-2"] == "error"
