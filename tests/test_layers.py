"""A package imports only from layers below it, for type annotations too, and no files import each other in a cycle."""

import ast
import functools
import importlib
import subprocess
import sys
import warnings
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bertworks
from test_size import code_lines

ROOT = Path(bertworks.__file__).parent
LAYERS = [
    {"_version", "_lazy", "bounds", "config", "files", "typed", "encodings", "batch", "tensors"},
    {"reporting", "workers"},
    {"tokenizer", "model", "pretrained"},
    {"data", "training", "checkpoint"},
    {"tasks"},
    {"pretraining", "finetuning", "inference"},
    {"experiments"},
    {"api"},
    {"apps.serve", "apps.export", "apps.probing", "apps.doctor", "apps.demo", "apps.estimators"},
    {"cli"},
    {"__main__"},
]
LAYER = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
APPS = [("serve", "probing"), ("serve", "export")]  # the second one is used by the first
APPS_THAT_USE_ANOTHER = {(f"apps.{user}", f"apps.{used}") for user, used in APPS}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


HEADS = {ROOT / "__init__.py", ROOT / "apps" / "__init__.py"}
FILES = {name_of(path): path for path in ROOT.rglob("*.py") if path not in HEADS}


@functools.cache
def imports(name, of_types=True):
    """Absolute names of what a file imports, inside functions too; `of_types`: for type annotations too."""
    return tuple(found_imports(name, of_types))


def found_imports(name, of_types):
    package = (
        ["bertworks", *name.split(".")] if FILES[name].name == "__init__.py" else ["bertworks", *name.split(".")[:-1]]
    )
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    if FILES[name].name == "__init__.py" or not of_types:  # there: its public names, imported when they are first used
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                [*package[: len(package) - node.level + 1], *filter(None, [node.module])]
                if node.level
                else [node.module]
            )
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                yield whole if whole.removeprefix("bertworks.") in FILES else ".".join(base)


@functools.cache
def ours(name, of_types=True):
    """The files of the house that a file imports."""
    return {n.removeprefix("bertworks.") for n in imports(name, of_types) if n.startswith("bertworks.")} - {name}


def package_of(name):
    """The package of a file; files at the root are packages of their own."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "apps" else parts[0]


@functools.cache
def reachable(name):
    """The files that importing a file loads."""
    seen, todo = set(), [name]
    while todo:
        if (one := todo.pop()) not in seen:
            seen.add(one)
            todo += ours(one, of_types=False) & FILES.keys()
    return seen


def test_a_package_imports_only_from_layers_below():
    wrong = []
    for name, other in [(one, other) for one in FILES for other in ours(one)]:
        package, imported = package_of(name), package_of(other)
        assert package in LAYER, f"{name}: {package} is not in LAYERS; add it with the packages that it may import"
        below = LAYER[imported] < LAYER[package] or LAYER[imported] == 0 or imported == package
        if other not in FILES or not (below or (package, imported) in APPS_THAT_USE_ANOTHER):
            wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_no_files_import_each_other_in_a_cycle():
    list(TopologicalSorter({name: ours(name) for name in FILES}).static_order())


POSIX = {"fcntl", "grp", "pwd", "resource", "termios", "posix", "syslog"}  # modules that Windows lacks


def test_files_run_on_windows_and_without_warnings():
    """Modules of one system are imported where they are used. A warning of this Python is an error of a later one."""
    for name, path in FILES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(path.read_text(encoding="utf-8"), path)
            compile(tree, path, "exec")
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {alias.name for node in top for alias in node.names} | {getattr(node, "module", None) for node in top}
        assert not modules & POSIX, name


def packages_of(names):
    return {package_of(name) for name in names}


def test_data_needs_no_torch_and_no_model_and_a_model_no_data():
    tops = {name: {n.split(".")[0] for one in reachable(name) for n in imports(one, False)} for name in FILES}
    for name in FILES:
        if name.startswith("data.") and name not in ("data.batches", "data.prefetch", "data.show"):
            assert "torch" not in tops[name], f"{name} comes to import torch"
        first = name.split(".")[0]
        if first in ("data", "tokenizer", "config", "files", "batch"):
            assert not packages_of(ours(name)) & {"model", "training"}, name
        if first == "model":
            assert not packages_of(reachable(name)) & {"data", "tokenizer", "training"}, name


def test_the_loop_knows_no_data_task_or_network():
    """Of model it has the keys alone under which dropout masks are drawn."""
    assert not packages_of(ours("training.loop") - {"model.dropout"}) & {"data", "tasks", "model"}


READING_FILES, READING_LINES = 30, 2_763  # a change that lowers a number lowers it here; raising it needs a reason


def test_the_reading_core_only_shrinks():
    """What importing the pre-training run loads: the files that somebody reads to understand training."""
    code = "import sys, bertworks.pretraining.run\nfor name, module in sys.modules.items():\n"
    code += "    if name.split('.')[0] == 'bertworks': print(module.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = [Path(line) for line in done.stdout.splitlines()]
    others = {"api", "apps", "checkpoint", "cli", "experiments", "finetuning", "inference", "tasks", "tokenizer"}
    assert not others & {path.relative_to(ROOT).with_suffix("").parts[0] for path in files}
    lines = [*filter(None, map(code_lines, files))]  # a package whose file is a docstring has no code to read
    assert len(lines) <= READING_FILES and sum(lines) <= READING_LINES


def test_importing_and_help_load_nothing_heavy():
    """torch alone takes two seconds; matplotlib and transformers one each."""
    code = """
import contextlib, io, sys
def check(what, *more):
    heavy = {'torch', 'matplotlib', 'transformers', 'scipy', 'sklearn', *more} & set(sys.modules)
    assert not heavy, (what, heavy)
import bertworks; dir(bertworks)
from bertworks.cli import COMMANDS, main
for line in ['--help', *(f'{verb} --help' for verb in COMMANDS), 'recipes tasks', 'recipes', '--version']:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        main(line.split())
    assert len(shown.getvalue()) > 5, line
    check(line, *(['numpy', 'tokenizers', 'pyarrow', 'rich', 'tyro'] if line == '--help' else []))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PACKAGES = {package for layer in LAYERS for package in layer if (ROOT / package.replace(".", "/")).is_dir()}
LAZY = sorted(n for n, path in FILES.items() if path.name == "__init__.py" and "lazy_names" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", LAZY)
def test_a_package_has_the_names_that_it_lists(name):
    package = importlib.import_module(f"bertworks.{name}")
    assert package.__all__
    for public in package.__all__:
        assert getattr(package, public) is not None and public in dir(package)
    assert not hasattr(package, "no_such_name")


@pytest.mark.parametrize("name", ["", *sorted(PACKAGES)])
def test_no_public_name_of_a_package_is_a_name_of_its_files(name):
    """Importing the file would replace the function by the module: `from bertworks.apps.export import export`."""
    package, folder = importlib.import_module(f"bertworks.{name}".rstrip(".")), ROOT / name.replace(".", "/")
    files = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert not files & set(getattr(package, "__all__", ()))
