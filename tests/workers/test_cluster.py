"""A dask scheduler's workers do the tasks of a pool; what is missing is said in one message."""

import os
import re
import subprocess
import sys
from concurrent.futures import Future

import pytest
from test_local import Folder, fail, number_of

from bertworks.files import InputError
from bertworks.workers import cluster
from bertworks.workers.cluster import Cluster, _copy_outcome
from bertworks.workers.local import WorkersLost

heavy = pytest.mark.heavy


def end(folder):
    os._exit(1)


@heavy
def test_every_worker_makes_its_object_once(tmp_path):
    with Cluster("local", 2, Folder, tmp_path) as pool:
        assert pool.count == 2
        assert sorted(pool.run(number_of, ((number,) for number in range(50)))) == [*range(50)]
        with pytest.raises(ValueError, match="this one"):
            [*pool.run(fail, [("this one",)])]
    made = {path.name for path in tmp_path.iterdir()}
    assert 1 <= len(made) <= 2 and f"process-{os.getpid()}" not in made


@heavy
def test_what_every_task_kills_ends_with_a_message():
    with Cluster("local", 1, str) as pool, pytest.raises(WorkersLost, match=r"a task's workers were killed \d times"):
        [*pool.run(end, [()])]


@heavy
def test_other_versions_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_versions", lambda: {"bertworks": "9.8.7"})
    with (
        Cluster("local", 1, Folder, tmp_path) as pool,
        pytest.raises(InputError, match=r"has bertworks .*; expected 9\.8\.7"),
    ):
        [*pool.run(number_of, [(1,)])]


@heavy
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_no_scheduler_at_the_address(address):
    program = f"""
from bertworks.workers import cluster
cluster.PATIENCE = 0.5
cluster.Cluster({address!r}, 1, str)
"""
    # A process of its own, since the client of an address that is refused once kept the process from ending.
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert re.search(f"{address}: no scheduler answers .*expected the address of a dask scheduler", ended.stderr)
    assert "Exception ignored" not in ended.stderr


@heavy
def test_a_scheduler_without_workers(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as empty,
        pytest.raises(InputError, match=r"no worker in .* start workers with `dask worker tcp://"),
    ):
        Cluster(empty.scheduler_address, 1, str)


def test_a_task_ends_with_the_result_or_the_error_of_its_worker():
    """None is a result; dask's executor took it for an error."""
    for outcome in (None, 3, ValueError("broken row")):
        submitted, future = Future(), Future()
        if isinstance(outcome, Exception):
            submitted.set_exception(outcome)
        else:
            submitted.set_result(outcome)
        _copy_outcome(future, submitted)
        assert future.done() and (future.exception() or future.result()) is outcome
