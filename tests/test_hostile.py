"""The program that attacks the readers: its boxes catch what they are there for, its cases are repeatable."""

import os  # noqa: F401 (the readers use it)
import random
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


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".toml", ".csv", ".tsv", ".safetensors", ".txt", ""])
def test_mutations_are_repeatable_and_change_something(ending: str) -> None:
    import struct

    from mutations import mutate

    header = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    valid = {
        ".json": b'{"a": [1, {"b": "c"}], "d": 2.5}',
        ".jsonl": b'{"a": 1}\n{"a": 2}\n',
        ".toml": b"a = 1\n[b]\nc = [1, 2]\n",
        ".safetensors": struct.pack("<Q", len(header)) + header + bytes(8),
    }.get(ending, b"a,b\nc,d\n")
    changed = [mutate(random.Random(seed), f"x{ending}", valid, b"other bytes") for seed in range(60)]
    assert changed == [mutate(random.Random(seed), f"x{ending}", valid, b"other bytes") for seed in range(60)]
    assert sum(one != valid for one in changed) > 40


def test_a_sentence_that_names_infinity_is_no_number():
    import box

    assert box._has_nan('{"a": NaN}') and box._has_nan('text\n{"a": -Infinity}\n')
    assert not box._has_nan("not finite (NaN,\n  Infinity, or too large); expected a number\n")
