"""Settings of the machine that cost speed: cores, threads, limits of a container, memory, denormal numbers."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from ...training.machine import processor_kind
from ...training.memory import CGROUP, memory_of_container
from ...workers import cores
from .findings import Finding

LEAST = 2 << 30  # bytes of free memory
DISK = 2 << 30  # bytes
SLOW = 5.0  # times that products of denormal numbers take


@dataclass(frozen=True)
class Machine:
    """What the system says; tests put in other values."""

    cores: int = field(default_factory=cores)  # that this process may use
    all_cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    threads: int = field(default_factory=torch.get_num_threads)
    load: float = field(default_factory=lambda: os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)
    quota: float = field(default_factory=lambda: cpu_quota(CGROUP))  # cores that a container may use; inf: no limit
    available: int = field(default_factory=lambda: psutil.virtual_memory().available)
    limit: float = field(default_factory=lambda: memory_left(CGROUP))  # bytes that a container has left; inf: no limit
    swapped: int = field(default_factory=lambda: psutil.swap_memory().used)
    disk: int = field(default_factory=lambda: psutil.disk_usage(os.getcwd()).free)
    gpu: bool = field(default_factory=torch.cuda.is_available)
    denormals: float = field(default_factory=lambda: denormal_cost())  # time of denormal products over that of others


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
    used = memory_of_container("current", cgroup)
    return memory_of_container("max", cgroup) - used if used < math.inf else math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # no container, or another system
        return ""


def denormal_cost(size: int = 1 << 16) -> float:
    """How many times as long products of denormal numbers take as those of others."""
    normal, small = torch.full((size,), 0.5), torch.full((size,), 1e-39)
    times = []
    for values in (normal, small):
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            values * 0.5
            best = min(best, time.perf_counter() - start)
        times.append(best)
    return times[1] / times[0]


def threads(machine: Machine) -> Iterator[Finding]:
    """Fewer threads than cores, or more than a container may use."""
    usable = min(float(machine.cores), machine.quota)
    if machine.threads < math.floor(usable):
        variable = os.environ.get("OMP_NUM_THREADS")
        why = f" (OMP_NUM_THREADS={variable})" if variable else ""
        yield Finding(
            "warning",
            f"torch computes with {machine.threads} of {usable:g} cores{why}",
            "unset OMP_NUM_THREADS, unless other programs need the cores",
            {"threads": machine.threads, "cores": usable},
        )
    elif machine.threads > math.ceil(usable):
        yield Finding(
            "warning",
            f"torch computes with {machine.threads} threads, but may use {usable:g} cores: threads wait for each other",
            f"set OMP_NUM_THREADS={max(1, math.floor(usable))}",
            {"threads": machine.threads, "cores": usable},
        )
    if machine.load > machine.all_cores + 0.5:
        yield Finding(
            "warning",
            f"a load of {machine.load:.1f} on {machine.all_cores} cores: other programs compute too",
            "end them, or expect times that vary",
            {"load": machine.load},
        )


def limits(machine: Machine) -> Iterator[Finding]:
    """A container that may use fewer cores than it sees, or an affinity that leaves cores out."""
    if machine.quota < machine.cores:
        yield Finding(
            "note",
            f"the container may use {machine.quota:g} of {machine.cores} cores that it sees (cpu.max)",
            f"set OMP_NUM_THREADS={max(1, math.floor(machine.quota))} and give --workers that number",
            {"quota": machine.quota, "cores": machine.cores},
        )
    if machine.cores < machine.all_cores:
        yield Finding(
            "note",
            f"this process may use {machine.cores} of {machine.all_cores} cores (its affinity: taskset, Slurm)",
            "ask for more cores if the job should have them",
            {"cores": machine.cores, "all": machine.all_cores},
        )


def memory(machine: Machine) -> Iterator[Finding]:
    """Little memory or disk, or pages that were swapped out."""
    left = min(float(machine.available), machine.limit)
    if left < LEAST:
        who = "the container" if machine.limit < machine.available else "the machine"
        yield Finding(
            "warning",
            f"{who} has {left / 2**30:.1f} GiB of memory left",
            "train with smaller micro-batches, build with fewer --workers, or end other programs",
            {"bytes": int(left)},
        )
    if machine.swapped > 1 << 30:
        yield Finding(
            "warning",
            f"{machine.swapped / 2**30:.1f} GiB are swapped out",
            "end other programs",
            {"bytes": machine.swapped},
        )
    if machine.disk < DISK:
        yield Finding(
            "warning",
            f"{machine.disk / 2**30:.1f} GiB of disk are left here",
            "free some: a run whose state cannot be written stops",
            {"bytes": machine.disk},
        )


def denormals(machine: Machine) -> Iterator[Finding]:
    """A processor that computes denormal numbers slowly."""
    if machine.denormals > SLOW and not machine.gpu:
        yield Finding(
            "note",
            f"products of denormal numbers take {machine.denormals:.0f} times as long as others",
            "torch.set_flush_denormal(True) avoids it; `bertworks doctor FOLDER` counts them among the weights",
            {"times": machine.denormals},
        )


def precision(machine: Machine) -> Iterator[Finding]:
    """A processor without fast bfloat16."""
    kind = processor_kind()
    if not machine.gpu and sys.platform == "linux" and kind in ("DEFAULT", "NO AVX", "AVX2"):
        yield Finding(
            "note",
            f"no GPU, and the processor ({kind}) has no fast bfloat16",
            "expect half the speed of newer processors, or less",
        )


CHECKS: dict[str, Callable[[Machine], Iterable[Finding]]] = {
    "threads": threads,
    "limits of the container": limits,
    "memory and disk": memory,
    "denormal numbers": denormals,
    "bfloat16": precision,
}
