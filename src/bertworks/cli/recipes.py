"""`bertworks recipes`: the recipes that come with bertworks."""

from ..files import InputError


def recipes(argv: list[str]) -> None:
    """The recipes that come with bertworks: without NAME a list, with NAME that recipe's file."""
    import textwrap

    import tyro

    def run(name: tyro.conf.Positional[str] = "") -> None:
        """List the recipes, or print one. `bertworks pretrain`, `distill` and `study` take the name of one of theirs.

        Args:
            name: KIND/NAME (pretrain/cpu), or NAME alone if only one kind has it
        """
        from ..config import RECIPES, find_recipe, recipe_names

        names = recipe_names()
        if not name:
            for one in names:
                first = (RECIPES / f"{one}.toml").read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
                print(f"{one:34}{textwrap.shorten(first, 84, placeholder=' ...')}")
            print("\nbertworks recipes NAME prints one. Use one: bertworks pretrain cpu --corpus STORE --out RUN")
            return
        alike = [one for one in names if one.partition("/")[2] == name] or [name]
        if len(alike) > 1:
            raise InputError(f"several recipes have the name {name}: {', '.join(alike)}; give the whole name")
        print(find_recipe(alike[0]).read_text(encoding="utf-8"), end="")

    tyro.cli(run, prog="bertworks recipes", args=argv)
