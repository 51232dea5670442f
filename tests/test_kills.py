"""The program that kills commands and compares what they end in."""

import json
import sys
from pathlib import Path

import pytest

from bertworks.files import read_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and process groups")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import kills

    return kills


def write(folder: Path, seconds: float, loss: float, more: str = "") -> Path:
    """What a run leaves, in miniature."""
    (folder / "out").mkdir(parents=True)
    (folder / "out/results.json").write_text(json.dumps({"seconds": seconds, "loss": loss, "machine": {"cpu": "x"}}))
    (folder / "out/log.jsonl").write_text(json.dumps({"step": 1, "seconds": seconds, "loss": loss}) + "\n")
    (folder / "out/curves.png").write_text(str(seconds))
    (folder / "out/.lock").write_text("")
    if more:
        (folder / "out" / more).write_text("")
    return folder


def test_clocks_plots_and_locks_do_not_count(kills, tmp_path: Path) -> None:
    one, other = (kills.contents(write(tmp_path / str(s), s, 0.5)) for s in (1.0, 2.5))
    assert kills.differences(one, other) == {"mismatches": [], "leftovers": []}


def test_other_bytes_missing_files_and_temporaries_count(kills, tmp_path: Path) -> None:
    reference = kills.contents(write(tmp_path / "a", 1.0, 0.5))
    changed = write(tmp_path / "b", 1.0, 0.25, ".state.safetensors.77.tmp")
    (changed / "out/curves.png").unlink()
    found = kills.differences(reference, kills.contents(changed))
    assert found["mismatches"] == ["out/curves.png", "out/log.jsonl", "out/results.json"]
    assert found["leftovers"] == ["out/.state.safetensors.77.tmp"]


def test_files_that_are_not_whole_count(kills, tmp_path: Path) -> None:
    """Under their final names; temporary files may be anything."""
    import safetensors.numpy

    folder = write(tmp_path / "run", 1.0, 0.5, ".results.json.77.tmp")
    safetensors.numpy.save_file({}, folder / "out/a.safetensors")
    reference = kills.contents(folder)
    assert kills.half_written(folder, None) == [] == kills.half_written(folder, reference)
    (folder / "out/log.jsonl").write_text('{"step": 1, "lo')  # a log is appended to, other files are written once
    assert kills.half_written(folder, None) == [] and kills.half_written(folder, reference) == ["out/log.jsonl"]
    for name in ("results.json", "a.safetensors"):
        path = folder / "out" / name
        path.write_bytes(path.read_bytes()[:9])
    assert kills.half_written(folder, None) == ["out/a.safetensors", "out/results.json"]


def test_names_and_first_events_of_event_files_do_not_count(kills, tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    found = []
    for i, steps in enumerate((2, 2, 1)):
        with writer(str(tmp_path / str(i))) as file:
            for step in range(steps):
                file.add_scalar("loss", 0.5, step, walltime=step)
        found.append(kills.contents(tmp_path / str(i)))
    assert found[0].keys() == {"events"} and found[0] == found[1] != found[2]


def test_a_group_that_ignores_signals_is_killed(kills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own children die with it."""
    import signal
    import subprocess
    import time

    def deaf(command: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "60"])
        Path("child").write_text(str(child.pid))
        time.sleep(60)

    monkeypatch.setattr(kills, "call", deaf)
    segment = kills.Segment("", kills.fresh(tmp_path / "case"), 1)
    file = tmp_path / "case/child"
    deadline = time.monotonic() + 20
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not segment.wait(0.01) and segment.end() == -signal.SIGKILL
    status = Path(f"/proc/{file.read_text()}/status")
    assert not status.exists() or "zombie" in status.read_text()


@pytest.mark.heavy
def test_the_program_kills_and_goes_on(tmp_path: Path) -> None:
    """As a person runs it, on a command; a rerun has nothing left to do."""
    import subprocess

    out = tmp_path / "kills.json"
    command = [sys.executable, str(BENCHMARKS / "kills.py"), "--commands", "pretrain, b"]
    command += ["--kills", "2", "--work", str(tmp_path), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    first = read_json(out)
    assert [*first["commands"]] == ["pretrain, batches ahead"] and first["kills"] >= 2
    assert not first["mismatches"] and not first["refused"]
    subprocess.run(command, check=True, capture_output=True)
    assert read_json(out)["runs"] == first["runs"]
