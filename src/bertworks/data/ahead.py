"""Batches that worker processes make ahead of training: the same bytes as those that are made in place.

The training process chooses instances: it slices plans. Workers do the rest. They plan the blocks of the next block
group, one at a time between batches, and they gather, mask and pad. Plans and batches are pure functions of (seed,
epoch, index), so a run that resumes makes them again.

The standard library's pool is used rather than torch's DataLoader: plans and batches share the same workers here, in an
order that a sampler cannot express, and a dead worker is noticed when a batch is asked for, not by a signal in the
middle of a training step. Workers import no torch.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from ..files import InputError
from ..workers.local import Workers
from .batches import Arrays, Chosen, PretrainingData, choose
from .instances import InstanceStream, Plan, Position

CELLS = 1 << 21  # cells of all batches that are made ahead, about; a cell takes about 17 bytes
MOST = 32  # updates that are made ahead


@dataclass(frozen=True)
class Asked:
    """The batches of one update: their stream, where they begin in it, and their rows."""

    stream: int
    position: Position
    count: int  # instances of the update, over all processes
    parts: tuple[range, ...]  # rows of each micro-batch of this process


class PlannedAhead(InstanceStream):
    """A stream whose blocks are planned by workers."""

    def __init__(self, stream: InstanceStream, submit: "Callable[[int, int], Future[Plan]]") -> None:
        super().__init__(stream.shards, stream.length, stream.config, stream.seed, stream.separators)
        self._submit = submit
        self._blocks: dict[int, list[tuple[int, int]]] = {}  # of the block groups that are being planned
        self._planned: dict[int, list[Future[Plan]]] = {}
        self._whole: deque[int] = deque(maxlen=2)  # block groups that `group` has

    def plans(self, number: int) -> list[Plan]:
        """The plans of the blocks of block group `number`, when the workers have made them."""
        if number in self._whole:  # `group` has forgotten it
            self._whole.remove(number)
        self.plan_ahead(number, 1.0)
        del self._blocks[number]
        plans = [future.result() for future in self._planned.pop(number)]
        self._whole.append(number)
        return plans

    def is_planned(self, number: int) -> bool:
        """Whether `group(number)` would not wait for workers. If it would, they are asked for the whole group now."""
        if number in self._whole:
            return True
        self.plan_ahead(number, 1.0)
        return all(future.done() for future in self._planned[number])

    def plan_ahead(self, number: int, share: float) -> None:
        """Have the first blocks of block group `number` planned: this share of them."""
        if number in self._whole:
            return
        if number not in self._blocks:
            self._blocks[number], self._planned[number] = self.blocks_of(number), []
        blocks, planned = self._blocks[number], self._planned[number]
        planned += [self._submit(*block) for block in blocks[len(planned) : math.ceil(len(blocks) * share)]]


class BatchesAhead:
    """The batches of some streams. With workers, those of the next updates are always in the making.

    `take` gives the batches of an update at any position. If it is the one after the last update, workers have made it
    already. The processes start at the first call, and end with `close` or with their parent.
    """

    def __init__(self, data: Sequence[PretrainingData], workers: int) -> None:
        """workers: number of processes; 0: this one makes the batches, when they are asked for."""
        self.data, self.workers = tuple(data), workers
        self._pool: Workers | None = None
        self._streams: list[PlannedAhead] = []
        self._making: deque[tuple[Asked, Future[list[Arrays]], Position]] = deque()

    def take(self, asked: Asked) -> tuple[list[Arrays], Position]:
        """The micro-batches of an update, and the position after it. Raises InputError if a worker was killed."""
        if not self.workers:
            data = self.data[asked.stream]
            chosen, after = choose(data.stream, asked.position, asked.count, asked.parts)
            return [data.make(part) for part in chosen], after
        try:
            return self._take(asked)
        except BrokenProcessPool:
            self.close()
            raise InputError(
                "a process that makes batches was killed, perhaps because memory is short. Rerun the command to resume "
                "from the last saved state; if it happens again, with fewer --workers, or with 0 to make batches in "
                "the training process"
            ) from None

    def close(self) -> None:
        """End the processes."""
        if self._pool:
            self._pool.close()
        self._pool, self._streams = None, []
        self._making.clear()

    def _take(self, asked: Asked) -> tuple[list[Arrays], Position]:
        self._start()
        if not self._making or self._making[0][0] != asked:  # the first update, or the first of a phase
            for _, unused, _ in self._making:
                unused.cancel()
            self._making.clear()
            self._ask(asked)
        _, batches, after = self._making.popleft()
        while len(self._making) < self._most(asked):
            following = replace(asked, position=self._making[-1][2] if self._making else after)
            if not self._is_planned(following):
                break
            self._ask(following)
        return batches.result(), after

    def _start(self) -> None:
        if self._pool is None:
            self._pool = pool = Workers(self.workers, tuple, self.data)
            self._streams = [
                PlannedAhead(one.stream, lambda this, index, nth=nth: pool.submit(_plan, nth, this, index))  # type: ignore[misc]
                for nth, one in enumerate(self.data)
            ]

    def _most(self, asked: Asked) -> int:
        """How many updates are made ahead: enough to plan a block meanwhile, unless they are large."""
        cells = self.data[asked.stream].length * sum(map(len, asked.parts))
        return min(MOST, max(2 * self.workers, CELLS // max(1, cells)))

    def _is_planned(self, asked: Asked) -> bool:
        """Whether the instances of an update can be chosen without waiting for plans."""
        stream, (group, offset) = self._streams[asked.stream], (asked.position.group, asked.position.offset)
        return stream.is_planned(group) and (
            offset + asked.count < len(stream.group(group)[1]) or stream.is_planned(group + 1)
        )

    def _ask(self, asked: Asked) -> None:
        """Have the batches of one update made."""
        assert self._pool is not None
        stream = self._streams[asked.stream]
        chosen, after = choose(stream, asked.position, asked.count, asked.parts)
        self._making.append((asked, self._pool.submit(_make, asked.stream, chosen), after))
        # The next group is planned block by block while this one is read, the last block when four fifths are read.
        if after.offset:
            read = after.offset / len(stream.group(after.group)[1])
            stream.plan_ahead(after.group + 1, min(1.0, 1.25 * read))


def _plan(data: Sequence[PretrainingData], nth: int, this: int, index: int) -> Plan:
    """A worker's task: plan a block of one of the streams."""
    return data[nth].stream.plan(this, index)


def _make(data: Sequence[PretrainingData], nth: int, parts: list[list[Chosen]]) -> list[Arrays]:
    """A worker's task: make the micro-batches of an update."""
    return [data[nth].make(chosen) for chosen in parts]
