"""Compare the engines of this machine on a model: speed, and agreement with float32 (`bertworks export --compare`).

One process prepares and measures an engine after the other. It is ended when the time is up. Each round computes the
same texts with float32 and with the engine, so that other programs on the machine slow both alike.
"""

import contextlib
import multiprocessing
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from ...checkpoint.folder import read_config
from ...checkpoint.locate import find_model, refuse_export, run_name
from ...files import InputError
from ...inference.engines import Precision
from ...inference.predictor import Predictor
from ...reporting.progress import Progress
from ...reporting.tables import ResultTable
from .folder import ExportPrecision, export
from .samples import SCORES, Sample, agreement, shipped_texts, texts_in

_MOST = 256  # texts of the user's file
_BATCH = 32
_SINGLES = 20  # texts of a round that are computed alone, at most
_SECONDS = 0.5  # after which a round begins no more batches, and no more single texts
_ROUNDS = 5
_EQUAL = 0.99  # fraction of answers equal to float32's (of an embedder the mean cosine) that an engine needs
_EXIT = 10.0  # seconds that the measuring process has to exit by itself
_LATE = "not finished within the time limit; give a larger --seconds"
_SERVE = "bertworks serve {model} --precision"


class Engine(NamedTuple):
    """One way to compute a model."""

    name: str
    commands: str  # how to serve {model} with it; {new}: the exported folder
    precision: Precision = "float32"
    exported: ExportPrecision | None = None


ENGINES = (  # float32 first, what others are compared with; then from simple to laborious
    Engine("float32", _SERVE + " float32"),
    Engine("bfloat16", _SERVE + " bfloat16", "bfloat16"),
    Engine("ONNX float32", "bertworks export {model} --out {new}; bertworks serve {new}", exported="float32"),
    Engine(
        "ONNX int8", "bertworks export {model} --precision int8 --out {new}; bertworks serve {new}", exported="int8"
    ),
)


@dataclass
class Measured:
    """The figures of one engine."""

    engine: Engine
    difference: dict[str, Any]  # from float32 (Sample.difference)
    throughput: list[float]  # texts per second, of each round
    speedups: list[float]  # throughput divided by that of float32 in the same round
    single: list[float]  # milliseconds of each text alone, all rounds

    @property
    def speedup(self) -> float:
        """The median speedup."""
        return statistics.median(self.speedups)

    @property
    def is_exact(self) -> bool:
        """Whether enough answers equal those of float32."""
        equal, _ = agreement(self.difference)
        return equal is None or equal >= _EQUAL


@dataclass(frozen=True)
class Comparison:
    """The engines that were measured, float32 first."""

    measured: list[Measured]
    left_out: dict[str, str]  # engines that were not measured: why
    texts: int  # different texts that were computed
    folder: Path  # of the model

    @property
    def exact(self) -> list[Measured]:
        """The engines with float32's answers."""
        return [one for one in self.measured if one.is_exact or one is self.measured[0]]

    @property
    def recommended(self) -> Measured:
        """Of the engines with float32's answers, the simplest whose rounds overlap those of the fastest."""
        fastest = max(self.exact, key=lambda one: one.speedup)
        return next(one for one in self.exact if max(one.speedups) >= min(fastest.speedups))

    @property
    def quickest(self) -> Measured:
        """Of the engines with float32's answers, the one with the shortest median time of one text."""
        return min(self.exact, key=lambda one: statistics.median(one.single))


def compare(
    folder: Path | str, texts: Path | None = None, seconds: float = 60.0, engines: Sequence[Engine] = ENGINES
) -> Comparison:
    """Measure the engines of this machine on a model folder. Progress goes to stderr.

    texts: file with the user's texts; None: the built-in English and Korean ones. seconds: time limit; engines that are
    not measured by then are in `left_out`, like those that cannot run here. Raises InputError if the folder is an
    export or cannot be read, or if not even float32 was measured.
    """
    end = time.monotonic() + seconds
    refuse_export(find_model(folder))
    read_config(folder)  # before anything slow
    used = shipped_texts() if texts is None else tuple(texts_in(texts)[:_MOST])
    progress, measured = Progress(), list[Measured]()
    left_out = dict.fromkeys((engine.name for engine in engines), _LATE)
    with tempfile.TemporaryDirectory() as place, _process(engines, Path(folder), Path(place), used) as connection:
        for engine in engines:
            progress.say(f"measuring {engine.name}")
            if not connection.poll(max(0.0, end - time.monotonic())):
                break
            try:
                result: Measured | str = connection.recv()
            except (EOFError, OSError):
                result = "its process ended; is there too little memory?"
            if isinstance(result, Measured):
                measured.append(result)
                del left_out[engine.name]
            else:
                left_out[engine.name] = result
    if engines[0].name in left_out:
        raise InputError(f"{engines[0].name}: {left_out[engines[0].name]}")
    return Comparison(measured, left_out, len(used), Path(folder))


# ---- the process that measures


@contextlib.contextmanager
def _process(engines: Sequence[Engine], folder: Path, place: Path, texts: Sequence[str]) -> Iterator[Connection]:
    """The process that sends a `Measured` or a reason for each engine; it is ended with the block."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure_all, args=(sender, engines, folder, place, texts), daemon=True)
    process.start()
    sender.close()
    try:
        yield receiver
    finally:
        process.terminate()
        process.join(_EXIT)
        process.kill()
        process.join()


def _measure_all(
    sender: Connection, engines: Sequence[Engine], folder: Path, place: Path, texts: Sequence[str]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # removes its semaphores, unlike a killed process
    tempfile.tempdir = str(place)  # so that the parent removes what a killed process leaves
    float32: Sample | None = None
    for engine in engines:
        try:
            model = folder
            if engine.exported:
                model = place / engine.name
                export(folder, model, engine.exported)
            predictor = Predictor(model, device="cpu", precision=engine.precision)
            sample = Sample.of(predictor, texts)
            float32 = float32 or sample
            sender.send(_measured(engine, sample, float32))
        except Exception as error:  # the process that compares reports it
            sender.send(str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}")


def _measured(engine: Engine, sample: Sample, float32: Sample) -> Measured:
    scores = sample.scores()  # also warms up
    _single(sample)
    figures = Measured(engine, sample.difference(float32.scores(), scores), [], [], [])
    for _ in range(_ROUNDS):
        figures.throughput.append(_throughput(sample))
        figures.speedups.append(1.0 if sample is float32 else figures.throughput[-1] / _throughput(float32))
        figures.single += _single(sample)
    return figures


def _throughput(sample: Sample) -> float:
    """Texts per second, from text to scores."""
    start, count = time.perf_counter(), 0
    while count < len(sample.rows) and (not count or time.perf_counter() - start < _SECONDS):
        rows = sample.rows[count : count + _BATCH]
        sample.steps.score([sample.steps.prepare(rows)])
        count += len(rows)
    return count / (time.perf_counter() - start)


def _single(sample: Sample) -> list[float]:
    """Milliseconds of each text alone."""
    times: list[float] = []
    for row in sample.rows[:_SINGLES]:
        if sum(times) > 1000 * _SECONDS:
            break
        start = time.perf_counter()
        sample.steps.score([sample.steps.prepare([row])])
        times.append(1000 * (time.perf_counter() - start))
    return times


# ---- the table


def table(comparison: Comparison) -> ResultTable:
    """The figures for a terminal of 80 columns, with the recommendation at their end."""
    rows, best = [], comparison.recommended
    model, new = shlex.quote(str(comparison.folder)), shlex.quote(f"{run_name(find_model(comparison.folder))}-onnx")
    for one in comparison.measured:
        equal = agreement(one.difference)[0]
        speed = (
            f"{statistics.median(one.throughput):.0f}",
            f"{one.speedup:.1f}",
            f"{statistics.median(one.single):.1f}",
        )
        agrees = (f"{one.difference['largest']:.1e}", "-" if equal is None else f"{equal:.1%}")
        rows.append((one.engine.name, *speed, *agrees))
    notes = [
        *(f"Left out: {engine}: {why}." for engine, why in comparison.left_out.items()),
        f"Medians of {_ROUNDS} rounds over {comparison.texts:,} texts; speedup: over float32 in the same rounds.",
        "difference: the largest of a score from float32; equal: answers equal to those of float32, of an embedder "
        "the mean cosine.",
        f"{SCORES}.",
        f"Of the engines with at least {_EQUAL:.0%} equal answers, {comparison.quickest.engine.name} has the shortest "
        f"time of one text. For many texts use {best.engine.name}, the simplest of the fastest:",
        f"    {best.engine.commands.format(model=model, new=new)}",
    ]
    header = ("engine", "texts/s", "speedup", "one text, ms", "difference", "equal")
    return ResultTable("Engines on this machine", header, rows, tuple(notes))
