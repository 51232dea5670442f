"""Fine-tuning: a model folder and a task's rows become a classifier (paper, sections 3.2, 4.1 and A.3).

The run folder holds recipe.toml (resolved), log.jsonl, model/ and results.json; state/ is there only while a run is
under way. Typing the same line again resumes; a finished run is left as it is. With several seeds each has a run folder
of its own inside, and results.json has means and standard deviations.
"""

import functools
import hashlib
import json
import shutil
import statistics
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .checkpoint.folder import find_model, initial_model, load_tokenizer, read_config, save_folder
from .config import from_dict, to_toml
from .files import InputError, checksum, read_json, write_json, write_text
from .model.encoder import compile_layers
from .model.heads import Model, build_model
from .tasks.base import Data, Judged, Kind, Limits, Prepared, Task
from .tasks.inputs import Inputs, Order
from .tasks.kinds import kind_of
from .tasks.scores import compute_scores
from .tokenizer import Tokenizer
from .training import parallel
from .training.loop import Group, Loop, LoopConfig
from .training.optim import OptimConfig, Optimizer
from .training.state import Progress, load_state


@dataclass(frozen=True)
class FinetuneConfig(Limits):
    """A fine-tuning recipe. The defaults are the original code's for GLUE."""

    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=5e-5, warmup=0.1))
    loop: LoopConfig = field(default_factory=lambda: LoopConfig(eval_every=0, save_every=0))  # 0: once an epoch
    epochs: float = 3.0  # passes over the training rows, unless loop.steps, tokens or hours says otherwise
    batch_size: int = 32  # rows an update, over all processes and micro-batches
    micro_batch_size: int = 0  # rows a forward pass; 0: as many as the process has of the batch
    dropout: float = 0.1  # in encoder and classifier, whatever the folder was pre-trained with
    length_window: int = 16  # batches that are put in order of length before they are drawn; 1: none
    random_init: bool = False  # fresh weights in the folder's shape: what pre-training bought is the difference
    seeds: tuple[int, ...] = ()  # several runs, one a seed, with mean and standard deviation; none: loop.seed alone

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 1 or self.epochs <= 0:
            raise ValueError("expected batch_size of 1 or more, epochs above 0")

    @classmethod
    def for_task(cls, task: Task) -> "FinetuneConfig":
        """The defaults, with what the task has different."""
        table: dict[str, Any] = {}
        for key, value in task.defaults.items():
            *path, name = key.split(".")
            functools.reduce(lambda inner, part: inner.setdefault(part, {}), path, table)[name] = value
        return from_dict(cls, table, f"defaults of {task.name}")

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
        made = [
            (self.inputs.batch(rows[a : min(a + micro, first + mine)], longest), a * self.inputs.choices)
            for a in starts
        ]
        return Group(made, (0, *divmod((progress.step + 1) * len(rows), len(self.inputs))))


@dataclass(frozen=True)
class Job:
    """All that the runs of several seeds and settings share."""

    config: FinetuneConfig
    task: Task  # with its labels
    kind: Kind
    data: Data
    folder: Path
    tokenizer: Tokenizer
    train: Inputs
    dev: Prepared
    more: dict[str, Prepared]  # further development sets
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
        kind, tokenizer = kind_of(task), load_tokenizer(folder)
        task = replace(task, labels=kind.labels(task, data.train))
        train, dev = (kind.prepare(tokenizer, rows, task, config) for rows in (data.train, data.dev))
        more = {name: kind.prepare(tokenizer, rows, task, config) for name, rows in data.more.items()}
        if not (data.train and data.dev and train.inputs.whole and dev.inputs.whole):
            raise InputError(f"{task.name}: training and development data need rows, and every row a label")
        return cls(config, task, kind, data, folder, tokenizer, train.inputs, dev, more, world, quiet)

    def fingerprint(self, config: FinetuneConfig) -> str:
        """Hash of what must not change between the sittings of a run."""
        fixed = to_toml(replace(config, loop=replace(config.loop, log_every=0, save_every=0)))
        start = [json.dumps(read_json(self.folder / "config.json"))]
        if not config.random_init:
            start.append(checksum(self.folder / "model.safetensors"))
        parts = [fixed, *self.task.labels, self.train.fingerprint(), self.dev.inputs.fingerprint(), *start]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def start_model(self, config: FinetuneConfig) -> tuple[Model, list[str]]:
        """The model to train on, and which of its parts are fresh."""
        head, labels, seed = self.kind.head, len(self.task.labels), config.loop.seed
        if not config.random_init:
            return initial_model(self.folder, (head,), labels, seed, config.dropout)[:2]
        rate = config.dropout
        shape = replace(read_config(self.folder)[0], hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        model = build_model(shape, (head,), labels, seed)
        return model, ["encoder", *(["pooler"] if model.encoder.pooler is not None else []), head]

    def judge(self, model: Model) -> Judged:
        """The model on the development set."""
        return self.dev.judge(compute_scores(model, self.dev.inputs, self.world))

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
        job.kind.objective,
        ExampleFeed(job.train, config, job.world),
        optimizer,
        job.world,
        config.loop,
        out,
        recipe,
        progress,
        evaluate=lambda: job.judge(model).metrics,
        quiet=job.quiet,
    )


def _finish(job: Job, config: FinetuneConfig, loop: Loop, model: Model, fresh: list[str]) -> dict[str, Any]:
    """Judge in float32, write the model folder, then results.json, which marks the run as finished; drop the state."""
    progress, out = loop.progress, loop.run_folder
    judged = job.judge(model)
    more = {
        name: rows.judge(compute_scores(model, rows.inputs, job.world), judged.settings)
        for name, rows in job.more.items()
    }
    results = {
        "kind": "finetune",
        "task": job.task.name,
        "metrics": judged.metrics
        | {f"{key}_{n}": value for n, other in more.items() for key, value in other.metrics.items()},
        "majority": judged.majority,
        "predicted": judged.predicted,
        "collapsed": judged.collapsed,
        "tuned": judged.settings,
        "examples": {"train": len(job.data.train), "dev": len(job.data.dev)},
        "truncation": {"train": job.train.truncation(), "dev": job.dev.inputs.truncation()},
        "data": job.data.source,
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
        _write(job, config, results, judged, model, out)
    job.world.wait()
    return results


def _write(job: Job, config: FinetuneConfig, results: dict[str, Any], judged: Judged, model: Model, out: Path) -> None:
    """The model folder, the predictions on dev, then results.json."""
    told = {key: value for key, value in results.items() if key not in ("model", "data")}  # paths of this machine
    limits = {f.name: getattr(config, f.name) for f in fields(Limits) if f.name != "max_seq_length"}
    stored = {
        "kind": job.task.kind,
        "name": job.task.name,
        **(limits if job.task.kind == "span" else {}),
        **judged.settings,
    }
    labels = list(job.task.labels) or None
    save_folder(out / "model", model, job.tokenizer, told, labels, config.max_seq_length, stored)
    for name, content in judged.files.items():
        if name.endswith(".jsonl"):
            write_text(out / name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content))
        else:
            write_json(out / name, content)
    if judged.collapsed:
        job.say(f"{out}: collapsed, the same answer everywhere; try another seed, a lower optim.lr, a longer warm-up")
    write_json(out / "results.json", results)
    shutil.rmtree(out / "state", ignore_errors=True)


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
        "collapsed": [run["collapsed"] for run in runs],
        "seconds": sum(run["seconds"] for run in runs),
    }
    if job.world.main:
        write_text(out / "recipe.toml", to_toml(job.config))
        write_json(out / "results.json", results)
    return results
