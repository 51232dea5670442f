"""`bertworks recipes`: the recipes that come with bertworks."""

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
        for name in names:
            first = (RECIPES / f"{name}.toml").read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
            print(f"{name:34}{textwrap.shorten(first, 84, placeholder=' ...')}")
        print("\nbertworks recipes NAME prints one. To use one: bertworks pretrain cpu --corpus STORE --out RUN")
        return
    alike = [name for name in names if name.partition("/")[2] == asked] or [asked]
    if len(alike) > 1:
        raise InputError(f"several recipes have the name {asked}: {', '.join(alike)}; give the whole name")
    print(find_recipe(alike[0]).read_text(encoding="utf-8"), end="")
