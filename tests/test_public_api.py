"""The public interface does not change unannounced: it is compared with public_api.txt, which is changed on purpose.

Public are the names that `bertworks` exports, with their signatures, public methods and fields, the verbs with their
flags, and the recipes. After a change that users must know: `python tests/test_public_api.py` writes the file anew,
and CHANGELOG.md names the change.
"""

import contextlib
import dataclasses
import inspect
import io
import re
from pathlib import Path

import bertworks
from bertworks.cli import COMMANDS, main
from bertworks.config import recipe_names

FILE = Path(__file__).with_name("public_api.txt")


def signature(thing) -> str:
    """Names, order and defaults of the parameters; annotations may be written differently without being different."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return "()"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters if p.name != "self"]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(bare)))


def describe(name: str, thing) -> list[str]:
    """A name of the package and, of a class of ours, its fields and public methods."""
    if not inspect.isclass(thing):
        return [f"{name}{signature(thing)}"]
    lines = [f"class {name}{signature(thing)}"]
    fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    for member, value in sorted(vars(thing).items()):
        if member.startswith("_") or member in fields:
            continue
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        lines.append(f"    {name}.{member}{signature(plain) if callable(plain) else ''}")
    return lines


def flags(verb: str) -> list[str]:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*verb.split(), "--help"])
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]", told.getvalue())))


def public_api() -> str:
    lines = ["# names of the package"]
    for name in sorted(bertworks.__all__):
        lines += describe(name, getattr(bertworks, name))
    lines += ["", "# verbs and their flags", *(f"{verb} {flag}" for verb in sorted(COMMANDS) for flag in flags(verb))]
    lines += ["", "# recipes", *recipe_names()]
    return "\n".join(lines) + "\n"


def test_the_public_api_changes_only_on_purpose():
    now, recorded = public_api().splitlines(), FILE.read_text("utf-8").splitlines()
    gone, new = ([line for line in a if line not in b] for a, b in ((recorded, now), (now, recorded)))
    assert (gone, new) == ([], []), "run `python tests/test_public_api.py` and name the change in CHANGELOG.md"


if __name__ == "__main__":
    FILE.write_text(public_api(), "utf-8")
