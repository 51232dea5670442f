"""Batches that worker processes make ahead of training: the same bytes as those that are made in place.

The training process chooses instances: it slices plans. Workers do the rest. They plan the blocks of the next block
group, one at a time between batches, and they gather, mask and pad. Plans and batches are pure functions of (seed,
epoch, index), so a run that resumes makes them again.

The standard library's pool is used rather than torch's DataLoader: plans and batches share the same workers here, in an
order that a sampler cannot express, and a dead worker is noticed when a batch is requested, not by a signal in the
middle of a training step. Workers import no torch.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

from ..files import InputError
from ..workers.local import Workers
from .batches import Arrays, BatchRequest, BatchSource, PretrainingData, Selection, select
from .instances import InstanceStream, Plan, StreamPosition

POSITIONS = 1 << 21  # positions of all batches that are made ahead, about; a position takes about 17 bytes
MAX_UPDATES = 32  # that are made ahead


class PrefetchedPlans(InstanceStream):
    """A stream whose blocks are planned by workers."""

    def __init__(self, stream: InstanceStream, submit: "Callable[[int, int], Future[Plan]]") -> None:
        super().__init__(stream.shards, stream.length, stream.config, stream.seed, stream.separators)
        self._submit = submit
        self._blocks: dict[int, list[tuple[int, int]]] = {}  # of the block groups that are being planned
        self._pending: dict[int, list[Future[Plan]]] = {}
        self._cached: deque[int] = deque(maxlen=2)  # block groups that `group` has

    def plans(self, number: int) -> list[Plan]:
        """The plans of the blocks of block group `number`, when the workers have made them."""
        if number in self._cached:  # `group` has forgotten it
            self._cached.remove(number)
        self.plan_ahead(number, 1.0)
        del self._blocks[number]
        plans = [future.result() for future in self._pending.pop(number)]
        self._cached.append(number)
        return plans

    def is_planned(self, number: int) -> bool:
        """Whether `group(number)` would not wait for workers. If it would, the whole group is submitted now."""
        if number in self._cached:
            return True
        self.plan_ahead(number, 1.0)
        return all(future.done() for future in self._pending[number])

    def plan_ahead(self, number: int, fraction: float) -> None:
        """Have this fraction of the blocks of block group `number` planned, the first ones first."""
        if number in self._cached:
            return
        if number not in self._blocks:
            self._blocks[number], self._pending[number] = self.blocks_of(number), []
        blocks, pending = self._blocks[number], self._pending[number]
        pending += [self._submit(*block) for block in blocks[len(pending) : math.ceil(len(blocks) * fraction)]]


class Prefetcher(BatchSource):
    """The batches of all phases, of which worker processes always make those of the next updates.

    `take` gives the batches of an update at any position. If it is the one after the last update, workers have made it
    already. The processes start at the first call, and end with `close` or with their parent.
    """

    def __init__(self, data: Sequence[PretrainingData], workers: int) -> None:
        """workers: number of processes."""
        super().__init__(data)
        self.workers = workers
        self._pool: Workers | None = None
        self._streams: list[PrefetchedPlans] = []
        self._pending: deque[tuple[BatchRequest, Future[list[Arrays]], StreamPosition]] = deque()

    def take(self, request: BatchRequest) -> tuple[list[Arrays], StreamPosition]:
        """The micro-batches of an update, and the position after it. Raises InputError if a worker was killed."""
        try:
            return self._take(request)
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
        self._pending.clear()

    def _take(self, request: BatchRequest) -> tuple[list[Arrays], StreamPosition]:
        self._start()
        if not self._pending or self._pending[0][0] != request:  # the first update, or the first of a phase
            for _, unused, _ in self._pending:
                unused.cancel()
            self._pending.clear()
            self._submit(request)
        _, batches, after = self._pending.popleft()
        while len(self._pending) < self._max_updates(request):
            following = replace(request, position=self._pending[-1][2] if self._pending else after)
            if not self._is_planned(following):
                break
            self._submit(following)
        return batches.result(), after

    def _start(self) -> None:
        if self._pool is None:
            self._pool = pool = Workers(self.workers, tuple, self.data)
            self._streams = [
                PrefetchedPlans(one.stream, lambda *block, index=index: pool.submit(_plan, index, *block))  # type: ignore[misc]
                for index, one in enumerate(self.data)
            ]

    def _max_updates(self, request: BatchRequest) -> int:
        """How many updates are made ahead: enough to plan a block meanwhile, unless they are large."""
        positions = self.data[request.phase].length * sum(map(len, request.parts))
        return min(MAX_UPDATES, max(2 * self.workers, POSITIONS // max(1, positions)))

    def _is_planned(self, request: BatchRequest) -> bool:
        """Whether the instances of an update can be selected without waiting for plans."""
        stream, (group, offset) = self._streams[request.phase], (request.position.group, request.position.offset)
        return stream.is_planned(group) and (
            offset + request.count < len(stream.group(group).order) or stream.is_planned(group + 1)
        )

    def _submit(self, request: BatchRequest) -> None:
        """Have the batches of one update made."""
        assert self._pool is not None
        stream = self._streams[request.phase]
        selections, after = select(stream, request.position, request.count, request.parts)
        self._pending.append((request, self._pool.submit(_make, request.phase, selections), after))
        # The next group is planned block by block while this one is read, the last block when four fifths are read.
        if after.offset:
            read = after.offset / len(stream.group(after.group).order)
            stream.plan_ahead(after.group + 1, min(1.0, 1.25 * read))


def _plan(data: Sequence[PretrainingData], phase: int, pass_number: int, block: int) -> Plan:
    """A worker's task: plan a block of the stream of one phase."""
    return data[phase].stream.plan(pass_number, block)


def _make(data: Sequence[PretrainingData], phase: int, parts: list[list[Selection]]) -> list[Arrays]:
    """A worker's task: make the micro-batches of an update."""
    return [data[phase].make(part) for part in parts]
