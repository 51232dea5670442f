"""How a subcommand reads its arguments, and the arguments that several subcommands share.

A subcommand declares its arguments as a dataclass, whose comments are the texts of `--help`; tyro fills it. `--model`
is always a model folder or a run folder, `--out` where results are written, `--data` the examples or texts to read. A
positional argument may also be given as the flag of its name.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import tyro
from tyro.conf import Positional as Positional

from ..config import find_recipe, load_recipe
from ..files import InputError
from ..tasks.selection import DevRows as DevRows
from ..tasks.selection import DividedRows as DividedRows
from ..tasks.selection import TrainRows as TrainRows
from ..tasks.selection import comma_separated as comma_separated
from ..tasks.selection import refuse_beside as refuse_beside
from ..training.config import without_budget

T = TypeVar("T")
Flat = Annotated[T, tyro.conf.arg(name="")]  # the dataclass's fields are flags without the name of the field in front
POSITIONAL = get_args(Positional[str])[1]  # the marker of a positional argument
CONFIG = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)

CASED = {"--cased": "--no-lowercase", "--uncased": "--lowercase"}
ENCODING = {"--encoding": "--input.encoding"}


def required(name: str) -> Any:
    """How --help shows a positional argument of one or more values."""
    return tyro.conf.arg(metavar=f"{name} ...", help_behavior_hint="(required)")


Texts = Annotated[tuple[str, ...], Positional, required("DATA")]
"""Files, folders, globs or archives of text."""


def parse(
    arguments: type[T],
    argv: list[str],
    command: str,
    short: Mapping[str, str] = {},  # never changed
    start: T | None = None,
) -> T:
    """Return the subcommand's `arguments`, read from the words behind it.

    short: short forms of flags, with the flags that they replace. start: other defaults; with them --help lists the
    flags, and -H explains them. Raises InputError for a flag that is given twice, or a value that the arguments' own
    checks refuse; exits with status 2 for an unknown flag.
    """
    from . import subcommands

    text = inspect.cleandoc(arguments.__doc__ or "")
    if below := subcommands(command):
        text += "\n\nSubcommands:\n" + "\n".join(f"    {name:24}{line}" for name, line in below.items())
    end = argv.index("--") if "--" in argv else len(argv)
    words = [re.sub("^[^=]+", lambda flag: short.get(flag[0], flag[0]), word) for word in argv[:end]] + argv[end:]
    flags = [re.sub(r"(--|\.)no-", r"\1", flag) for word in words[:end] for flag in flags_in([word])]
    if again := [flag for i, flag in enumerate(flags) if flag in flags[:i]]:
        raise InputError(f"{again[0]} is given twice; expected once")
    read = _with_flags(arguments, words)
    options: dict[str, Any] = {
        "default": tyro.MISSING_NONPROP if start is None else read(**vars(start)),
        "prog": f"bertworks {command}",
        "description": text,
        "config": CONFIG,
        "compact_help": start is not None,
    }
    try:
        return arguments(**vars(tyro.cli(read, args=words, **options)))
    except ValueError as error:  # from a dataclass that checks its values
        raise InputError(str(error)) from None


def _with_flags(arguments: type[T], words: list[str]) -> type[T]:
    """The dataclass, in which positional arguments that are given as the flags of their names are flags."""
    given, kinds = flags_in(words), get_type_hints(arguments, include_extras=True)
    flags = {
        name: Annotated[kind.__origin__, *(marker for marker in get_args(kind)[1:] if marker is not POSITIONAL), None]
        for name, kind in kinds.items()
        if POSITIONAL in get_args(kind) and f"--{name}" in given
    }
    if not flags:
        return arguments
    with_flags = type(arguments.__name__, (arguments,), {"__annotations__": flags, "__doc__": arguments.__doc__})
    return dataclasses.dataclass(frozen=True)(with_flags)


def parse_recipe(
    arguments: type[T],
    config: type[Any],
    argv: list[str],
    command: str,
    adapted: Callable[[Any, list[str]], Any] = lambda recipe, argv: recipe,
) -> T:
    """As `parse`, for a subcommand with the fields `recipe` and `config`: the recipe's values are the flags' defaults.

    The recipe is the first word, or given as --recipe; a budget among flags replaces its own. adapted: changes it by
    other flags, before its own flags do. Raises InputError like `parse` and `find_recipe`.
    """
    name = value_of(argv, "--recipe") or (argv[0] if argv and not argv[0].startswith("-") else None)
    base = without_budget(load_recipe(find_recipe(name, command), config) if name else config(), flags_in(argv))
    base = adapted(base, argv)
    parsed = parse(arguments, argv, command, start=with_defaults(arguments, config=base))
    if parsed.recipe != name:  # type: ignore[attr-defined]
        raise InputError(f"found the recipe {parsed.recipe} behind flags; give it first, or with --recipe")  # type: ignore[attr-defined]
    return parsed


def with_defaults(arguments: type[T], **values: Any) -> T:
    """An instance of `arguments` with these values as defaults; required fields stay required."""
    needed = {f.name for f in dataclasses.fields(arguments) if f.default is f.default_factory}  # type: ignore[arg-type]  # both missing
    return arguments(**{**dict.fromkeys(needed, tyro.MISSING), **values})


def value_of(argv: list[str], flag: str) -> str | None:
    """The value of `flag VALUE` or `flag=VALUE`, if it is given."""
    for i, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == flag:
            return value if equals else next((word for word in argv[i + 1 : i + 2] if word[:2] != "--"), None)
    return None


def flags_in(argv: list[str]) -> set[str]:
    """The flags among the words before a --, as --help writes them: {"--optim.lr", "--batch-size"}."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    return {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}


def names_in(argv: list[str]) -> set[str]:
    """The flags among the words, as fields of dataclasses: {"optim.lr", "batch_size"}."""
    return {flag.removeprefix("--").replace("-", "_") for flag in flags_in(argv)}
