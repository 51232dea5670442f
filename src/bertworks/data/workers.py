"""The processes that encode: a pool with a short queue, whose members end when their parent does."""

import multiprocessing as mp
import os
import signal
import threading
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from ..workers import Context, cores
from .encode import PartWriter


class Workers:
    """Worker processes with a short queue. With one worker the work is done in this process."""

    def __init__(self, count: int, tokenizer: Path, language: str, max_sentence_tokens: int) -> None:
        """`count` processes, 0 for one a core; the rest as in `PartWriter.of`."""
        count = count or cores()
        self.arguments = (tokenizer, language, max_sentence_tokens)
        self.limit = 2 * count
        self.pending: set[Future[None]] = set()
        self.pool: ProcessPoolExecutor | None = None
        if count > 1:
            self.pool = ProcessPoolExecutor(count, Context(), initializer=_begin, initargs=self.arguments)
        else:
            self.writer = PartWriter.of(*self.arguments)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def submit(self, path: Path, texts: list[str]) -> None:
        """Have the part written; waits while the queue is full, so that the reader cannot run away."""
        if not self.pool:
            self.writer.write(path, texts)
            return
        self.pending.add(self.pool.submit(_write, path, texts))
        if len(self.pending) >= self.limit:
            self._collect(FIRST_COMPLETED)

    def finish(self) -> None:
        """Wait for everything submitted; raises what a worker raised."""
        self._collect(ALL_COMPLETED)

    def _collect(self, until: str) -> None:
        done, self.pending = wait(self.pending, return_when=until)
        for future in done:
            future.result()


_worker: dict[str, PartWriter] = {}  # in a worker process: what it writes with, since a task cannot carry it


def _begin(tokenizer: Path, language: str, max_sentence_tokens: int) -> None:
    """Set up a worker process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process a core already
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker["writer"] = PartWriter.of(tokenizer, language, max_sentence_tokens)


def _end_with_parent() -> None:
    """A pool's workers wait for ever for work from a parent that was killed with SIGKILL; so watch it."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write(path: Path, texts: list[str]) -> None:
    _worker["writer"].write(path, texts)
