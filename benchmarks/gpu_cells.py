"""Cells of gpu.py: measurements that run in processes of their own, several at a time, and record their errors.

A kernel that fails can leave a CUDA process unusable, and compiled code and the peak of the memory stay with a process.
"""

import contextlib
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

import common

READY = "ready"  # what the process of a cell prints when it waits for its turn
Work = Callable[..., common.Result]


def attempted(work: Callable[[], common.Result]) -> common.Result:
    """What `work` returns, or its error: a kernel that this device or this torch lacks must not end a stage."""
    try:
        return work()
    except Exception as error:
        text = (str(error).strip() or "no message").splitlines()[0]
        return {"error": f"{type(error).__name__}: {text[:400]}"}


def run_cell(module: str, name: str, given: Mapping[str, Any]) -> common.Result:
    """In a cell's process: what the function of a module returns, or its error."""
    return attempted(lambda: getattr(importlib.import_module(module), name)(**given))


def started(work: Work, given: Mapping[str, Any]) -> subprocess.Popen[str]:
    """A process that runs `work(**given)` and prints its result; it leads a group of its own."""
    cell = {"module": work.__module__, "name": work.__name__, "given": given}
    return common.started(run_cell, cell, stdin=subprocess.PIPE, start_new_session=True)


def wait_for_turn() -> None:
    """In a cell's process, when it has warmed up: go on when all others wait or have ended."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # for the others
    print(READY, flush=True)
    sys.stdin.readline()


def run_together(
    work: Work, cells: Mapping[str, Mapping[str, Any]], seconds: float, here: bool = False, fraction: float = 1.0
) -> Iterator[tuple[str, common.Result]]:
    """Each cell's name with what `work` returns for it, within so many seconds for all of them, in their order.

    The cells start at the same time, each in a process of its own, and compile side by side until they call
    `wait_for_turn`. When all do, one after the other is measured, alone on the device. A cell that does not in this
    fraction of the seconds is left out. Cells that never wait run side by side to their end. `here`: all in this
    process, one after the other.
    """
    if here:
        yield from ((name, attempted(partial(work, **given))) for name, given in cells.items())
        return
    processes = {name: started(work, given) for name, given in cells.items()}
    slow = dict(processes)  # those that do not wait for their turn yet
    limits = ((seconds, processes), (seconds * fraction, slow))
    timers = [threading.Timer(max(limit, 1.0), kill_groups, [some.values()]) for limit, some in limits]
    for timer in timers:
        timer.start()

    def first_lines(name: str) -> str:
        lines = itertools.takewhile(lambda line: line.strip() != READY, processes[name].stdout)  # type: ignore[arg-type]
        printed = "".join(lines)
        slow.pop(name)
        return printed

    try:
        with ThreadPoolExecutor(len(processes)) as threads:
            printed = [*threads.map(first_lines, processes)]
        for (name, one), lines in zip(processes.items(), printed, strict=True):
            with contextlib.suppress(OSError):  # it has ended
                print(file=one.stdin, flush=True)
            yield name, result_of(one, lines, seconds)
    finally:  # Ctrl-C too
        for timer in timers:
            timer.cancel()
        kill_groups(processes.values())


def kill_groups(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Kill what is left of the processes and their groups: workers and compilers too."""
    for one in [*processes]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)


def result_of(process: subprocess.Popen[str], printed: str, seconds: float) -> common.Result:
    """The result that a process prints, or an error; `printed` has its first lines, which were read before."""
    for line in itertools.chain(printed.splitlines(), process.stdout):  # type: ignore[arg-type]
        with contextlib.suppress(ValueError):
            if isinstance(found := json.loads(line), dict):
                kill_groups([process])  # a worker of its own may still have the pipe open
                process.wait()
                return found
    status = process.wait()
    if status == -signal.SIGKILL:
        return {"error": f"killed, or stopped after {seconds:.0f} seconds, the time that was left"}
    return {"error": f"exit status {status}; the process's own output has the reason"}
