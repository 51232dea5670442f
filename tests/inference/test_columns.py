"""Which columns and rows `predict`, `features` and `evaluate` read of a table, and what they refuse."""

import json
from pathlib import Path

import pandas
import pytest

import bertworks
from bertworks.checkpoint.folder import save_folder
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.model.heads import build_model
from support.tiny_task import TINY, tiny_folder

LABELS = ["art", "law"]
ROWS = [("a b", "law"), ("c d e", "art"), ("bad film", "law"), ("good", "art")]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("columns") / "model")


def classifier(pretrained: Path, folder: Path, *text: str) -> Path:
    """A classifier that was fine-tuned on these columns of a table."""
    task = {"kind": "single", "name": "table", "text": [*text], "choices": [], "label": "label"}
    model = build_model(TINY, ("classifier",), labels=2, seed=3)
    save_folder(folder, model, pretrained, labels=LABELS, max_length=16, task=task)
    return folder


@pytest.fixture(scope="module")
def of_text(pretrained) -> Path:
    return classifier(pretrained, pretrained.parent / "of-text", "text")


def refused(capsys, *words) -> str:
    """The message of a command that fails."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
    assert end.value.code == 1
    return capsys.readouterr().err


def test_a_column_with_a_comma_in_its_name_is_remembered(pretrained, tmp_path, capsys):
    """Beside a column of the default name, by which `evaluate` would judge other texts."""
    folder = classifier(pretrained, tmp_path / "m", "text, raw")
    rows = [{"text": "x", "text, raw": text, "label": label} for text, label in ROWS]
    expected = bertworks.evaluate(folder, rows, text=["text, raw"]).metrics
    assert expected != bertworks.evaluate(folder, rows, text="text").metrics
    assert bertworks.evaluate(folder, rows).metrics == expected
    assert bertworks.evaluate(folder, pandas.DataFrame(rows).drop(columns="text")).metrics == expected
    pandas.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    main(["evaluate", str(folder), str(tmp_path / "a.csv")])
    assert json.loads(capsys.readouterr().out)["metrics"] == expected
    message = refused(capsys, "predict", folder, tmp_path / "a.csv", "--text", "text, raw")
    assert "no column ' raw'" in message and "'text, raw' has a comma: rename the column" in message
    assert "did you mean" not in message


@pytest.mark.parametrize("verb", ["predict", "evaluate", "features"])
def test_a_column_named_twice_is_refused(of_text, tmp_path, capsys, verb):
    (tmp_path / "a.csv").write_text("text,label\na b,law\n")
    out = ["--out", tmp_path / "x.npz"] if verb == "features" else []
    message = refused(capsys, verb, of_text, tmp_path / "a.csv", "--text", "text,text", *out)
    assert "columns 'text,text': 'text' is named twice; expected different columns" in message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_length": 8.5}, r"max_length is a float \(8.5\); expected an integer"),
        ({"device": "foo"}, "device = 'foo'; expected cpu, cuda"),
        ({"device": "meta"}, "device = 'meta'; expected cpu, cuda"),
        ({"device": "cuda:99"}, "device = 'cuda:99', but torch finds"),
    ],
)
def test_settings_of_features_are_checked(of_text, given, message):
    with pytest.raises(InputError, match=message):
        bertworks.features(of_text, ["a b"], **given)
    if "device" in given:
        with pytest.raises(InputError, match=message):
            bertworks.Predictor(of_text, **given)
