"""Worker processes of this machine: spawned, not forked, and without running the caller's script again.

A fork would leave locks of the caller's threads (torch's, for example) held for ever. A process that the standard
library spawns first runs the caller's script again. A script without `if __name__ == "__main__"` would then start the
same work in every worker, and code typed at standard input has no file to run. Workers here need nothing of the script.
"""

import contextlib
import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

T = TypeVar("T")

_starting = threading.Lock()


class _Process(SpawnProcess):
    """A spawned process that imports the modules of its tasks, not the caller's script."""

    def start(self) -> None:
        with _starting:
            original, thread = spawn.get_preparation_data, threading.get_ident()

            def without_script(name: str) -> dict[str, Any]:
                data = original(name)
                if threading.get_ident() == thread:  # another thread may start its own processes meanwhile
                    data.pop("init_main_from_path", None)
                    data.pop("init_main_from_name", None)
                return data

            spawn.get_preparation_data = without_script
            try:
                super().start()
            finally:
                spawn.get_preparation_data = original

    def terminate(self) -> None:
        """End the process at once; it ignores SIGTERM."""
        self.kill()


class Context(SpawnContext):
    """The `mp_context` of a process pool. Its tasks must be defined in a module, not in a script."""

    Process = _Process  # type: ignore[assignment]


def cores() -> int:
    """The number of cores that this process may use, or that the machine has where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkersLost(Exception):
    """Workers were killed, or the scheduler that gives them tasks has ended. What they had finished is on disk."""


class Workers:
    """Processes that compute results ahead of time, in tasks on an object that each of them makes once.

    Workers(2, make, *arguments).submit(task, x).result() is `task(make(*arguments), x)`, computed in some process. The
    processes ignore signals, and end when their parent closes them or ends.
    """

    def __init__(self, count: int, make: Callable[..., Any], *arguments: Any) -> None:
        """make, arguments: must be picklable."""
        self._processes = ProcessPoolExecutor(count, Context(), initializer=_begin, initargs=(make, *arguments))

    def submit(self, task: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Have `task(made, *arguments)` computed, after what was submitted before.

        The future's result raises what the task raises, or BrokenProcessPool if a process was killed.
        """
        return self._processes.submit(_run, task, *arguments)

    def close(self) -> None:
        """End the processes; tasks that have not started are left out."""
        self._processes.shutdown(cancel_futures=True)


class Pool:
    """Processes that run tasks on an object each of them makes once. With one worker, this process does the work.

    with Pool(4, make, *arguments) as pool: pool.submit(task, x) runs `task(make(*arguments), x)` in some process.
    The queue is short: `submit` waits while it is full. The processes end when their parent does.
    """

    def __init__(self, count: int, make: Callable[..., Any], *arguments: Any) -> None:
        """count: processes; 0 is one for every core. make, arguments: must be picklable."""
        self._count = count or cores()
        self._pending: set[Future[Any]] = set()
        self._ended: list[Any] = []
        self._start(make, arguments)

    def _start(self, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Start the processes, or make the object of this one."""
        self._workers: Any = Workers(self._count, make, *arguments) if self._count > 1 else None
        self._own = None if self._workers else make(*arguments)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        if self._workers:
            self._workers.close()

    @property
    def count(self) -> int:
        """The number of processes."""
        return self._count

    def submit(self, task: Callable[..., Any], *arguments: Any) -> None:
        """Run `task(made, *arguments)`; `made` is the process's own object. Waits while the queue is full."""
        if not self._workers:
            self._ended.append(task(self._own, *arguments))
            return
        with self._losses_named():
            self._pending.add(self._workers.submit(task, *arguments))
        if len(self._pending) >= 2 * self.count:
            self._collect()

    def ended(self, wait: bool = False) -> list[Any]:
        """The results of the tasks that have ended since the last call; with `wait`, of at least one if any is left.

        Raises what a task raised, or WorkersLost if a process was killed.
        """
        if self._pending:
            self._collect(timeout=None if wait and not self._ended else 0)
        results, self._ended = self._ended, []
        return results

    def run(self, task: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Run `task` with each tuple of arguments; yields the results in the order in which the tasks end."""
        for given in arguments:
            self.submit(task, *given)
            yield from self.ended()
        while self._pending or self._ended:
            yield from self.ended(wait=True)

    def _collect(self, timeout: float | None = None) -> None:
        """Wait until a task has ended, and take its result."""
        done, self._pending = wait(self._pending, timeout, FIRST_COMPLETED)
        with self._losses_named():
            self._ended += [future.result() for future in done]

    @contextlib.contextmanager
    def _losses_named(self) -> Iterator[None]:
        """Turn the library's errors for workers that are gone into WorkersLost."""
        try:
            yield
        except BrokenProcessPool:
            raise WorkersLost("a worker process was killed") from None


_objects: list[Any] = []  # in a worker process: the object that its tasks work on, since a task cannot carry it


def _begin(make: Callable[..., Any], *arguments: Any) -> None:
    """Set up a worker process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process for every core already
    for number in (signal.SIGINT, signal.SIGTERM):  # these are for the main process, which then ends its workers
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _objects.append(make(*arguments))


def _end_with_parent() -> None:
    """End this process when its parent ends. Without this a pool's workers wait for ever after a SIGKILL."""
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(task: Callable[..., T], *arguments: Any) -> T:
    return task(_objects[0], *arguments)
