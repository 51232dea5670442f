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
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import torch

import common

KILLED = "killed"  # beginning of the error of a cell that had too little time
READY = "ready"  # what the process of a cell prints when it waits for its turn
Work = Callable[..., common.Result]


def run_cell(module: str, name: str, given: Mapping[str, Any]) -> common.Result:
    """What the function of a module returns, or its error: a kernel that this device lacks must not end a stage."""
    try:
        return getattr(importlib.import_module(module), name)(**given)
    except Exception as error:
        text = (str(error).strip() or "no message").splitlines()[0]
        return {"error": f"{type(error).__name__}: {text[:400]}"}


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
    """Each cell's name with what `work` returns for it, within so many seconds for all of them, as soon as it is known.

    The cells start at the same time, each in a process of its own, and compile side by side until they call
    `wait_for_turn`. When all do or have ended, one after the other is measured, alone on the device. A cell that does
    not wait or end in this fraction of the seconds is left out. `here`: all in this process, one after the other.
    """
    if here:
        yield from ((name, run_cell(work.__module__, work.__name__, given)) for name, given in cells.items())
        return
    processes = {name: started(work, given) for name, given in cells.items()}
    slow, waiting = dict(processes), dict[str, str]()  # those that run; those that wait, with what they have printed
    limits = ((seconds, processes), (seconds * fraction, slow))
    timers = [threading.Timer(max(limit, 1.0), kill_groups, [some.values()]) for limit, some in limits]
    threads = ThreadPoolExecutor(len(processes))

    def first_lines(name: str) -> tuple[str, list[str]]:
        lines = list[str]()
        for line in processes[name].stdout:  # type: ignore[union-attr]
            lines.append(line)
            if line.strip() == READY or line.startswith("{"):  # a worker of its own may keep the pipe open
                break
        slow.pop(name)
        return name, lines

    try:
        for timer in timers:
            timer.start()
        for future in as_completed([threads.submit(first_lines, name) for name in processes]):
            name, lines = future.result()
            if lines and lines[-1].strip() == READY:
                waiting[name] = "".join(lines)
            else:
                yield name, result_of(processes[name], "".join(lines), seconds)
        for name, printed in waiting.items():
            with contextlib.suppress(OSError):  # it has ended
                print(file=processes[name].stdin, flush=True)
            yield name, result_of(processes[name], printed, seconds)
    finally:  # Ctrl-C too
        for timer in timers:
            timer.cancel()
        kill_groups(processes.values())
        threads.shutdown()


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
                kill_groups([process])
                process.wait()
                return found
    status = process.wait()
    if status == -signal.SIGKILL:
        return {"error": f"{KILLED}, or stopped after {seconds:.0f} seconds, the time that was left"}
    return {"error": f"exit status {status}; the process's own output has the reason"}
