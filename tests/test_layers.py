"""A package imports only from layers below it, for type annotations too, and no files import each other in a cycle."""

import ast
import functools
import importlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bertworks

ROOT = Path(bertworks.__file__).parent
LAYERS = [
    {"_version", "_lazy", "config", "files", "typed", "encodings", "batch", "tensors"},
    {"reporting", "workers", "tokenizer", "model", "pretrained"},
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
APPS = [("serve", "probing"), ("serve", "export"), ("demo", "probing")]  # the second one is used by the first
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


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_package_imports_only_from_layers_below(name):
    package = package_of(name)
    assert package in LAYER, f"{name}: {package} is not in LAYERS; add it with the packages that it may import"
    for other in ours(name):
        assert other in FILES, f"{name} imports {other}, which does not exist"
        imported = package_of(other)
        allowed = LAYER[imported] < LAYER[package] or LAYER[package] == 0 or imported == package
        assert allowed or (package, imported) in APPS_THAT_USE_ANOTHER, f"{name} imports {other}"


def test_no_files_import_each_other_in_a_cycle():
    list(TopologicalSorter({name: ours(name) for name in FILES}).static_order())


def test_files_at_the_root():
    loose = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert loose <= LAYERS[0] | {"api", "__main__"}, "a module at the root belongs into a package"


def packages_of(names):
    return {package_of(name) for name in names}


def test_data_needs_no_torch_and_no_model_and_a_model_no_data():
    tops = {name: {n.split(".")[0] for one in reachable(name) for n in imports(one, False)} for name in FILES}
    for name in FILES:
        if name.startswith("data.") and name not in ("data.batches", "data.ahead"):
            assert "torch" not in tops[name], f"{name} comes to import torch"
        first = name.split(".")[0]
        if first in ("data", "tokenizer", "config", "files", "batch"):
            assert not packages_of(ours(name)) & {"model", "training"}, name
        if first == "model":
            assert not packages_of(reachable(name)) & {"data", "tokenizer", "training"}, name


def test_the_loop_knows_no_data_task_or_network():
    """Of model it has the keys alone under which dropout masks are drawn."""
    assert not packages_of(ours("training.loop") - {"model.dropout"}) & {"data", "tasks", "model"}


def test_modules_of_one_operating_system_are_imported_where_they_are_used():
    for name, path in FILES.items():
        top = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Import)]
        found = {alias.name for node in top for alias in node.names} & {"fcntl", "resource", "pwd", "grp", "termios"}
        assert not found, f"{name} imports {found} for all systems"


def test_importing_and_help_load_nothing_heavy():
    heavy = (
        "[m for m in ('torch', 'numpy', 'tokenizers', 'transformers', 'pyarrow', 'rich', 'tyro') if m in sys.modules]"
    )
    for code in (
        "import bertworks; dir(bertworks)",
        "from bertworks.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys\n{code}\nprint({heavy})"], capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "[]", done


def test_help_of_every_verb_and_the_lists_load_no_torch():
    """torch alone takes two seconds; matplotlib and transformers one each."""
    code = (
        "import contextlib, io, sys; from bertworks.cli import COMMANDS, main\n"
        "for line in [*(f'{verb} --help' for verb in COMMANDS), 'recipes tasks', 'recipes', '--version']:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):\n"
        "        main(line.split())\n"
        "    assert len(shown.getvalue()) > 5, line\n"
        "    heavy = {'torch', 'matplotlib', 'transformers', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "    assert not heavy, (line, heavy)\n"
        "print('none')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "none\n", done.stderr


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
