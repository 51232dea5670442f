"""From what a user calls a model to its folder: a path, a bundled encoder, or a repository of the Hugging Face Hub."""

import re
from pathlib import Path

from ..files import InputError
from .hub import download

HERE = Path(__file__).parent
BUNDLED = ("mini", "mini-ko")
REPOSITORY = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>\w[\w.-]*(?:/\w[\w.-]*)*))?")
SNAPSHOT = re.compile(r"models--(?P<organization>.+?)--(?P<name>.+)/snapshots/(?P<commit>[0-9a-f]{40})")


def folder_of(name: str | Path) -> Path:
    """The folder of a model. An existing path comes first, then a bundled encoder, then a repository of the Hub.

    `org/name` is a path where a folder `org` exists, so that a mistyped path is not looked up on the Hub. What does not
    have the form of a name is returned as a path, whether it exists or not.
    Raises InputError if this installation lacks a bundled encoder, if the Hub has no such repository or revision, or if
    it cannot be reached and nothing is cached.
    """
    path = Path(name)
    if path.exists():
        return path
    if (folder := bundled(str(name))) is not None:
        return folder
    if str(name) in BUNDLED:
        here = ", ".join(filter(bundled, BUNDLED)) or "none"
        what = f"no bundled encoder of this name in this installation, which has {here}"
        raise InputError(f"{name}: {what}; give the path of a folder, or org/name of the Hugging Face Hub")
    match = REPOSITORY.fullmatch(str(name))
    if match is None or path.parent.exists():
        return path
    return download(match["name"], match["revision"])


def bundled(name: str) -> Path | None:
    """The folder of a bundled encoder; None if this installation has none of that name."""
    folder = HERE / name
    return folder if name in BUNDLED and folder.is_dir() else None


def name_of(folder: Path) -> str | None:
    """The name of a folder that `folder_of` returned: `mini`, or `org/name@commit`; None of any other folder."""
    if folder.parent == HERE:
        return folder.name
    match = SNAPSHOT.search(folder.as_posix())
    return f"{match['organization']}/{match['name']}@{match['commit']}" if match else None
