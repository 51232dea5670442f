"""One compute thread, and the queue before it: first in, first out, by real tokens.

A request is a job of S sequences (the windows of a long document are several). A batch takes sequences from the oldest
job on, and from the next jobs of the same model and steps, until it has `batch_tokens`. There is no waiting timer: the
next batch is what has queued while the last one was computed. A job is done when all its sequences are scored.

A job whose client left is dropped before it is batched. A batch that fails is computed again job by job, so that only
the job at fault fails; the thread lives on.

Shapes: S sequences of a job.
"""

import contextlib
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..inference.steps import Steps
from ..tasks.inputs import Inputs
from ..tasks.sequences import Integers, edges_of
from .errors import shutting_down
from .pace import Pace


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
    started: float = 0.0
    seconds: float = 0.0
    scores: list[Tensor] = field(default_factory=list)

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
        self.jobs: deque[Job] = deque()
        self.tokens = 0  # of all sequences that are not batched yet
        self.expected = 0  # of requests that are being tokenized
        self.pace = Pace()
        self.width = 0  # numbers in a row of scores; 0 before the first


class ComputeQueue:
    """Scores jobs in one thread. All methods may be called from any thread."""

    def __init__(self, batch_tokens: int = 2048, observe: Callable[[int, int], None] = lambda jobs, tokens: None):
        """observe: called in the compute thread with the jobs and tokens of every batch."""
        self.batch_tokens, self.observe = batch_tokens, observe
        self.lanes: dict[Steps[Any], Lane] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._running: list[Share] = []
        self._until = 0.0  # when the running batch is predicted to end
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    # ---- admission

    def lane(self, steps: Steps[Any]) -> Lane:
        """The lane of these steps."""
        with self._changed:
            return self.lanes.setdefault(steps, Lane(steps))

    def wait_seconds(self) -> float:
        """Predicted seconds until a job that comes now begins."""
        with self._changed:
            running = max(0.0, self._until - time.perf_counter()) if self._running else 0.0
            lanes = list(self.lanes.values())
            return running + sum(lane.pace.seconds(lane.tokens + lane.expected, self.batch_tokens) for lane in lanes)

    @property
    def alive(self) -> bool:
        """Whether jobs are computed."""
        return self._thread.is_alive()

    @property
    def idle(self) -> bool:
        """Whether no job waits or is computed."""
        with self._changed:
            return not self._running and not any(lane.jobs for lane in self.lanes.values())

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

    def expect(self, lane: Lane, tokens: int) -> None:
        """A request of about so many tokens is being tokenized; negative: it is no more."""
        with self._changed:
            lane.expected += tokens

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
            lane.tokens += int(job.edges[-1])
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
            jobs = {share.job for share in self._running}
            for lane in self.lanes.values():
                jobs.update(lane.jobs)
                lane.jobs.clear()
                lane.tokens = 0
        return sum(_fail(job, shutting_down()) for job in jobs)

    def join(self, seconds: float) -> bool:
        """Wait for the compute thread to end, after `close`. Returns whether it did."""
        self._thread.join(seconds)
        return not self.alive

    # ---- the compute thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = []
                while not (taken := self._take()):
                    if self._closed:
                        return
                    self._changed.wait()
                lane, shares = taken
                tokens, now = sum(share.tokens for share in shares), time.perf_counter()
                self._running, self._until = shares, now + lane.pace.seconds(tokens, self.batch_tokens)
            for share in shares:
                share.job.started = share.job.started or now
            self._compute(lane, shares)
            seconds = time.perf_counter() - now
            lane.pace.add(tokens, seconds)
            self._finish(shares, seconds)
            self.observe(len(shares), tokens)

    def _take(self) -> tuple[Lane, list[Share]] | None:
        """The next batch, headed by the oldest job; None if nobody waits."""
        for lane in self.lanes.values():
            while lane.jobs and lane.jobs[0].future.done():
                self._drop(lane)
        waiting = [lane for lane in self.lanes.values() if lane.jobs]
        if not waiting:
            return None
        lane = min(waiting, key=lambda lane: lane.jobs[0].number)
        shares: list[Share] = []
        room = self.batch_tokens
        while lane.jobs and room > 0:
            job = lane.jobs[0]
            if job.future.done():  # cancelled: its client left
                self._drop(lane)
                continue
            stop = int(np.searchsorted(job.edges, job.edges[job.next] + room, "right")) - 1
            stop = max(stop, job.next + (not shares))  # at least one sequence, whatever its length
            if stop == job.next:
                break
            shares.append(Share(job, job.next, stop))
            lane.tokens -= shares[-1].tokens
            room -= shares[-1].tokens
            job.next = stop
            if stop == len(job.edges) - 1:
                lane.jobs.popleft()
        return lane, shares

    def _forget(self, lane: Lane, job: Job) -> None:
        """Nobody waits for a job any more: those who come next must not wait for it either."""
        with self._changed:
            if job in lane.jobs:
                lane.jobs.remove(job)
                lane.tokens -= int(job.edges[-1] - job.edges[job.next])

    def _drop(self, lane: Lane) -> None:
        job = lane.jobs.popleft()
        lane.tokens -= int(job.edges[-1] - job.edges[job.next])

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
            share.job.scores.append(found)
            lane.width = math.prod(found.shape[1:]) if isinstance(found, Tensor) else 0

    def _finish(self, shares: Sequence[Share], seconds: float) -> None:
        """Answer the jobs whose sequences are all scored."""
        for share in shares:
            job = share.job
            job.seconds += seconds
            if share.stop == len(job.edges) - 1 and not job.future.done():
                scores = job.scores[0] if len(job.scores) == 1 else torch.cat(job.scores)
                with contextlib.suppress(InvalidStateError):  # cancelled or refused in this moment
                    job.future.set_result(Scored(scores, job.started - job.arrived, job.seconds))


def _fail(job: Job, error: Exception) -> bool:
    """Fail a job that is not done. Returns whether it was not."""
    try:
        job.future.set_exception(error)
    except InvalidStateError:  # done or cancelled already
        return False
    return True
