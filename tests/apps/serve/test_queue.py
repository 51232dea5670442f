"""The compute queue: order, batches by tokens, failures, cancelled jobs, the end."""

import threading

import numpy as np
import pytest
import torch

from bertworks.apps.serve.errors import HTTPError
from bertworks.apps.serve.queue import ComputeQueue
from bertworks.files import InputError
from bertworks.tasks.inputs import Inputs
from bertworks.tasks.sequences import edges_of


class Echo:
    """Steps whose score of a sequence is its first token; they wait for `go`, and fail on token 13."""

    def __init__(self):
        self.go, self.entered, self.passes = threading.Event(), threading.Event(), []

    def score_inputs(self, parts):
        self.entered.set()
        assert self.go.wait(10)
        self.passes.append([part.ids[part.edges[:-1]].tolist() for part in parts])
        if any(13 in part.ids for part in parts):
            raise InputError("thirteen")
        return [torch.from_numpy(part.ids[part.edges[:-1]].astype(np.float32))[:, None] for part in parts]


def inputs_of(*sequences) -> Inputs:
    lengths = [len(ids) for ids in sequences]
    nothing = np.zeros(len(sequences), np.int64)
    ids = np.array([i for ids in sequences for i in ids], np.int32)
    return Inputs(ids, edges_of(lengths), np.array(lengths), nothing, nothing, 0, 512)


@pytest.fixture
def queue():
    queue = ComputeQueue(batch_tokens=10)
    yield queue
    queue.close()


def submit(queue, steps, *sequences):
    inputs = inputs_of(*sequences)
    return queue.submit(steps, inputs, np.diff(inputs.edges))


def blocked(queue):
    """Steps with a job in the compute thread, so that what comes next queues."""
    steps = Echo()
    first = submit(queue, steps, [1])
    assert steps.entered.wait(10)
    return steps, first


def firsts(future):
    return future.result(10).scores[:, 0].tolist()


def test_a_batch_takes_the_oldest_jobs_up_to_its_tokens(queue):
    steps, first = blocked(queue)
    jobs = [submit(queue, steps, [n] * 4) for n in (2, 3, 4)] + [submit(queue, steps, [5], [6] * 9, [7])]
    assert queue.size == 4
    steps.go.set()
    assert [firsts(job) for job in (first, *jobs)] == [[1], [2], [3], [4], [5, 6, 7]]
    assert steps.passes[:3] == [[[1]], [[2], [3]], [[4], [5]]]


def test_only_jobs_of_the_same_steps_share_a_batch_and_the_oldest_heads_it(queue):
    steps, _ = blocked(queue)
    other = Echo()
    other.go.set()
    other.passes = steps.passes  # of both, in their order
    futures = [submit(queue, which, [n]) for which, n in ((other, 2), (steps, 3), (other, 4))]
    steps.go.set()
    assert [firsts(future) for future in futures] == [[2], [3], [4]]
    assert steps.passes == [[[1]], [[2], [4]], [[3]]]


def test_a_job_that_fails_fails_alone_and_the_thread_lives(queue):
    steps, _ = blocked(queue)
    futures = [submit(queue, steps, [n]) for n in (2, 13, 4)]
    steps.go.set()
    assert [firsts(futures[0]), firsts(futures[2])] == [[2], [4]]
    with pytest.raises(InputError, match="thirteen"):
        futures[1].result(10)
    assert queue.alive and firsts(submit(queue, steps, [5] * 50)) == [5]  # longer than a batch


def test_a_cancelled_job_is_never_computed_or_waited_for(queue):
    steps, _ = blocked(queue)
    jobs = [submit(queue, steps, [n]) for n in (2, 3, 4, 5)]
    assert jobs[0].cancel() and jobs[2].cancel() and queue.size == 2  # at the head of the batch, and inside it
    steps.go.set()
    assert [firsts(jobs[1]), firsts(jobs[3])] == [[3], [5]]
    assert steps.passes == [[[1]], [[3], [5]]]


@pytest.mark.parametrize("refused", [False, True])
def test_after_close_what_waits_is_computed_or_refused_and_nothing_is_added(queue, refused):
    steps, first = blocked(queue)
    waiting = submit(queue, steps, [2])
    queue.close()
    with pytest.raises(HTTPError, match="shutting down"):
        submit(queue, steps, [3])
    assert not refused or queue.refuse_waiting() == 2
    steps.go.set()
    for future, expected in ((first, [1]), (waiting, [2])):
        if refused:
            with pytest.raises(HTTPError, match="shutting down"):
                future.result(10)
        else:
            assert firsts(future) == expected


def test_jobs_take_turns(queue):
    """A small job waits for a batch of each job before it; jobs that come later do not hold up a large one."""
    steps, first = blocked(queue)
    large = [submit(queue, steps, *[[n] * 10] * 3) for n in (2, 3)]
    small = submit(queue, steps, [4])
    steps.go.set()
    assert [len(firsts(job)) for job in (first, *large, small)] == [1, 3, 3, 1]
    assert steps.passes == [[[1]], [[2]], [[3]], [[4]], [[2]], [[3]], [[2]], [[3]]]
