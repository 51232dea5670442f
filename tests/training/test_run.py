"""The run folder: one job at a time, and what killed ones left."""

import hashlib
from dataclasses import dataclass, field

import pytest

from bertworks.config import SCHEMA, to_toml
from bertworks.files import InputError, NewerVersion, remove_temporaries, write_json
from bertworks.training.config import LoopConfig
from bertworks.training.identity import FORMAT, Run, RunIdentity
from bertworks.training.run import finished, open_run, refuse_other_folder, write_results
from support.loops import ALONE, IDENTITY


def test_a_folder_in_use_is_refused_by_name(tmp_path):
    with open_run(Run(tmp_path / "run", IDENTITY, ALONE, quiet=True)) as results:
        assert results is None
        with (
            pytest.raises(InputError, match=r"run: another process is using this run folder; .* another output folder"),
            open_run(Run(tmp_path / "run", IDENTITY, ALONE, quiet=True)),
        ):
            pass
        with open_run(Run(tmp_path / "other", IDENTITY, ALONE, quiet=True)):
            pass
    with open_run(Run(tmp_path / "run", IDENTITY, ALONE, quiet=True)) as results:
        assert results is None


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "a.csv.gz", "predictions.jsonl", "config.json", "model"])
def test_a_folder_of_other_files_is_no_run_folder(tmp_path, name):
    """Rows of a user, a model or a store would be mixed with the files of a run; a job's log may be there before."""
    refuse_other_folder(tmp_path / "none")
    for known in ("README.md", ".lock", "cell.json", "train.log", "slurm-17.out", "log.txt"):
        (tmp_path / known).touch()
    (tmp_path / "start").mkdir()
    refuse_other_folder(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=rf"has other files than a run's, such as {name}; name a new folder to write"):
        refuse_other_folder(tmp_path)
    with pytest.raises(InputError, match=rf"{name} is a file; expected a run folder"):
        refuse_other_folder(tmp_path / name)
    (tmp_path / "log.jsonl").touch()  # of a run
    refuse_other_folder(tmp_path)


def test_a_recipe_of_the_user_is_kept(tmp_path):
    """A run makes state/ before it writes its own recipe."""
    (tmp_path / "recipe.toml").write_text("# my own notes\nepochs = 1\n")
    with pytest.raises(InputError, match=r"such as recipe\.toml; name a new folder"):
        refuse_other_folder(tmp_path)
    (tmp_path / "state").mkdir()
    refuse_other_folder(tmp_path)


def test_what_a_killed_run_left_is_removed(tmp_path):
    left = [tmp_path / ".results.json.99999999.tmp", tmp_path / "state" / ".state.safetensors.99999999.tmp"]
    others = [tmp_path / ".mine.tmp", tmp_path / "notes.7.tmp", tmp_path / ".x.99999999.tmp.txt"]
    for path in left + others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    with open_run(Run(tmp_path, IDENTITY, ALONE, quiet=True)):
        assert not any(path.exists() for path in left) and all(path.exists() for path in others)
    remove_temporaries(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [False, True])
def test_a_run_killed_before_it_removed_its_state_is_tidied_by_the_next_start(tmp_path, keep):
    (tmp_path / "state").mkdir()
    write_json(tmp_path / "results.json", {"format": FORMAT, "recipe": IDENTITY.hash})
    (tmp_path / ".curves.png.99999999.tmp").write_text("half")
    with open_run(Run(tmp_path, IDENTITY, ALONE, quiet=True), keep_state=keep) as results:
        assert results == {"format": FORMAT, "recipe": IDENTITY.hash}
    assert (tmp_path / "state").exists() == keep
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.json"] + ["state"] * keep


@pytest.mark.parametrize("written", [f'{{"format": {FORMAT}, "recipe": "other"}}', '{"sweep": "paper"}'])
def test_a_finished_run_of_other_settings_is_refused(tmp_path, written):
    (tmp_path / "results.json").write_text(written)
    with pytest.raises(InputError, match="is a finished run with other settings, data or model"):
        finished(tmp_path, IDENTITY)
    (tmp_path / "results.json").write_text("[1]")
    with pytest.raises(InputError, match=r"results\.json: found \[1\]; expected a table"):
        finished(tmp_path, IDENTITY)


@dataclass(frozen=True)
class Recipe:
    loop: LoopConfig = field(default_factory=LoopConfig)
    size: int = 3
    kind: str = "a"
    rate: float = 0.5
    snapshots: tuple[int, ...] = ()


def test_intervals_do_not_change_what_a_run_is():
    plain, best = Recipe(), Recipe(LoopConfig(keep_best="loss"))
    assert hash_of(Recipe(LoopConfig(log_every=1, save_every=1, eval_every=1), snapshots=(3,))) == hash_of(plain)
    assert hash_of(Recipe(LoopConfig(keep_best="loss", log_every=1))) == hash_of(best)
    assert hash_of(Recipe(LoopConfig(keep_best="loss", eval_every=1))) != hash_of(best)
    assert len({hash_of(plain), hash_of(best), hash_of(Recipe(size=4)), RunIdentity(plain, ("data",)).hash}) == 4


def hash_of(recipe):
    return RunIdentity(recipe).hash


def test_the_hash_has_every_field_of_the_recipe():
    """Also those with default values: a changed default must not resume a run that had another value."""
    text = to_toml(Recipe(LoopConfig(log_every=0, save_every=0, save_minutes=0.0, eval_every=0)))
    assert f"schema = {SCHEMA}" in text and 'kind = "a"' in text and "rate = 0.5" in text and "steps = 0" in text
    assert hash_of(Recipe()) == hashlib.sha256(text.encode()).hexdigest()


def test_a_finished_run_of_a_newer_version_is_refused_by_name(tmp_path):
    write_json(tmp_path / "results.json", {"format": FORMAT + 1, "recipe": IDENTITY.hash})
    newer = rf"results\.json: written by a newer bertworks \(format {FORMAT + 1}; this version reads up to {FORMAT}\)"
    with pytest.raises(NewerVersion, match=newer):
        finished(tmp_path, IDENTITY)
    results = write_results(tmp_path, {"format": FORMAT, "recipe": IDENTITY.hash}, ALONE)
    assert finished(tmp_path, IDENTITY) == results == {"format": FORMAT, "recipe": IDENTITY.hash}
