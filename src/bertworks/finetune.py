"""Fine-tuning: a model folder and a task's rows become a classifier (paper, sections 3.2, 4.1 and A.3).

The run folder holds recipe.toml (resolved), log.jsonl, model/ and results.json; state/ is there only while a run is
under way. Typing the same line again resumes; a finished run is left as it is. With several seeds each has a run folder
of its own inside, and results.json has means and standard deviations.
"""

import hashlib
import json
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch.nn import functional as F

from .checkpoint.folder import find_model, initial_model, load_model, load_tokenizer, read_config, save_folder
from .checkpoint.hf import labels_from_hf
from .config import to_toml
from .files import InputError, checksum, read_json, write_json, write_text
from .model.encoder import compile_layers
from .model.heads import Model, build_model
from .objectives import ClassificationObjective
from .tasks.base import Data, Example, Task, label_names
from .tasks.inputs import Inputs, Order, Rows, classifier_scores, featurise
from .tasks.metrics import METRICS
from .tokenizer import Tokenizer
from .training import parallel
from .training.loop import Group, Loop, LoopConfig
from .training.optim import OptimConfig, Optimizer
from .training.state import Progress, load_state


@dataclass(frozen=True)
class FinetuneConfig:
    """A fine-tuning recipe. The defaults are the original code's for GLUE."""

    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=5e-5, warmup=0.1))
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(eval_every=0, save_every=0))  # 0: once an epoch
    epochs: float = 3.0  # passes over the training rows, unless loop.steps, tokens or hours says otherwise
    batch_size: int = 32  # rows an update, over all processes and micro-batches
    micro_batch_size: int = 0  # rows a forward pass; 0: as many as the process has of the batch
    max_seq_length: int = 128  # tokens of an example, [CLS] and [SEP] included; longer ones are cut, and counted
    dropout: float = 0.1  # in encoder and classifier, whatever the folder was pre-trained with
    length_window: int = 16  # batches that are put in order of length before they are drawn; 1: none
    random_init: bool = False  # fresh weights in the folder's shape: what pre-training bought is the difference
    seeds: tuple[int, ...] = ()  # several runs, one a seed, with mean and standard deviation; none: loop.seed alone

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.max_seq_length < 3 or self.epochs <= 0:
            raise ValueError("expected batch_size of 1 or more, max_seq_length of 3 or more, epochs above 0")

    def resolved(self, examples: int, seed: int) -> "FinetuneConfig":
        """The recipe of one run: its seed and its number of steps."""
        loop, epoch = self.loop, max(1, round(examples / self.batch_size))
        steps = loop.steps
        if not (loop.steps or loop.tokens or loop.hours):
            steps = max(1, int(examples / self.batch_size * self.epochs))  # run_classifier.py
        evals, saves = loop.eval_every or epoch, loop.save_every or epoch
        return replace(self, seeds=(), loop=replace(loop, seed=seed, steps=steps, eval_every=evals, save_every=saves))


class ExampleFeed:
    """The batches of a run: a pure function of its progress. All micro-batches of an update have the same length."""

    def __init__(self, inputs: Inputs, config: FinetuneConfig, world: parallel.World):
        if config.batch_size % world.size:
            raise InputError(f"batch_size {config.batch_size} is not divisible by the {world.size} processes")
        self.inputs, self.config, self.world = inputs, config, world
        updates = config.loop.steps or sys.maxsize // config.batch_size
        self.order = Order(inputs.lengths, config.batch_size, updates, config.loop.seed, config.length_window)

    def __call__(self, progress: Progress, share: float) -> Group:
        rows = self.order.rows(progress.step)
        mine = len(rows) // self.world.size
        first, micro = mine * self.world.rank, self.config.micro_batch_size or mine
        longest = self.inputs.padded_length(rows)
        starts = range(first, first + mine, micro)
        made = [(self.inputs.batch(rows[a : min(a + micro, first + mine)], longest), a) for a in starts]
        return Group(made, (0, *divmod((progress.step + 1) * len(rows), len(self.inputs))))


@dataclass(frozen=True)
class Job:
    """All that the runs of several seeds share."""

    config: FinetuneConfig
    task: Task
    source: str
    folder: Path
    tokenizer: Tokenizer
    train: Inputs
    dev: Inputs
    world: parallel.World
    quiet: bool

    @classmethod
    def of(
        cls, config: FinetuneConfig, task: Task, data: Data, folder: Path, world: parallel.World, quiet: bool
    ) -> "Job":
        """Read the tokenizer and featurise. Raises InputError if rows, labels or lengths do not fit."""
        positions = read_config(folder)[0].max_position_embeddings
        if config.max_seq_length > positions:
            raise InputError(f"max_seq_length = {config.max_seq_length}, but {folder} has {positions} positions")
        task = task if task.labels else replace(task, labels=label_names(data.train))
        if len(task.labels) < 2:
            raise InputError(
                f"{task.name}: all training rows have the label {task.labels}; expected two or more labels"
            )
        tokenizer = load_tokenizer(folder)
        train, dev = (featurise(tokenizer, rows, task.labels, config.max_seq_length) for rows in (data.train, data.dev))
        if not len(train) or not len(dev) or min(train.labels.min(), dev.labels.min()) < 0:
            raise InputError(f"{task.name}: training and development data need rows, and every row a label")
        return cls(config, task, data.source, folder, tokenizer, train, dev, world, quiet)

    def fingerprint(self, config: FinetuneConfig) -> str:
        """Hash of what must not change between the sittings of a run."""
        fixed = to_toml(replace(config, loop=replace(config.loop, log_every=0, save_every=0)))
        start = [json.dumps(read_json(self.folder / "config.json"))]
        if not config.random_init:
            start.append(checksum(self.folder / "model.safetensors"))
        parts = [fixed, *self.task.labels, self.train.fingerprint(), self.dev.fingerprint(), *start]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def start_model(self, config: FinetuneConfig) -> tuple[Model, list[str]]:
        """The model to train on, and which of its parts are fresh."""
        labels, seed = len(self.task.labels), config.loop.seed
        if not config.random_init:
            return initial_model(self.folder, ("classifier",), labels, seed, config.dropout)[:2]
        rate = config.dropout
        shape = replace(read_config(self.folder)[0], hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        return build_model(shape, ("classifier",), labels, seed), ["encoder", "pooler", "classifier"]

    def say(self, text: str) -> None:
        if not self.quiet and self.world.main:
            print(text, file=sys.stderr)


def finetune(
    config: FinetuneConfig, task: Task, data: Data, model: Path | str, out: Path | str, quiet: bool = False
) -> dict[str, Any] | None:
    """Train and judge, or resume, and write the run folder; None if the run was stopped before its end.

    `model`: the folder to start from, or the run folder that has it. Returned and written to results.json: `metrics`
    (on dev, fractions; of several seeds their mean, then `std` and `runs` too), `truncation`, `seed` or `seeds`, ...
    Raises InputError for unfit data, folder or settings, or if `out` belongs to a run with other ones.
    """
    parallel.prepare_process()
    out, folder = Path(out), find_model(model)
    with parallel.joined_world() as world:
        job = Job.of(config, task, data, folder, world, quiet)
        cut = job.train.truncation()
        if cut["examples"]:
            job.say(
                f"{cut['examples']:,} of {len(job.train):,} training rows are cut to {config.max_seq_length} tokens"
            )
        if not config.seeds:
            return _run(job, config.loop.seed, out)
        runs = []
        for seed in config.seeds:
            results = _run(job, seed, out / f"seed-{seed}")
            if results is None:
                return None
            runs.append(results)
        return _summary(job, runs, out)


def _run(job: Job, seed: int, out: Path) -> dict[str, Any] | None:
    """One run with one seed."""
    config = job.config.resolved(len(job.train), seed)
    recipe = job.fingerprint(config)
    if (out / "results.json").exists():
        results: dict[str, Any] = read_json(out / "results.json")
        if results.get("recipe") != recipe:
            raise InputError(f"{out} is a finished run with other settings, data or model; give another --out")
        job.say(f"{out} is finished; see {out / 'results.json'}")
        return results
    if config.loop.keep_best and config.loop.keep_best not in job.task.metrics:
        expected = ", ".join(job.task.metrics)
        raise InputError(f"loop.keep_best = {config.loop.keep_best!r}; expected one of {expected} for {job.task.name}")
    model, fresh = job.start_model(config)
    loop = _loop(job, config, model.to(job.world.device), recipe, out)
    if not loop.run():
        job.say(f"stopped at step {loop.progress.step:,}, saved; type the same line again to go on")
        return None
    return _finish(job, config, loop, model, fresh)


def _loop(job: Job, config: FinetuneConfig, model: Model, recipe: str, out: Path) -> Loop:
    """The loop of a run, at the step where an earlier sitting left it."""
    optimizer = Optimizer(model, config.optim)
    out.mkdir(parents=True, exist_ok=True)
    progress = load_state(out / "state", model, optimizer, recipe) or Progress()
    if job.world.main:
        write_text(out / "recipe.toml", to_toml(config))
    if parallel.should_compile(config.loop.compile, job.world.device):
        compile_layers(model.encoder)
    return Loop(
        model,
        ClassificationObjective(),
        ExampleFeed(job.train, config, job.world),
        optimizer,
        job.world,
        config.loop,
        out,
        recipe,
        progress,
        evaluate=lambda: _judge(model, job.dev, job.task, job.world)[0],
        quiet=job.quiet,
    )


def _judge(model: Model, dev: Inputs, task: Task, world: parallel.World) -> tuple[dict[str, float], Rows]:
    """The task's metrics and the mean loss on dev; and the predicted classes, (N,)."""
    scores = classifier_scores(model, dev, world)
    predicted = scores.argmax(-1).numpy()
    metrics = {name: METRICS[name](dev.labels, predicted) for name in task.metrics}
    loss = F.cross_entropy(scores, dev.batch(np.arange(len(dev)))["labels"])
    return {"loss": float(loss), **metrics}, predicted


def _finish(job: Job, config: FinetuneConfig, loop: Loop, model: Model, fresh: list[str]) -> dict[str, Any]:
    """Judge in float32, write the model folder, then results.json, which marks the run as finished; drop the state."""
    progress, labels, out = loop.progress, list(job.task.labels), loop.run_folder
    metrics, predicted = _judge(model, job.dev, job.task, job.world)
    results = {
        "kind": "finetune",
        "task": job.task.name,
        "metrics": metrics,
        "majority": max(Counter(job.dev.labels.tolist()).values()) / len(job.dev),
        "predicted": {label: int((predicted == i).sum()) for i, label in enumerate(labels)},
        "examples": {"train": len(job.train), "dev": len(job.dev)},
        "truncation": {"train": job.train.truncation(), "dev": job.dev.truncation()},
        "data": job.source,
        "model": str(job.folder),
        "random_init": config.random_init,
        "fresh": fresh,
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": progress.seconds,
        "seed": config.loop.seed,
        "processes": job.world.size,
        "recipe": loop.recipe,
        "machine": parallel.facts(),
    }
    if job.world.main:
        told = {key: value for key, value in results.items() if key not in ("model", "data")}  # paths of this machine
        save_folder(out / "model", model, job.tokenizer, told, labels, config.max_seq_length)
        write_json(out / "results.json", results)
        shutil.rmtree(out / "state", ignore_errors=True)
    job.world.wait()
    return results


def _summary(job: Job, runs: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    """Mean and sample standard deviation over the seeds, written to results.json."""
    values = {name: [run["metrics"][name] for run in runs] for name in runs[0]["metrics"]}
    shared = ("kind", "task", "majority", "examples", "truncation", "data", "model", "random_init", "machine")
    results = {
        **{key: runs[0][key] for key in shared},
        "seeds": list(job.config.seeds),
        "metrics": {name: statistics.fmean(found) for name, found in values.items()},
        "std": {name: statistics.stdev(found) if len(found) > 1 else 0.0 for name, found in values.items()},
        "runs": [run["metrics"] for run in runs],
        "seconds": sum(run["seconds"] for run in runs),
    }
    if job.world.main:
        write_text(out / "recipe.toml", to_toml(job.config))
        write_json(out / "results.json", results)
    return results


def evaluate(
    model: Path | str, task: Task, examples: Sequence[Example], max_seq_length: int | None = None
) -> dict[str, Any]:
    """The task's metrics of a fine-tuned folder on labelled examples, `predicted` counts and `truncation`.

    Labels meet by name, never by number. Raises InputError if the model does not know a label of the data.
    """
    folder = find_model(model)
    task = task if task.labels else replace(task, labels=label_names(examples))
    tokenizer, net = load_tokenizer(folder), load_model(folder)
    names = known_labels(folder, net)
    unknown = [label for label in task.labels if label not in names]
    if unknown:
        raise InputError(
            f"{folder} knows the labels {', '.join(names)}; the data of {task.name} has {', '.join(unknown)} besides. "
            "Labels are matched by name: give data with these names, or a model that was fine-tuned on this task"
        )
    inputs = featurise(tokenizer, examples, task.labels, max_seq_length or tokenizer_length(folder))
    world = parallel.World(0, 1, parallel.join_world().device)
    order = [task.labels.index(name) if name in task.labels else -1 for name in names]  # the model's numbers to ours
    predicted = np.array(order)[classifier_scores(net.to(world.device), inputs, world).argmax(-1).numpy()]
    return {
        "task": task.name,
        "metrics": {name: METRICS[name](inputs.labels, predicted) for name in task.metrics},
        "predicted": {label: int((predicted == i).sum()) for i, label in enumerate(task.labels)},
        "examples": len(inputs),
        "truncation": inputs.truncation(),
    }


def known_labels(folder: Path, model: Model) -> list[str]:
    """The names of a folder's classes in the order of its outputs. Raises InputError if it has no classifier."""
    if "classifier" not in model.heads:
        raise InputError(f"{folder} has no classifier; make one with: bertworks finetune --model {folder} ...")
    count: int = model.heads["classifier"].out_features  # type: ignore[assignment]
    names = labels_from_hf(read_config(folder)[1], str(folder / "config.json"))
    return names or [f"LABEL_{i}" for i in range(count)]


def tokenizer_length(folder: Path) -> int:
    """How many tokens an input of this folder may have: what it was fine-tuned with, at most its positions."""
    positions = read_config(folder)[0].max_position_embeddings
    file = folder / "tokenizer_config.json"
    length = read_json(file).get("model_max_length") if file.exists() else None
    return min(length, positions) if isinstance(length, int) and length > 2 else positions
