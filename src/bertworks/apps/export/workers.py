"""An engine in a process of its own, so that its memory is its own, measured on demand.

The processes wait for each other: one computes at a time, because the one that measures asks one at a time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from ...files import InputError
from ...workers.local import Context


class Choice(NamedTuple):
    """One way to run a model."""

    name: str
    folder: Path
    precision: str = "float32"
    engine: str = "auto"


@dataclass(frozen=True)
class Work:
    """What every engine computes."""

    texts: tuple[str, ...]
    singles: int  # texts that are computed alone
    task: Any = None
    rows: Sequence[Any] = ()  # labelled, of the task


class Worker:
    """A process that runs one choice. `ask` returns what a method of `_Bench` returns there."""

    def __init__(self, choice: Choice, work: Work):
        context = Context()
        self.choice = choice
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, choice, work), daemon=True)
        self._process.start()
        there.close()

    def ask(self, what: str) -> Any:
        """Raises InputError with the message of one that was raised in the process, or if the process ended."""
        try:
            self._here.send(what)
            failed, found = self._here.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise InputError(f"the process of {self.choice.name} ended; was there too little memory?") from None
        if failed:
            raise InputError(f"{self.choice.name}: {found}")
        return found

    def close(self) -> None:
        """End the process."""
        self._here.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.terminate()


def _serve(connection: Connection, choice: Choice, work: Work) -> None:
    """Answer one question after the other until the connection is closed."""
    bench: _Bench | None = None
    while True:
        try:
            what = connection.recv()
        except (EOFError, OSError):
            return
        try:
            bench = bench or _Bench(choice, work)
            connection.send((False, getattr(bench, what)()))
        except Exception as error:  # the asking process says it
            connection.send((True, f"{error}" if isinstance(error, InputError) else f"{type(error).__name__}: {error}"))


class _Bench:
    """A predictor and the texts that it is measured on."""

    def __init__(self, choice: Choice, work: Work):
        import torch

        from ...inference.predictor import Predictor
        from .samples import Sample

        begun = time.perf_counter()
        named: dict[str, Any] = {"precision": choice.precision, "engine": choice.engine}
        self.predictor = Predictor(choice.folder, device="cpu", **named)
        self.sample, self.work, self.threads = Sample.of(self.predictor, work.texts), work, torch.get_num_threads()
        self.expected = self.sample.scores()  # also compiles and warms up
        self.single()
        self.seconds = time.perf_counter() - begun

    def scores(self) -> Any:
        """The scores of all texts, as a list of rows."""
        return self.expected.numpy()

    def batch(self) -> float:
        """Texts a second, from text to answer."""
        begun = time.perf_counter()
        prepared = self.sample.steps.prepare(self.sample.rows)
        self.sample.answers(self.sample.steps.score([prepared])[0])
        return len(self.sample.rows) / (time.perf_counter() - begun)

    def single(self) -> list[float]:
        """Milliseconds of each text alone."""
        found = []
        for row in self.sample.rows[: self.work.singles]:
            begun = time.perf_counter()
            self.sample.steps.score([self.sample.steps.prepare([row])])
            found.append(1000 * (time.perf_counter() - begun))
        return found

    def facts(self) -> dict[str, Any]:
        """Memory in megabytes, seconds to load and warm up, threads."""
        import psutil

        memory = psutil.Process().memory_info().rss / 1e6
        return {"memory_mb": memory, "load_seconds": self.seconds, "threads": self.threads}

    def metrics(self) -> dict[str, float]:
        """The task's metrics on the labelled rows."""
        from ...inference.evaluation import Evaluation

        return Evaluation.prepare(self.predictor.loaded, self.work.task, self.work.rows).run().metrics
