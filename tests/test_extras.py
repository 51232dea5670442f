"""The core without extras: what it imports is required, and its tests pass where nothing else is installed."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

import bertworks
from support.without_extras import dependencies, modules_of

ROOT, TESTS = Path(bertworks.__file__).parent, Path(__file__).parent
CORE_TESTS = (
    *("pretraining/test_pretrain.py::test_the_run_folder", "inference/test_features.py::test_arrays_in_files"),
    "pretraining/test_pretrain.py::test_albert_from_raw_text_by_its_own_means",
    "finetuning/test_teacher.py::test_the_teacher_is_met_by_the_names_of_its_labels",
)
PLUGINS = ("no:cacheprovider", "no:xdist", "no:anyio", "support.without_extras")


def imported_at_once(tree):
    """The top-level modules that a file imports outside functions and type annotations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]
        elif not isinstance(node, ast.FunctionDef) and not (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            yield from imported_at_once(node)


def test_what_is_imported_at_once_is_required():
    known = modules_of({canonicalize_name(name) for name in dependencies()}) | sys.stdlib_module_names | {"bertworks"}
    core = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "apps"]
    found = {path: {*imported_at_once(ast.parse(path.read_text("utf-8")))} for path in core}
    assert {str(path.relative_to(ROOT)): names - known for path, names in found.items() if names - known} == {}


@pytest.mark.heavy
def test_the_core_passes_its_tests_without_extras():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", *(f"-p{name}" for name in PLUGINS), *CORE_TESTS]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
