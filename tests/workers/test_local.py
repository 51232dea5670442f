"""A pool does all its tasks, in this process or in others, and raises what a task raised."""

import os
import signal
from pathlib import Path

import pytest

from bertworks.workers.local import Pool, WorkersLost


class Folder:
    """What every process makes once: it leaves a file for itself."""

    def __init__(self, path: Path):
        self.path = path
        (path / f"process-{os.getpid()}").touch(exist_ok=False)


def write(folder, name):
    (folder.path / name).write_text(str(os.getpid()))


def number_of(folder, number):
    return number


def fail(folder, name):
    raise ValueError(name)


@pytest.mark.parametrize("count", [1, 2])
def test_all_tasks_are_done_and_each_process_makes_its_object_once(tmp_path, count):
    with Pool(count, Folder, tmp_path) as pool:
        assert [*pool.run(write, ((f"task-{number}",) for number in range(20)))] == [None] * 20
        assert sorted(pool.run(number_of, ((number,) for number in range(20)))) == [*range(20)]
        assert pool.ended() == pool.ended(wait=True) == []
    made = {path.name.removeprefix("process-") for path in tmp_path.glob("process-*")}
    assert 1 <= len(made) <= count and (str(os.getpid()) in made) == (count == 1)
    assert len(found := [path.read_text() for path in tmp_path.glob("task-*")]) == 20 and set(found) <= made


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_task_raised_is_raised(tmp_path, count):
    with Pool(count, Folder, tmp_path) as pool, pytest.raises(ValueError, match="this one"):
        [*pool.run(fail, [("this one",)])]


def die(folder):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals")
def test_a_killed_process_is_named(tmp_path):
    with Pool(2, Folder, tmp_path) as pool, pytest.raises(WorkersLost, match="a worker process was killed"):
        [*pool.run(die, [()] * 9)]
