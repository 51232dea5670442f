"""This process: signals, and the settings that make training fast and repeatable."""

import contextlib
import ctypes
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import torch

from ..model import openmp
from ..model.openmp import one_thread_after_fork
from .distributed import this_device

THRESHOLDS = 32 << 20, 64 << 20  # bytes: the largest that glibc sets by itself, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD


@dataclass
class Stop:
    """Whether SIGTERM or SIGINT has come."""

    caught: bool = False
    raises: bool = False  # a signal raises KeyboardInterrupt where it comes

    def at_once(self) -> None:
        """From now on a signal, or one that has come already, raises KeyboardInterrupt."""
        self.raises = True
        if self.caught:
            raise KeyboardInterrupt


@contextlib.contextmanager
def caught_signals() -> Iterator[Stop]:
    """Note SIGTERM and SIGINT instead of dying, so that a run can save before it ends; a second one interrupts."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        stop.caught = True
        signal.signal(number, signal.default_int_handler)
        if stop.raises:
            raise KeyboardInterrupt

    try:
        old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, which alone can handle signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def glibc(function: str, *values: int) -> None:
    """Call a function of glibc, if this system has it."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), function):
        getattr(library, function)(*values)


def set_thresholds(mapped: int, trimmed: int) -> None:
    """From how many bytes on glibc maps a block by itself, and returns free memory at the end of the heap."""
    m_trim_threshold, m_mmap_threshold = -1, -3
    glibc("mallopt", m_mmap_threshold, mapped)
    glibc("mallopt", m_trim_threshold, trimmed)


def return_free_memory() -> None:
    """Give the system the free memory between blocks in use, which `prepare_process` keeps for the next step.

    Batches of many sizes leave ever more of it: without this a language model's run grew from 1.8 GB at step 20 to 8.2
    GB at step 180; with it the peak was 4.1 GB. What the next step needs again is slow at first: so once a minute.
    """
    glibc("malloc_trim", 0)


def prepare_process() -> None:
    """Settings of this process that make training fast and repeatable. Repeated calls change nothing.

    Freed memory is kept: page faults took a fifth of a step. Operations whose result depends on the order of threads
    are excluded. Beside a GPU one thread reads batches: several would wait for each other."""
    one_thread_after_fork()
    set_thresholds(2**31 - 1, 2**31 - 1)
    openmp.watch()
    if torch.cuda.is_available():
        torch.set_num_threads(1)
    else:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextlib.contextmanager
def prepared_process() -> Iterator[None]:
    """`prepare_process` until the block ends: a caller in Python gets its own settings and random numbers back.

    glibc does not return its thresholds; they become those that it reaches by itself where large blocks are freed.
    """
    exact, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    threads = torch.get_num_threads()
    gpus = [this_device().index] if torch.cuda.is_available() else []
    prepare_process()
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        torch.use_deterministic_algorithms(exact, warn_only=warn)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        set_thresholds(*THRESHOLDS)
