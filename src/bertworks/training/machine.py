"""This machine and this process: memory, signals, settings, and the facts that results record."""

import contextlib
import ctypes
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import torch

from .._version import __version__
from ..files import InputError
from ..reporting.run_files import commit
from ..workers import openmp
from .distributed import this_device
from .precision import processor_kind

THRESHOLDS = 32 << 20, 64 << 20  # bytes: the largest that glibc sets by itself, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD


def peak_memory(device: torch.device) -> int:
    """The most memory in bytes that this process has used (on a GPU: of the GPU's memory)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has no such module
        memory = psutil.Process().memory_info()
        return int(getattr(memory, "peak_wset", memory.rss))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def check_memory(tokens: float, width: int, layers: int, device: torch.device) -> None:
    """Raises InputError if a forward pass of so many tokens needs more memory than the machine or the GPU has.

    Only the hidden states of the trained `layers` are counted, in bfloat16: training stores over ten times as much, so
    nothing is refused that could run.
    """
    needed, memory = 2 * tokens * width * max(1, layers), psutil.virtual_memory().total
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    if needed > memory:
        raise InputError(
            f"{tokens:,.0f} tokens in each forward pass: their hidden states alone need {needed / 1e9:,.1f} GB, and "
            f"{device} has {memory / 1e9:,.1f} GB of memory; give a smaller batch_size, or a micro_batch_size, which "
            "divides a batch and gives the same gradients"
        )


def facts() -> dict[str, Any]:
    """What a result depends on besides its recipe: machine, versions, commit."""
    cpu, path = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "kind": processor_kind(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "bertworks": __version__,
        "commit": commit(),
    }


# ---- signals


@dataclass
class Stop:
    """Whether SIGTERM or SIGINT has requested an end."""

    requested: bool = False
    is_immediate: bool = False  # a signal raises KeyboardInterrupt at once

    def at_once(self) -> None:
        """From now on a signal, or one that has come already, raises KeyboardInterrupt."""
        self.is_immediate = True
        if self.requested:
            raise KeyboardInterrupt


@contextlib.contextmanager
def caught_signals() -> Iterator[Stop]:
    """Catch SIGTERM, SIGINT and a closed terminal's SIGHUP, so that a run can save before it ends.

    A second signal interrupts at once. SIGHUP stays ignored where it is (nohup).
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        signal.signal(number, signal.default_int_handler)
        if stop.is_immediate:
            raise KeyboardInterrupt

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    is_main = threading.current_thread() is threading.main_thread()  # which alone can handle signals
    handlers = {number: signal.signal(number, note) for number in numbers if is_main}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# ---- settings


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
    openmp.one_thread_after_fork()
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
    exact, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    prepare_process()
    try:
        with torch.random.fork_rng([this_device().index] if torch.cuda.is_available() else []):
            yield
    finally:
        torch.set_deterministic_debug_mode(exact)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        set_thresholds(*THRESHOLDS)
