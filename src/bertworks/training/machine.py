"""The machine: device, precision, processes, signals, peak. Every concern of running on several processes is here.

`torchrun` sets RANK, WORLD_SIZE and LOCAL_RANK; without it one process runs the same code with a world of one.
"""

import atexit
import contextlib
import hashlib
import os
import platform
import re
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from .._version import __version__
from ..files import InputError
from ..model import openmp
from ..model.prepare import one_thread_after_fork
from ..model.products import is_supported
from ..reporting.run_files import commit
from .heap import THRESHOLDS, set_thresholds

# torch's test of the processor -> a kind that multiplies in bfloat16 faster than in float32, the fastest first
BFLOAT16_KINDS = {"_is_amx_tile_supported": "AMX", "_is_avx512_bf16_supported": "AVX-512 bf16"}

# a process that has waited so long for the others ends; the first one of a node may be checking a large store
TIMEOUT = timedelta(hours=1)

# operations a second of bfloat16 products without sparsity, after NVIDIA's data sheets; the first name that fits counts
DATA_SHEETS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L4": 121e12,
}


# The group of processes that this one has left last. The destructor of a group waits for its threads, and one of them
# may wait for the GIL to let go of a tensor. DistributedDataParallel would run the destructor with the GIL held; the
# list runs it without.
_left: list[Any] = []
atexit.register(_left.clear)

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among all that train together."""

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of `count` rows, which the processes divide as evenly as they can."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum_numbers(self, values: Sequence[float]) -> list[float]:
        """Each of the numbers, summed over all processes on their CPUs: no process has to wait for its GPU."""
        return self.sum(torch.tensor(values, dtype=torch.float64)).tolist()

    def sum(self, values: Tensor) -> Tensor:
        """The sum of `values` over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def used_by_others(self) -> dict[str, float]:
        """Cores that other programs use, for a log; nothing of several processes, which are no other programs."""
        return openmp.others() if self.size == 1 else {}

    def wait(self) -> None:
        """Return when every process has come here."""
        if self.size > 1:
            dist.barrier()

    def ask_first(self, question: Callable[[], T]) -> T:
        """What `question` returns in the first process, for all: the disks of the others are not looked at.

        An InputError that it raises there is raised in every process.
        """
        if self.size == 1:
            return question()
        answer: list[Any] = [None]
        if self.main:
            try:
                answer = [question()]
            except InputError as error:
                answer = [error]
        dist.broadcast_object_list(answer)
        if isinstance(answer[0], InputError):
            raise answer[0]
        return answer[0]

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite `tensors` with those of the first process; their checksums are compared afterwards."""
        if self.size == 1:
            return
        digest = hashlib.blake2b(digest_size=16)
        for tensor in tensors:
            dist.broadcast(tensor, 0)
            digest.update(tensor.detach().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
        self.agree(weights=digest.hexdigest())

    def agree(self, **facts: Any) -> None:
        """Raises InputError in every process if the processes do not have equal `facts`."""
        if self.size == 1:
            return
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, facts)
        for name in facts:
            values = [one[name] for one in found]
            if len(set(values)) > 1:
                raise InputError(
                    f"the processes of this job have different values of {name}: {', '.join(map(str, values))}; "
                    "expected one. Start all of them with the same recipe, data and folders"
                )


def this_device() -> torch.device:
    """This process's device: its GPU if there are any, else the CPU. No other process is needed to know it."""
    local = int(os.environ.get("LOCAL_RANK", 0))
    return torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")


def join_world() -> World:
    """Read torchrun's environment, join the process group, pick this process's device.

    GPUs talk over nccl. Numbers on CPUs are summed over gloo, on machines with GPUs too.
    """
    size, rank, device = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)), this_device()
    gpu = device if device.type == "cuda" else None
    if gpu:
        torch.cuda.set_device(gpu)
    if size > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=TIMEOUT, device_id=gpu)
    return World(rank, size, device)


@contextlib.contextmanager
def joined_world() -> Iterator[World]:
    """Join the other processes, if any, and leave them at the end. Inside another such block they stay joined."""
    joined = dist.is_initialized()
    world = join_world()
    try:
        yield world
    finally:
        if not joined and dist.is_initialized():
            _left[:] = [dist.group.WORLD]
            dist.destroy_process_group()


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


def compute_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """The type of matrix products: "float32", "bfloat16", or for "auto" bfloat16 where it is the faster one.

    float32 is never TF32, so training, evaluation and prediction compute the same numbers: nothing in bertworks turns
    torch's setting on.
    """
    if wanted != "auto":
        return torch.bfloat16 if wanted == "bfloat16" else torch.float32
    if device.type == "cuda":  # GPUs before 2020 only emulate bfloat16
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    return torch.bfloat16 if processor_kind() in BFLOAT16_KINDS.values() else torch.float32


def should_compile(wanted: str, device: torch.device) -> bool:
    """Whether to use torch.compile: "on", "off", or for "auto" on a GPU if there is a C++ compiler.

    On a CPU the kernels are faster and need a second of compiling in place of a minute (docs/log.md).
    """
    found = any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++"))
    if wanted == "on" and not found:
        raise InputError(
            "loop.compile = 'on', but no C++ compiler (g++ or clang++) was found; install one or give 'auto'"
        )
    return wanted == "on" or (wanted == "auto" and device.type == "cuda" and found)


def graphs_made() -> int:
    """How many graphs torch.compile has made in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # its import takes seconds
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def wants_kernels(wanted: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether training in `dtype` uses kernels by the recipe's `loop.compile`: for "auto" on a CPU in bfloat16."""
    used = wanted == "auto" and device.type == "cpu" and dtype is torch.bfloat16
    return used and is_supported(torch.empty(0, dtype=dtype))


def is_first() -> bool:
    """Whether this is the first process of its job, known before the processes have joined."""
    return os.environ.get("RANK", "0") == "0"


def is_first_of_node() -> bool:
    """Whether this is the first process of its job on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def matmul_peak(device: torch.device, dtype: torch.dtype, size: int = 0) -> float:
    """Operations a second of a (size, size) matrix product, the median of several: what the machine can do at best.

    size: left out, 2048 on a CPU and 8192 on a GPU, which smaller products do not keep busy.
    """
    size = size or (8192 if device.type == "cuda" else 2048)
    a = torch.randn(size, size, device=device).to(dtype)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(8 if device.type == "cuda" else 1):
            a @ a
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / (8 if device.type == "cuda" else 1))
    return 2 * size**3 / statistics.median(times[2:])


def data_sheet_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of bfloat16 products by the GPU's data sheet; 0 where it is not known here."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return 0.0
    found = torch.cuda.get_device_name(device)
    return next((peak for name, peak in DATA_SHEETS.items() if re.search(rf"\b{name}\b", found)), 0.0)


def read_later(value: Tensor) -> Callable[[], float]:
    """A function that returns this number. On a GPU it waits for the number alone, not for what was asked for since."""
    if value.device.type == "cpu":
        return value.item
    copy, made = torch.empty_like(value, device="cpu", pin_memory=True), torch.cuda.Event()
    copy.copy_(value, non_blocking=True)
    made.record()

    def read() -> float:
        made.synchronize()
        return copy.item()

    return read


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


def processor_kind() -> str:
    """The fastest matrix products of the processor: "AMX", "AVX-512 bf16", or torch's name for what it has."""
    for name, kind in BFLOAT16_KINDS.items():
        if getattr(torch.cpu, name, bool)():
            return kind
    return str(torch.backends.cpu.get_cpu_capability())


def facts() -> dict[str, Any]:
    """What a result depends on besides its recipe: machine, versions, commit."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
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
