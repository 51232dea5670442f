"""TensorBoard's files have every number of the log at its step, also during a run and after a resume."""

import json
import time

import numpy as np
import pytest

from bertworks.reporting import tracking
from bertworks.reporting.tracking import EventFile, followed

RECORDS = [
    {"kind": "train", "step": 10, "mlm_loss": 7.123456789, "lr": 1e-4, "tokens": 1000, "seconds": 1.5},
    {"kind": "train", "step": 20, "mlm_loss": None, "lr": 2e-4, "tokens": 2000, "seconds": 3.0},
    {"kind": "eval", "step": 20, "accuracy": 0.5},
]


def write_log(run, records=RECORDS):
    run.mkdir(parents=True, exist_ok=True)
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def read_events(folder):
    """{(name, step): value} of a folder's event files, by TensorBoard's own reader."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    found = accumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {(name, event.step): event.value for name in found.Tags()["scalars"] for event in found.Scalars(name)}


def expected(records=RECORDS):
    """Every finite number of the records; event files hold 32-bit numbers."""
    return {
        (f"{record['kind']}/{name}", record["step"]): float(np.float32(value))
        for record in records
        for name, value in record.items()
        if name not in ("kind", "step") and value is not None
    }


def test_a_log_that_grows_and_one_that_lost_its_end(tmp_path):
    """A resumed run drops the records behind its last state and writes them again."""
    run = write_log(tmp_path / "run", RECORDS[:2])
    file = EventFile(run, tmp_path / "board")
    file.update()
    write_log(run)
    file.update()
    assert read_events(tmp_path / "board") == expected() and len(expected()) == 8
    resumed = [RECORDS[0], {**RECORDS[1], "lr": 5e-5}]
    write_log(run, resumed)
    file.update()
    file.writer.close()
    assert read_events(tmp_path / "board") == expected(resumed)


def test_a_run_is_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "INTERVAL", 0.05)
    with followed(tmp_path, "tensorboard"):
        write_log(tmp_path / "seed-1", RECORDS[:1])
        until = time.monotonic() + 20
        while not (tmp_path / "seed-1/tensorboard").is_dir() and time.monotonic() < until:
            time.sleep(0.05)
        assert (tmp_path / "seed-1/tensorboard").is_dir()  # before the run has ended
        write_log(tmp_path / "seed-1")
    assert read_events(tmp_path / "seed-1/tensorboard") == expected()


def test_a_failure_to_track_never_ends_a_run(tmp_path, capsys):
    with followed(tmp_path, "tensorboard"):
        write_log(tmp_path)
        (tmp_path / "tensorboard").write_text("a file where the folder should be")
    assert "the run is not affected" in capsys.readouterr().err
