"""The files of a run (recipe.toml, log.jsonl, results.json), and the checks of any training run."""

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...config import RECIPE_BYTES
from ...files import InputError, read_bytes
from ...reporting.run_files import LOG, RESULTS, read_log, read_results
from ...tasks.checks import Finding
from ...training.identity import RECIPE
from ...training.state import STATE_FOLDER, saved_step
from ...typed import check_fields

WORD_LOSSES = ("mlm_loss", "ltr_loss", "rtl_loss")  # held-out, of language models
SPIKE = 1.5  # nats by which a training loss jumps between two records
OUTLIER = 20.0  # times the median gradient norm
VANISHED = 1e-3  # gradient norm of pre-training from which nothing is learned
SLOWER = 0.25  # fraction of the throughput that was lost
IDLE = 0.02  # fraction of the records with learning rate 0
RISE = 0.05  # by which a held-out loss is above its lowest value

TRAINED = ("pretrain", "distill", "finetune")  # kinds of results of runs with a log
COUNTS = {str: int}
RESULTS_FORM = {  # what is read of results.json
    "kind?": str,
    "metrics?": {str: (float, None)},
    "steps?": int,
    "tokens?": float,
    "processes?": int,
    "machine?": dict,
    "corpus?": (str, None),
    "task?": str,
    "data?": str,
    "encoding?": str,
    "sheet?": str,
    "majority?": (float, None),
    "predicted?": COUNTS,
    "collapsed?": (bool, [bool]),
    "flat?": bool,
    "examples?": COUNTS,
    "truncation?": {str: {"examples": int, "tokens": int}},
    "continued?": bool,
    "seeds?": [int],
    "runs?": [{str: (float, None)}],
}
RECIPE_FORM = {  # what is read of recipe.toml
    "loop?": {"steps?": range(1 << 40), "keep_best?": str},
    "optim?": dict,
    "phases?": [{"budget_fraction?": float}],
    "batch_size?": int,
}


@dataclass(frozen=True)
class RunFiles:
    """The files of one run."""

    folder: Path

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """recipe.toml as it is, or {}."""
        path = self.folder / RECIPE
        if not path.is_file():
            return {}
        try:
            table = tomllib.loads(read_bytes(path, "a recipe", RECIPE_BYTES).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid TOML: {error}; restore the file") from None
        check_fields(table, RECIPE_FORM, str(path))
        return table

    @cached_property
    def results(self) -> dict[str, Any]:
        """results.json; {} if the run is not finished."""
        path = self.folder / RESULTS
        results: dict[str, Any] = read_results(path, RESULTS_FORM) if path.is_file() else {}
        return results

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """All records of log.jsonl, or []."""
        return read_log(self.folder) if (self.folder / LOG).is_file() else []

    @property
    def train(self) -> list[dict[str, Any]]:
        """The records of training."""
        return [record for record in self.records if record["kind"] == "train"]

    @property
    def held_out(self) -> list[dict[str, Any]]:
        """The records of evaluations."""
        return [record for record in self.records if record["kind"] == "eval"]

    @property
    def metrics(self) -> dict[str, float]:
        """The final metrics, else those of the last evaluation, where they are finite."""
        metrics = self.results.get("metrics") or (self.held_out[-1] if self.held_out else {})
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float) and name != "step"}
        return {name: value for name, value in numbers.items() if math.isfinite(value)}

    @property
    def steps(self) -> int:
        """Steps so far: those of the results, else of the saved state, from which the run resumes; else of the log."""
        if steps := self.results.get("steps"):
            return int(steps)
        saved = None if self.results else saved_step(self.folder / STATE_FOLDER)
        return self.last_logged if saved is None else saved

    @property
    def last_logged(self) -> int:
        """The last step in the log."""
        return max((record["step"] for record in self.records), default=0)

    def values(self, name: str) -> list[float]:
        """The finite values of a name in the records of training."""
        return _values(self.train, name)


def log(run: RunFiles) -> Iterator[Finding]:
    """A run that was stopped or killed, and a finished one whose log is missing or cut."""
    steps, last = run.results.get("steps") or 0, run.last_logged
    if not run.results:
        planned = run.recipe.get("loop", {}).get("steps") or 0
        evidence = f"no {RESULTS}: the run is at step {run.steps:,}{f' of {planned:,}' if planned else ''}"
        yield Finding("unfinished", "note", evidence, "rerun the command to resume, if the run is not active")
    elif run.results.get("kind") in TRAINED and steps and last < steps:
        evidence = f"{LOG} ends at step {last:,}, the run at step {steps:,}: the rest of its training was not examined"
        yield Finding("log", "warning", evidence, "restore the file; the results and the model do not need it")


def finite(run: RunFiles) -> Iterator[Finding]:
    """Metrics and losses that are not finite, and updates that were skipped because of that."""
    advice = "start again with a lower optim.lr, a longer optim.warmup, or loop.precision = float32"
    metrics = run.results.get("metrics") or {}
    if bad := sorted(name for name, value in metrics.items() if value is None or not math.isfinite(value)):
        yield Finding("not finite", "error", f"metrics that are not finite: {', '.join(bad)}", advice)
    losses = [[value for name, value in record.items() if name.endswith("loss")] for record in run.held_out]
    lost = [any(value is None or not math.isfinite(value) for value in values) for values in losses]
    if any(lost):
        first = run.held_out[lost.index(True)]["step"]
        evidence = f"evaluations with a loss that is not finite: {sum(lost)} of {len(lost)}, first at step {first:,}"
        yield Finding("not finite", "error" if lost[-1] else "warning", evidence, advice)
    if run.train and (skipped := int(run.train[-1].get("skipped") or 0)):
        steps = int(run.train[-1]["step"])
        evidence = f"updates that were skipped because the gradient was not finite: {skipped:,} of {steps:,}"
        yield Finding("not finite", "warning" if skipped > 0.01 * steps else "note", evidence, advice)


def stability(run: RunFiles) -> Iterator[Finding]:
    """Gradients that vanish or jump, training losses that jump."""
    norms = run.values("grad_norm")
    half = norms[len(norms) // 2 :]
    median = statistics.median(half or [1.0])
    calmer = "lower optim.lr, or lengthen optim.warmup"
    if median < VANISHED and run.results.get("kind") != "finetune" and "epochs" not in run.recipe:
        evidence = f"gradient norms of {median:.1e} (median of the second half): hardly anything is learned any more"
        yield Finding("gradients", "warning", evidence, "start again with another optim.lr or seed")
    elif len(half) >= 5 and max(half) > OUTLIER * median:
        evidence = f"a gradient norm of {max(half):.1f}; the median of the second half is {median:.2f}"
        yield Finding("gradients", "warning", evidence, f"if the loss jumped there, {calmer}")
    for name in (*WORD_LOSSES, "task_loss"):
        losses = [(r["step"], r[name]) for r in run.train if isinstance(r.get(name), int | float)]
        jumps = [(after - before, step) for (_, before), (step, after) in pairwise(losses)]
        size, step = max(jumps, default=(0.0, 0))
        if size > SPIKE:
            evidence = f"the training loss rose by {size:.2f} nats up to step {step:,} ({name})"
            yield Finding("gradients", "warning", evidence, f"{calmer}, or clip more (optim.max_grad_norm)")


def learning_rate(run: RunFiles) -> Iterator[Finding]:
    """Updates at learning rate 0, which change nothing; the first one of a warm-up, or the last one, is as planned."""
    idle = sum(record.get("lr") == 0 for record in run.train)
    if (idle > 1 and idle >= IDLE * len(run.train)) or idle == len(run.train) == 1:
        evidence = f"records of the log with learning rate 0: {idle:,} of {len(run.train):,}"
        yield Finding("learning rate", "warning", evidence, "train for more updates, or lower optim.warmup")


def held_out_loss(run: RunFiles) -> Iterator[Finding]:
    """A held-out loss that rose again."""
    for name in (*WORD_LOSSES, "loss"):
        losses = [(r[name], r["step"]) for r in run.held_out if isinstance(r.get(name), int | float)]
        if len(losses) < 3 or run.recipe.get("loop", {}).get("keep_best"):
            continue
        (least, step), (last, _) = min(losses), losses[-1]
        if last > least + RISE * max(1.0, least):
            evidence = f"the held-out loss rose from {least:.3f} at step {step:,} to {last:.3f} ({name}): overfitting"
            advice = f"label or collect more data, train for fewer updates, or set loop.keep_best = {name}"
            yield Finding("held-out loss", "warning", evidence, advice)


def _longest_phase(run: RunFiles) -> list[dict[str, Any]]:
    """The training records of the longest phase: others may have another sequence length."""
    shares = [phase.get("budget_fraction", 1.0) for phase in run.recipe.get("phases") or [{}]]
    longest = shares.index(max(shares))
    start, stop = (len(run.train) * sum(shares[:end]) for end in (longest, longest + 1))
    return run.train[int(start) : math.ceil(stop)]


def _values(records: list[dict[str, Any]], name: str) -> list[float]:
    """The finite values of a name in records."""
    values = (record.get(name) for record in records)
    return [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]


def speed(run: RunFiles) -> Iterator[Finding]:
    """A run that became slower, shared the cores with other programs, or left some unused."""
    speeds = _values(_longest_phase(run)[1:], "tokens_per_second")
    third = len(speeds) // 3
    if third >= 3:
        early, late = statistics.median(speeds[:third]), statistics.median(speeds[-third:])
        if late < (1 - SLOWER) * early:
            evidence = f"throughput fell from {early:,.0f} to {late:,.0f} tokens/s (medians of first and last third)"
            yield Finding("speed", "warning", evidence, "look for other programs, swapping and a throttled processor")
    others = run.values("cores_used_by_others")
    if len(others) > len(run.train) / 2:
        evidence = f"other programs used {statistics.median(others):.1f} cores during the run"
        yield Finding("speed", "note", evidence, "expect a faster run on an idle machine; the results are the same")
    machine = run.results.get("machine") or {}
    cores, threads = machine.get("cores"), machine.get("threads")
    if isinstance(cores, int) and isinstance(threads, int) and not machine.get("gpu"):
        used = threads * (run.results.get("processes") or 1)
        if used < cores:
            evidence = f"the run used {used} of {cores} cores"
            yield Finding("speed", "note", evidence, "unset OMP_NUM_THREADS on a machine without other programs")


CHECKS: tuple[Callable[[RunFiles], Iterable[Finding]], ...]
CHECKS = (log, finite, stability, learning_rate, held_out_loss, speed)
