"""Published folders of version 0.1.0 stay readable: a corpus store, an encoder and models of three kinds of tasks."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertworks.cli import main
from bertworks.data.opening import open_store

FOLDER = Path(__file__).parent / "data_of_0_1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
INPUTS = {  # arguments of predict and evaluate
    "finetune": ("dev.csv", "--dev rows/dev.csv"),
    "finetune-tagging": (
        "dev-tags.jsonl --text words", "--dev rows/dev-tags.jsonl --kind tagging --text words --label tags",
    ),
    "finetune-span": (
        "dev-questions.jsonl --text question,context",
        "--dev rows/dev-questions.jsonl --kind span --text question,context --label answer",
    ),
}  # fmt: skip


@pytest.fixture
def run(capsys, monkeypatch):
    """A function that runs a command in the folder and returns its standard output."""

    def call(line):
        main(shlex.split(line))
        return capsys.readouterr().out

    monkeypatch.chdir(FOLDER)
    return call


def close(found, expected, where=""):
    """Numbers may differ by 1e-4; a later version may add fields to a table."""
    if isinstance(expected, dict):
        for key in expected:
            close(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, pair in enumerate(zip(found, expected, strict=True)):
            close(*pair, f"{where}[{i}]")
    else:
        assert found == (pytest.approx(expected, abs=1e-4) if isinstance(expected, float) else expected), where


@pytest.mark.parametrize("folder", INPUTS)
def test_a_model_folder_gives_the_same_answers(run, folder):
    texts, rows = INPUTS[folder]
    answers = [json.loads(line) for line in run(f"predict {folder} rows/{texts}").splitlines()]
    close(answers, EXPECTED["predict"][folder])
    close(json.loads(run(f"evaluate {folder} {rows}"))["metrics"], EXPECTED["evaluate"][folder])


def test_an_encoder_fills_masks_alike(run):
    lines = run("predict fill-mask pretrain/model 'the [MASK] river opens the garden slowly'").splitlines()[1:]
    found = {line.split()[1]: float(line.split()[0]) for line in lines}
    assert found == pytest.approx({piece: float(score) for score, piece in EXPECTED["fill-mask"]["pretrain"]}, abs=2e-4)


def test_a_corpus_store_opens(run):
    store = open_store(FOLDER / "store", verify=True)
    shards = [np.load(path) for path in sorted((FOLDER / "store").glob("train-*.tokens.npy"))]
    assert store.unigram_counts().sum() == sum(map(len, shards)) == store.manifest["counts"]["train"]["tokens"]
    assert "[CLS]" in run("corpus show store --documents 1 --instances 1 --length 24")


def test_a_run_is_not_continued(refused, tmp_path, monkeypatch):
    """Its results have another format; the folder stays as it is."""
    monkeypatch.chdir(FOLDER)
    out = shutil.copytree("finetune", tmp_path / "run")
    before = (out / "results.json").read_bytes()
    line = f"finetune --train rows/dev.csv --dev rows/dev.csv --model pretrain --max-seq-length 32 --out {out}"
    assert "results.json: format is 1; expected 2" in refused(*line.split())
    assert (out / "results.json").read_bytes() == before
