"""Processes that train together.

`torchrun` sets RANK, WORLD_SIZE and LOCAL_RANK. Without it one process runs the same code with a world of one.
"""

import atexit
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..files import InputError

# a process that has waited so long for the others ends; the first one of a node may be checking a large store
TIMEOUT = timedelta(hours=1)

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
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def local_range(self, count: int) -> range:
        """The part of `count` rows for this process; parts differ by one row at most."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum_numbers(self, values: Sequence[float]) -> list[float]:
        """Each of the numbers, summed over all processes on their CPUs: no process has to wait for its GPU."""
        return self.sum(torch.tensor(values, dtype=torch.float64)).tolist()

    def sum(self, values: Tensor) -> Tensor:
        """The sum of `values` over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def barrier(self) -> None:
        """Wait until every process has called it."""
        if self.size > 1:
            dist.barrier()

    def from_rank0(self, function: Callable[[], T]) -> T:
        """What `function` returns in the first process, for all, so only that process reads its disk.

        An InputError or OSError that it raises there is raised in every process.
        """
        if self.size == 1:
            return function()
        answer: list[Any] = [None]
        if self.is_main:
            try:
                answer = [function()]
            except (InputError, OSError) as error:
                answer = [error]
        dist.broadcast_object_list(answer)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite `tensors` with those of the first process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def check_equal(self, name: str, value: str) -> None:
        """Raises InputError in every process if the processes have different values."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        if len(set(values)) > 1:
            raise InputError(
                f"the processes of this job have different values of {name}: {', '.join(values)}; expected one. Start "
                "all of them with the same recipe, data and folders"
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


def is_first_of_node() -> bool:
    """Whether this is the first process of its job on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"
