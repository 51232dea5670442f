"""The program that attacks the readers: its boxes catch what they are there for, its cases are repeatable."""

import random
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, /proc, limits on address space")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def path_to_benchmarks():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def refuse() -> None:
    print("bertworks: in/a.txt: nothing in it; expected text; give another file", file=sys.stderr)
    raise SystemExit(1)


def fail() -> None:
    raise KeyError("a planted one")


def hang() -> None:
    while True:
        time.sleep(1)


def take_memory() -> None:
    whole = []
    while True:
        whole.append(bytearray(1 << 24))


def escape() -> None:
    Path("../../escaped.txt").write_text("outside")


def spoil_canary() -> None:
    Path("../canary").write_text("outside")


def spoil_input() -> None:
    Path("in/a.txt").write_text("changed")


def leave_temporary() -> None:
    Path("out/.state.safetensors.1234.tmp").write_text("")


def be_killed() -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


def talk() -> None:
    print("bertworks: " + "x" * 3_000, file=sys.stderr)
    raise SystemExit(1)


def say_nothing() -> None:
    raise SystemExit(1)


def write_nan() -> None:
    Path("out/p.jsonl").write_text('{"score": NaN}\n')


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (lambda: None, "ok"),
        (refuse, "refused"),
        (fail, "traceback"),
        (hang, "hang"),
        (take_memory, "memory"),
        (escape, "escaped"),
        (spoil_canary, "escaped"),
        (spoil_input, "changed"),
        (leave_temporary, "left"),
        (be_killed, "killed"),
        (talk, "long"),
        (say_nothing, "silent"),
        (write_nan, "nan"),
    ],
)
def test_a_faulty_reader_is_caught(reader, kind: str, tmp_path: Path) -> None:
    from box import Limits, run_case

    verdict = run_case(
        tmp_path / "box", {"a.txt": b"text"}, reader, Limits(seconds=0.6 if kind == "hang" else 20, memory=1 << 28)
    )
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
