"""The thread that computes, and the queue before it, which counts tokens.

A request is a job of S sequences (texts, or windows of a long document). A batch takes sequences from the first job on,
and from the next jobs of the same steps, until it has `batch_tokens`. A job that has more of them goes to the end of
the queue, so a small job waits for at most one batch of each job before it. There is no timer: the next batch is what
has queued while the last one was computed. A job is done when all its sequences are scored.

A job whose client left is dropped. A batch that fails is computed again job by job, so that only the job at fault
fails; the thread lives on.

Shapes: S sequences of a job.
"""

import contextlib
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

    steps: Steps[Any]
    inputs: Inputs
    edges: Integers  # (S + 1,) running sum of the sequences' tokens, as the queue counts them
    future: "Future[Scored]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.perf_counter)
    next: int = 0  # the first sequence that is not batched yet
    started: float = 0.0  # when its first batch began
    seconds: float = 0.0
    scores: list[Tensor] = field(default_factory=list)  # of its batches, in their order


class Share(NamedTuple):
    """The sequences of a job that are in a batch."""

    job: Job
    start: int
    stop: int

    @property
    def inputs(self) -> Inputs:
        """The sequences; all of a job's as they are, so that a request alone is computed as a Predictor does."""
        inputs, whole = self.job.inputs, self.stop - self.start == len(self.job.edges) - 1
        return inputs if whole else inputs.part(self.start, self.stop)

    @property
    def tokens(self) -> int:
        return int(self.job.edges[self.stop] - self.job.edges[self.start])


class ComputeQueue:
    """Scores jobs in a thread of its own. All methods may be called from any thread."""

    def __init__(self, batch_tokens: int = 2048, observe: Callable[[int, int], None] = lambda jobs, tokens: None):
        """observe: called with the jobs and tokens of every batch."""
        self.batch_tokens, self.observe = batch_tokens, observe
        self.widths: dict[Steps[Any], int] = {}  # numbers in a row of scores, of steps that have computed
        self._waiting: list[Job] = []
        self._running: list[Share] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    def submit(self, steps: Steps[Any], inputs: Inputs, costs: Integers) -> "Future[Scored]":
        """Queue the sequences of a request; costs (S,): their tokens. Cancel the future to take them out again.

        Raises Refusal (503) after `close`. The future fails with what the forward pass raised, or with Refusal (503).
        """
        job = Job(steps, inputs, edges_of(costs))
        if len(costs) == 0:
            job.future.set_result(Scored(torch.empty(0), 0.0, 0.0))
            return job.future
        with self._changed:
            if self._closed:
                raise shutting_down()
            self._waiting.append(job)
            self._changed.notify_all()
        job.future.add_done_callback(lambda future: self._forget(job))
        return job.future

    @property
    def size(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether jobs are computed."""
        return self._thread.is_alive()

    # ---- the end

    def close(self) -> None:
        """Take no more jobs. Those that wait are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def refuse_waiting(self) -> int:
        """Fail every job that is not done with 503. Returns how many."""
        with self._changed:
            jobs = {*self._waiting, *(share.job for share in self._running)}
        return sum(_fail(job, shutting_down()) for job in jobs)

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end, after `close`. Returns whether it did."""
        self._thread.join(seconds)
        return not self.alive

    # ---- the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = []
                while not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait()
                shares = self._running = self._take()
            self._compute(shares)

    def _take(self) -> list[Share]:
        """The next batch; jobs that it does not finish go to the end of the queue."""
        steps, room, shares = self._waiting[0].steps, self.batch_tokens, list[Share]()
        for job in [job for job in self._waiting if job.steps is steps]:
            stop = int(np.searchsorted(job.edges, job.edges[job.next] + room, "right")) - 1
            stop = max(stop, job.next + (not shares))  # at least one sequence, whatever its length
            if stop == job.next:
                break
            shares.append(Share(job, job.next, stop))
            job.next, job.started = stop, job.started or time.perf_counter()
            self._waiting.remove(job)
            if stop < len(job.edges) - 1:
                self._waiting.append(job)
            room -= shares[-1].tokens
            if room <= 0:
                break
        return shares

    def _forget(self, job: Job) -> None:
        """Take a job that is done, or that nobody waits for, out of the queue."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def _compute(self, shares: Sequence[Share]) -> None:
        """Add the scores of each share to its job, and answer jobs that are complete; a job at fault fails alone."""
        steps, begun = shares[0].job.steps, time.perf_counter()
        try:
            scores = steps.score_inputs([share.inputs for share in shares])
        except BaseException as error:  # whatever it is, this thread must live on
            if len(shares) == 1:
                _fail(shares[0].job, error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
            else:
                for share in shares:
                    self._compute([share])
            return
        self.observe(len(shares), sum(share.tokens for share in shares))
        for share, found in zip(shares, scores, strict=True):
            self.widths[steps] = math.prod(found.shape[1:]) if isinstance(found, Tensor) else 0
            job = share.job
            job.scores.append(found)
            job.seconds += time.perf_counter() - begun
            if share.stop == len(job.edges) - 1:
                whole = job.scores[0] if len(job.scores) == 1 else torch.cat(job.scores)
                with contextlib.suppress(InvalidStateError):  # cancelled or refused in this moment
                    job.future.set_result(Scored(whole, job.started - job.arrived, job.seconds))


def _fail(job: Job, error: Exception) -> bool:
    """Fail a job that is not done. Returns whether it was not."""
    try:
        job.future.set_exception(error)
    except InvalidStateError:  # done or cancelled already
        return False
    return True
