"""Compare the engines of this machine on a model: speed, and agreement with float32 (`bertworks export --compare`).

Each engine runs in a process of its own, which is ended when the time is up. In each round all engines compute the same
texts, one engine after the other, so that other programs on the machine slow all engines alike.
"""

import contextlib
import multiprocessing
import os
import shlex
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...checkpoint.folder import read_config
from ...checkpoint.locate import find_model, refuse_export
from ...files import InputError
from ...inference.engines import EngineName, Precision
from ...inference.predictor import Predictor
from ...reporting.progress import Progress
from ...reporting.tables import ResultTable
from .config import ExportConfig
from .folder import export
from .samples import SCORES, Sample, agreement, shipped_texts, texts_in

_MOST = 256  # texts of the user's file
_BATCH = 32
_SINGLES = 20  # texts of a round that are computed alone, at most
_SECONDS = 1.0  # after which a round begins no more batches, and no more single texts
_ROUNDS = 5
_PREPARING = 0.7  # fraction of the time limit in which engines are loaded, exported and compiled
_EQUAL = 0.99  # fraction of answers equal to float32's (of an embedder the mean cosine) that an engine needs


Scores = NDArray[np.float32]  # (R, K), see samples.py


class Engine(NamedTuple):
    """One way to compute a model."""

    name: str
    precision: Precision = "float32"
    engine: EngineName = "auto"
    exported: ExportConfig | None = None


ENGINES = (  # float32 first, what others are compared with; then from simple to laborious
    Engine("float32"),
    Engine("bfloat16", "bfloat16"),
    Engine("ONNX float32", exported=ExportConfig()),
    Engine("ONNX int8", exported=ExportConfig("int8")),
    Engine("compiled float32", "float32", "compiled"),
    Engine("compiled bfloat16", "bfloat16", "compiled"),
)


@dataclass
class Measured:
    """The figures of one engine."""

    name: str
    difference: dict[str, Any]  # from float32 (Sample.difference)
    throughput: list[float] = field(default_factory=list)  # texts per second, of each round
    single: list[float] = field(default_factory=list)  # milliseconds of each text alone, all rounds

    @property
    def rate(self) -> float:
        """The median throughput."""
        return statistics.median(self.throughput)

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

    @property
    def exact(self) -> list[Measured]:
        """float32, and the engines with the same answers."""
        return [one for one in self.measured if one is self.measured[0] or one.is_exact]

    @property
    def fastest(self) -> list[Measured]:
        """The fastest exact engine and those whose rounds overlap with its rounds, in the order of `ENGINES`."""
        best = max(self.exact, key=lambda one: one.rate)
        return [one for one in self.exact if one is best or max(one.throughput) >= min(best.throughput)]

    @property
    def recommendation(self) -> str:
        """Which engine to use, as far as the rounds tell, and which faster one answers differently."""
        float32, best = self.measured[0], self.fastest[0]
        speed = f"{best.rate / float32.rate:.1f} times the throughput of float32"
        agrees = agreement(best.difference)[1]
        why = (
            f"Use {best.name}: {speed}, {statistics.median(best.single):.1f} ms for one text{agrees and f', {agrees}'}."
        )
        if best is float32:
            why = "Use float32: no other engine with the same answers is faster on this machine."
        if len(self.fastest) > 1:
            names = " and ".join(one.name for one in self.fastest)
            why = f"No clear winner among {names}: their rounds overlap; use {best.name}, the simplest."
        other = max(self.measured, key=lambda one: one.rate)
        if other in self.exact:
            return why
        return (
            f"{why} {other.name} is faster ({other.rate / float32.rate:.1f} times float32), but its answers differ too "
            f"much: {agreement(other.difference)[1]}."
        )


def compare(
    folder: Path | str, texts: Path | None = None, seconds: float = 60.0, engines: Sequence[Engine] = ENGINES
) -> Comparison:
    """Measure the engines of this machine on a model folder. Progress goes to stderr.

    texts: file with the user's texts; None: the built-in English and Korean ones. seconds: time limit; engines that are
    not ready or not measured by then are in `left_out`, like those that cannot run here. Raises InputError if the
    folder is an export or cannot be read, or if not even float32 was measured.
    """
    refuse_export(find_model(folder))
    read_config(folder)  # before anything slow
    used = shipped_texts() if texts is None else tuple(texts_in(texts)[:_MOST])
    progress, left_out, begun = Progress(), dict[str, str](), time.monotonic()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        workers: list[_Worker] = []
        expected: Scores | None = None  # the scores of float32
        for engine in engines:
            limit = begun + seconds * (_PREPARING if workers else 1)
            progress.say(f"{engine.name}: preparing")
            try:
                with contextlib.ExitStack() as started:
                    worker = started.enter_context(_started(engine, Path(folder), Path(place), used, expected, limit))
                    scores, difference = worker.receive(limit)
                    stack.push(started.pop_all())  # else its process is ended here
            except InputError as error:
                if not workers:
                    raise InputError(f"float32: {error}") from None
                left_out[engine.name] = str(error)
                continue
            expected = scores if expected is None else expected
            worker.measured = Measured(engine.name, difference)
            workers.append(worker)
        progress.say(f"measuring {len(workers)} engines")
        _measure(workers, begun + seconds)
    measured = [worker.measured for worker in workers if worker.measured.throughput]
    if not measured:
        raise InputError(f"float32: {_LATE}")
    left_out |= {worker.measured.name: _LATE for worker in workers if not worker.measured.throughput}
    return Comparison(measured, left_out, len(used))


def _measure(workers: Sequence["_Worker"], end: float) -> None:
    """Measure all engines in interleaved rounds until the time is up."""
    for number in range(_ROUNDS):
        for worker in workers if number % 2 == 0 else reversed(workers):
            try:
                worker.connection.send(True)
                rate, single = worker.receive(end)
            except (InputError, OSError):
                return
            worker.measured.throughput.append(rate)
            worker.measured.single += single


# ---- processes

_LATE = "not finished within the time limit; give a larger --seconds"


class _Worker:
    """A process that computes with one engine."""

    measured: Measured

    def __init__(self, connection: Connection):
        self.connection = connection

    def receive(self, end: float) -> Any:
        """What the process sends before the time `end`. Raises InputError if it sends an error, ends, or is late."""
        if not self.connection.poll(max(0.0, end - time.monotonic())):
            raise InputError(_LATE)
        try:
            found = self.connection.recv()
        except (EOFError, OSError):
            raise InputError("its process ended; is there too little memory?") from None
        if isinstance(found, str):
            raise InputError(found)
        return found


@contextlib.contextmanager
def _started(
    engine: Engine, folder: Path, place: Path, texts: Sequence[str], expected: Scores | None, limit: float
) -> Iterator[_Worker]:
    """A process that prepares an engine; it is ended with the block. Raises InputError if `limit` is over."""
    if time.monotonic() >= limit:
        raise InputError(_LATE)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, engine, folder, place, texts, expected), daemon=True)
    process.start()
    there.close()
    try:
        yield _Worker(here)
    finally:
        here.close()  # by which a process that waits ends
        process.join(1)
        process.kill()
        process.join()


def _serve(
    connection: Connection, engine: Engine, folder: Path, place: Path, texts: Sequence[str], expected: Scores | None
) -> None:
    """Send the scores of the texts and their difference from `expected`, then figures for each request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # without processes of its own, which would outlive this one
    tempfile.tempdir = str(place)  # so that the parent removes what a killed process leaves
    try:
        if engine.exported:
            export(folder, place / engine.name, engine.exported)
            folder = place / engine.name
        predictor = Predictor(folder, device="cpu", precision=engine.precision, engine=engine.engine)
        sample = Sample.of(predictor, texts)
        scores = sample.scores()  # also compiles and warms up
        _single(sample)
        exact = scores if expected is None else torch.from_numpy(expected)
        connection.send((scores.numpy(), sample.difference(exact, scores)))
        while connection.recv():
            connection.send((_throughput(sample), _single(sample)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the comparison is over
    except Exception as error:  # the process that compares reports it
        connection.send(f"{error}" if isinstance(error, InputError) else f"{type(error).__name__}: {error}")


def _throughput(sample: Sample) -> float:
    """Texts per second, from text to answer."""
    begun, count = time.perf_counter(), 0
    for start in range(0, len(sample.rows), _BATCH):
        rows = sample.rows[start : start + _BATCH]
        part = replace(sample, rows=rows, prepared=sample.steps.prepare(rows))
        part.answers(part.scores())
        count += len(rows)
        if time.perf_counter() - begun > _SECONDS:
            break
    return count / (time.perf_counter() - begun)


def _single(sample: Sample) -> list[float]:
    """Milliseconds of each text alone."""
    times: list[float] = []
    for row in sample.rows[:_SINGLES]:
        if sum(times) > 1000 * _SECONDS:
            break
        begun = time.perf_counter()
        sample.steps.score([sample.steps.prepare([row])])
        times.append(1000 * (time.perf_counter() - begun))
    return times


# ---- the table


def serve_commands(engine: str, folder: Path | str) -> list[str]:
    """The commands that serve a folder with an engine of the report: first the export, where the engine is one."""
    kind, _, precision = engine.rpartition(" ")
    if kind == "ONNX":
        out = shlex.quote(f"{folder}-onnx-{precision}")
        how = "" if precision == "float32" else f" --precision {precision}"
        return [f"bertworks export {shlex.quote(str(folder))}{how} --out {out}", f"bertworks serve {out}"]
    compiled = " --engine compiled" if kind == "compiled" else ""
    return [f"bertworks serve {shlex.quote(str(folder))} --precision {precision}{compiled}"]


def table(found: Comparison, folder: Path | str) -> ResultTable:
    """The figures for a terminal of 80 columns, with the commands to type at their end."""
    rows = []
    for one in found.measured:
        rounds, equal = one.throughput, agreement(one.difference)[0]
        speed = (f"{one.rate:.0f}", f"{min(rounds):.0f}-{max(rounds):.0f}", f"{statistics.median(one.single):.1f}")
        difference = (f"{one.difference['largest']:.1e}", "-" if equal is None else f"{equal:.1%}")
        rows.append((one.name, *speed, *difference))
    notes = [
        *(f"Left out: {engine}: {why}." for engine, why in found.left_out.items()),
        f"Medians of up to {_ROUNDS} interleaved rounds over {found.texts:,} texts.",
        "difference: the largest of a score from float32; equal: answers equal to those of float32, of an embedder "
        "the mean cosine.",
        f"{SCORES}.",
        found.recommendation,
        *(f"    {line}" for line in serve_commands(found.fastest[0].name, folder)),
    ]
    header = ("engine", "texts/s", "rounds", "one text, ms", "difference", "equal")
    return ResultTable("Engines on this machine", header, rows, tuple(notes))
