"""A pytest plugin, `-p support.without_extras`: only what bertworks and the test tools require can be imported.

It stands for an environment in which bertworks is installed without its extras.
"""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
TOOLS = ("pytest", "hypothesis")


def dependencies() -> list[str]:
    """The names of the distributions that bertworks requires without extras."""
    return [Requirement(text).name for text in tomllib.loads(PROJECT.read_text())["project"]["dependencies"]]


def modules_of(distributions: set[str]) -> set[str]:
    """The top-level modules of these distributions, by their canonical names."""
    owners = importlib.metadata.packages_distributions()
    return {module for module, names in owners.items() if distributions & {canonicalize_name(name) for name in names}}


def with_their_own(names: list[str]) -> set[str]:
    """The distributions and all that they require in turn."""
    needed: set[str] = set()
    while names:
        name = canonicalize_name(names.pop())
        if name in needed:
            continue
        needed.add(name)
        try:
            requirements = map(Requirement, importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:  # of another system
            continue
        names += [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return needed


class Filtered:
    """A finder of modules that does not find the blocked ones."""

    def __init__(self, finder, blocked):
        self.finder, self.blocked = finder, blocked

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.blocked else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def pytest_configure():
    installed = {canonicalize_name(one.name) for one in importlib.metadata.distributions()}
    needed = with_their_own([*dependencies(), *TOOLS])
    blocked = modules_of(installed - needed) - modules_of(needed) - {"bertworks"}
    sys.meta_path[:] = [Filtered(finder, blocked) for finder in sys.meta_path]
