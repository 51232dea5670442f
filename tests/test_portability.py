"""What can be said on one machine of other Pythons and systems: no module is used that they lack."""

import ast
import sys
import warnings
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "bertworks"
FILES = sorted(SOURCE.rglob("*.py"))
# Removed from the standard library in 3.12 (PEP 632 and others), 3.13 (PEP 594); 3.14 removed no module.
REMOVED = {"asynchat", "asyncore", "distutils", "imp", "smtpd", "aifc", "audioop", "cgi", "cgitb", "chunk", "crypt"}
REMOVED |= {"imghdr", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau"}
REMOVED |= {"telnetlib", "uu", "xdrlib", "lib2to3"}
# Attributes removed in 3.12 to 3.14: (module, name).
GONE = {("ast", name) for name in ("Num", "Str", "Bytes", "NameConstant", "Ellipsis")}
GONE |= {("pkgutil", "find_loader"), ("pkgutil", "get_loader"), ("locale", "resetlocale"), ("typing", "io")}
GONE |= {
    ("configparser", "SafeConfigParser"),
    ("unittest", "makeSuite"),
    ("logging", "warn"),
    ("tarfile", "ExFileObject"),
}
POSIX = {"fcntl", "grp", "pwd", "resource", "termios", "posix", "syslog"}  # not on Windows


def top(name):
    return name.partition(".")[0]


def imported(node):
    if isinstance(node, ast.Import):
        return {top(alias.name) for alias in node.names}
    return {top(node.module)} if isinstance(node, ast.ImportFrom) and node.module and not node.level else set()


def missing_elsewhere(path):
    """What a file uses that a later Python or Windows lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is a warning to this Python is an error to a later one
        tree = compile(path.read_text(encoding="utf-8"), path, "exec", ast.PyCF_ONLY_AST)
        compile(tree, path, "exec")
    nodes = list(ast.walk(tree))
    used = {(n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    everywhere = {name for node in nodes for name in imported(node)}
    at_the_top = {name for node in tree.body for name in imported(node)}  # import these where they are used, in a try
    return everywhere & REMOVED | at_the_top & POSIX | {".".join(pair) for pair in used & GONE}


def test_no_file_uses_what_later_pythons_or_windows_lack():
    assert {path.name: found for path in FILES if (found := missing_elsewhere(path))} == {}


def test_the_check_finds_what_it_looks_for(tmp_path):
    path = tmp_path / "old.py"
    path.write_text("import fcntl, os\nfrom distutils import util\nast.Num\ndef f():\n    import resource\n")
    assert missing_elsewhere(path) == {"fcntl", "distutils", "ast.Num"}


def test_the_package_names_the_python_that_runs_its_tests():
    import tomllib

    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = tuple(map(int, project["project"]["requires-python"].removeprefix(">=").split(".")))
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest[0]}{oldest[1]}" and sys.version_info[:2] >= oldest
