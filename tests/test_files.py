import errno
import json
import os
import subprocess
import sys
import threading

import pytest

from bertworks import files
from bertworks.cli import main
from bertworks.files import (
    InputError,
    atomic_write,
    flush_folder,
    held,
    parse_json,
    read_json,
    read_lines,
    read_table,
    shorten,
    write_json,
    write_text,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[" * 100_000 + "]" * 100_000, "more than 100 lists and tables inside each other"),
        ('{"a":' * 500 + "1" + "}" * 500, "more than 100 lists and tables inside each other"),
        ('{"a": ' + "9" * 5_000 + "}", "an integer of 5,000 digits"),
        ('{"a": NaN}', "the value NaN is not JSON"),
        ('{"a": -Infinity}', "the value -Infinity is not JSON"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        ("{", "not valid JSON"),
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


def test_what_has_no_end_is_read_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_BYTES", 1000)
    with pytest.raises(InputError, match=r"^/dev/zero: more than 1,000 bytes; expected a JSON file"):
        read_json("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    sender = threading.Thread(target=lambda: (tmp_path / "pipe").write_text('{"a": 1}'))
    sender.start()
    assert read_table(tmp_path / "pipe") == {"a": 1}
    sender.join()


def test_settings_are_a_small_table(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(InputError, match=r"a.json: found a list; expected a table of settings"):
        read_table(tmp_path / "a.json")
    monkeypatch.setattr(files, "TABLE_BYTES", 2)
    with pytest.raises(InputError, match=r"a.json: more than 2 bytes"):
        read_table(tmp_path / "a.json")


def test_files_that_cannot_be_read_are_named(tmp_path):
    for read in (read_json, lambda path: read_lines(path, "a vocabulary")):
        for path, found in ((tmp_path, "Is a directory"), (tmp_path / "none", "no such file"), ("a\0b", "null byte")):
            with pytest.raises(InputError, match=found) as error:
                read(path)
            assert str(path) in str(error.value)


@pytest.mark.parametrize("length", [0, 10, 79, 80, 81, 1_000_000])
def test_values_in_messages_are_short(length):
    text = "a" * length
    assert shorten(text) == repr(text) if length < 79 else len(shorten(text)) == 80
    assert len(shorten("\0" * length, 40)) <= 40
    assert len(shorten([text] * 1000)) <= 80 and len(shorten({text: text})) <= 80 and len(shorten(10**length)) <= 300


def test_values_of_any_kind_in_messages():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert shorten(deep) == "[[[[[...]]]]]" and shorten(0.5) == "0.5" and shorten(None) == "None"
    assert shorten(10**5000) == "an integer of 16,610 bits" and len(shorten([10**5000])) < 80
    assert shorten("begin" + "x" * 1000 + "end", 20) == "'beginxxx...xxxxend'"


def test_no_message_fills_the_screen():
    message = str(InputError("config.json: " + "x" * 100_000 + "; expected less"))
    assert len(message) == 1900 and message.startswith("config.json: x") and message.endswith("; expected less")


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setitem(main.__globals__["VERBS"], "plot", lambda _: write_json(tmp_path / "a.json", {}))
    with pytest.raises(SystemExit):
        main(["plot"])
    assert capsys.readouterr().err == f"bertworks: {tmp_path / 'a.json'}: No space left on device\n"
    assert not [*tmp_path.iterdir()]


def test_a_temporary_name_is_not_what_a_message_is_about(tmp_path):
    with pytest.raises(OSError) as error, atomic_write(tmp_path / "none" / "a.json"):
        pass
    assert error.value.filename == str(tmp_path / "none" / "a.json")


def test_a_full_pipe_or_disk_behind_the_output_is_told(monkeypatch, capsys):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setitem(main.__globals__["VERBS"], "plot", full)
    with pytest.raises(SystemExit):
        main(["plot"])
    assert capsys.readouterr().err == "bertworks: standard output: No space left on device\n"


def test_json_lines_carry_their_place():
    with pytest.raises(InputError, match=r"^log\.jsonl:7: not valid JSON"):
        parse_json(json.dumps({"a": 1})[:-1], "log.jsonl:7")


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
    value = {"a": float("nan"), "b": [1.5, float("-inf"), (2, float("inf"))], "c": {"d": "NaN"}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == {"a": None, "b": [1.5, None, [2, None]], "c": {"d": "NaN"}}


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    path = tmp_path / "a.lock"
    with held(path) as first:
        with held(path) as second, held(tmp_path / "b.lock") as other:
            assert (first, second, other) == (True, False, True)
        with held(path) as third:
            assert not third  # the failed attempt has not let go of it
    with held(path) as again:
        assert again


def test_flushing_a_folder_is_left_out_where_it_cannot_be_done(tmp_path, monkeypatch):
    flush_folder(tmp_path)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("Windows opens no folder"))
    flush_folder(tmp_path)


def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next_that_writes_it(tmp_path):
    """Files that are still written to stay, and so do those of other names."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [".a.json.99.tmp", f".a.json.{gone.pid}.tmp", ".a.json.x.tmp", ".ab.json.99.tmp", ".b.99.tmp"]
    for name, text in zip(names, ("half", "", "own", "half", "half"), strict=True):
        (tmp_path / name).write_text(text)
    with atomic_write(tmp_path / "a.json", "w") as file:
        file.write("1")
        file.flush()
        written = tmp_path / f".a.json.{os.getpid()}.tmp"
        written.rename(tmp_path / ".a.json.98.tmp")  # as if another process wrote it
        write_text(tmp_path / "a.json", "2")
        (tmp_path / ".a.json.98.tmp").rename(written)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[2:], "a.json"])
    assert (tmp_path / "a.json").read_text() == "1"


def test_a_file_system_without_locks_keeps_what_was_left(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ".a.json.99.tmp").write_text("half")
    write_text(tmp_path / "a.json", "2")
    assert (tmp_path / ".a.json.99.tmp").exists() and (tmp_path / "a.json").read_text() == "2"
