"""What importing the pre-training run loads: the files that somebody reads to understand training, and nothing else."""

import subprocess
import sys
from pathlib import Path

import bertworks
from test_size import code_lines

ROOT = Path(bertworks.__file__).parent
# Limits: a change that lowers a number lowers it here, down to 24 files and 2,900 lines of code; none raises it
FILES, LINES = 64, 5_500
NOT_LOADED = {"api", "apps", "checkpoint", "cli", "experiments", "finetuning", "inference", "tasks", "tokenizer"}
LOADED = """
import sys, bertworks.pretraining.run
print(*(module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "bertworks"), sep="\\n")
"""


def test_the_reading_core_only_shrinks():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    files = sorted(map(Path, done.stdout.splitlines()))
    sizes = {path.relative_to(ROOT).as_posix(): code_lines(path) for path in files}
    print(*(f"{size:5} {name}" for name, size in sizes.items()), f"{sum(sizes.values())} in {len(sizes)}", sep="\n")
    assert not NOT_LOADED & {name.split("/")[0].removesuffix(".py") for name in sizes}
    assert len(sizes) <= FILES and sum(sizes.values()) <= LINES
