"""How long torch's OpenMP threads wait actively for their next operation: shorter while others use the cores.

Between two parallel operations the threads of GNU's OpenMP library spin for some milliseconds before they sleep. On an
idle machine this saves the time of waking them. If another program has the core that one thread needs, the others spin
on theirs until the scheduler runs it: training and requests to a server then take several times as long.

The library spins 3,000 times less while it has more threads than there are cores. `watch` starts a thread that measures
how much of the cores other programs use, and keeps a second group of threads, which sleep, while that is much. Spinning
is never changed where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, or where torch has another OpenMP library. Results do
not depend on it.
"""

import contextlib
import ctypes
import functools
import os
import threading
import time
from pathlib import Path

import torch

INTERVAL = 0.25  # seconds between two measurements
LATEST = 0.3  # weight of the latest measurement in the average, which follows a change within a second
SHORT, LONG = 0.5, 0.4  # cores that threads of ours and other programs need beyond those that there are: spin shorter
STAT = Path("/proc/stat")


def library() -> str | None:
    """The path of GNU's OpenMP library that torch has loaded, or None: a second copy would have threads of its own."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        paths = (line.split(maxsplit=5)[-1].strip() for line in maps)
        found = sorted({path for path in paths if "gomp" in Path(path).name})
        return next((path for path in found if Path(path).parent.parent.name == "torch" or "torch.libs" in path), None)
    return None


@functools.cache
def watch() -> "Watcher | None":
    """The watcher of this process, started at the first call, after torch was imported; None on other systems."""
    if not STAT.exists() or not hasattr(os, "sched_getaffinity"):
        return None
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    path = None if chosen else library()
    watcher = Watcher(None if path is None else ctypes.CDLL(path))
    os.register_at_fork(after_in_child=watch.cache_clear)  # the child has no such thread
    threading.Thread(target=watcher.run, name="watch cores", daemon=True).start()
    return watcher


def others() -> dict[str, float]:
    """What a log has of other programs: the cores that they have used in the last second, if that is worth noting."""
    watcher = watch()
    return {"cores_used_by_others": watcher.used} if watcher and watcher.used > SHORT else {}


class Watcher:
    """Measures how much of this process's cores other programs use, and sets how long OpenMP's threads spin."""

    def __init__(self, openmp: ctypes.CDLL | None) -> None:
        """openmp: the library whose threads spin; None: they are left as they are."""
        self.openmp = openmp
        self.cores = sorted(os.sched_getaffinity(0))
        self.threads = int(openmp.omp_get_max_threads()) if openmp else 0  # of an operation
        self.used = 0.0  # cores that other programs have used in the last second
        self._release: threading.Event | None = None  # ends the second group of threads

    @property
    def spins_short(self) -> bool:
        """Whether threads spin shortly, because other programs use the cores."""
        return self._release is not None

    def run(self) -> None:
        """Measure until the process ends, or until the system does not say any more what its cores do."""
        start, all_before, own_before = time.monotonic(), busy_seconds(self.cores), time.process_time()
        with contextlib.suppress(OSError, ValueError):
            while True:
                time.sleep(INTERVAL)
                end, all_now, own_now = time.monotonic(), busy_seconds(self.cores), time.process_time()
                if end - start < 4 * INTERVAL:  # else this process was stopped, or the machine asleep
                    self.add(((all_now - all_before) - (own_now - own_before)) / (end - start))
                start, all_before, own_before = end, all_now, own_now
        self.used = 0.0

    def add(self, used: float) -> None:
        """Take in one measurement of the cores that other programs use."""
        self.used += LATEST * (max(0.0, used) - self.used)
        needed = self.used + self.threads - len(self.cores)
        if needed > SHORT and self._release is None and self.openmp:
            self._shorten(self.openmp)
        elif needed < LONG and self._release is not None:
            self._release.set()
            self._release = None

    def _shorten(self, openmp: ctypes.CDLL) -> None:
        """Start a second group of threads, so that there are more than cores. They sleep until their leader ends."""
        self._release = release = threading.Event()
        size = max(2, len(self.cores) - self.threads + 2)
        harmless = ctypes.cast(openmp.omp_get_thread_num, ctypes.c_void_p)

        def lead() -> None:
            if can_start(size):  # else the library would end the process
                openmp.GOMP_parallel(harmless, None, size, 0)
                release.wait()

        with contextlib.suppress(RuntimeError):  # the system allows no more threads
            threading.Thread(target=lead, name="idle OpenMP threads", daemon=True).start()


def can_start(count: int) -> bool:
    """Whether the system lets this process start so many more threads."""
    stop, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(count):
            started.append(threading.Thread(target=stop.wait, daemon=True))
            started[-1].start()
    except RuntimeError:
        return False
    finally:
        stop.set()
        for thread in started:
            if thread.ident is not None:
                thread.join()
    return True


def busy_seconds(cores: list[int]) -> float:
    """Seconds of these cores that any program has used, or that the host of a virtual machine has taken."""
    names, ticks = {f"cpu{core}" for core in cores}, 0
    for line in STAT.read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name in names:  # user, nice, system, idle, iowait, irq, softirq, steal
            ticks += sum(int(field) for place, field in enumerate(fields[:8]) if place not in (3, 4))
    return ticks / os.sysconf("SC_CLK_TCK")


@functools.cache
def one_thread_after_fork() -> None:
    """From now on a process that is forked from this one computes with one thread.

    It has no copies of torch's other threads, and waiting for them would never end.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))
