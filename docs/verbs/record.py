"""Run the examples of every verb and record what they print: `python docs/verbs/record.py FOLDER [VERB ...]`.

FOLDER has a finished demo in runs/demo, and the other inputs of the examples (data, docs). If verbs are named, only
they are run. outputs.json is written after each verb.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs.json"
COLUMNS = "80"


def main() -> None:
    """Run the examples that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("verbs", nargs="*")
    given = parser.parse_args()
    outputs = json.loads(OUTPUTS.read_text(encoding="utf-8")) if OUTPUTS.exists() else {}
    for example in tomllib.loads((HERE / "examples.toml").read_text(encoding="utf-8"))["examples"]:
        if given.verbs and example["verb"] not in given.verbs:
            continue
        outputs[example["verb"]] = recorded(example, given.folder)
        OUTPUTS.write_text(json.dumps(outputs, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def recorded(example: dict[str, Any], folder: Path) -> list[str]:
    """Return the lines that the commands of an example print in a folder, as a terminal without colours has them."""
    for target in (word for line in example["run"] for word in re.findall(r"--out (\S+)", line)):
        path = folder / target  # of an earlier recording
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for name, text in example.get("files", {}).items():
        (folder / name).write_text(text.lstrip("\n"), encoding="utf-8")
    with tempfile.TemporaryDirectory() as commands:  # of this checkout, whatever is installed
        command = Path(commands, "bertworks")
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bertworks "$@"\n', encoding="utf-8")
        command.chmod(0o755)
        path = os.pathsep.join((commands, os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-c", "\n".join(["set -e", *example["run"]])],
            cwd=folder,
            env=os.environ | {"COLUMNS": COLUMNS, "NO_COLOR": "1", "TERM": "dumb", "PATH": path},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=900,
        )
    lines = [line.split("\r")[-1].rstrip() for line in done.stdout.strip("\n").split("\n")]
    print(f"{example['verb']}: status {done.returncode}, {len(lines)} lines", flush=True)
    if done.returncode != example.get("status", 0):
        sys.exit("\n".join(lines))
    return lines[-example["shown"] :] if "shown" in example else lines


if __name__ == "__main__":
    main()
