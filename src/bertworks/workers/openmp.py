"""How long torch's OpenMP threads wait actively for their next operation: shorter while other programs use the cores.

Between two parallel operations the threads of GNU's OpenMP library spin for some milliseconds before they sleep. On an
idle machine this saves the time of waking them. If another program has the core that one thread needs, the others spin
on theirs until the scheduler runs it: training and requests to a server then take several times as long.

The library spins 3,000 times less while it has more threads than there are cores. `watch` starts a thread that measures
how many cores other programs use, and keeps a second group of sleeping threads while these are many. Spinning
is never changed where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, or where torch has another OpenMP library. Results do
not depend on it.
"""

import contextlib
import ctypes
import functools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

INTERVAL = 0.25  # seconds between two measurements
LATEST = 0.3  # weight of the latest measurement in the average, which follows a change within a second
SHORT, LONG = 0.5, 0.4  # cores that other programs and our threads need beyond those that exist: spin shorter, longer
STAT = Path("/proc/stat")


def library() -> str | None:
    """The path of GNU's OpenMP library in torch's wheel, which torch has loaded; None if torch has another library."""
    folder = Path(torch.__file__).parent
    return next(map(str, [*folder.glob("lib/libgomp*"), *folder.parent.glob("torch.libs/libgomp*")]), None)


@functools.cache
def watch() -> "Watcher | None":
    """The watcher of this process, started at the first call; None on other systems than Linux."""
    if not STAT.exists():
        return None
    path = None if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys() else library()
    watcher = Watcher(None if path is None else ctypes.CDLL(path))
    os.register_at_fork(after_in_child=watch.cache_clear)  # the child lacks the thread
    threading.Thread(target=watcher.run, name="watch cores", daemon=True).start()
    return watcher


def others() -> dict[str, float]:
    """The fields of a log: how many cores other programs have used in the last second, if more than half a core."""
    watcher = watch()
    return {"cores_used_by_others": watcher.used} if watcher and watcher.used > SHORT else {}


class Watcher:
    """Measures how many of this process's cores other programs use, and sets how long OpenMP's threads spin."""

    def __init__(self, openmp: ctypes.CDLL | None) -> None:
        """openmp: the library whose threads spin; None: their waiting is not changed."""
        self.openmp = openmp
        self.cores = sorted(os.sched_getaffinity(0))
        self.threads = int(openmp.omp_get_max_threads()) if openmp else 0  # of an operation
        self.used = 0.0  # cores that other programs have used in the last second
        self.release: threading.Event | None = None  # ends the second group of threads; None: without such a group

    def run(self) -> None:
        """Measure until the process ends, or until the system has no such measurements any more."""
        with contextlib.suppress(OSError, ValueError):
            before = self.measured()
            while True:
                time.sleep(INTERVAL)
                now = self.measured()
                seconds, used = (after - earlier for after, earlier in zip(now, before, strict=True))
                self.add(used / seconds)
                before = now
        self.used = 0.0

    def measured(self) -> tuple[float, float]:
        """Seconds that passed, and seconds of the cores that other programs used, each since some earlier time."""
        return time.monotonic(), busy_seconds(self.cores) - time.process_time()

    def add(self, used: float) -> None:
        """Take in one measurement of the cores that other programs use."""
        self.used += LATEST * (max(0.0, used) - self.used)
        needed = self.used + self.threads - len(self.cores)
        if needed > SHORT and self.release is None and self.openmp:
            self.release = threading.Event()
            arguments = self.openmp, max(2, len(self.cores) - self.threads + 2), self.release
            with contextlib.suppress(RuntimeError):  # the system allows no more threads
                threading.Thread(target=hold_threads, args=arguments, name="idle OpenMP threads", daemon=True).start()
        elif needed < LONG and self.release is not None:
            self.release.set()
            self.release = None


def hold_threads(openmp: ctypes.CDLL, size: int, release: threading.Event) -> None:
    """Start a group of OpenMP threads, led by this thread. They sleep until it ends."""
    if can_start(size):  # else the library would end the process
        openmp.GOMP_parallel(ctypes.cast(openmp.omp_get_thread_num, ctypes.c_void_p), None, size, 0)
        release.wait()


def can_start(count: int) -> bool:
    """Whether the system lets this process start this number of threads."""
    stop, pool = threading.Event(), ThreadPoolExecutor(count)
    try:
        for _ in range(count):
            pool.submit(stop.wait)  # starts a thread, since all others wait
    except RuntimeError:
        return False
    finally:
        stop.set()
        pool.shutdown()
    return True


def busy_seconds(cores: list[int]) -> float:
    """Seconds of these cores that any program has used, or that the host of a virtual machine has taken."""
    names = {f"cpu{core}" for core in cores}
    lines = (line.split() for line in STAT.read_text(encoding="ascii").splitlines())
    busy = 0, 1, 2, 5, 6, 7  # user, nice, system, irq, softirq, steal; not idle and iowait
    ticks = sum(int(fields[i]) for name, *fields in lines if name in names for i in busy)
    return float(ticks / os.sysconf("SC_CLK_TCK"))


@functools.cache
def one_thread_after_fork() -> None:
    """From now on a process that is forked from this one computes with one thread.

    It has no copies of torch's other threads, and waiting for them would never end.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))
