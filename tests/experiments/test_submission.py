"""The zip for GLUE's leaderboard: every row with its index, labels as it wants them, what is missing said by name."""

import csv
import zipfile
from pathlib import Path

import pytest
import torch

from bertworks.checkpoint.folder import save_folder
from bertworks.cli import main
from bertworks.experiments.submission import ENTRIES, find_runs, submit
from bertworks.files import InputError
from bertworks.inference.model import LoadedModel
from bertworks.inference.predictor import Predictor
from bertworks.model.heads import build_model
from bertworks.tasks.catalogue import TASKS
from support.shared_data import shared
from support.tiny_task import TINY, tiny_folder

FORMS = {  # how the leaderboard wants the answers
    "CoLA": {"0", "1"},
    "SST-2": {"0", "1"},
    "MRPC": {"0", "1"},
    "QQP": {"0", "1"},
    "WNLI": {"0", "1"},
    "MNLI-m": {"entailment", "neutral", "contradiction"},
    "MNLI-mm": {"entailment", "neutral", "contradiction"},
    "AX": {"entailment", "neutral", "contradiction"},
    "QNLI": {"entailment", "not_entailment"},
    "RTE": {"entailment", "not_entailment"},
}


def run_folder(place: Path, name: str, labels: list[str] | None = None) -> Path:
    """What is left of a finished run on a task: a model folder with random weights, large so that answers differ."""
    task = TASKS[name]
    labels = labels or list(task.labels) or ["score"]
    model = build_model(TINY, ("classifier",), labels=len(labels), seed=7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    save_folder(
        place / name / "model",
        model,
        tiny_folder(place / "tiny"),
        labels=labels,
        task={"kind": task.kind, "name": name},
    )
    return place / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    return [run_folder(place, name) for name in dict.fromkeys(entry.task for entry in ENTRIES)]


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in ([header] if header else []) + rows))


@pytest.fixture
def glue(tmp_path) -> Path:
    """All test files in small, with indices that are no line numbers."""
    words = ["good film", 'bad "film', "a b c", "d, e", "x y z " * 20]
    for entry in ENTRIES:
        task = TASKS[entry.task]
        rows = [
            [str(10 * i + 3), *(f"{word} {'abcde'[t]}" for t in range(len(task.text)))] for i, word in enumerate(words)
        ]
        write(tmp_path / entry.test, ["id" if entry.task == "qqp" else "index", *task.text], rows)
    return tmp_path


def opened(path: Path) -> dict[str, list[list[str]]]:
    """The cells of every file of the zip, the header checked and left out."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            header, *rows = csv.reader(archive.read(name).decode().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
            assert header == ["index", "prediction"]
            found[name.removesuffix(".tsv")] = rows
    return found


def test_a_whole_submission(glue, runs, tmp_path):
    told = submit(runs, glue, tmp_path / "s.zip", quiet=True)
    assert not told["missing"] and len(told["files"]) == 11
    files = opened(tmp_path / "s.zip")
    assert files.keys() == {*FORMS, "STS-B"}
    for name, rows in files.items():
        assert [row[0] for row in rows] == ["3", "13", "23", "33", "43"]
        answers = [row[1] for row in rows]
        if name == "STS-B":
            assert all(0 <= float(value) <= 5 and len(value) == 5 for value in answers)
        else:
            assert set(answers) <= FORMS[name]
        assert told["files"][f"{name}.tsv"]["rows"] == 5 and told["files"][f"{name}.tsv"]["cut"] == 1
    assert any(len({row[1] for row in rows}) > 1 for rows in files.values())
    submit(runs, glue, tmp_path / "again.zip", quiet=True)
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "s.zip").read_bytes()


def test_answers_are_the_models(glue, runs, tmp_path):
    """Equal to the predictor's, by name, whatever the order of the model's labels."""
    submit(runs, glue, tmp_path / "s.zip", quiet=True)
    files = opened(tmp_path / "s.zip")
    for run, name in zip(
        runs, ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-mm", "QNLI", "RTE", "WNLI"), strict=True
    ):
        task = TASKS[run.name]
        entry = next(entry for entry in ENTRIES if entry.name == f"{name}.tsv")
        lines = (glue / entry.test).read_text().splitlines()[1:5]  # the last is too long: it would be windowed
        texts = [line.split("\t")[1:] for line in lines]
        pairs = [text[1] for text in texts] if len(task.text) == 2 else None
        expected = Predictor(run).classify([text[0] for text in texts], pairs)
        for row, one in zip(files[name], expected, strict=False):
            if task.kind == "regression":
                assert float(row[1]) == pytest.approx(min(max(one["score"], 0), 5), abs=6e-4)
            else:
                assert row[1] == dict(zip(task.labels, task.written or task.labels, strict=True))[one["label"]]
    turned = run_folder(tmp_path / "turned", "sst2", ["positive", "negative"])
    before, after = submit([runs[1]], glue, tmp_path / "a.zip", quiet=True), opened(tmp_path / "a.zip")["SST-2"]
    assert before["files"].keys() == {"SST-2.tsv"}
    submit([turned], glue, tmp_path / "b.zip", quiet=True)  # the same weights: every answer is the other one
    assert [row[1] for row in opened(tmp_path / "b.zip")["SST-2"]] == [{"0": "1", "1": "0"}[row[1]] for row in after]
    assert LoadedModel.load(turned).labels == ("positive", "negative")


def test_what_is_missing_is_reported(glue, runs, tmp_path, capsys):
    (glue / "QQP/test.tsv").unlink()
    main(["study", "submit", *map(str, runs[:-1]), "--data", str(glue), "--out", str(tmp_path / "s.zip")])
    said = capsys.readouterr()
    assert "9 of 11 files; 9 inputs were truncated" in said.out and "CoLA.tsv: 5 rows" in said.err
    assert "missing WNLI.tsv: no run on wnli was given" in said.err and "complete submissions only" in said.err
    assert "missing QQP.tsv: no test file" in said.err and "QQP/test.tsv" in said.err


@pytest.mark.parametrize("name", ["CoLA/test.tsv", "STS-B/test.tsv", "WNLI/test.tsv", "AX/diagnostic.tsv"])
def test_official_files(name, runs, tmp_path):
    """Row counts and indices of the real test files."""
    folder, file = name.split("/")
    (tmp_path / folder).mkdir()
    (tmp_path / name).symlink_to(shared(f"data/glue/{folder}") / file)
    submit(runs, tmp_path, tmp_path / "s.zip", quiet=True)
    (rows,) = opened(tmp_path / "s.zip").values()
    lines = (tmp_path / name).read_text(encoding="utf-8").split("\n")[1:]
    assert [row[0] for row in rows] == [line.split("\t")[0] for line in lines if line]
    assert len(rows) == {"CoLA": 1063, "STS-B": 1379, "WNLI": 146, "AX": 1104}[folder]


def test_what_is_refused(glue, runs, tmp_path):
    with pytest.raises(InputError, match=r"cola and .*cola are both runs on cola; give one of them"):
        find_runs([runs[0], runs[0]])
    with pytest.raises(InputError, match=r"tiny is fine-tuned on no task; expected one of cola, mnli"):
        find_runs([runs[0].parent / "tiny"])
    with pytest.raises(InputError, match=r"none: no such folder"):
        find_runs([tmp_path / "none"])
    with pytest.raises(InputError, match=r"nothing to write: CoLA\.tsv: no test file"):
        (tmp_path / "empty").mkdir()
        submit(runs, tmp_path / "empty", tmp_path / "s.zip")
    other = run_folder(tmp_path / "other", "rte", ["LABEL_0", "LABEL_1"])
    with pytest.raises(InputError, match=r"knows the labels LABEL_0, LABEL_1; expected entailment, not_entailment"):
        submit([other], glue, tmp_path / "s.zip")
    write(glue / "RTE/test.tsv", ["number", "sentence1", "sentence2"], [["1", "a", "b"]])
    with pytest.raises(InputError, match=r"RTE/test\.tsv, line 2: no index or id"):
        submit([runs[7]], glue, tmp_path / "s.zip", quiet=True)
    assert not (tmp_path / "s.zip").exists()
