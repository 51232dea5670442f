"""What the files of a run say (recipe.toml, log.jsonl, results.json), and the checks of any training."""

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...config import RECIPE_BYTES, from_dict
from ...files import InputError, read_bytes
from ...reporting.run_files import LOG, RESULTS, read_log, read_results
from ...training.config import OptimConfig
from ...training.identity import RECIPE
from ...training.optim import learning_rate
from ...training.run import STATE_FOLDER
from ...training.state import saved_step
from ...typed import check_fields
from .findings import Finding, NotChecked, percent, some_of
from .rows import FEW

WORD_LOSSES = ("mlm_loss", "ltr_loss", "rtl_loss")  # held-out, of language models
SPIKE = 1.5  # nats by which a training loss jumps between two records
OUTLIER = 20.0  # times the median gradient norm
VANISHED = 1e-3  # gradient norm of pre-training from which nothing is learned
SLOWER = 0.25  # share of the throughput that was lost
IDLE_RATE = 0.02  # share of the records with rate 0
RISE = 0.05  # by which a held-out loss is above its lowest value

DIVERGED = "begin again with a lower --optim.lr, a longer --optim.warmup, or --loop.precision float32"
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
    "phases?": [{"share?": float}],
    "batch_size?": int,
}


@dataclass(frozen=True)
class RunFiles:
    """The files of one run."""

    folder: Path

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """recipe.toml as it is; {} if there is none."""
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
        found: dict[str, Any] = read_results(path, RESULTS_FORM) if path.is_file() else {}
        return found

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """All records of log.jsonl; [] if there is none."""
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
        found = self.results.get("metrics") or (self.held_out[-1] if self.held_out else {})
        numbers = {name: value for name, value in found.items() if isinstance(value, int | float) and name != "step"}
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
        found = (record.get(name) for record in self.train)
        return [float(value) for value in found if isinstance(value, int | float) and math.isfinite(value)]


def finished(run: RunFiles) -> Iterator[Finding]:
    """A run that was stopped or killed."""
    if not run.results:
        wanted = run.recipe.get("loop", {}).get("steps") or 0
        of = f" of {wanted:,}" if wanted else ""
        yield Finding(
            "note",
            f"no {RESULTS}: the run is at step {run.steps:,}{of}, under way or stopped",
            "rerun the command that began it to resume",
            {"step": run.steps},
        )


def log(run: RunFiles) -> Iterator[Finding]:
    """A finished run without the record of its training, or of the end of it."""
    if run.results.get("kind") in TRAINED and run.results.get("steps") != 0 and not run.records:
        yield Finding(
            "note",
            f"the run is finished, but {LOG} is {'empty' if (run.folder / LOG).is_file() else 'missing'}: its training "
            "was not examined",
            "restore the file; the results and the model do not need it",
        )
    yield from _cut_log(run)


def _cut_log(run: RunFiles) -> Iterator[Finding]:
    """A log that ends before the run did: a run that has ended has a record of its last step."""
    steps, last = run.results.get("steps") or 0, run.last_logged
    if 0 < last < steps:
        yield Finding(
            "warning",
            f"{LOG} ends at step {last:,}, the run ended at step {steps:,}: the rest of its training was not examined",
            "restore the file; the results and the model do not need it",
            {"logged": last, "steps": steps},
        )


def numbers(run: RunFiles) -> Iterator[Finding]:
    """Metrics that are not finite, and updates that were skipped because of that."""
    bad = sorted(
        name for name, value in (run.results.get("metrics") or {}).items() if value is None or not math.isfinite(value)
    )
    if bad:
        yield Finding(
            "error",
            f"not finite: {', '.join(bad)}",
            DIVERGED,
        )
    yield from _lost_losses(run)
    if not run.train:
        return
    last = run.train[-1]
    skipped, steps = int(last.get("skipped") or 0), int(last["step"])
    if skipped:
        yield Finding(
            "warning" if skipped > 0.01 * steps else "note",
            f"{some_of(skipped, steps, 'updates', 'was', 'were')} skipped: the gradient was not finite",
            "lower optim.lr, lengthen optim.warmup, or train with loop.precision = 'float32'",
            {"skipped": skipped, "steps": steps},
        )


def _lost_losses(run: RunFiles) -> Iterator[Finding]:
    """Evaluations whose loss is no number; an error if the last one is among them."""
    judged = [[v for name, v in record.items() if name.endswith("loss")] for record in run.held_out]
    lost = [i for i, losses in enumerate(judged) if any(v is None or not math.isfinite(v) for v in losses)]
    if lost:
        yield Finding(
            "error" if lost[-1] == len(judged) - 1 else "warning",
            f"{some_of(len(lost), len(judged), 'evaluations', 'has', 'have')} a held-out loss that is no finite number "
            f"(the first one at step {run.held_out[lost[0]]['step']:,})",
            DIVERGED,
            {"evaluations": len(lost), "of": len(judged)},
        )


def gradients(run: RunFiles) -> Iterator[Finding]:
    """Gradients that vanish or jump, and losses that jump."""
    norms = run.values("grad_norm")
    if not norms:
        raise NotChecked("no gradient norms in the log")
    half = norms[len(norms) // 2 :]
    median = statistics.median(half)
    if median < VANISHED and run.results.get("kind") != "finetune" and "epochs" not in run.recipe:
        yield Finding(
            "warning",
            f"gradient norms of {median:.1e} (median of the second half): hardly anything is learned any more",
            "compare the loss with that of guessing; begin again with another optim.lr or seed",
            {"median": median},
        )
    elif len(half) >= 5 and max(half) > OUTLIER * median:
        yield Finding(
            "warning",
            f"a gradient norm of {max(half):.1f}, the median of the second half is {median:.2f}",
            "if the loss jumped there, lower optim.lr or lengthen optim.warmup",
            {"largest": max(half), "median": median},
        )
    for name in (*WORD_LOSSES, "task_loss"):
        losses = [(r["step"], r[name]) for r in run.train if isinstance(r.get(name), int | float)]
        jumps = [(b - a, step) for (_, a), (step, b) in pairwise(losses) if b - a > SPIKE]
        if jumps:
            size, step = max(jumps)
            yield Finding(
                "warning",
                f"the training loss rose by {size:.2f} nats up to step {step:,} ({name})",
                "lower optim.lr, lengthen optim.warmup, or clip more (optim.max_grad_norm)",
                {"rise": size, "step": step},
            )


def rates(run: RunFiles) -> Iterator[Finding]:
    """Updates at learning rate 0, which change nothing; the first one of a warm-up, or the last one, is as planned."""
    steps = run.recipe.get("loop", {}).get("steps") or 0
    if not (steps and "optim" in run.recipe):
        idle = [record["step"] for record in run.train if record.get("lr") == 0]
        if len(idle) > 1 and len(idle) >= IDLE_RATE * len(run.train):
            yield _idle(len(idle), len(run.train), "records of the log")
        return
    table = {key: value for key, value in run.recipe["optim"].items() if key in ("lr", "warmup", "schedule")}
    optim = from_dict(OptimConfig, table, str(run.folder / RECIPE))
    if not any(learning_rate(optim, step / steps) for step in range(min(steps, 2))):  # of a warm-up, one has it
        yield _idle(steps, steps, "updates")


def _idle(count: int, of: int, what: str) -> Finding:
    return Finding(
        "warning",
        f"{count:,} of {of:,} {what} had the learning rate 0",
        "train for more updates, or lower optim.warmup: with a warm-up the first update has the rate 0",
        {"idle": count, "of": of},
    )


def throughput(run: RunFiles) -> Iterator[Finding]:
    """A run that became slower while it went on."""
    speeds = [
        r["tokens_per_second"] for r in _last_phase(run)[1:] if isinstance(r.get("tokens_per_second"), int | float)
    ]
    if len(speeds) < 9:
        raise NotChecked("fewer than ten records of throughput")
    third = len(speeds) // 3
    early, late = statistics.median(speeds[:third]), statistics.median(speeds[-third:])
    if late < (1 - SLOWER) * early:
        yield Finding(
            "warning",
            f"throughput fell from {early:,.0f} to {late:,.0f} tokens a second (medians of the first and the last "
            "third)",
            "look for other programs on the machine, for swapping, and for a processor that throttles",
            {"early": early, "late": late},
        )


def _last_phase(run: RunFiles) -> list[dict[str, Any]]:
    """The records of the longest phase: others may have another sequence length."""
    begin = 0.0
    spans = []
    for phase in run.recipe.get("phases") or [{"share": 1.0}]:
        spans.append((begin, begin + phase.get("share", 1.0)))
        begin = spans[-1][1]
    start, stop = max(spans, key=lambda span: span[1] - span[0])
    records = run.train
    return records[int(start * len(records)) : math.ceil(stop * len(records))]


def more_rows(run: RunFiles) -> str:
    """The advice for a fine-tuned run on few rows, which no setting replaces; "" for other runs."""
    rows = (run.results.get("examples") or {}).get("train") or FEW
    return "" if rows >= FEW else f"label more rows: {rows:,} training rows are few, and no other setting replaces them"


def held_out_loss(run: RunFiles) -> Iterator[Finding]:
    """A held-out loss that rose again."""
    for name in (*WORD_LOSSES, "loss"):
        losses = [(r[name], r["step"]) for r in run.held_out if isinstance(r.get(name), int | float)]
        if len(losses) < 3:
            continue
        (least, step), (last, _) = min(losses), losses[-1]
        if last > least + RISE * max(1.0, least) and not run.recipe.get("loop", {}).get("keep_best"):
            yield Finding(
                "warning",
                f"the held-out loss rose from {least:.3f} at step {step:,} to {last:.3f} ({name})",
                more_rows(run) or f"train for fewer updates, or keep the best weights: --loop.keep-best {name}",
                {"least": least, "step": step, "last": last},
            )


def usage(run: RunFiles) -> Iterator[Finding]:
    """A run that used few of the machine's cores, or shared them with other programs."""
    others = run.values("cores_used_by_others")
    if len(others) > len(run.train) / 2:
        yield Finding(
            "note",
            f"other programs used {statistics.median(others):.1f} cores during the run",
            "expect a faster run on a machine without them; the results are the same",
            {"cores": statistics.median(others)},
        )
    machine = run.results.get("machine") or {}
    cores, threads = machine.get("cores"), machine.get("threads")
    processes = run.results.get("processes") or 1
    if not (isinstance(cores, int) and isinstance(threads, int)) or machine.get("gpu"):
        raise NotChecked("the results name no cores and threads, or a GPU computed")
    if threads * processes < cores:
        yield Finding(
            "note",
            f"the run used {threads * processes} of {cores} cores {_percent_of(threads * processes, cores)}",
            "unset OMP_NUM_THREADS if nothing else runs on the machine",
            {"threads": threads * processes, "cores": cores},
        )


def _percent_of(part: int, whole: int) -> str:
    return f"({percent(part / whole)})"


CHECKS: dict[str, Callable[[RunFiles], Iterable[Finding]]] = {
    "finished": finished,
    "log": log,
    "finite numbers": numbers,
    "gradients": gradients,
    "learning rate": rates,
    "held-out loss": held_out_loss,
    "throughput": throughput,
    "cores": usage,
}
