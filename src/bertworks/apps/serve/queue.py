"""The thread that computes, and the queue before it, which counts tokens.

A request has S sequences (texts, or windows of a long document). A batch takes sequences from the oldest request, and
from the next requests of the same steps, until it has `batch_tokens`. A request that has more of them goes to the end
of the queue, so a small request waits for at most one batch of each request before it. There is no timer: the next
batch is what has queued while the last one was computed. A request is done when all its sequences are scored.

A request whose client has disconnected is removed. A batch that fails is computed again, one request at a time, so that
only the request at fault fails; the thread continues.

Shapes: S sequences of a request.
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
    """The scores of a request."""

    scores: Tensor  # in the order of its sequences, as `Steps.forward` gives them
    queue_seconds: float  # from its arrival to its first batch
    compute_seconds: float  # of all its batches, others' sequences in them included


@dataclass(eq=False)
class QueuedRequest:
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


class RequestSlice(NamedTuple):
    """The sequences of a request that are in a batch."""

    request: QueuedRequest
    start: int
    stop: int

    @property
    def inputs(self) -> Inputs:
        """The sequences; all of a request's as they are, so that a request alone is computed as a Predictor does."""
        inputs, whole = self.request.inputs, self.stop - self.start == len(self.request.edges) - 1
        return inputs if whole else inputs.part(self.start, self.stop)

    @property
    def tokens(self) -> int:
        return int(self.request.edges[self.stop] - self.request.edges[self.start])


class ComputeQueue:
    """Scores requests in a thread of its own. All methods may be called from any thread."""

    def __init__(self, batch_tokens: int = 2048, observe: Callable[[int, int], None] = lambda requests, tokens: None):
        """observe: called with the requests and tokens of every batch."""
        self.batch_tokens, self.observe = batch_tokens, observe
        self.widths: dict[Steps[Any], int] = {}  # numbers in a row of scores, of steps that have computed
        self._waiting: list[QueuedRequest] = []
        self._running: list[RequestSlice] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    def submit(self, steps: Steps[Any], inputs: Inputs, costs: Integers) -> "Future[Scored]":
        """Queue the sequences of a request; costs (S,): their tokens. Cancel the future to take them out again.

        Raises HTTPError (503) after `close`. The future fails with what the forward pass raised, or with 503.
        """
        request = QueuedRequest(steps, inputs, edges_of(costs))
        if len(costs) == 0:
            request.future.set_result(Scored(torch.empty(0), 0.0, 0.0))
            return request.future
        with self._changed:
            if self._closed:
                raise shutting_down()
            self._waiting.append(request)
            self._changed.notify_all()
        request.future.add_done_callback(lambda future: self._forget(request))
        return request.future

    @property
    def size(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """Whether requests are computed."""
        return self._thread.is_alive()

    # ---- the end

    def close(self) -> None:
        """Take no more requests. Those that wait are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def refuse_waiting(self) -> int:
        """Fail every request that is not done with 503. Returns how many."""
        with self._changed:
            requests = {*self._waiting, *(part.request for part in self._running)}
        return sum(_fail(request, shutting_down()) for request in requests)

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
                slices = self._running = self._take()
            self._compute(slices)

    def _take(self) -> list[RequestSlice]:
        """The next batch; requests that it does not finish go to the end of the queue."""
        steps, free_tokens, slices = self._waiting[0].steps, self.batch_tokens, list[RequestSlice]()
        for request in [request for request in self._waiting if request.steps is steps]:
            stop = int(np.searchsorted(request.edges, request.edges[request.next] + free_tokens, "right")) - 1
            stop = max(stop, request.next + (not slices))  # at least one sequence, whatever its length
            if stop == request.next:
                break
            slices.append(RequestSlice(request, request.next, stop))
            request.next, request.started = stop, request.started or time.perf_counter()
            self._waiting.remove(request)
            if stop < len(request.edges) - 1:
                self._waiting.append(request)
            free_tokens -= slices[-1].tokens
            if free_tokens <= 0:
                break
        return slices

    def _forget(self, request: QueuedRequest) -> None:
        """Take a request that is done, or that nobody waits for, out of the queue."""
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)

    def _compute(self, slices: Sequence[RequestSlice]) -> None:
        """Add the scores of each slice to its request, and answer complete requests; a request at fault fails alone."""
        steps, started = slices[0].request.steps, time.perf_counter()
        try:
            scores = steps.score_inputs([part.inputs for part in slices])
        except BaseException as error:  # whatever it is, this thread must live on
            if len(slices) == 1:
                _fail(slices[0].request, error if isinstance(error, Exception) else RuntimeError(type(error).__name__))
            else:
                for part in slices:
                    self._compute([part])
            return
        self.observe(len(slices), sum(part.tokens for part in slices))
        for part, batch_scores in zip(slices, scores, strict=True):
            self.widths[steps] = math.prod(batch_scores.shape[1:]) if isinstance(batch_scores, Tensor) else 0
            request = part.request
            request.scores.append(batch_scores)
            request.seconds += time.perf_counter() - started
            if part.stop == len(request.edges) - 1:
                whole = request.scores[0] if len(request.scores) == 1 else torch.cat(request.scores)
                with contextlib.suppress(InvalidStateError):  # cancelled or refused in this moment
                    request.future.set_result(Scored(whole, request.started - request.arrived, request.seconds))


def _fail(request: QueuedRequest, error: Exception) -> bool:
    """Fail a request that is not done. Returns whether it was not."""
    try:
        request.future.set_exception(error)
    except InvalidStateError:  # done or cancelled already
        return False
    return True
