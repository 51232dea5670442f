"""The pages of the verbs: what a verb does, an example with its output, its flags.

The examples and their outputs are in docs/verbs, the flags come from `--help`. hooks.py adds the pages to the site.
"""

import contextlib
import io
import json
import os
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertworks.cli import GROUPS, main

VERBS = Path(__file__).parents[1] / "verbs"
WIDTH = "77"  # columns of --help
MADE_BY = "The examples use the folder of a finished [`bertworks demo`](../demo.md)."


def pages() -> Iterator[tuple[str, str]]:
    """Return the name and the Markdown of each page."""
    told = tomllib.loads((VERBS / "examples.toml").read_text("utf-8"))["examples"]
    examples = {example["verb"]: example for example in told}
    outputs = json.loads((VERBS / "outputs.json").read_text("utf-8"))
    yield "verbs/index.md", overview()
    for group in GROUPS.values():
        for verb, line in group.items():
            yield page_name(verb), page(verb, line, examples[verb], outputs[verb])


def page_name(verb: str) -> str:
    """Return the name of a verb's page in the site."""
    return f"verbs/{verb.replace(' ', '-')}.md"


def navigation() -> list[dict[str, Any]]:
    """Return the entries of the pages in the navigation, by the groups of `bertworks --help`."""
    groups = [{name.capitalize(): [{verb: page_name(verb)} for verb in verbs]} for name, verbs in GROUPS.items()]
    return [{"All verbs": "verbs/index.md"}, *groups]


def overview() -> str:
    """Return the page that lists the verbs."""
    lines = ["# Verbs", "", "`bertworks VERB ...`; [commands](../commands.md) has what all verbs share.", MADE_BY]
    for name, verbs in GROUPS.items():
        lines += ["", f"## {name.capitalize()}", "", "| verb | what it does |", "|---|---|"]
        lines += [f"| [`{verb}`]({page_name(verb).removeprefix('verbs/')}) | {what} |" for verb, what in verbs.items()]
    return "\n".join([*lines, ""])


def page(verb: str, what: str, example: dict[str, Any], output: list[str]) -> str:
    """Return the page of one verb."""
    lines = [f"# bertworks {verb}", "", what, "", "## Example", ""]
    if verb != "demo":
        lines += [MADE_BY, ""]
    for name, text in example.get("files", {}).items():
        lines += [f"`{name}`:", "", "```text", text.strip("\n"), "```", ""]
    lines += [*(f"    {line}" for line in example["run"]), ""]  # hooks.py wraps blocks of commands
    if "shown" in example:
        lines += ["The end of the output:", ""]
    lines += ["~~~text", *output, "~~~", "", example["note"], ""]
    title = (VERBS.parent / example["more"]).read_text("utf-8").partition("\n")[0].removeprefix("# ")
    lines += [f"More: [{title}](../{example['more']}).", "", "## Flags", "", "~~~text", *flags(verb), "~~~", ""]
    return "\n".join(lines)


def flags(verb: str) -> list[str]:
    """Return the usage and the arguments of a verb, as `--help` has them where the output is no terminal."""
    printed, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([*verb.split(), "--help"])
    finally:
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    usage, *rest = printed.getvalue().split("\n\n")
    lines = [line.rstrip() for line in "\n\n".join(rest).split("\n")]
    first = next(i for i, line in enumerate(lines) if line.startswith(" ---")) - 1
    body = "\n".join(line for line in lines[first:] if not line.startswith(" ---"))
    return [*textwrap.wrap(usage, int(WIDTH)), "", *textwrap.dedent(body).rstrip().split("\n")]
