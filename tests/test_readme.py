"""README's own lines, typed in an empty folder with bertworks installed from a wheel: what a newcomer does first."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs_files import TINY, shortened, write_data

ROOT = Path(__file__).parents[1]
SHORTER = {  # what is appended to a line of README, by its beginning, so that the whole test takes seconds
    "bertworks pretrain": f"{TINY} --loop.tokens 2000 --loop.eval-every 1000 --eval-batches 1",
    "bertworks finetune": "--epochs 1 --max-seq-length 16",
}


def block(beginning: str) -> str:
    """README's indented block that begins so, without the indent."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", (ROOT / "README.md").read_text("utf-8"), re.M)
    bare = [re.sub("^ {4}", "", one, flags=re.M).strip() for one in blocks]
    [found] = [one for one in bare if one.startswith(beginning)]
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of the contents of a wheel that pip builds from the files that a checkout has."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "source/src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir"]
    subprocess.run([*pip, "install", *alone, "--target", "site", "./source"], cwd=folder, check=True)
    return folder / "site"


@pytest.mark.heavy
def test_readmes_lines_run_from_a_wheel_in_an_empty_folder(installed, tmp_path):
    write_data(tmp_path)
    asked = [*block("bertworks study").splitlines(), *block("bertworks tokenizer").splitlines()]
    assert len(asked) > 5 and all(any(line.startswith(begun) for line in asked) for begun in SHORTER)
    more = [next((more for begun, more in SHORTER.items() if line.startswith(begun)), "") for line in asked]
    bare = [re.sub(r"\s+#\s.*$", "", line) for line in asked]
    lines = [f"main({shlex.split(line)[1:]})" for line in map(shortened, bare, more)]
    code = "\n".join(["from bertworks.cli import main", *lines, block("import bertworks"), "print('done')"])
    environment = os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "120"}
    command = shutil.which("bertworks", path=installed / "bin")
    where = subprocess.run([command, "recipes", "pretrain/cpu"], cwd=tmp_path, env=environment, capture_output=True)
    assert b"hidden_size = 256" in where.stdout, where.stderr
    settings = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-c", code], **settings)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stderr[-2000:]
    made = ("runs/first/curves.png", "runs/reviews/results.json", "runs/mine/model")
    for name in made:
        assert (tmp_path / name).exists(), name
