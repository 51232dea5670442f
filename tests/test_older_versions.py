"""What an older version left on disk is read, judged and gone on with.

from_version_0/ was made by commit 68ddbdc (README.md there). The commands alone are called, no inner module, so that
this file says the same of any arrangement of the code.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from bertworks.cli import main

KEPT = Path(__file__).parent / "from_version_0"
EXPECTED = KEPT / "expected.json"

TABLES = "--train rows/train.csv --dev rows/dev.csv"
TAGS = "--train rows/train-tags.jsonl --dev rows/dev-tags.jsonl --kind tagging --text words --label tags"
QUESTIONS = (
    "--train rows/train-questions.jsonl --dev rows/dev-questions.jsonl --kind span --text question,context "
    "--label answer"
)
TUNE = "finetune --recipe finetune.toml"
BILSTM = "--top.bilstm-layers 1 --top.bilstm-width 8"
LINES = {  # the lines of make.sh that made the folders
    "pretrain": "pretrain pretrain.toml --corpus store --out pretrain",
    "distill": "distill distill.toml --teacher pretrain --corpus store --out distill",
    "finetune": f"{TUNE} {TABLES} --model pretrain --epochs 16 --out finetune",
    "finetune-static": f"{TUNE} {TABLES} --model static {BILSTM} --epochs 12 --out finetune-static",
    "finetune-taught": f"{TUNE} {TABLES} --model distill --teacher finetune --epochs 24 --out finetune-taught",
    "finetune-tagging": f"{TUNE} {TAGS} --model pretrain --epochs 10 --out finetune-tagging",
    "finetune-span": f"{TUNE} {QUESTIONS} --model pretrain --epochs 30 --out finetune-span",
    "sweep": f"{TUNE} {TABLES} --model finetune --sweep glue --seeds 1 2 --out sweep",
    "suite": f"{TUNE} --epochs 20 --suite paper --data glue --model finetune --seeds 1 --out suite",
    "study": "study study.toml --corpus store --data glue --out study",
}
UNFINISHED = "pretrain unfinished.toml --corpus store --out pretrain-unfinished"
FINETUNED = {  # what a fine-tuned folder is asked, and judged on
    "finetune": ("rows/dev.csv", "--dev rows/dev.csv"),
    "finetune-static": ("rows/dev.csv", "--dev rows/dev.csv"),
    "finetune-taught": ("rows/dev.csv", "--dev rows/dev.csv"),
    "finetune-tagging": (
        "rows/dev-tags.jsonl --text words",
        "--dev rows/dev-tags.jsonl --kind tagging --text words --label tags",
    ),
    "finetune-span": (
        "rows/dev-questions.jsonl --text question,context",
        "--dev rows/dev-questions.jsonl --kind span --text question,context --label answer",
    ),
    "sweep": ("rows/dev.csv", "--dev rows/dev.csv"),
    "suite/sst2/seed-1": ("glue/SST-2/dev.tsv --text sentence", "--task sst2 --data glue/SST-2"),
    "suite/mrpc/seed-1": ("glue/MRPC/dev.tsv --text '#1 String,#2 String'", "--task mrpc --data glue/MRPC"),
}
PAIRS = {  # runs on the same rows
    "runs": ("finetune", "finetune-taught"),
    "seeds": ("sweep/b32-lr5e-05-e3", "sweep/b32-lr2e-05-e3"),
}
KEPT_COLUMNS = ("variant", "perplexity", "SST-2", "setting", "task", "metric", "n", "best", "mean", "BERT-BASE")
MASKED = "the [MASK] river opens the garden slowly"


def say(line: str) -> tuple[int, str, str]:
    """Exit status, output and messages of a command, said in the working directory."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shlex.split(line))
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
    return status, out.getvalue(), err.getvalue()


def done(line: str) -> str:
    """The output of a command that must succeed."""
    status, out, err = say(line)
    assert status == 0, f"bertworks {line}\n{err}"
    return out


def said(folder: str) -> list[Any]:
    return [json.loads(line) for line in done(f"predict {folder} {FINETUNED[folder][0]}").splitlines()]


def judged(folder: str) -> dict[str, Any]:
    return json.loads(done(f"evaluate {folder} {FINETUNED[folder][1]}"))["metrics"]


def compared(pair: str) -> dict[str, Any]:
    first, second = PAIRS[pair]
    done(f"compare {first} {second} --samples 200 --out compared.json")
    return json.loads(Path("compared.json").read_text(encoding="utf-8"))


def guessed(folder: str) -> list[list[str]]:
    """Probability and piece of each guess."""
    return [line.split()[:2] for line in done(f"fill-mask {folder} '{MASKED}'").splitlines()[1:]]


def record() -> dict[str, Any]:
    """All that the commands say of the kept files."""
    return {
        "predict": {folder: said(folder) for folder in FINETUNED},
        "evaluate": {folder: judged(folder) for folder in FINETUNED},
        "compare": {pair: compared(pair) for pair in PAIRS},
        "fill-mask": {folder: guessed(folder) for folder in ("pretrain", "distill")},
    }


def same(found: Any, expected: Any, where: str = "") -> None:
    """Numbers may differ by 1e-4, all else must be equal; a newer version may add fields to a table."""
    if isinstance(expected, dict):
        assert isinstance(found, dict) and not expected.keys() - found.keys(), where
        for key in expected:
            same(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), where
        for number, pair in enumerate(zip(found, expected, strict=True)):
            same(*pair, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-4), where
    else:
        assert found == expected, where


def contents(folder: str) -> dict[str, bytes]:
    """All files, but pictures and locks."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    kept = (path for path in paths if not path.name.endswith((".png", ".svg", ".lock")))
    return {path.as_posix(): path.read_bytes() for path in kept}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy that the tests share."""
    return shutil.copytree(KEPT, tmp_path_factory.mktemp("older") / "kept")


@pytest.fixture
def kept(copy, monkeypatch) -> Path:
    """The copy as the working directory: the lines have the paths of make.sh."""
    monkeypatch.chdir(copy)
    return copy


def test_no_path_of_a_machine_is_kept():
    for path in KEPT.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".toml", ".jsonl", ".md"):
            assert not re.search(r'["\s=]/\w+/', path.read_text(encoding="utf-8")), path


def test_the_store_opens(kept):
    out = done("corpus show store --documents 1 --instances 1 --length 24")
    tokens = json.loads(Path("store/manifest.json").read_text(encoding="utf-8"))["counts"]["train"]["tokens"]
    assert str(tokens) in out.replace(",", "") and "[CLS]" in out


def test_the_vocabulary_makes_the_same_store(kept):
    """Equal tokens; the manifest may tell more than it did."""
    line = "corpus build text.txt --input.documents blank-line --tokenizer vocab --shard-tokens 2000 --workers 1"
    done(f"{line} --min-validation-documents 8 --out again")
    arrays = sorted(path.name for path in Path("store").glob("*.npy"))
    assert arrays and arrays == sorted(path.name for path in Path("again").glob("*.npy"))
    for name in arrays:
        assert Path("again", name).read_bytes() == Path("store", name).read_bytes()


@pytest.mark.parametrize("folder", FINETUNED)
def test_a_finetuned_folder_says_the_same(kept, expected, folder):
    same(said(folder), expected["predict"][folder])
    same(judged(folder), expected["evaluate"][folder])


@pytest.mark.parametrize("folder", FINETUNED)
def test_the_recorded_score_is_the_runs_own(kept, expected, folder):
    """Of a sweep, the best run's."""
    results = json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))
    if results["kind"] == "sweep":
        results = json.loads(Path(folder, results["best"]["run"], "results.json").read_text(encoding="utf-8"))
    both = expected["evaluate"][folder].keys() & results["metrics"].keys()
    assert both
    same({key: expected["evaluate"][folder][key] for key in both}, {key: results["metrics"][key] for key in both})


@pytest.mark.parametrize("folder", ["pretrain", "distill"])
def test_masks_are_filled_alike(kept, expected, folder):
    found = {piece: float(score) for score, piece in guessed(folder)}
    wanted = {piece: float(score) for score, piece in expected["fill-mask"][folder]}
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize("folder", ["pretrain", "distill", "static", "finetune"])
def test_vectors_are_given(kept, folder):
    done(f"features {folder} rows/dev.csv --text text --layers last --out {folder}.npz")
    assert Path(f"{folder}.npz").stat().st_size > 1000


def figures(page: str) -> list[dict[str, str]]:
    """The rows of a page's first table, by column; without columns that later versions left out or fill otherwise."""
    lines = [line.strip("| ").split(" | ") for line in page[page.index("\n| ") :].strip().splitlines()]
    table = list(itertools.takewhile(lambda cells: len(cells) > 1, lines))
    rows = [dict(zip(table[0], cells, strict=False)) for cells in table[2:]]
    return [{name: cell for name, cell in row.items() if name in KEPT_COLUMNS} for row in rows]


@pytest.mark.parametrize("name", LINES)
def test_a_finished_folder_is_left_alone(kept, name):
    before = contents(name)
    status, _, err = say(LINES[name])
    after = contents(name)
    assert status == 0, err
    assert "train step" not in err
    if name in ("suite", "study"):  # their results tell of the machine that looked at them last
        old, new = (json.loads(found.pop(f"{name}/results.json")) for found in (before, after))
        same({**new, "machine": {}}, {**old, "machine": {}})
    if name in ("study", "suite", "sweep"):  # its page is written again in today's form, with the same figures
        old, new = (figures(found.pop(f"{name}/{name}.md").decode()) for found in (before, after))
        assert old == new
    runs = [path.parent for path in Path(name).rglob("predictions.jsonl")] or [Path(name)]
    assert name == "study" or all(f"{run.as_posix()} is finished" in err for run in runs)
    assert after == before


@pytest.mark.parametrize("pair", PAIRS)
def test_runs_compare_alike(kept, expected, pair):
    same(compared(pair), expected["compare"][pair])


def test_curves_and_the_study_are_drawn(kept):
    done("plot pretrain distill pretrain-unfinished --out curves.png")
    done("plot finetune --out finetune.svg")
    done("plot study --out study-picture.png")
    assert all(Path(name).stat().st_size > 1000 for name in ("curves.png", "finetune.svg", "study-picture.png"))


@pytest.mark.heavy
def test_an_unfinished_run_goes_on_or_is_refused(kept):
    """From its last step, not from the first."""
    log = Path("pretrain-unfinished/log.jsonl")
    before = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    status, _, err = say(UNFINISHED)
    assert status in (0, 1) and "Traceback" not in err
    if status:
        assert "pretrain-unfinished" in err
        return
    after = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert after[: len(before)] == before
    steps = [entry["step"] for entry in after if entry["kind"] == "train"]
    assert steps == sorted(set(steps)) and steps[-1] == 400
    results = json.loads(Path("pretrain-unfinished/results.json").read_text(encoding="utf-8"))
    assert results["steps"] == 400


def test_other_settings_are_refused(kept):
    """The kept recipes are compared, not only the names of folders."""
    status, _, err = say(f"{LINES['finetune']} --optim.lr 1e-3")
    assert status == 1 and "finished run with other settings" in err


if __name__ == "__main__":  # with the code of that commit
    with tempfile.TemporaryDirectory() as place:
        os.chdir(shutil.copytree(KEPT, Path(place) / "kept"))
        EXPECTED.write_text(json.dumps(record(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    sys.exit()
