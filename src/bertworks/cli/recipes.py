"""`bertworks recipes` and `recipes tasks`: the recipes that come with bertworks, and the tasks of fine-tuning."""

import itertools
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from ..config import RECIPES, find_recipe, recipe_names
from ..files import InputError
from .arguments import Positional, parse


@dataclass(frozen=True)
class Arguments:
    """List the recipes that come with bertworks, or print one.

    Example:
        bertworks recipes
        bertworks recipes pretrain/cpu > my.toml

    Commands accept the name of a recipe or the path of your own file.
    """

    name: Positional[str] = ""  # recipe to print: KIND/NAME (pretrain/cpu), or NAME if only one kind has it


def recipes(argv: list[str]) -> None:
    """Print the list, or the recipe."""
    name, names = parse(Arguments, argv, "recipes").name, recipe_names()
    if not name:
        print("\n".join(listed(names)))
        return
    matches = [one for one in names if one.partition("/")[2] == name] or [name]
    if len(matches) > 1:
        raise InputError(f"several recipes have the name {name}: {', '.join(matches)}; give the whole name")
    print(find_recipe(matches[0]).read_text(encoding="utf-8"), end="")


def listed(names: list[str]) -> list[str]:
    """Return the lines of the list, at most 80 columns wide: each recipe with the first sentence of its comment."""
    lines, width = [], max(map(len, names)) + 2
    for name in names:
        about = first_sentence((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
        lines += textwrap.wrap(f"{name:<{width}}{about}", 80, subsequent_indent=" " * width, break_on_hyphens=False)
    use = ["`bertworks recipes NAME` prints a recipe. To use one:", "  bertworks pretrain cpu --corpus STORE --out RUN"]
    return [*lines, "", *use]


def first_sentence(recipe: str) -> str:
    """Return the first sentence of the comment that a recipe begins with."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), recipe.splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in comment)
    for end in re.finditer(r"[.?:;](?<!et al\.)(?= |$)", text):
        if text.count("(", 0, end.start()) == text.count(")", 0, end.start()):
            return text[: end.end()].rstrip(".:;")
    return text


@dataclass(frozen=True)
class TasksArguments:
    """List the built-in tasks of fine-tuning, with metrics, files and defaults.

    The first metric selects the best run.

    Files after the bar | are also evaluated if they exist.
    """


def tasks(argv: list[str]) -> None:
    """Print the table of tasks."""
    parse(TasksArguments, argv, "recipes tasks")
    from ..tasks.catalogue import TASKS

    for task in TASKS.values():
        names = (file.partition("#")[0] for file in (task.train, task.dev) if file)
        files = " ".join(dict.fromkeys(names)) or f"no training file; {task.test}"
        more = " ".join(task.more.values())
        print(f"{task.name:<18}{task.kind:<12}{', '.join(task.metrics)}")
        for line in filter(None, (f"{files} | {more}" if more else files, _listed(task.defaults))):
            print(textwrap.indent(textwrap.fill(line, 64, break_on_hyphens=False), " " * 16))


def _listed(defaults: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in defaults.items())
