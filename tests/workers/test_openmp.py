"""Cores that other programs use: how they are measured, and what follows for OpenMP's threads."""

import sys
from types import SimpleNamespace

import pytest

from bertworks.workers import openmp

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc and GNU's OpenMP are Linux's")


class FakeOpenMP:
    """Records the size of the groups of threads that are started."""

    def __init__(self, threads):
        self.threads, self.groups = threads, []
        self.omp_get_thread_num = openmp.ctypes.CFUNCTYPE(openmp.ctypes.c_int)(lambda: 0)

    def omp_get_max_threads(self):
        return self.threads

    def GOMP_parallel(self, function, data, threads, flags):
        self.groups.append(threads)


def watcher(cores, library=None):
    found = openmp.Watcher(library)
    found.cores = list(range(cores))
    return found


@linux
@pytest.mark.parametrize(
    ("cores", "threads", "used", "short"),
    [
        (2, 2, 0.2, False),
        (2, 2, 1.0, True),
        (16, 16, 1.0, True),
        (16, 8, 4.0, False),
        (16, 8, 9.0, True),
        (2, 1, 1.0, False),
    ],
)
def test_threads_spin_shortly_while_other_programs_need_their_cores(cores, threads, used, short):
    library = FakeOpenMP(threads)
    found = watcher(cores, library)
    for _ in range(20):
        found.add(used)
    assert (found.release is not None) is short
    for _ in range(20):
        found.add(0.0)
    assert found.release is None
    assert not library.groups or library.groups == [max(2, cores - threads + 2)]


def test_busy_seconds_are_those_of_the_cores_of_this_process(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 100 20 30 9000 500 4 6 40 7 7\ncpu1 999 0 0 0 0 0 0 0 0 0\nintr 5\n"
    )
    monkeypatch.setattr(openmp, "STAT", stat)
    monkeypatch.setattr(openmp.os, "sysconf", lambda name: 100, raising=False)
    assert openmp.busy_seconds([0]) == 2.0  # without idle, iowait and guests, which are a part of user


def test_a_chosen_way_of_waiting_is_kept(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(openmp.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None, join=lambda: None))
    found = openmp.watch.__wrapped__()
    assert found is None or found.openmp is None


def test_no_threads_are_started_that_the_system_refuses(monkeypatch):
    """GNU's library would end the process."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(openmp.threading.Thread, "start", refuse)
    openmp.hold_threads(SimpleNamespace(GOMP_parallel=pytest.fail), 4, SimpleNamespace(wait=pytest.fail))
