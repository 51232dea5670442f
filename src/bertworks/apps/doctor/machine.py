"""Settings of the machine that cost speed: threads, other programs, limits of a container, memory, disk."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from ...tasks.checks import Finding
from ...workers.local import cores

CGROUP = Path("/sys/fs/cgroup")
LEAST = 2 << 30  # bytes of free memory, and of disk


@dataclass(frozen=True)
class Machine:
    """What the system reports; tests put in other values."""

    cores: int = field(default_factory=cores)  # that this process may use
    all_cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    threads: int = field(default_factory=torch.get_num_threads)
    load: float = field(default_factory=lambda: os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)
    quota: float = field(default_factory=lambda: cpu_quota(CGROUP))  # cores that a container may use; inf: no limit
    available: int = field(default_factory=lambda: psutil.virtual_memory().available)
    limit: float = field(default_factory=lambda: memory_left(CGROUP))  # bytes that a container has left; inf: no limit
    swapped: int = field(default_factory=lambda: psutil.swap_memory().used)
    disk: int = field(default_factory=lambda: psutil.disk_usage(os.getcwd()).free)


def cpu_quota(cgroup: Path) -> float:
    """The cores that a container may use at a time; infinity without a limit."""
    for name in ("cpu.max", "cpu/cpu.cfs_quota_us"):
        words = _read(cgroup / name).split()
        if name == "cpu.max" and len(words) == 2 and words[0].isdigit():
            return int(words[0]) / int(words[1])
        period = _read(cgroup / "cpu/cpu.cfs_period_us").strip()
        if name != "cpu.max" and words and words[0].isdigit() and period.isdigit():
            return int(words[0]) / int(period)
    return math.inf


def memory_left(cgroup: Path) -> float:
    """Bytes that a container may still use; infinity without a limit."""
    limit, used = (_read(cgroup / f"memory.{name}").strip() for name in ("max", "current"))
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # no container, or another system
        return ""


def threads(machine: Machine) -> Iterator[Finding]:
    """Fewer threads than cores, more than a container may use, or other programs on the cores."""
    usable = min(float(machine.cores), machine.quota)
    if machine.threads < math.floor(usable):
        evidence = f"torch uses {machine.threads} of {usable:g} cores"
        if "OMP_NUM_THREADS" in os.environ:
            evidence += f" (OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']})"
        yield Finding("threads", "warning", evidence, "unset OMP_NUM_THREADS, unless other programs need the cores")
    elif machine.threads > math.ceil(usable):
        evidence = f"torch uses {machine.threads} threads on {usable:g} cores: threads wait for each other"
        yield Finding("threads", "warning", evidence, f"set OMP_NUM_THREADS={max(1, math.floor(usable))}")
    if machine.load > machine.all_cores + 0.5:
        evidence = f"a load of {machine.load:.1f} on {machine.all_cores} cores: other programs compute too"
        yield Finding("threads", "warning", evidence, "end them, or expect longer times")


def limits(machine: Machine) -> Iterator[Finding]:
    """A container or job that may use fewer cores than it sees."""
    if machine.quota < machine.cores:
        evidence = f"the container may use {machine.quota:g} of the {machine.cores} cores that it sees (cpu.max)"
        advice = f"set OMP_NUM_THREADS={max(1, math.floor(machine.quota))} and give --workers that number"
        yield Finding("limits", "note", evidence, advice)
    if machine.cores < machine.all_cores:
        evidence = f"this process may use {machine.cores} of {machine.all_cores} cores (its affinity: taskset, Slurm)"
        yield Finding("limits", "note", evidence, "request more cores if the job should have them")


def memory(machine: Machine) -> Iterator[Finding]:
    """Little memory or disk, or memory that was swapped out."""
    left = min(float(machine.available), machine.limit)
    if left < LEAST:
        who = "the container" if machine.limit < machine.available else "the machine"
        advice = "train with smaller micro-batches, build with fewer --workers, or end other programs"
        yield Finding("memory", "warning", f"{who} has {left / 2**30:.1f} GiB of memory left", advice)
    if machine.swapped > 1 << 30:
        evidence = f"{machine.swapped / 2**30:.1f} GiB are swapped out"
        yield Finding("memory", "warning", evidence, "end other programs")
    if machine.disk < LEAST:
        evidence = f"{machine.disk / 2**30:.1f} GiB of disk are left here"
        yield Finding("memory", "warning", evidence, "free some: a run whose state cannot be written stops")


CHECKS: tuple[Callable[[Machine], Iterable[Finding]], ...] = (threads, limits, memory)
