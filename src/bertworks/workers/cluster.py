"""Workers of a dask scheduler, on this machine or on many: the tasks of a pool run there unchanged.

The scheduler gives the tasks of a worker that was killed to other workers. It knows nothing of files: tasks read and
write a disk that all workers share, under the same names. Needs the extra `cluster`.
"""

import contextlib
import functools
import os
import pickle
import platform
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from importlib import metadata
from typing import Any

from ..files import InputError
from .local import Pool, WorkersLost

LOCAL = "local"  # the name of a scheduler on this machine that ends with the command
PATIENCE = 60.0  # seconds to wait for the scheduler, and for a first worker
LIBRARIES = ("numpy", "tokenizers", "sentencex", "torch", "datasketch")  # decide the bytes that tasks write

_making = threading.Lock()


def open_pool(scheduler: str, count: int, make: Callable[..., Any], *arguments: Any) -> Pool:
    """Processes of this machine, or the workers of a dask scheduler if one is named; see `Pool` and `Cluster`."""
    return Cluster(scheduler, count, make, *arguments) if scheduler else Pool(count, make, *arguments)


class Cluster(Pool):
    """The workers of a dask scheduler as a `Pool`. Every worker process makes the object of its tasks once.

    A scheduler that ends or restarts, and a task that killed several workers, raise WorkersLost.
    """

    def __init__(self, scheduler: str, count: int, make: Callable[..., Any], *arguments: Any) -> None:
        """scheduler: its address, or "local". count: processes of a local one; 0 is one for every core.

        Raises InputError if dask is not installed, no scheduler answers, or no worker comes.
        """
        self.scheduler = scheduler
        super().__init__(count, make, *arguments)

    def _start(self, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._client = _connect(self.scheduler, self._count)
        self._workers = _DaskWorkers(self._client, pickle.dumps((_versions(), make, arguments)))

    @property
    def count(self) -> int:
        """The number of tasks that the workers run at once, which may change."""
        with self._losses_named():
            return max(1, sum(self._client.nthreads().values()))

    @contextlib.contextmanager
    def _losses_named(self) -> Iterator[None]:
        from distributed.client import ClosedClientError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        try:
            yield
        except (CancelledError, ClosedClientError, CommClosedError):
            raise WorkersLost(f"the scheduler {self.scheduler} ended or restarted") from None
        except KilledWorker as error:
            raise WorkersLost(f"a task's workers were killed {error.allowed_failures + 1} times") from None


class _DaskWorkers:
    """The workers of a dask client, as `Workers`."""

    def __init__(self, client: Any, factory: bytes) -> None:
        self._client = client
        self._factory = uuid.uuid4().hex, factory

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Not by the client's executor: it fails if a worker dies while a result that is None is fetched from it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of megabytes of text in one task
            submitted = self._client.submit(_run, *self._factory, pickle.dumps((task, arguments)), pure=False)
        future: Future[Any] = Future()
        submitted.add_done_callback(functools.partial(_copy_outcome, future))
        return future

    def close(self) -> None:
        self._client.close()


def _copy_outcome(future: Future[Any], submitted: Any) -> None:
    try:
        future.set_result(submitted.result())
    except BaseException as error:
        future.set_exception(error)


def _connect(scheduler: str, count: int) -> Any:
    """A client of the scheduler that has at least one worker."""
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError:
        raise InputError("--scheduler needs dask.distributed; run: pip install 'bertworks[cluster]'") from None
    try:
        if scheduler == LOCAL:
            return Client(n_workers=count, threads_per_worker=1, dashboard_address=None, set_as_default=False)
        get_address_host_port(scheduler)  # a Client that refuses an address keeps its process from ending
        client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        advice = "expected the address of a dask scheduler, such as tcp://host:8786; start one with `dask scheduler`"
        raise InputError(f"{scheduler}: no scheduler answers ({error}); {advice}") from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except OSError:
        client.close()
        advice = f"start workers with `dask worker {scheduler} --nthreads 1` and rerun the command"
        raise InputError(f"{scheduler}: no worker in {PATIENCE:.0f} seconds; {advice}") from None
    return client


# ---- in a worker


def _run(connection: str, factory: bytes, call: bytes) -> Any:
    """Run a task on this process's object. connection: whose object; made, call: pickled, as `Cluster` sends them."""
    with _making:
        worker = _object(connection, factory)
    task, arguments = pickle.loads(call)
    return task(worker, *arguments)


@functools.lru_cache(maxsize=1)
def _object(connection: str, factory: bytes) -> Any:
    """The object of this process for one connection. Raises InputError if a library has another version here."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process for every core already
    versions, make, arguments = pickle.loads(factory)
    installed = _versions()
    for name, expected in versions.items():
        if installed.get(name) != expected:
            problem = f"{platform.node()}, where a worker runs, has {name} {installed.get(name, 'not installed')}"
            raise InputError(f"{problem}; expected {expected} as on the machine of this command; install that version")
    return make(*arguments)


def _versions() -> dict[str, str]:
    """The versions of bertworks and of the libraries that decide what tasks write."""
    from .._version import __version__

    versions = {"bertworks": __version__}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
