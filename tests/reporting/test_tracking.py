"""What trackers read is what the log has: every number at its step, also during a run and after a resume."""

import errno
import json
import os
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from bertworks.files import InputError, NotWritten
from bertworks.reporting import tracking
from bertworks.reporting.run_files import read_log
from bertworks.reporting.tracking import EventFile, began, followed, scalars, track

RECORDS = [
    {"kind": "train", "step": 10, "mlm_loss": 7.123456789, "lr": 1e-4, "tokens": 1000, "seconds": 1.5, "left": 3.0},
    {"kind": "train", "step": 20, "mlm_loss": None, "lr": 2e-4, "tokens": 2000, "seconds": 3.0, "left": 0.0},
    {"kind": "eval", "step": 20, "accuracy": 0.5, "seconds": 3.0},
]


def write_log(run, records=RECORDS):
    run.mkdir(parents=True, exist_ok=True)
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run / "recipe.toml").write_text("schema = 6\nbatch_size = 8\n[optim]\nlr = 0.001\n")
    return run


def read_events(folder):
    """{(name, step): value} of a folder's event files, by TensorBoard's own reader."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    found = accumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {(name, event.step): event.value for name in found.Tags()["scalars"] for event in found.Scalars(name)}


def expected(run):
    """The same from the log; event files hold 32-bit numbers."""
    return {(name, step): float(np.float32(value)) for name, value, step, _ in scalars(read_log(run))}


def test_every_number_of_the_log_is_a_scalar():
    found = {(one.name, one.step): one.value for one in scalars(RECORDS)}
    assert found["train/mlm_loss", 10] == 7.123456789 and ("train/mlm_loss", 20) not in found
    assert found["eval/accuracy", 20] == 0.5 and found["train/tokens", 20] == 2000 and len(found) == 11


def test_tensorboard_reads_the_log_back(tmp_path):
    run = write_log(tmp_path / "run")
    assert track([run], "tensorboard") == [run / "tensorboard"]
    assert read_events(run / "tensorboard") == expected(run) != {}
    write_log(run, RECORDS[:1])
    track([run], "tensorboard")  # the earlier files are replaced
    assert read_events(run / "tensorboard") == expected(run) and len(expected(run)) == 5


def test_seeds_and_several_runs_have_a_folder_each(tmp_path):
    runs = [write_log(tmp_path / "seeds" / name) for name in ("seed-1", "seed-2")]
    found = track([tmp_path / "seeds"], "tensorboard", tmp_path / "board")
    assert found == [tmp_path / "board/seed-1", tmp_path / "board/seed-2"]
    assert [read_events(folder) for folder in found] == [expected(run) for run in runs]


def test_runs_of_several_places_do_not_replace_each_other(tmp_path):
    runs = [
        write_log(tmp_path / name / seed, RECORDS[:n])
        for n, name in ((1, "a"), (3, "b/c"))
        for seed in ("seed-1", "seed-2")
    ]
    found = track([tmp_path / "a", tmp_path / "b/c"], "tensorboard", tmp_path / "board")
    assert found == [tmp_path / "board" / name for name in ("a/seed-1", "a/seed-2", "b/c/seed-1", "b/c/seed-2")]
    assert [read_events(folder) for folder in found] == [expected(run) for run in runs]
    with pytest.raises(InputError, match=r"seed-1: this run is given twice; give every run once"):
        track([tmp_path / "a", tmp_path / "a/seed-1"], "tensorboard", tmp_path / "board")


def test_odd_names_and_damaged_results(tmp_path):
    run = write_log(tmp_path, [{"kind": "train", "step": 1, "\ud800": 0.5}])
    track([run], "tensorboard")
    assert read_events(run / "tensorboard") == {("train/?", 1): 0.5}
    (run / "results.json").write_text('{"metrics": 5}')
    with pytest.raises(InputError, match="metrics = 5; expected a table"):
        track([run], "tensorboard")


def test_dates_are_those_of_the_log(tmp_path):
    run = write_log(tmp_path)
    os.utime(run / "log.jsonl", (2e9, 2e9))
    assert began(run, read_log(run)) == 2e9 - 3.0
    assert began(tmp_path / "none", []) == 0.0


def test_a_log_that_grows_and_one_that_lost_its_end(tmp_path):
    """A resumed run drops the records behind its last state and writes them again."""
    run = write_log(tmp_path / "run", RECORDS[:2])
    file = EventFile(run, tmp_path / "board")
    file.update()
    write_log(run)
    file.update()
    assert read_events(tmp_path / "board") == expected(run)
    write_log(run, [RECORDS[0], {**RECORDS[1], "lr": 5e-5}])
    file.update()
    file.close()
    assert read_events(tmp_path / "board") == expected(run)


def test_a_run_is_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "EVERY", 0.05)
    with followed(tmp_path, "tensorboard"):
        write_log(tmp_path / "seed-1", RECORDS[:1])
        until = time.monotonic() + 20
        while not (tmp_path / "seed-1/tensorboard").is_dir() and time.monotonic() < until:
            time.sleep(0.05)
        assert (tmp_path / "seed-1/tensorboard").is_dir()  # before the run has ended
        write_log(tmp_path / "seed-1")
    assert read_events(tmp_path / "seed-1/tensorboard") == expected(tmp_path / "seed-1")


def test_a_failure_to_track_never_ends_a_run(tmp_path, capsys):
    with followed(tmp_path, "tensorboard"):
        write_log(tmp_path)
        (tmp_path / "tensorboard").write_text("a file where the folder should be")
    assert "the run is not affected" in capsys.readouterr().err


class OperationalError(Exception):
    """As SQLAlchemy's, whose message has further lines."""


class MlflowException(Exception):
    """As MLflow's, which is raised from the database's error, and for wrong arguments too."""


@pytest.mark.parametrize(
    ("error", "cause", "named"),
    [
        (OperationalError("disk is full\n[SQL: INSERT]"), None, True),
        (MlflowException("disk is full"), OperationalError("disk is full"), True),
        (MlflowException("Invalid parameter"), None, False),
        (KeyError("step"), None, False),
    ],
)
def test_only_failures_to_write_are_named_as_such(tmp_path, monkeypatch, error, cause, named):
    write_log(tmp_path / "run")

    def fail(*_):
        raise error from cause

    monkeypatch.setattr(tracking, "find_spec", lambda name: name)
    monkeypatch.setattr(tracking, "_mlflow", fail)
    expected = f"{tmp_path}/board: mlflow could not write its files: disk is full$" if named else None
    with pytest.raises(NotWritten if named else type(error), match=expected):
        track([tmp_path / "run"], "mlflow", tmp_path / "board")


def test_a_full_disk_is_named_without_a_traceback(tmp_path, monkeypatch):
    """The error of TensorBoard's thread is raised again by the call."""
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = pytest.importorskip("tensorboard.summary.writer.record_writer").RecordWriter
    monkeypatch.setattr(writer, "write", full)
    with pytest.raises(NotWritten, match=rf"{tmp_path}/board: tensorboard could not write its files: No space"):
        track([write_log(tmp_path / "run")], "tensorboard", tmp_path / "board")
    assert not (tmp_path / "board").exists() and not seen


def test_a_missing_package_and_a_folder_without_a_log_are_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"no log\.jsonl in this folder; expected a run folder"):
        track([tmp_path], "tensorboard")
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"package wandb is missing; install it: pip install 'bertworks\[wandb\]'"):
        track([write_log(tmp_path / "run")], "wandb")
    with pytest.raises(InputError, match="package tensorboard is missing"), followed(tmp_path, "tensorboard"):
        pass


@pytest.mark.heavy
def test_mlflow_reads_the_log_back(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    run = write_log(tmp_path / "run")
    os.utime(run / "log.jsonl", (2e9, 2e9))
    [database] = track([run], "mlflow", tmp_path / "out")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
    [made] = client.search_runs([client.get_experiment_by_name("bertworks").experiment_id])
    names = {one.name for one in scalars(RECORDS)}
    history = [one for name in names for one in client.get_metric_history(made.info.run_id, name)]
    assert {(one.key, one.step): one.value for one in history} == {(s.name, s.step): s.value for s in scalars(RECORDS)}
    assert made.data.params["optim.lr"] == "0.001" and made.info.run_name == "run"
    assert made.info.start_time == 1999999997000 and {one.timestamp for one in history} == {
        1999999998500,
        2000000000000,
    }
    assert made.info.status == "RUNNING" and made.info.end_time is None  # without results it can be resumed
    (run / "results.json").write_text('{"metrics": {}}')
    track([run], "mlflow", tmp_path / "out")
    ended = client.search_runs([made.info.experiment_id], "attributes.status = 'FINISHED'")
    assert [one.info.end_time for one in ended] == [2000000000000]


def test_wandb_gets_every_number_at_its_step(tmp_path, monkeypatch):
    """Its offline files have no public reader, so this looks at what its library is given."""
    given = {}

    class Offline:
        dir = str(tmp_path / "out/wandb/offline-run-1/files")

        def log(self, values, step):
            given.setdefault("steps", []).append(step)
            given.update({(name, step): value for name, value in values.items()})

        def finish(self):
            given["finished"] = True

    library = SimpleNamespace(init=lambda **how: given.update(how) or Offline(), Settings=lambda **how: how)
    monkeypatch.setitem(sys.modules, "wandb", library)
    monkeypatch.setattr(tracking, "find_spec", lambda name: name)
    run = write_log(tmp_path / "run")
    assert track([run], "wandb", tmp_path / "out") == [tmp_path / "out/wandb/offline-run-1"]
    assert given["mode"] == "offline" and given["name"] == "run" and given["config"]["optim.lr"] == 0.001
    assert {key: value for key, value in given.items() if isinstance(key, tuple)} == {
        (one.name, one.step): one.value for one in scalars(RECORDS)
    }
    assert given["steps"] == [10, 20] and given["finished"]
