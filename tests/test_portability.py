"""No file needs what Windows or a later Python lacks."""

import ast
import tomllib
import warnings
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "bertworks"
FILES = sorted(SOURCE.rglob("*.py"))
POSIX = {"fcntl", "grp", "pwd", "resource", "termios", "posix", "syslog"}  # not on Windows


def imported(node):
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {node.module} if isinstance(node, ast.ImportFrom) and not node.level else set()


def test_modules_that_windows_lacks_are_not_imported_at_the_top():
    """They are imported where they are used, in a try. What is a warning to this Python is an error to a later one."""
    found = {}
    for path in FILES:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(path.read_text(encoding="utf-8"), path)
            compile(tree, path, "exec")
        found[path.name] = set().union(*map(imported, tree.body)) & POSIX
    assert len(found) > 100 and not any(found.values())


def test_the_linter_checks_for_the_oldest_python():
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = project["project"]["requires-python"].removeprefix(">=")
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
