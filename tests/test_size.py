"""Lines of code of each package: its budget, and a table.

    python tests/test_size.py [COMMIT]

prints the lines of code of each package, and all lines of the tests, the benchmarks and the documentation; with COMMIT,
those of that commit before them. A line of code is neither blank nor a comment nor part of a docstring.
"""

import ast
import functools
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUDGET = {  # of checkpoint with pretrained, of reporting with workers
    "root and api": 698,
    "tokenizer": 1_244,
    "data": 2_298,
    "model": 1_996,
    "training": 1_559,
    "checkpoint": 2_150,
    "tasks": 3_046,
    "pretraining": 652,
    "finetuning": 617,
    "inference": 1_495,
    "experiments": 1_998,
    "reporting": 950,
    "cli": 1_123,
    "serve": 1_730,
    "probing": 1_114,
    "doctor": 862,
    "demo": 719,
    "export": 627,
    "estimators": 145,
    "tests": 30_000,
    "benchmarks": 6_000,
    "documentation": 8_716,
}
FOLDERS = ("tests", "benchmarks", "documentation")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(path: Path) -> int:
    """Lines of a Python file that are neither blank nor comments nor docstrings."""
    text = path.read_text(encoding="utf-8")
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            lines -= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    return len(lines)


def all_lines(path: Path) -> int:
    """Lines of a text file."""
    return path.read_text(encoding="utf-8").count("\n")


def package_of(path: Path, source: Path) -> str:
    """The package in BUDGET that a source file counts for."""
    parts = path.relative_to(source).parts
    if len(parts) == 1:
        return "root and api"
    name = parts[1] if parts[0] == "apps" and len(parts) > 2 else parts[0]
    return {"pretrained": "checkpoint", "workers": "reporting", "apps": "root and api"}.get(name, name)


def sizes(root: Path) -> dict[str, int]:
    """Lines of code of each package; all lines of tests, benchmarks and documentation."""
    found = dict.fromkeys([*BUDGET][: -len(FOLDERS)], 0)
    source = root / "src" / "bertworks"
    for path in sorted(source.rglob("*.py")):
        package = package_of(path, source)
        found[package] = found.get(package, 0) + code_lines(path)
    found["sum of packages"] = sum(found.values())
    for name in FOLDERS[:2]:
        found[name] = sum(map(all_lines, (root / name).rglob("*.py")))
    found["documentation"] = sum(map(all_lines, [*root.glob("*.md"), *(root / "docs").rglob("*.md")]))
    return found


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_keeps_its_budget(package):
    """A commit that raises a number gives the reason."""
    assert sizes_here()[package] <= BUDGET[package]


@functools.cache
def sizes_here():
    return sizes(ROOT)


def test_every_package_has_a_budget():
    assert sizes_here().keys() - {"sum of packages"} == BUDGET.keys()


def main(commit: str | None) -> None:
    """Print the table."""
    before = {}
    if commit:
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
            before = sizes(Path(folder))
    for package, lines in sizes(ROOT).items():
        print(f"{package:20}{before.get(package, ''):>8}{lines:>8}{BUDGET.get(package, ''):>8}")


if __name__ == "__main__":
    main(*sys.argv[1:2] or [None])
