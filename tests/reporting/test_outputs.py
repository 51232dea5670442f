"""Names of outputs are checked before anything is computed: no input is written over, and the place is there."""

import os
import shutil
from pathlib import Path

import pytest

import bertworks
from bertworks.cli import main
from bertworks.files import InputError
from bertworks.reporting.outputs import check_output, check_output_folder
from support.tiny_task import tiny_folder

KEPT = Path(__file__).parents[1] / "data_of_0_1"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """run/, a fine-tuned run; base/, a model folder; tables and texts. The working folder."""
    shutil.copytree(KEPT / "finetune", tmp_path / "run")
    tiny_folder(tmp_path / "base")
    (tmp_path / "rows.csv").write_text("text,label\ngood film,a\nbad film,b\n")
    (tmp_path / "rows.safetensors").write_text("text\ngood film\n")
    (tmp_path / "pairs.jsonl").write_text('{"a": "good", "b": "bad"}\n')
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("good film\n")
    (tmp_path / "texts" / "vocab.txt").write_text("good film\n" * 50)  # a name that a tokenizer's folder has
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(place):
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


FILE, FOLDER = "is a file that is read; name another file to write", "which is read; name another file to write"
RUN = f"run/results.json is a file of run, {FOLDER}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("predict run rows.csv --out rows.csv", FILE),
        ("predict run rows.csv#dev --out rows.csv", FILE),
        ("predict run rows.csv --out run/results.json", RUN),
        ("evaluate run --dev rows.csv#dev --out rows.csv", FILE),
        ("evaluate run --dev rows.csv --out run/model/config.json", FOLDER),
        ("evaluate base --perplexity texts --out texts/one.txt", f"texts/one.txt is a file of texts, {FOLDER}"),
        ("features base rows.safetensors --out rows.safetensors", FILE),
        ("compare run run --out run/results.json", RUN),
        ("probe explain base good --out base/config.json", f"base/config.json is a file of base, {FOLDER}"),
        ("tokenizer train texts/vocab.txt --out texts --overwrite", f"texts/vocab.txt {FILE}"),
    ],
)
def test_no_verb_writes_over_what_it_reads(place, refused, line, says):
    before = content(place)
    assert says in refused(*line.split())
    assert content(place) == before


def test_functions_write_over_nothing_that_they_read(place):
    before = content(place)
    model = bertworks.Predictor("run")
    for one in ("run", model):
        for data, out in (("rows.csv", "rows.csv"), ("rows.csv#dev", "rows.csv"), (["good"], "run/results.json")):
            with pytest.raises(InputError, match="is read; name another file to write"):
                bertworks.predict(one, data, out=out)
    with pytest.raises(InputError, match=r"rows\.safetensors is a file that is read"):
        bertworks.features("base", "rows.safetensors", out="rows.safetensors", pool="mean")
    for out in ("texts", "nowhere/x.csv"):
        with pytest.raises(InputError, match=r"a folder; expected a file|there is no folder"):
            bertworks.predict("run", ["good"], out=out)
    with pytest.raises(InputError, match="there is no folder"):
        bertworks.features("base", ["good"], out="nowhere/x.safetensors")
    assert content(place) == before


def test_other_files_of_a_run_folder_are_replaced(place):
    """A command that wrote into a run folder may be rerun."""
    for out in ("run/mine.jsonl", "run/labels.csv"):
        for _ in range(2):
            main(["predict", "run", "rows.csv", "--out", out])
    check_output("texts/new.txt", ["texts", "-", "", None, [1]])  # nothing is there yet
    check_output("texts/one.txt", ["rows.csv", "none.csv#dev", "none*.csv"], ["run"])
    check_output("new/deep/x.html", makes_folder=True)
    check_output(os.devnull, [os.devnull])
    check_output(None, ["rows.csv"])
    check_output_folder("run", ["base"])
    check_output_folder("new/deep")
    with pytest.raises(InputError, match=r"rows\.csv is no folder"):
        check_output_folder("rows.csv/x")


def test_every_file_of_runs_and_models_is_kept():
    """Runs and models have no file that a subcommand may replace, beside pictures and tables."""
    for folder in ("finetune", "finetune-span", "finetune-tagging", "pretrain"):
        files = [path for path in (KEPT / folder).rglob("*") if path.is_file() and path.suffix not in (".png", ".svg")]
        assert files
        for path in files:
            with pytest.raises(InputError, match="which is read"):
                check_output(path, folders=[KEPT / folder])
