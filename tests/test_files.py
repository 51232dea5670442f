import errno
import json
import os
import subprocess
import sys

import pytest

from bertworks import cli
from bertworks.files import (
    InputError,
    flush_folder,
    parse_json,
    read_json,
    to_json,
    try_lock,
    write_json,
    write_text,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[" * 100_000 + "]" * 100_000, "too many lists and tables inside each other"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ('{"a": "\udc80"}', "not valid JSON"),
    ],
)
def test_hostile_json_is_refused_with_the_name_of_its_file(tmp_path, text, found):
    (tmp_path / "a.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError) as error:
        read_json(tmp_path / "a.json")
    assert found in str(error.value) and str(tmp_path / "a.json") in str(error.value) and len(str(error.value)) < 300


def test_json_is_read_as_it_was_written(tmp_path):
    value = {"length": 1000000000000000019884624838656, "a": [1.5, None, True, "é", {}], "b": {"c": {}}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value and parse_json("7", "here") == 7
    assert read_json(tmp_path / "a.json", limit=200) == value
    with pytest.raises(InputError, match=r"a\.json: more than 20 bytes"):
        read_json(tmp_path / "a.json", limit=20)
    assert str(parse_json(b"[NaN, Infinity]", "old.jsonl:3", finite=False)) == "[nan, inf]"


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path, monkeypatch):
    """So that after a power cut the old content is there, or the new one. A folder's entries are flushed when asked."""
    flushed, path = [], tmp_path / "a.txt"
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append((os.fstat(handle).st_ino, path.exists())))
    write_text(path, "new")
    assert flushed == [(path.stat().st_ino, False)]
    flush_folder(tmp_path)
    assert os.name == "nt" or flushed[1:] == [(tmp_path.stat().st_ino, True)]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(cli, "function_of", lambda _: lambda _: write_json(tmp_path / "a.json", {}))
    with pytest.raises(SystemExit):
        cli.main(["study", "plot"])
    assert capsys.readouterr().err == f"bertworks: {tmp_path / 'a.json'}: No space left on device\n"
    assert not [*tmp_path.iterdir()]


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
    value = {"a": float("nan"), "b": [1.5, float("-inf"), (2, float("inf"))], "c": {"d": "NaN"}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == {"a": None, "b": [1.5, None, [2, None]], "c": {"d": "NaN"}}


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    path = tmp_path / "a.lock"
    with try_lock(path) as first:
        with try_lock(path) as second, try_lock(tmp_path / "b.lock") as other:
            assert (first, second, other) == (True, False, True)
        with try_lock(path) as third:
            assert not third  # the failed attempt has not let go of it
    with try_lock(path) as again:
        assert again


WRITER = """
import sys
from bertworks.files import write_json
sys.stdin.read(1)
for number in range(300):
    for name in ("a.json", "b.json"):
        write_json(name, {"number": number, "text": "x" * 100})
"""


def test_processes_that_write_the_same_files_do_not_disturb_each_other(tmp_path):
    others = [
        subprocess.Popen([sys.executable, "-c", WRITER], cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for other in others:
        other.stdin.write(b"go")
        other.stdin.flush()
    assert [other.communicate()[1] for other in others] == [b"", b""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]
    assert read_json(tmp_path / "a.json")["number"] == 299


@pytest.fixture
def left(tmp_path):
    """Temporary files of processes that have ended, and files to stay: of one that runs, and somebody's own."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for name in (f".a.json.{ended.pid}.tmp", ".a.json.99999999.tmp", f".a.json.{2**70}.tmp", ".ab.json.99999999.tmp"):
        (tmp_path / name).write_text("half")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as runs:
        stay = [".a.json.x.tmp", ".a.json.1.tmp.txt", "a.json.99999999.tmp", f".a.json.{runs.pid}.tmp"]
        for name in stay:
            (tmp_path / name).write_text("half")
        yield stay
        runs.stdin.close()


def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next_that_writes_it(tmp_path, left):
    """Files of processes that run stay, and so do those of other names."""
    write_text(tmp_path / "a.json", "1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*left, ".ab.json.99999999.tmp", "a.json"])


def test_text_that_utf8_cannot_hold(tmp_path):
    """In JSON it is escaped and comes back; what has no way to say it is refused and not written."""
    value = {"path": "tr\udcff.csv", "한국": ["\udc80"]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value and json.loads(to_json(value)) == value
    with pytest.raises(InputError, match=r"vocab\.txt: not written, its text has a lone surrogate \('\\udcff'\)"):
        write_text(tmp_path / "vocab.txt", "a\ntr\udcff\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_pipe_is_refused_and_stays_a_pipe(tmp_path):
    """A rename would put a file in its place: as root in place of /dev/null too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (pipe, "/dev/null", "/dev/stdout", "/proc/self/fd/1"):
        with pytest.raises(InputError, match="a pipe or a device; expected the name of a file"):
            write_text(name, "text")
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]
