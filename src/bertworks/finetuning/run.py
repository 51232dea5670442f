"""Fine-tuning: a model folder and a task's rows become a model for it (paper, sections 3.2, 4 and A.3).

The run folder holds recipe.toml (resolved), log.jsonl, model/ and results.json; state/ is there only while a run is
under way. Rerunning the command resumes; a finished run is left as it is. With several seeds each has a run folder
of its own inside, and results.json has means and standard deviations. Grids of settings: experiments/search.py.
"""

import contextlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoint.card import origin_in_card
from ..checkpoint.folder import find_model, parts_in, read_config, run_name, save_folder
from ..checkpoint.locate import refuse_export
from ..checkpoint.pooling import Pooling, write_pooling
from ..checkpoint.start import initial_model
from ..config import to_toml
from ..files import InputError, atomic_write, clip, to_json, write_json, write_text
from ..model.bert import encoders_in
from ..model.build import build_model
from ..model.config import HeadName
from ..model.heads import Model
from ..reporting.run_files import EXAMPLES, RESULTS, TRAINED_ON, read_results, seed_folders
from ..reporting.tables import counted
from ..tasks.base import Data, EvaluationResult, LengthLimits, Task
from ..tasks.checks import hashes_of
from ..tasks.kinds import OWN_TABLE
from ..tasks.rows import sample
from ..tasks.span_files import SPANS
from ..training.compute import prepare_model
from ..training.config import TrainerState
from ..training.distributed import World, joined_world
from ..training.identity import RECIPE, RecordCallback, Run
from ..training.loop import TrainingLoop
from ..training.machine import check_memory, prepared_process
from ..training.optim import Optimizer
from ..training.run import ANEW, finished, open_run, refuse_other_folder, resume_run, run_facts, train, write_results
from ..training.trainer import Trainer
from .job import ExampleFeed, Job, rows_of_a_pass
from .recipe import FinetuneConfig
from .subset_embedding import restore_embeddings, shrink_embeddings


@contextlib.contextmanager
def joined_job(
    config: FinetuneConfig,
    task: Task,
    data: Data,
    model: Path | str,
    quiet: bool = False,
    on_record: RecordCallback | None = None,
) -> Iterator[Job]:
    """A job among all processes that train together; prints what was left out. Raises InputError like `Job.of`."""
    folder = find_model(model)
    refuse_export(folder)
    if config.teacher:
        refuse_export(find_model(config.teacher))
    with prepared_process(), joined_world() as world:
        if world.is_main and not quiet:
            counts = f"{len(data.train):,} training rows and {len(data.dev):,} development rows"
            print(f"{task.name}: tokenizing {counts}", file=sys.stderr)
        job = replace(Job.of(config, task, data, folder, world, quiet), on_record=on_record)
        for note in job.notes:
            job.say(note)
        yield job


def finetune(
    config: FinetuneConfig,
    task: Task,
    data: Data,
    model: Path | str,
    out: Path | str,
    quiet: bool = False,
    on_record: RecordCallback | None = None,
) -> dict[str, Any] | None:
    """Train and evaluate, or resume, and write the run folder; None if the run was stopped before its end.

    `model`: the folder to start from, or the run folder that has it. Returned and written to results.json: `metrics`
    (on dev, fractions; of several seeds their mean, then `std` and `runs` too), `truncation`, `seed` or `seeds`, ...
    on_record: called with each record of the log; when it returns True, the run is saved and
    stops. Raises InputError for unfit data, folder or settings, or if `out` belongs to a run with other ones.
    """
    refuse_other_folder(Path(out))
    with joined_job(config, task, data, model, quiet, on_record) as job:
        return run_seeds(job, Path(out)) if config.seeds else run_seed(job, config.loop.seed, Path(out))


def run_seeds(job: Job, out: Path) -> dict[str, Any] | None:
    """A run for each seed, and their mean and standard deviation; None if one was stopped.

    Raises InputError if `out` has a finished run of any seed with other settings.
    """
    job.world.from_rank0(lambda: _check_folder(job, out))
    runs = []
    for seed in job.config.seeds:
        folder = out / f"seed-{seed}"
        if len(job.config.seeds) > 1:
            job.say(f"seed {seed}")
        results = run_seed(job, seed, folder)
        if results is None:
            return None
        runs.append(results)
    return summarise(job.config, runs, out, job.world)


def _check_folder(job: Job, out: Path) -> None:
    """Raises InputError if `out` has results of something else than several seeds, or a seed with other settings.

    `compare` and `doctor` take all seeds of a folder as one, also those that this command does not name.
    """
    path = out / RESULTS
    results = read_results(path, {}, ANEW) if path.exists() else {"kind": "finetune"}
    if results.get("kind") != "finetune" or "recipe" in results:
        what = " ".join(str(results[key]) for key in ("kind", "study", "task") if key in results)
        raise InputError(f"{out} has the results of something else ({what}); give another output folder")
    for seed, folder in seed_folders(out).items():
        finished(folder, job.identity(job.config.resolved(len(job.train), seed)))


def run_seed(job: Job, seed: int, out: Path) -> dict[str, Any] | None:
    """One run with one seed."""
    run = SeedRun(job, seed, out)
    with open_run(run.run, keep_state=False) as results:
        if results is not None:
            return results
        loop = run.build_loop()
        job.say(opening(job, run.config))
        if not train(loop):
            return None
        return write_results(out, run.save(loop), job.world)


class SeedRun:
    """One run with one seed: its beginning, its evaluations, and its folder."""

    def __init__(self, job: Job, seed: int, out: Path):
        self.job, self.config = job, job.config.resolved(len(job.train), seed)
        self.run = Run(out, job.identity(self.config), job.world, job.quiet, job.on_record)
        self.fresh: list[str] = []  # randomly initialized parts of the model
        self.evaluation: EvaluationResult | None = None  # the last evaluation

    def build_loop(self) -> TrainingLoop:
        """The loop, new or resumed. The model has the embeddings of its texts alone until it is saved."""
        job, config = self.job, self.config
        self.model, self.fresh = start_model(config, job.folder, job.kind.head, job.task.labels)
        self.model = prepare_model(self.model, config.loop, self.run)
        rows, shape = rows_of_a_pass(config, job.world), self.model.config
        tokens = rows * len(job.train.ids) / max(1, len(job.train))
        layers = config.trained_layers(shape.num_hidden_layers)
        check_memory(tokens, shape.hidden_size, layers, job.world.device)
        # LAMB scales an update by the norm of the whole table
        if config.loop.compute != "reference" and config.optim.rule != "albert_lamb":
            shrink_embeddings(self.model, job.tokens)
        feed = ExampleFeed(job.train, config, job.world, job.teacher.scores if job.teacher else None)
        optimizer = Optimizer(self.model, config.whole_warmup)
        loop = TrainingLoop(
            Trainer(self.model, job.objective, feed, optimizer, job.world, config.loop, job.weights),
            self.run,
            self.evaluate,
            patience=config.patience,
        )
        resume_run(loop)
        return loop

    def evaluate(self, progress: TrainerState) -> dict[str, float]:
        """The metrics of the weights as they are now."""
        if self.config.loop.budget_used(progress) >= 1:
            self.job.say(f"evaluating on {len(self.job.data.dev):,} development rows")
        self.evaluation = self.job.evaluate(self.model, self.job.dev)
        return self.evaluation.metrics

    def save(self, loop: TrainingLoop) -> dict[str, Any]:
        """Write the model folder and the predictions on dev; returns what results.json has."""
        job, config = self.job, self.config
        evaluation = self.evaluation
        assert evaluation is not None
        if loop.stopped_early:
            waited, best = counted(config.patience, "evaluation"), config.loop.keep_best
            job.say(f"stopped early at step {loop.progress.step:,}, after {waited} without a better {best}; "
                    "the model has the best weights")  # fmt: skip
        metrics = dict(evaluation.metrics)
        for name, rows in job.more.items():
            other = job.evaluate(self.model, rows, evaluation.settings).metrics
            metrics |= {f"{key}_{name}": value for key, value in other.items()}
        results = {
            "kind": "finetune",
            "task": job.task.name,
            "metrics": metrics,
            "majority": evaluation.majority,
            "predicted": evaluation.predicted,
            **evaluation.details,
            "collapsed": evaluation.constant_predictions,
            "tuned": evaluation.settings,
            **job.facts,
            **({"stopped_early": loop.stopped_early} if config.patience else {}),
            "random_init": config.random_init,
            "fresh": self.fresh,
            **run_facts(loop),
        }
        if job.world.is_main:
            self._write(results, evaluation)
        return results

    def _write(self, results: dict[str, Any], evaluation: EvaluationResult) -> None:
        """The model folder, the predictions on dev, a few examples of it, and hashes of the training examples."""
        job, task, out, length = self.job, self.job.task, self.run.out, self.config.max_seq_length
        # without paths of this machine, and without a hash that tells a reader nothing
        facts = {key: value for key, value in results.items() if key not in ("model", "data", "dev_texts")}
        facts |= {"title": f"{run_name(job.folder)} fine-tuned on {task.name}", **_origin(job)}
        stored = {"kind": task.kind, "name": task.name, **_columns(task, job.data.train)}
        if task.kind == "span":
            stored |= {f.name: getattr(self.config, f.name) for f in fields(LengthLimits) if f.name != "max_seq_length"}
        if task.kind == "embedding" and task.label:
            stored["scale"] = task.scale
        stored |= evaluation.settings
        restore_embeddings(self.model)
        save_folder(out / "model", self.model, job.tokenizer, facts, list(task.labels) or None, length, stored)
        if task.kind == "embedding":
            write_pooling(out / "model", Pooling(max_length=length), self.model.config.hidden_size)
        for name, content in {**evaluation.files, EXAMPLES: sample(job.data.dev)}.items():
            if name.endswith(".jsonl"):
                write_text(out / name, "".join(to_json(row) + "\n" for row in content))
            else:
                write_json(out / name, content)
        with atomic_write(out / TRAINED_ON) as file:
            np.save(file, hashes_of(task, job.data.train))


def start_model(
    config: FinetuneConfig, folder: Path, head: HeadName | None, labels: Sequence[str]
) -> tuple[Model, list[str]]:
    """The model to train, and which of its parts have new weights. head: none: the kind of task has none."""
    heads, seed, rate = (head,) if head else (), config.loop.seed, config.dropout
    if config.random_init:
        shape = replace(read_config(folder)[0], hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        model = build_model(shape, heads, len(labels), seed, top=config.top)
        fresh = ["encoder", *sorted(parts_in(model))]
    else:
        model, fresh, _ = initial_model(folder, heads, labels, seed, rate, config.top)
    model.freeze_unused_layers()
    if not heads and model.encoder.pooler is not None:
        model.encoder.pooler.requires_grad_(False)  # no vector of this kind passes through it
    if config.trained == "head":
        model.freeze()
    elif config.trained != "all":
        for encoder in encoders_in(model):  # their dropout stays on
            encoder.embeddings.requires_grad_(False)
            encoder.layers[: model.config.num_hidden_layers - config.trained].requires_grad_(False)
    return model, fresh


def opening(job: Job, config: FinetuneConfig) -> str:
    """What a run is about to do, in one line: rows, labels, updates, and the majority-class baseline."""
    task, rows, given, loop, steps = job.task, len(job.train), len(job.data.train), config.loop, config.loop.steps
    windows = f" in {rows:,} windows" if rows != given else ""  # long ones of texts with tags and of contexts
    parts = [f"{task.name}: {given:,} training rows{windows}, {len(job.data.dev):,} development rows"]
    if task.labels and task.kind not in ("regression", "choice"):
        parts.append(f"{len(task.labels)} labels ({clip(', '.join(task.labels), 120)})")
    if loop.tokens or loop.hours:
        parts.append(f"budget: {loop.budget}")
    else:
        number, planned = f"{steps * config.batch_size / rows:.3g}", job.config.steps_of(rows)
        passes = f"{number} epoch{'' if number == '1' else 's'}"
        if job.config.min_steps and steps > planned:
            passes += f"; {job.config.epochs:g} epochs would be fewer than min_steps = {steps}"
        parts.append(f"{counted(steps, 'update')} of {config.batch_size} rows ({passes})")
    if majority := job.dev.majority:
        parts.append(f"majority-class baseline: {task.metrics[0]} {majority:.4f}")
    return "; ".join(parts)


def _origin(job: Job) -> dict[str, Any]:
    """Where a model comes from, for its card: what the card of its beginning says, and public data."""
    origin: dict[str, Any] = origin_in_card(job.folder)
    if job.config.random_init:
        origin.pop("base_model", None)
    return origin | ({"datasets": [job.task.dataset]} if job.task.dataset else {})


def _columns(task: Task, rows: Sequence[Any]) -> dict[str, Any]:
    """The columns of the user's own table: `evaluate` reads them, and `predict` the texts, unless told otherwise."""
    if task.name != OWN_TABLE:
        return {}
    if task.kind == "tagging" and rows[0].scheme != SPANS:  # words, which `predict` divides as fine-tuning did
        return {"words": list(task.text), "label": task.label}
    return {"text": list(task.text), "choices": list(task.choices), "label": task.label}


def summarise(config: FinetuneConfig, runs: list[dict[str, Any]], out: Path, world: World) -> dict[str, Any]:
    """Mean and sample standard deviation over the seeds, written to results.json."""
    shared = ("kind", "task", "majority", "examples", "truncation", "notes", "data", "model", "random_init", "machine")
    sound = [run["metrics"] for run in runs if not run["collapsed"]]
    results = {
        **{key: runs[0][key] for key in shared if key in runs[0]},
        "seeds": list(config.seeds),
        **_mean_and_std([run["metrics"] for run in runs]),
        "runs": [run["metrics"] for run in runs],
        "collapsed": [run["collapsed"] for run in runs],
        "without_collapsed": {"n": len(sound), **_mean_and_std(sound)},
        "seconds": sum(run["seconds"] for run in runs),
    }
    if world.is_main:
        write_text(out / RECIPE, to_toml(config))
    return write_results(out, results, world)


def _mean_and_std(runs: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """`metrics`: the mean of each; `std`: its sample standard deviation, 0 of a single run. Empty of none."""
    values = {name: [run[name] for run in runs] for name in (runs[0] if runs else ())}
    return {
        "metrics": {name: statistics.fmean(scores) for name, scores in values.items()},
        "std": {name: statistics.stdev(scores) if len(scores) > 1 else 0.0 for name, scores in values.items()},
    }
