"""The run folder: one job at a time, and what killed ones left."""

import json
import os
import subprocess
import sys

import pytest

from bertworks.files import InputError, NotWritten, held, remove_temporaries, write_json
from bertworks.training.run import finished, locked, opened_run
from support.loops import ALONE


def test_a_folder_in_use_is_refused_by_name(tmp_path):
    with opened_run(tmp_path / "run", "recipe", ALONE) as results:
        assert results is None
        with (
            pytest.raises(InputError, match=r"run: another process is using this run folder; .* another --out"),
            opened_run(tmp_path / "run", "recipe", ALONE),
        ):
            pass
        with opened_run(tmp_path / "other", "recipe", ALONE):
            pass
    with opened_run(tmp_path / "run", "recipe", ALONE) as results:
        assert results is None


def test_a_lock_is_free_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with held(tmp_path / ".lock") as mine:
        assert mine


def test_what_a_killed_run_left_is_removed(tmp_path):
    left = [tmp_path / ".results.json.99999999.tmp", tmp_path / "state" / ".state.safetensors.99999999.tmp"]
    others = [tmp_path / ".mine.tmp", tmp_path / "notes.7.tmp", tmp_path / ".x.99999999.tmp.txt"]
    for path in left + others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    with opened_run(tmp_path, "recipe", ALONE):
        assert not any(path.exists() for path in left) and all(path.exists() for path in others)
    remove_temporaries(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [False, True])
def test_a_run_killed_before_it_removed_its_state_is_tidied_by_the_next_start(tmp_path, keep):
    (tmp_path / "state").mkdir()
    write_json(tmp_path / "results.json", {"recipe": "recipe"})
    (tmp_path / ".curves.png.99999999.tmp").write_text("half")
    with opened_run(tmp_path, "recipe", ALONE, keep_state=keep) as results:
        assert results == {"recipe": "recipe"}
    assert (tmp_path / "state").exists() == keep
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.json"] + ["state"] * keep


def test_what_another_process_writes_into_a_finished_run_stays(tmp_path):
    """Its curves, for instance: nobody holds the lock of a finished run."""
    write_json(tmp_path / "results.json", {"recipe": "recipe"})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
        curves = tmp_path / f".curves.png.{other.pid}.tmp"
        curves.write_text("half")
        with opened_run(tmp_path, "recipe", ALONE):
            assert curves.exists()
        other.stdin.close()


@pytest.mark.parametrize("written", ['{"recipe": "other"}', "{}"])
def test_a_finished_run_of_other_settings_is_refused(tmp_path, written):
    (tmp_path / "results.json").write_text(written)
    with pytest.raises(InputError, match="is a finished run with other settings, data or model"):
        finished(tmp_path, "recipe")
    (tmp_path / "results.json").write_text("[1]")
    with pytest.raises(InputError, match=r"results\.json: found \[1\]; expected a table"):
        finished(tmp_path, "recipe")
    (tmp_path / "results.json").write_text(json.dumps({"recipe": "recipe", "loss": float("nan")}))  # of an old version
    assert finished(tmp_path, "recipe")["recipe"] == "recipe"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file is a file; expected a run folder"), locked(tmp_path / "file"):
        pass
    with pytest.raises(NotWritten, match="could not make the run folder"), locked(tmp_path / "file" / "run"):
        pass
    if os.name == "posix" and os.getuid():  # root may write everywhere
        (tmp_path / "shut").mkdir(mode=0o500)
        with pytest.raises(NotWritten), locked(tmp_path / "shut" / "run"):
            pass
