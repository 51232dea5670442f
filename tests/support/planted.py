"""Run folders with planted faults, as `bertworks doctor` examines them: no model, no training."""

import json
from dataclasses import replace

from bertworks.config import to_toml
from bertworks.files import write_json, write_text
from bertworks.finetuning.recipe import FinetuneConfig
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.tasks.base import Task
from bertworks.training.config import LoopConfig, OptimConfig

STEPS = 2_000
MACHINE = {"cores": 2, "threads": 2, "gpu": None}
GOOD = {"mlm_loss": 4.0, "mlm_accuracy": 0.3, "nsp_loss": 0.5, "nsp_accuracy": 0.75, "unigram_entropy": 7.0}


def records(steps=STEPS, change=lambda i, record: record):
    """A log whose loss falls; `change` edits its records."""
    logged = []
    for i in range(1, 21):
        train = {"kind": "train", "step": i * steps // 20, "mlm_loss": 8 - i / 5, "lr": 1e-4, "grad_norm": 1.0}
        logged.append(change(i, train | {"tokens": 10_000 * i, "tokens_per_second": 1000.0}))
        held_out = {"kind": "eval", "step": i * steps // 20, "mlm_loss": 8 - i / 5, "nsp_loss": 0.5}
        logged.append(change(i, held_out))
    return logged


def write_run(folder, recipe, results, log=None):
    folder.mkdir(parents=True)
    write_text(folder / "recipe.toml", to_toml(recipe))
    write_text(folder / "log.jsonl", "".join(json.dumps(one) + "\n" for one in log or records()))
    if results is not None:
        write_json(folder / "results.json", {"format": 2, "processes": 1, "machine": MACHINE, **results})
    return folder


def pretrained(folder, metrics=GOOD, log=None, config=None, steps=STEPS, **results):
    config = config or PretrainConfig(loop=LoopConfig(steps=steps), optim=OptimConfig(warmup=0.01))
    found = {"kind": "pretrain", "metrics": {**GOOD, **metrics}, "steps": steps, "tokens": 200_000, **results}
    return write_run(folder, config, found, log)


def hits(report):
    return [(one.check, one.severity, one.evidence) for one in report.findings]


def changed(kind, at, **values):
    """Records with other values in those of one kind from number `at` on."""
    return records(change=lambda i, one: one | values if one["kind"] == kind and i >= at else one)


PAIRS = [("good", "good"), ("bad", "bad")] * 40 + [("good", "bad"), ("bad", "good")] * 5


def finetuned(folder, pairs=PAIRS, log=None, **results):
    config = replace(FinetuneConfig.for_task(Task("own")), batch_size=8, loop=LoopConfig(steps=200, eval_every=0))
    right = sum(a == b for a, b in pairs) / len(pairs)
    found = {
        "kind": "finetune",
        "task": "table",
        "metrics": {"loss": 0.4, "accuracy": right},
        "majority": 0.5,
        "predicted": {"good": 45, "bad": 45},
        "collapsed": False,
        "examples": {"train": 1000, "dev": len(pairs)},
        "truncation": {"train": {"examples": 3, "tokens": 9}, "dev": {"examples": 0, "tokens": 0}},
        "steps": 200,
    }
    run = write_run(folder, config, found | results, log or records(200))
    lines = [json.dumps({"line": i, "label": a, "predicted": b}) for i, (a, b) in enumerate(pairs)]
    write_text(run / "predictions.jsonl", "".join(f"{line}\n" for line in lines))
    return run
