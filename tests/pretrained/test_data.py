"""`hub:org/name` as labelled data. A local folder org/name takes the place of the repository: `datasets` reads both."""

import json

import pytest

import bertworks
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.pretrained.data import from_hub
from support.tiny_task import tiny_place, tiny_rows


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A data set org/reviews with two splits, and org/films with one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    place = tiny_place(tmp_path / "place", 8, 4)
    for name, source in {"reviews/train": "train", "reviews/validation": "dev", "films/train": "train"}.items():
        file = tmp_path / "org" / f"{name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((place / f"{source}.csv").read_bytes())
    return place


def test_a_data_set_takes_the_place_of_tables(place):
    hub = {"train": "hub:org/reviews#train", "dev": "hub:org/reviews#validation"}
    tables = {"train": place / "train.csv", "dev": place / "dev.csv"}
    settings = {"kind": "single", "max_seq_length": 32, "loop": {"steps": 2}, "quiet": True}
    results = [
        bertworks.finetune(place / "model", out, **data, **settings)
        for out, data in zip("ab", (hub, tables), strict=True)
    ]
    assert results[0].metrics == results[1].metrics
    rows = bertworks.predict("a", hub["dev"]), bertworks.predict("b", tables["dev"])
    assert [row["score"] for row in rows[0]] == [row["score"] for row in rows[1]]


def test_doctor_examines_a_data_set(capsys):
    main(["doctor", "hub:org/reviews#train", "--dev", "hub:org/reviews#validation", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "8 training and 4 development examples" and report["target"] == "hub:org/reviews#train"


def test_the_only_split_needs_no_name(place):
    assert from_hub("hub:org/films")["text"] == [row.text for row in tiny_rows(place)[1].train]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hub:org/reviews", "several splits; expected one of hub:org/reviews#train, hub:org/reviews#validation"),
        ("hub:org/films#dev", "unknown split; expected one of hub:org/films#train"),
        ("hub:reviews", "expected hub:org/name"),
        ("hub:org/other#train", "hub:org/other#train: .*org/other"),
    ],
)
def test_what_does_not_exist(name, message):
    with pytest.raises(InputError, match=message):
        from_hub(name)
