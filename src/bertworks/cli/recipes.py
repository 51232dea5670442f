"""`bertworks recipes`: the recipes that come with bertworks."""

import itertools
import re
import textwrap
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

    The verbs take such a name, or the path of your own file.
    """

    name: Positional[str] = ""  # recipe to print: KIND/NAME (pretrain/cpu), or NAME if only one kind has it


def recipes(argv: list[str]) -> None:
    """Print the list, or the recipe."""
    asked = parse(Arguments, argv, "recipes").name
    names = recipe_names()
    if not asked:
        print("\n".join(listed(names)))
        return
    alike = [name for name in names if name.partition("/")[2] == asked] or [asked]
    if len(alike) > 1:
        raise InputError(f"several recipes have the name {asked}: {', '.join(alike)}; give the whole name")
    print(find_recipe(alike[0]).read_text(encoding="utf-8"), end="")


def listed(names: list[str]) -> list[str]:
    """Return the lines of the list, at most 80 columns wide: each recipe with the first sentence of its comment."""
    lines, width = [], max(map(len, names)) + 2
    for name in names:
        about = first_sentence((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
        lines += textwrap.wrap(f"{name:<{width}}{about}", 80, subsequent_indent=" " * width, break_on_hyphens=False)
    use = ["`bertworks recipes NAME` prints a recipe. To use one:", "  bertworks pretrain cpu --corpus STORE --out RUN"]
    return [*lines, "", *use]


def studies() -> str:
    """Return the lines of `study --help` that list the studies, each in one line of at most 80 columns."""
    names = sorted(recipe_names("study"), key=lambda name: ("/" in name, name))
    width = max(map(len, names)) + 2
    lines = ["", "", "Studies (`bertworks recipes study/NAME` prints one):"]
    for name in names:
        about = first_sentence((RECIPES / "study" / f"{name}.toml").read_text(encoding="utf-8"))
        lines.append(f"    {name:<{width}}" + textwrap.shorten(about, 76 - width, placeholder=" ..."))
    return "\n".join(lines)


def first_sentence(recipe: str) -> str:
    """Return the first sentence of the comment that a recipe begins with."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), recipe.splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in comment)
    for end in re.finditer(r"[.?:;](?<!et al\.)(?= |$)", text):
        if text.count("(", 0, end.start()) == text.count(")", 0, end.start()):
            return text[: end.end()].rstrip(".:;")
    return text
