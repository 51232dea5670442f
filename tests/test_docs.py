"""The commands in README and docs parse against the flags of their verbs; nothing is run."""

import functools
import inspect
import re
import shlex
from pathlib import Path

import pytest
import tyro

from bertworks.cli import VERBS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TORCHRUN = {"--nproc-per-node"}
NAMES = {"pretrain NAME": "pretrain cpu", "distill NAME": "distill cpu", "--task NAME": "--task mrpc", " N": " 2"}


class Parsed(Exception):
    """Raised in place of the work of a verb, once its arguments are parsed."""


def commands(page):
    """The lines of code blocks that begin with `bertworks`, without comments, with one of each choice."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^    (bertworks .*)$", text, re.MULTILINE):
        line = re.sub(r"\s#(?![\w]).*$", "", line)
        line = re.sub(r"\[([^\]]*)\]", r"\1", line) if "MASK" not in line else line
        line = re.sub(r"\s*\|\s*[^\s]+", "", line).replace("...", " ")
        for name, one in NAMES.items():
            line = re.sub(rf"{re.escape(name)}(?=\s|$)", one, line)
        yield line.strip()


def pages_with_commands():
    return [page for page in PAGES if any(commands(page))]


def idle(run):
    """A function of the same arguments that does not run."""

    @functools.wraps(run)
    def nothing(*arguments, **named):
        raise Parsed

    return nothing


@pytest.mark.parametrize("page", pages_with_commands(), ids=lambda page: page.name)
def test_the_commands_of_a_page_parse(page, monkeypatch, capsys, tmp_path):
    parse = tyro.cli

    def parse_alone(verb, **named):  # tyro calls a function itself, of a dataclass it makes an instance
        parse(idle(verb) if inspect.isfunction(verb) else verb, **named)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", parse_alone)
    monkeypatch.chdir(tmp_path)
    for line in commands(page):
        try:
            main(shlex.split(line)[1:])
        except Parsed:
            continue
        except SystemExit as ending:
            told = capsys.readouterr()
            assert not ending.code, f"{line}\n{told.out}{told.err}"
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def flags():
    """Every flag that the help of a verb names, or a script in benchmarks/ has."""
    import contextlib
    import io

    told = io.StringIO()
    for verb in VERBS:
        with contextlib.redirect_stdout(told), pytest.raises(SystemExit):
            main([*verb.split(), "--help"])
    return set(re.findall(r"--[a-z][a-z0-9.-]*[a-z0-9]", told.getvalue())) | TORCHRUN | flags_of_benchmarks()


def flags_of_benchmarks():
    """The flags that the scripts in benchmarks/ add."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    return {flag for source in sources for flag in re.findall(r'add_argument\(\s*"(--[a-z-]+)"', source)}


def test_every_flag_that_a_page_names_is_a_flag(flags):
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]", page.read_text(encoding="utf-8")))
        assert named - flags == set(), page.name


def test_a_flag_that_does_not_exist_is_found(tmp_path, flags):
    page = tmp_path / "page.md"
    page.write_text("Try:\n\n    bertworks corpus build texts/ --tokens tok [--workers N]  # a comment\n")
    assert [*commands(page)] == ["bertworks corpus build texts/ --tokens tok --workers 2"]
    assert "--tokens" not in flags and "--workers" in flags
