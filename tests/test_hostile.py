"""The programs that attack readers and kill commands: they notice what they are there for, cases are repeatable."""

import json
import os  # noqa: F401 (the readers use it)
import signal  # noqa: F401
import sys
import time  # noqa: F401
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, /proc, limits on address space")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def path_to_benchmarks():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


REFUSAL = "print('bertworks: in/a.txt: nothing in it; expected text', file=sys.stderr); raise SystemExit(1)"


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        ("pass", "ok"),
        (REFUSAL, "refused"),
        ("raise KeyError('a planted one')", "traceback"),
        ("while True: time.sleep(1)", "hang"),
        ("whole = []\nwhile True: whole.append(bytearray(1 << 24))", "memory"),
        ("Path('../../escaped.txt').write_text('outside')", "escaped"),
        ("Path('../canary').write_text('outside')", "escaped"),
        ("Path('in/a.txt').write_text('changed')", "changed"),
        ("Path('out/.state.safetensors.1234.tmp').write_text('')", "left"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed"),
        ("print('bertworks: ' + 'x' * 3_000, file=sys.stderr); raise SystemExit(1)", "long"),
        ("raise SystemExit(1)", "silent"),
        ("Path('out/p.jsonl').write_text('{\"score\": NaN}')", "nan"),
    ],
)
def test_a_faulty_reader_is_caught(reader: str, kind: str, tmp_path: Path) -> None:
    from box import LengthLimits, run_case

    limits = LengthLimits(seconds=0.6 if kind == "hang" else 20, memory=1 << 28)
    verdict = run_case(tmp_path / "box", {"a.txt": b"text"}, lambda: exec(reader, globals()), limits)
    assert verdict.kind == kind, verdict


# ---- kills.py


@pytest.fixture
def kills():
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
