"""The threads that compute, and the queue before them, which counts tokens.

A request is a job of S sequences (texts, or windows of a long document). A batch takes sequences from the first job on,
and from the next jobs of the same model and steps, until it has `batch_tokens`, or its share of what waits if other
threads are free. First is the job of which the fewest batches have been computed, of these the oldest: so a small job
waits for one batch of a large one, or of each where many are waiting. A job that has got no batch for PATIENCE seconds
counts as a new one, which has waited since then. There
is no waiting timer: the next batch is what has queued while the last ones were computed. A job is done when all its
sequences are scored.

A job whose client left is dropped before it is batched. A batch that fails is computed again job by job, so that only
the job at fault fails; the thread lives on.

Shapes: S sequences of a job.
"""

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...inference.steps import Steps
from ...tasks.inputs import Inputs
from ...tasks.sequences import Integers, edges_of
from .errors import shutting_down


class Scored(NamedTuple):
    """The scores of a job."""

    scores: Tensor  # in the order of its sequences, as `Steps.forward` gives them
    queue_seconds: float  # from its arrival to its first batch
    compute_seconds: float  # of all its batches, others' sequences in them included


@dataclass(eq=False)
class Job:
    """The sequences of one request."""

    number: int
    inputs: Inputs
    edges: Integers  # (S + 1,) running sum of the sequences' tokens, as the queue counts them
    future: "Future[Scored]"
    arrived: float
    next: int = 0  # the first sequence that is not batched yet
    batches: int = 0  # that have some of its sequences
    served: float = 0.0  # when the last of them began or ended
    computed: int = 0  # sequences whose batches have ended
    started: float = 0.0
    seconds: float = 0.0
    scores: dict[int, Tensor] = field(default_factory=dict)  # by their first sequence

    @property
    def left(self) -> int:
        """Tokens that are not batched yet."""
        return int(self.edges[-1] - self.edges[self.next])

    def place(self, now: float) -> tuple[int, float, int]:
        """Its place in the queue: the job with the lowest comes first.

        Jobs without a batch come first, and those without one for PATIENCE seconds. Of these, and of the others, the
        one that has waited longest since its last batch, so that no job waits for ever.
        """
        batches = self.batches if now - self.served < PATIENCE else 0
        return batches, max(self.arrived, self.served), self.number

    def part(self, start: int, stop: int) -> Inputs:
        """Some of its sequences; all of them as they are, so that a request alone is computed as a Predictor does."""
        return self.inputs if stop - start == len(self.edges) - 1 else self.inputs.part(start, stop)


class Share(NamedTuple):
    """The sequences of a job that are in a batch."""

    job: Job
    start: int
    stop: int

    @property
    def tokens(self) -> int:
        return int(self.job.edges[self.stop] - self.job.edges[self.start])


class Lane:
    """The jobs of one model and steps: only these may share a batch."""

    def __init__(self, steps: Steps[Any]):
        self.steps = steps
        self.jobs: list[Job] = []
        self.width = 0  # numbers in a row of scores; 0 before the first

    @property
    def tokens(self) -> int:
        """Of all sequences that are not batched yet."""
        return sum(job.left for job in self.jobs)


PATIENCE = 1.0  # seconds
SMALLEST = 128  # tokens below which a batch is not divided: the packed pass fills up to as many


class ComputeQueue:
    """Scores jobs in threads of its own. All methods may be called from any thread."""

    def __init__(
        self,
        batch_tokens: int = 2048,
        observe: Callable[[int, int], None] = lambda jobs, tokens: None,
        workers: int = 1,
        cores: int = 0,
    ):
        """observe: called with the jobs and tokens of every batch. workers: threads that compute at the same time.

        cores: that each of them uses, which torch then gives to threads that begin later, too; 0: torch's own number.
        """
        self.batch_tokens, self.observe = batch_tokens, observe
        self.lanes: dict[Steps[Any], Lane] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._running: dict[int, list[Share]] = {}  # the batch that each worker computes
        self._closed = False
        ready = threading.Barrier(workers + 1)
        self._threads = [
            threading.Thread(target=self._work, args=(worker, cores, ready), name=f"compute {worker}", daemon=True)
            for worker in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        ready.wait()

    # ---- admission

    def lane(self, steps: Steps[Any]) -> Lane:
        """The lane of these steps."""
        with self._changed:
            return self.lanes.setdefault(steps, Lane(steps))

    def ahead(self, tokens: int) -> int:
        """The tokens that are computed before the last batch of a new job of so many.

        Of every waiting job as many, since jobs take turns, and a batch at least.
        """
        most = max(tokens, self.batch_tokens)
        with self._changed:
            return sum(min(job.left, most) for lane in self.lanes.values() for job in lane.jobs)

    @property
    def alive(self) -> bool:
        """Whether jobs are computed."""
        return any(thread.is_alive() for thread in self._threads)

    @property
    def size(self) -> int:
        """Jobs that wait."""
        with self._changed:
            return sum(len(lane.jobs) for lane in self.lanes.values())

    @property
    def tokens(self) -> int:
        """Tokens that wait."""
        with self._changed:
            return sum(lane.tokens for lane in self.lanes.values())

    def submit(self, lane: Lane, inputs: Inputs, costs: Integers) -> "Future[Scored]":
        """Queue the sequences of a request; costs (S,): their tokens. Cancel the future to take them out again.

        Raises Refusal (503) after `close`. The future fails with what the forward pass raised, or with Refusal (503).
        """
        with self._changed:
            if self._closed:
                raise shutting_down()
            job = Job(next(self._numbers), inputs, edges_of(costs), Future(), time.perf_counter())
            if len(costs) == 0:
                job.future.set_result(Scored(torch.empty(0), 0.0, 0.0))
                return job.future
            lane.jobs.append(job)
            self._changed.notify_all()
        job.future.add_done_callback(lambda future: self._forget(lane, job) if future.cancelled() else None)
        return job.future

    # ---- the end

    def close(self) -> None:
        """Take no more jobs. Those that wait are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def refuse_waiting(self) -> int:
        """Fail every job that is not done with 503. Returns how many."""
        with self._changed:
            jobs = {share.job for shares in self._running.values() for share in shares}
            for lane in self.lanes.values():
                jobs.update(lane.jobs)
                lane.jobs.clear()
        return sum(_fail(job, shutting_down()) for job in jobs)

    def join(self, seconds: float) -> bool:
        """Wait for the threads to end, after `close`. Returns whether they did."""
        end = time.perf_counter() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.perf_counter()))
        return not self.alive

    # ---- the threads that compute

    def _work(self, worker: int, cores: int, ready: threading.Barrier) -> None:
        if cores:
            torch.set_num_threads(cores)
        ready.wait()
        while True:
            with self._changed:
                self._running.pop(worker, None)
                while not (taken := self._take()):
                    if self._closed:
                        return
                    self._changed.wait()
                lane, shares = taken
                tokens, now = sum(share.tokens for share in shares), time.perf_counter()
                self._running[worker] = shares
                for share in shares:
                    share.job.started = share.job.started or now
            self._compute(lane, shares)
            seconds = time.perf_counter() - now
            with self._changed:
                done = [share.job for share in shares if self._is_last(share, seconds)]
            for job in done:
                _answer(job)
            self.observe(len(shares), tokens)

    def _take(self) -> tuple[Lane, list[Share]] | None:
        """The next batch; None if nobody waits."""
        for lane in self.lanes.values():
            lane.jobs = [job for job in lane.jobs if not job.future.done()]  # without those whose clients left
        now, waiting = time.perf_counter(), [lane for lane in self.lanes.values() if lane.jobs]
        if not waiting:
            return None
        lane = min(waiting, key=lambda lane: min(job.place(now) for job in lane.jobs))
        shares: list[Share] = []
        free = len(self._threads) - len(self._running)
        room = min(self.batch_tokens, max(SMALLEST, math.ceil(lane.tokens / free)))
        for job in sorted(lane.jobs, key=lambda job: job.place(now)):
            stop = int(np.searchsorted(job.edges, job.edges[job.next] + room, "right")) - 1
            stop = max(stop, job.next + (not shares))  # at least one sequence, whatever its length
            if stop == job.next:
                break
            shares.append(Share(job, job.next, stop))
            room -= shares[-1].tokens
            job.next, job.batches, job.served = stop, job.batches + 1, now
            if room <= 0:
                break
        lane.jobs = [job for job in lane.jobs if job.next < len(job.edges) - 1]
        return lane, shares

    def _forget(self, lane: Lane, job: Job) -> None:
        """Nobody waits for a job any more: those who come next must not wait for it either."""
        with self._changed:
            if job in lane.jobs:
                lane.jobs.remove(job)

    def _compute(self, lane: Lane, shares: Sequence[Share]) -> None:
        """Add the scores of each share to its job; a job at fault fails alone."""
        try:
            scores = lane.steps.score_inputs([share.job.part(share.start, share.stop) for share in shares])
        except BaseException as error:  # whatever it is, this thread must live on
            if len(shares) == 1:
                _fail(shares[0].job, error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
            else:
                for share in shares:
                    self._compute(lane, [share])
            return
        for share, found in zip(shares, scores, strict=True):
            share.job.scores[share.start] = found
            lane.width = math.prod(found.shape[1:]) if isinstance(found, Tensor) else 0

    def _is_last(self, share: Share, seconds: float) -> bool:
        """Count the sequences of a batch that took so many seconds; returns whether these were the job's last."""
        job = share.job
        job.seconds, job.served = job.seconds + seconds, time.perf_counter()
        job.computed += share.stop - share.start
        return job.computed == len(job.edges) - 1


def _answer(job: Job) -> None:
    """Answer a job whose sequences are all scored, unless it failed."""
    if not job.future.done():
        parts = [scores for _, scores in sorted(job.scores.items())]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts)
        with contextlib.suppress(InvalidStateError):  # cancelled or refused in this moment
            job.future.set_result(Scored(scores, job.started - job.arrived, job.seconds))


def _fail(job: Job, error: Exception) -> bool:
    """Fail a job that is not done. Returns whether it was not."""
    try:
        job.future.set_exception(error)
    except InvalidStateError:  # done or cancelled already
        return False
    return True
