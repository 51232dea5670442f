"""Whole trainings of gpu.py: a pre-training in several commands, and fine-tuning on five tasks."""

import math
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import bertworks
import common
from bertworks.checkpoint.folder import find_model, save_folder
from bertworks.checkpoint.weights import WEIGHTS, read_weights
from bertworks.data.store import Store
from bertworks.data.vocabulary import tokenizer_of
from bertworks.model.build import build_model
from bertworks.pretraining.recipe import PretrainConfig
from bertworks.reporting.run_files import LOG, read_log
from bertworks.training.state import STATE, STATE_FOLDER, read_tensors

RECORDS = ("results.json", LOG, "recipe.toml")  # of the run, beside its model
TASKS: dict[str, tuple[str, dict[str, Any]]] = {  # name: folder under --data, settings
    "sst2": ("glue/SST-2", {"epochs": 1.0}),
    "mrpc": ("glue/MRPC", {}),
    "qnli": ("glue/QNLI", {}),
    "conll2003": ("conll2003", {}),
    "squad1": ("squad", {"epochs": 2.0}),
}
STARTS = ("pretrained", "random")
NAMES = {"train-v1.1-13pct.json": "train-v1.1.json"}  # a part of the training set by the name of the whole


@dataclass
class Watch:
    """The function `on_record` of a pre-training: it stops a run when its time is over, or if it does not learn."""

    ends: float  # of time.monotonic()
    seconds: float  # of training, after which a training loss must have been below the bound
    bound: float  # nats
    lowest: float = math.inf  # training loss so far
    is_reported: bool = False  # whether the speed was printed

    def __call__(self, record: Mapping[str, Any]) -> bool:
        if record["kind"] == "train" and not self.is_reported and record["seconds"] >= min(60, self.seconds):
            speed, self.is_reported = record["tokens_per_second"], True
            whole = record["tokens"] + speed * record["left"]
            print(f"{speed:,.0f} tokens per second: {whole / 1e6:,.0f} million tokens in the whole run", flush=True)
        return self.fails(record) or time.monotonic() > self.ends

    def fails(self, record: Mapping[str, Any]) -> bool:
        """Whether the run has not learned in its first seconds; called with every record in turn."""
        if record["kind"] == "train":
            self.lowest = min(self.lowest, record["mlm_loss"] or math.inf)  # the log has None for NaN
        return record["seconds"] >= self.seconds and self.lowest >= self.bound

    def review(self, run: Path) -> None:
        """End with a message if the log of a run, where it has one, is that of a run that fails."""
        records = read_log(run) if (run / LOG).exists() else []
        if any([self.fails(record) for record in records]):  # a list: every record counts
            raise SystemExit(
                f"{run}: found a loss of {self.lowest:.2f} nats at best after {self.seconds:.0f} seconds; expected "
                f"below {self.bound:g}; give another --recipe and --run"
            )


def write_half(config: PretrainConfig, store: Store, run: Path, out: Path) -> None:
    """Write the model of a run, finished or not, with weights in bfloat16, and the run's records, into `out`."""
    shutil.rmtree(out, ignore_errors=True)
    if (run / "model").is_dir():
        shutil.copytree(find_model(run), out)
    else:
        model, (tensors, _) = build_model(config.model, config.heads, seed=1), read_tensors(run / STATE_FOLDER / STATE)
        model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
        save_folder(out, model, tokenizer_of(store))
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in read_weights(out).items()}
    safetensors.torch.save_file(weights, out / WEIGHTS, metadata={"format": "pt"})
    for name in RECORDS:
        if (run / name).is_file():
            shutil.copy(run / name, out / name)


def finetune(
    task: str, start: str, model: str, data: str, seeds: list[int], seconds: float, fields: dict[str, Any]
) -> common.Result:
    """The metrics of one start of a task by seed; no seed is started that would take longer than the seconds left."""
    started, metrics = time.monotonic(), dict[str, Any]()
    given: dict[str, Any] = {"epochs": 3.0, "batch_size": 32, "optim": {"lr": 1e-4}, **TASKS[task][1], **fields}
    with tempfile.TemporaryDirectory() as work:
        given["data"] = Path(work, "data")
        given["data"].mkdir()
        for path in Path(data, TASKS[task][0]).iterdir():
            (given["data"] / NAMES.get(path.name, path.name)).symlink_to(path.resolve())
        for done, seed in enumerate(seeds):
            spent = time.monotonic() - started
            if done and spent * (done + 1) / done > seconds:
                break
            given["loop"] = {"seed": seed, "compute": "eager", "save_minutes": 0.0, "log_every": 100}
            out = Path(work) / f"{start}-{seed}"
            run = bertworks.finetune(model, out, task=task, random_init=start == "random", quiet=True, **given)
            metrics[str(seed)] = run.metrics
            shutil.rmtree(out)
    return {"by_seed": metrics, "seconds": time.monotonic() - started}
