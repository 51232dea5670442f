"""Which engine is fastest on this machine for a folder, and what it costs in exactness (`bertworks advise`).

Every engine has a process of its own. In each round all of them compute the same texts, one after the other, so that a
machine that is busy for a while slows all engines alike.
"""

import contextlib
import math
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch

from ...checkpoint.folder import read_config
from ...checkpoint.locate import find_model, refuse_export
from ...files import InputError
from ...inference.engines import EngineName
from ...inference.predictor import Predictor
from ...reporting.progress import Progress
from ...reporting.tables import ResultTable
from ...tasks.base import Task
from ...training.machine import facts
from .config import AdviceConfig, ExportConfig
from .folder import export
from .samples import SCORES, Sample, agreement, shipped_texts, texts_in
from .workers import Choice, Work, Worker

_TEXTS = 96  # ours are repeated to so many, for a batch of usual size
_MOST = 1_024  # of the user's texts


@dataclass(frozen=True)
class Measured:
    """One engine's figures."""

    name: str
    throughput: list[float]  # texts a second, of each round
    single: list[float]  # milliseconds of each text alone, all rounds
    facts: dict[str, Any]
    difference: dict[str, Any]  # from float32
    metrics: dict[str, float]

    @property
    def rate(self) -> float:
        """The median throughput."""
        return statistics.median(self.throughput)


def advise(
    folder: Path | str,
    config: AdviceConfig | None = None,
    texts: Path | None = None,
    dev: tuple[Task, Sequence[Any]] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Measure the engines of this machine on a model folder; returns figures, a sentence of advice, and `commands`.

    texts: file with texts of your own; left out, English and Korean ones of ours. dev: a task and labelled rows, on
    which each engine is scored. Engines that cannot run here are in `left_out`, with the reason. Progress goes to
    stderr unless `quiet`. Raises InputError if the folder is an export or cannot be read.
    """
    config = config or AdviceConfig()
    refuse_export(find_model(folder))
    read_config(folder)  # before anything slow
    own = shipped_texts() if texts is None else tuple(texts_in(texts)[:_MOST])
    used = (own * -(-_TEXTS // len(own)))[: max(_TEXTS, len(own))]
    work = Work(used, config.singles, *(dev or (None, ())))
    left_out: dict[str, str] = {}
    progress = Progress(not quiet)
    with TemporaryDirectory() as place, contextlib.ExitStack() as open_:
        workers = []
        for choice in _choices(Path(folder), Path(place), config, left_out, progress):
            progress.say(f"{choice.name}: loading and warming up")
            worker = Worker(choice, work)
            open_.callback(worker.close)
            try:
                worker.ask("facts")  # loads, compiles, warms up
                workers.append(worker)
            except InputError as error:
                if not workers:
                    raise
                left_out[choice.name] = str(error)
        measured = _rounds(workers, config, Predictor(folder, device="cpu"), work, progress)
    found = {"count": len(used), "distinct": len(own), "file": None if texts is None else texts.name}
    report = _report(measured, left_out, config, work, found)
    return report | {"commands": serve_commands(report["chosen"], folder)}


def _choices(
    folder: Path, place: Path, config: AdviceConfig, left_out: dict[str, str], progress: Progress
) -> list[Choice]:
    """The engines that this machine has, float32 first; what cannot be exported goes to `left_out`."""
    found = [Choice("float32", folder), Choice("bfloat16", folder, "bfloat16")]
    if "compiled" in get_args(EngineName):
        kinds = ("float32", "bfloat16")
        found += [Choice(f"compiled {kind}", folder, kind, "compiled") for kind in kinds]
    exports = {"ONNX float32": ExportConfig(), "ONNX int8": ExportConfig(precision="int8")}
    if config.packages:
        exports |= {f"{kind} package": ExportConfig("torch", kind) for kind in ("float32", "bfloat16")}  # type: ignore[arg-type]
    for name, how in exports.items():
        progress.say(f"{name}: exporting")
        try:
            export(folder, place / name, how)
            found.append(Choice(name, place / name))
        except InputError as error:
            left_out[name] = str(error)
    return found


def _rounds(
    workers: list[Worker], config: AdviceConfig, predictor: Predictor, work: Work, progress: Progress
) -> list[Measured]:
    """All figures of all engines, in interleaved rounds."""
    rates: list[list[float]] = [[] for _ in workers]
    singles: list[list[float]] = [[] for _ in workers]
    with progress.stage(f"measuring {len(workers)} engines", config.rounds, "round"):
        for number in range(config.rounds):
            order = range(len(workers))
            for i in order if number % 2 == 0 else reversed(order):
                rates[i].append(workers[i].ask("batch"))
                singles[i] += workers[i].ask("single")
            progress.at(number + 1)
    progress.say("comparing the scores")
    sample = Sample.of(predictor, work.texts)
    scores = [torch.from_numpy(worker.ask("scores")) for worker in workers]
    return [
        Measured(
            worker.choice.name,
            rates[i],
            singles[i],
            worker.ask("facts"),
            sample.difference(scores[0], scores[i]),
            worker.ask("metrics") if work.rows else {},
        )
        for i, worker in enumerate(workers)
    ]


def _report(
    measured: list[Measured], left_out: dict[str, str], config: AdviceConfig, work: Work, texts: dict[str, Any]
) -> dict[str, Any]:
    engines = {
        one.name: {
            "texts_per_second": one.rate,
            "texts_per_second_rounds": one.throughput,
            "single_ms_p50": statistics.median(one.single),
            **one.facts,
            "difference": one.difference,
            "metrics": one.metrics,
        }
        for one in measured
    }
    return {
        "engines": engines,
        "left_out": left_out,
        "advice": advice(measured, config.equal, len(work.rows)),
        "chosen": _chosen(measured, config.equal, len(work.rows))[0].name,
        "rounds": config.rounds,
        "texts": texts,
        "task": getattr(work.task, "name", None),
        "rows": len(work.rows),
        "machine": facts(),
    }


def advice(measured: Sequence[Measured], equal: float, rows: int) -> str:
    """Which engine to use, as far as the rounds tell, and which faster one answers differently.

    The first of `measured` is float32.
    """
    return _chosen(measured, equal, rows)[1] + _refused(measured, equal, rows)


def serve_commands(engine: str, folder: Path | str) -> list[str]:
    """The commands that serve a folder with an engine of the report: first the export, where the engine is one."""
    words = engine.split()
    if words[0] == "ONNX" or words[-1] == "package":
        out = f"{folder}-{'-'.join(words).lower()}"
        precision = words[-1] if words[0] == "ONNX" else words[0]
        to = "" if words[0] == "ONNX" else " --to torch"
        how = "" if (to, precision) == ("", "float32") else f"{to} --precision {precision}"
        return [f"bertworks export {_quoted(folder)}{how} --out {_quoted(out)}", f"bertworks serve {_quoted(out)}"]
    compiled = " --engine compiled" if words[0] == "compiled" else ""
    return [f"bertworks serve {_quoted(folder)} --precision {words[-1]}{compiled}"]


def _quoted(path: Path | str) -> str:
    return shlex.quote(str(path))


def _refused(measured: Sequence[Measured], equal: float, rows: int) -> str:
    """A sentence on the fastest engine, if it is left out because of its answers."""
    fastest = max(measured, key=lambda one: one.rate)
    if _exact_enough(fastest, measured[0], equal, rows):
        return ""
    ratio = fastest.rate / measured[0].rate
    if fastest.metrics:
        name, found = next(iter(fastest.metrics.items()))
        why = f"its {name} of {found:.4f} is too far below that of float32, {measured[0].metrics[name]:.4f}"
    else:
        why = f"it agrees less ({agreement(fastest.difference)[1]}) than the {equal:.1%} that were asked for"
    return f" {fastest.name} is faster ({ratio:.1f} times float32), but {why}."


def _chosen(measured: Sequence[Measured], equal: float, rows: int) -> tuple[Measured, str]:
    """The engine to use, and a sentence that says why."""
    exact = [one for one in measured if _exact_enough(one, measured[0], equal, rows)]
    best = max(exact, key=lambda one: one.rate)
    rivals = [one for one in exact if one is not best and max(one.throughput) >= min(best.throughput)]
    _, agrees = agreement(best.difference)
    same = f", {agrees}" if agrees else ""
    if best is measured[0] and not rivals:
        return best, "On this machine use float32 as it is: no other engine with the same answers is faster."
    if rivals:
        names = " and ".join(sorted(one.name for one in (best, *rivals)))
        simplest = min((best, *rivals), key=measured.index)
        why = f"No clear winner among {names}: their rounds overlap; use {simplest.name}, the simplest of them."
        return simplest, why
    ratio = best.rate / measured[0].rate
    latency = statistics.median(best.single)
    return best, (
        f"On this machine use {best.name}: {ratio:.1f} times the throughput of float32, {latency:.1f} ms for one "
        f"text{same}{_scored(best, measured[0], rows)}."
    )


def _exact_enough(one: Measured, first: Measured, equal: float, rows: int) -> bool:
    """Whether enough answers are equal, or with labelled rows the first metric is within its interval."""
    if one is first:
        return True
    if one.metrics:
        name, before = next(iter(first.metrics.items()))
        return one.metrics[name] >= before - _half_width(before, rows)
    share, _ = agreement(one.difference)
    return share is None or share >= equal


def _half_width(score: float, rows: int) -> float:
    """Half of the 95 % interval of a share of so many rows; of another metric 0."""
    return 1.96 * math.sqrt(score * (1 - score) / rows) if 0 <= score <= 1 and rows else 0.0


def _scored(best: Measured, first: Measured, rows: int) -> str:
    if not best.metrics:
        return ""
    name, before = next(iter(first.metrics.items()))
    return f", {name} {best.metrics[name]:.4f} against {before:.4f} on {rows:,} rows"


def table(report: dict[str, Any]) -> ResultTable:
    """The report for a terminal of 80 columns, with the commands to type at its end."""
    scored = bool(report["rows"])
    name = next(iter(next(iter(report["engines"].values()))["metrics"]), "")
    header = (
        "engine",
        "texts/s",
        "rounds",
        "one text, ms",
        "MB",
        "difference",
        "equal",
        *([name] if scored else []),
    )
    rows = []
    for engine, one in report["engines"].items():
        rates, share = one["texts_per_second_rounds"], agreement(one["difference"])[0]
        cells = [engine, f"{one['texts_per_second']:.0f}", f"{min(rates):.0f}-{max(rates):.0f}"]
        cells += [f"{one['single_ms_p50']:.1f}", f"{one['memory_mb']:.0f}", f"{one['difference']['largest']:.1e}"]
        cells += ["-" if share is None else f"{share:.1%}", *([f"{one['metrics'][name]:.4f}"] if scored else [])]
        rows.append(tuple(cells))
    notes = [f"Left out: {engine}: {why}." for engine, why in report["left_out"].items()]
    used = report["texts"]
    repeated = f", repeated to {used['count']:,}" if used["count"] > used["distinct"] else ""
    notes += [
        f"Medians of {report['rounds']} interleaved rounds over {used['distinct']:,} texts{repeated}.",
        "difference: the largest of a score from float32; equal: answers equal to those of float32, of an embedder "
        "the mean cosine.",
        f"{SCORES}.",
        report["advice"],
        *(f"    {line}" for line in report["commands"]),
    ]
    return ResultTable("Engines on this machine", header, rows, tuple(notes))
