"""The pages of the commands: what a command does, an example with its output, its flags.

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

from bertworks.cli import COMMANDS, GROUPS, main

VERBS = Path(__file__).parents[1] / "verbs"
WIDTH = "77"  # columns of --help
MADE_BY = "The examples use the folder of a finished [`bertworks demo`](../demo.md)."


def pages() -> Iterator[tuple[str, str]]:
    """Return the name and the Markdown of each page."""
    told = tomllib.loads((VERBS / "examples.toml").read_text("utf-8"))["examples"]
    examples = {example["verb"]: example for example in told}
    outputs = json.loads((VERBS / "outputs.json").read_text("utf-8"))
    yield "verbs/index.md", overview()
    for verb, line in COMMANDS.items():
        yield page_name(verb), page(verb, line, examples.get(verb), outputs.get(verb, []))


def page_name(verb: str) -> str:
    """Return the name of a verb's page in the site."""
    return f"verbs/{verb.replace(' ', '-')}.md"


def navigation() -> list[dict[str, Any]]:
    """Return the entries of the pages in the navigation, by the groups of `bertworks --help`."""
    groups = [{name.capitalize(): [{verb: page_name(verb)} for verb in commands_of(name)]} for name in GROUPS]
    return [{"All commands": "verbs/index.md"}, *groups]


def commands_of(group: str) -> dict[str, str]:
    """Return the commands of a group of `bertworks --help`, with their lines of help."""
    return {verb: line for verb, line in COMMANDS.items() if verb.split()[0] in GROUPS[group]}


def overview() -> str:
    """Return the page that lists the verbs."""
    lines = ["# Commands", "", "[Command line](../commands.md) describes what all commands share.", MADE_BY]
    for name in GROUPS:
        lines += ["", f"## {name.capitalize()}", "", "| command | what it does |", "|---|---|"]
        lines += [
            f"| [`{verb}`]({page_name(verb).removeprefix('verbs/')}) | {what} |"
            for verb, what in commands_of(name).items()
        ]
    return "\n".join([*lines, ""])


def page(verb: str, what: str, example: dict[str, Any] | None, output: list[str]) -> str:
    """Return the page of one verb."""
    shown = example_of(verb, example, output) if example else []
    return "\n".join([f"# bertworks {verb}", "", what, "", *shown, "## Flags", "", "~~~text", *flags(verb), "~~~", ""])


def example_of(verb: str, example: dict[str, Any], output: list[str]) -> list[str]:
    """Return the lines of an example with its output."""
    lines = ["## Example", "", *([] if verb == "demo" else [MADE_BY, ""])]
    for name, text in example.get("files", {}).items():
        lines += [f"`{name}`:", "", "```text", text.strip("\n"), "```", ""]
    lines += [*(f"    {line}" for line in example["run"]), ""]  # hooks.py wraps blocks of commands
    if "shown" in example:
        lines += ["The end of the output:", ""]
    lines += ["~~~text", *output, "~~~", "", example["note"], ""]
    title = (VERBS.parent / example["more"]).read_text("utf-8").partition("\n")[0].removeprefix("# ")
    return [*lines, f"More: [{title}](../{example['more']}).", ""]


def flags(verb: str) -> list[str]:
    """Return the usage and the arguments of a command, as -H or `--help` explains them where there is no terminal."""
    printed, columns = io.StringIO(), os.environ.get("COLUMNS")
    compact = verb in ("pretrain", "distill", "finetune", "study sweep")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([*verb.split(), "-H" if compact else "--help"])
    finally:
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    usage, *rest = printed.getvalue().split("\n\n")
    lines = [line.rstrip() for line in "\n\n".join(rest).split("\n")]
    first = next(i for i, line in enumerate(lines) if line.startswith(" ---")) - 1
    body = "\n".join(line for line in lines[first:] if not line.startswith(" ---"))
    return [*textwrap.wrap(usage, int(WIDTH)), "", *textwrap.dedent(body).rstrip().split("\n")]
