"""The program that kills commands and compares what they end in."""

import json
import sys
from pathlib import Path

import pytest

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


def test_clocks_plots_and_locks_do_not_count_but_other_bytes_and_files_do(kills, tmp_path: Path) -> None:
    one, other = (kills.contents(write(tmp_path / str(s), s, 0.5)) for s in (1.0, 2.5))
    assert kills.differences(one, other) == {"mismatches": [], "leftovers": []}
    changed = write(tmp_path / "b", 1.0, 0.25, ".state.safetensors.77.tmp")
    (changed / "out/curves.png").unlink()
    differences = kills.differences(one, kills.contents(changed))
    assert differences["mismatches"] == ["out/curves.png", "out/log.jsonl", "out/results.json"]
    assert differences["leftovers"] == ["out/.state.safetensors.77.tmp"]


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
