"""Whole trainings of gpu.py: a pre-training in several commands, and fine-tuning on five tasks."""

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import bertworks
import common
from bertworks.checkpoint.folder import find_model
from bertworks.checkpoint.weights import WEIGHTS, read_weights
from bertworks.data.instances import InstanceConfig
from bertworks.data.masking import MaskingConfig
from bertworks.data.opening import open_store
from bertworks.experiments.statistics import paired
from bertworks.model.config import ModelConfig
from bertworks.pretraining.recipe import Phase, PretrainConfig
from bertworks.reporting.run_files import LOG
from bertworks.training.config import LoopConfig, OptimConfig

TOKENS = 65536  # of an update, padding included
PATIENCE = 800  # updates after which the loss must be below that of word frequencies
RECORDS = ("results.json", LOG, "recipe.toml")  # of the run, beside its model
TASKS = {  # name: folder under --data, metric, settings
    "sst2": ("glue/SST-2", "accuracy", {"epochs": 1.0}),
    "mrpc": ("glue/MRPC", "f1", {}),
    "qnli": ("glue/QNLI", "accuracy", {}),
    "conll2003": ("conll2003", "f1", {}),
    "squad1": ("squad", "f1", {"epochs": 2.0}),
}
STARTS = ("pretrained", "random")
NAMES = {"train-v1.1-13pct.json": "train-v1.1.json"}  # a part of the training set by the name of the whole


# ---- pre-training


def recipe(options: Any, vocab_size: int) -> PretrainConfig:
    """BERT of 8 layers of width 512: 85 % of the time at length 128, the rest at 512; with --smoke a few tiny steps."""
    layers, width, lengths, tokens = 8, 512, ((128, 0.85), (512, 0.15)), TOKENS
    loop = LoopConfig(hours=options.train_minutes / 60, log_every=10, eval_every=1000, save_every=0, save_minutes=3)
    if options.smoke:
        layers, width, lengths, tokens = 2, 32, ((16, 0.85), (32, 0.15)), 64
        loop = LoopConfig(steps=4, log_every=1, eval_every=0)
    model = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(2, width // 64),
        intermediate_size=4 * width,
        start="position-heads",
    )
    return PretrainConfig(
        model=model,
        instances=InstanceConfig(dupe_factor=0),
        masking=MaskingConfig(masked_lm_prob=0.4),
        optim=OptimConfig(lr=options.lr, rule="adamw", betas=(0.9, 0.98), warmup=0.05),
        loop=replace(loop, seed=12345),
        phases=tuple(Phase(length, share, tokens // length) for length, share in lengths),
        eval_batches=1 if options.smoke else 20,
    )


def train(options: Any, seconds: float) -> common.Result | None:
    """Train or resume for so many seconds; the results if the run is finished."""
    started, store = time.monotonic(), open_store(options.corpus, verify=False)
    entropy = store.unigram_entropy()

    def stop(record: Mapping[str, Any]) -> bool:
        return time.monotonic() - started > seconds or bool(failure(record, entropy))

    config = recipe(options, store.vocab_size)
    run = bertworks.pretrain(config, options.corpus, options.run, quiet=options.smoke, on_record=stop)
    return run.details if run.finished else None


def failure(record: Mapping[str, Any], entropy: float) -> str:
    """A message if the loss after PATIENCE updates is not below that of word frequencies; else ""."""
    if record["step"] < PATIENCE or record["mlm_loss"] <= entropy:
        return ""
    return (
        f"found a loss of {record['mlm_loss']:.2f} nats at update {record['step']:,}; expected less "
        f"than {entropy:.2f}, that of word frequencies alone; give a lower --lr and another --run"
    )


def write_half(run: Path, out: Path) -> None:
    """Write a run's model folder, its weights in bfloat16, with the run's records into `out`."""
    model = find_model(run)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(model, out, ignore=shutil.ignore_patterns(WEIGHTS))
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(model).items()}
    safetensors.torch.save_file(weights, out / WEIGHTS, metadata={"format": "pt"})
    for name in RECORDS:
        if (run / name).is_file():
            shutil.copy(run / name, out / name)


# ---- fine-tuning


def named_folder(source: Path, work: Path) -> Path:
    """The folder with its files, some by another name."""
    folder = work / source.name
    folder.mkdir()
    for path in source.iterdir():
        (folder / NAMES.get(path.name, path.name)).symlink_to(path.resolve())
    return folder


def finetune(
    task: str, start: str, model: str, data: str, seeds: list[int], seconds: float, small: bool
) -> common.Result:
    """The metrics of one start of a task by seed; no seed is started that would take longer than the seconds left."""
    started, settings = time.monotonic(), TASKS[task][2]
    found: common.Result = {}
    with tempfile.TemporaryDirectory() as work:
        rows = named_folder(Path(data) / TASKS[task][0], Path(work))
        for done, seed in enumerate(seeds):
            spent = time.monotonic() - started
            if done and spent * (done + 1) / done > seconds:
                break
            given: dict[str, Any] = {"epochs": 3.0, "batch_size": 32, "optim": {"lr": 1e-4}, **settings}
            given["loop"] = {"seed": seed, "compute": "eager", "save_minutes": 0.0, "log_every": 100}
            if small:
                given |= {"max_seq_length": 32, "epochs": 0.2, "batch_size": 8}
            out = Path(work) / f"{start}-{seed}"
            run = bertworks.finetune(
                model, out, task=task, data=rows, random_init=start == "random", quiet=True, **given
            )
            found[str(seed)] = run.metrics
            shutil.rmtree(out)
    return {"by_seed": found, "seconds": time.monotonic() - started}


def effect(task: str, found: Mapping[str, common.Result]) -> common.Result | None:
    """Pre-trained minus random over the seeds that both have; None without any."""
    metric = TASKS[task][1]
    pretrained, random = (
        {seed: one[metric] for seed, one in found[start].get("by_seed", {}).items()} for start in STARTS
    )
    difference = paired(random, pretrained)
    return difference and {"metric": metric, **difference}
