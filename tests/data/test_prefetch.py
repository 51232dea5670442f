"""Batches made ahead by workers: the bytes of those made in place, whatever happens to the workers."""

import multiprocessing
import os
import signal
import sys

import numpy as np
import psutil
import pytest

from bertworks.data import prefetch
from bertworks.data.batches import BatchRequest, BatchSource, PretrainingData
from bertworks.data.instances import InstanceConfig, StreamPosition
from bertworks.data.masking import MaskingConfig
from bertworks.data.opening import open_store
from bertworks.data.prefetch import Prefetcher
from bertworks.files import InputError
from bertworks.workers import local

pytest_plugins = ["support.build_fixtures"]

MASKING, START = MaskingConfig(), StreamPosition()
forked = pytest.mark.skipif(sys.platform != "linux", reason="forked workers, which start at once")


class ForkedProcess(multiprocessing.context.ForkProcess):
    """As the processes of workers/local.py: it is ended by SIGKILL, since it ignores SIGTERM."""

    terminate = multiprocessing.context.ForkProcess.kill


class Forks(multiprocessing.context.ForkContext):
    Process = ForkedProcess


@pytest.fixture
def forks(monkeypatch):
    """Workers are forked: they start at once, and know what a test has changed."""
    monkeypatch.setattr(local, "Context", Forks)


def phases(tiny_store, input_format="segment-pair", masking=MASKING):
    """Two phases of a run: short sequences, then longer ones."""
    store, vocabulary = open_store(tiny_store.path), tiny_store.data().vocabulary
    config = InstanceConfig(dupe_factor=2, input_format=input_format)
    return [PretrainingData(store, "train", vocabulary, length, config, masking, 1) for length in (24, 40)]


def drawn(source, updates=60, start=START, parts=(range(5, 12), range(12, 14))):
    """Updates of 24 instances of the first phase from `start` on, then a third as many of the second from its start."""
    made = []
    for phase, (position, count) in enumerate(((start, updates), (StreamPosition(), updates // 3))):
        for _ in range(count):
            taken, position = source.take(BatchRequest(phase, position, 24, parts))
            made.append((taken, position))
    return made


def workers_of(source):
    """The processes of a source."""
    return [*source._pool._processes._processes]


def assert_ends(source):
    pids = workers_of(source)
    source.close()
    assert pids and not any(psutil.pid_exists(pid) for pid in pids)


def assert_same(one, other):
    for (made, after), (expected, end) in zip(one, other, strict=True):
        assert after == end and len(made) == len(expected)
        for batch, right in zip(made, expected, strict=True):
            assert batch.keys() == right.keys()
            for name, array in batch.items():
                assert array.dtype == right[name].dtype and array.flags.writeable
                np.testing.assert_array_equal(array, right[name])


KINDS = [
    ("segment-pair", MaskingConfig()),
    ("segment-pair", MaskingConfig(whole_word=True, ngrams=3)),
    ("full-sentences", None),
]


@forked
@pytest.mark.parametrize(("input_format", "masking"), KINDS)
@pytest.mark.parametrize("start", [StreamPosition(), StreamPosition(3, 11)], ids=["from the start", "from the middle"])
def test_batches_made_ahead_are_those_made_in_place(tiny_store, forks, small_groups, input_format, masking, start):
    data = phases(tiny_store, input_format, masking)
    expected = drawn(BatchSource(data), start=start)
    assert expected[59][1].group > data[0].stream.groups  # more than an epoch
    source = Prefetcher(phases(tiny_store, input_format, masking), 2)
    assert_same(drawn(source, start=start), expected)
    source.close()


@pytest.mark.heavy
def test_spawned_workers_make_the_same_batches(tiny_store):
    """As in a run: they open the store themselves, and plan by what they were sent."""
    source = Prefetcher(phases(tiny_store), 2)
    assert_same(drawn(source), drawn(BatchSource(phases(tiny_store))))
    assert_ends(source)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@forked
def test_a_killed_worker_ends_the_run_with_a_message(tiny_store, forks, small_groups, monkeypatch):
    monkeypatch.setattr(prefetch, "_make", die)
    source = Prefetcher(phases(tiny_store), 2)
    with pytest.raises(InputError, match=r"makes batches was killed.*resume.*fewer --workers, or with 0"):
        drawn(source)
    assert source._pool is None


@forked
def test_signals_to_the_whole_group_leave_the_workers_to_their_parent(tiny_store, forks, small_groups):
    """A scheduler that stops a job signals all its processes; the run still needs a batch or two to save and end."""
    source, position = Prefetcher(phases(tiny_store), 2), StreamPosition()
    for _ in range(10):  # both have begun
        _, position = source.take(BatchRequest(0, position, 24, (range(24),)))
    before = workers_of(source)
    for number in (signal.SIGTERM, signal.SIGINT):
        for pid in before:
            os.kill(pid, number)
    for _ in range(10):
        _, position = source.take(BatchRequest(0, position, 24, (range(24),)))
    assert workers_of(source) == before
    assert_ends(source)
