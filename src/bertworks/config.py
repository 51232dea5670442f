"""Recipes: a TOML file over typed, frozen dataclasses.

Each part of the project declares its dataclass beside the code that consumes it. A recipe is read strictly (typed.py):
an unknown key or a value of another type is an error that names the file, the key and the nearest known key. The
command line puts dotted overrides (`--optim.lr 1e-4`) on top of the result.

The recipe.toml of a run has every field and the number SCHEMA, which grows when a field of a recipe is added, removed
or changes its meaning. A run is identified by the hash of that text (training/identity.py).
"""

import dataclasses
import functools
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from .files import InputError, check_version, read_bytes, shorten
from .typed import convert

T = TypeVar("T")
SCHEMA = 7  # of the recipe.toml of runs
RECIPE_BYTES = 1 << 20  # the largest recipe; ours have some thousand

RECIPES = Path(__file__).with_name("recipes")  # those that come with bertworks: KIND/NAME.toml


def recipe_names(kind: str = "") -> list[str]:
    """The names of the recipes that come with bertworks: of one kind (pretrain), or of all as KIND/NAME."""
    folder = RECIPES / kind
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))


def find_recipe(name: str, kind: str = "") -> Path:
    """The file of a recipe: `name` is a path, or the name of a recipe of this kind that comes with bertworks.

    A file of that name in the working directory comes first. Raises InputError with the known names.
    """
    if Path(name).is_file():
        return Path(name)
    names = recipe_names(kind)
    listed = name.removeprefix(f"{kind}/") if kind else name  # `bertworks recipes` prints KIND/NAME
    if listed in names:
        return RECIPES / kind / f"{listed}.toml"
    raise InputError(f"{name}: found no file and no recipe of this name; expected a path, or one of {', '.join(names)}")


def find_beside(name: str, recipe: Path, kind: str) -> Path:
    """The file of a recipe that another recipe names: a path from that file's folder.

    If there is no such file, the recipe that comes with bertworks: the same path from our folder of recipes, so that a
    printed study works anywhere, or a name as in `find_recipe`. Raises InputError if that is missing too.
    """
    if (path := recipe.parent / name).is_file():
        return path
    ours = Path(*(part for part in Path(name).parts if part != ".."))  # ../pretrain/study.toml, from study/
    if ours.with_suffix("").as_posix() in recipe_names() and ours.suffix == ".toml":
        return RECIPES / ours
    if name in recipe_names(kind):
        return RECIPES / kind / f"{name}.toml"
    raise InputError(
        f"{path}: no such file (in {recipe}: {kind} = {name!r}); expected a path from that file's folder, or one of "
        + ", ".join(recipe_names(kind))
    )


def load_recipe(path: Path | str, cls: type[T], start: T | None = None) -> T:
    """Read the TOML file `path` into the dataclass `cls`; what it does not name is taken from `start`, if given.

    Raises InputError with file and key on any mistake.
    """
    return from_dict(cls, read_table(path), str(path), start)


def read_table(path: Path | str) -> dict[str, Any]:
    """The content of a TOML file. Raises InputError that names it."""
    data = read_bytes(path, "a recipe", RECIPE_BYTES)
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # Windows editors write a byte order mark
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of an integer of thousands of digits
        raise InputError(f"{path}: not valid TOML: {error}") from None


def from_dict(cls: type[T], table: dict[str, Any], where: str = "recipe", start: T | None = None) -> T:
    """Fill dataclass `cls`, or a copy of `start`, from nested dictionaries; `where` opens every error message.

    A `schema` in the table says that it is the recipe of a run, as `to_toml` writes it.
    """
    if "schema" in table:
        schema = table["schema"]
        advice = "remove the line to take today's defaults of missing fields"
        check_version(schema, range(SCHEMA, SCHEMA + 1), where, advice, "recipe schema")
        table = {key: value for key, value in table.items() if key != "schema"}
    value: T = convert(cls, table, where, start=start)
    return value


def with_fields(recipe: T, fields: Mapping[str, Any]) -> T:
    """The recipe with other values of some fields: `epochs=2`, `optim={"lr": 1e-4}`, or a dotted key, "optim.lr".

    Raises InputError with the key for an unknown field or a wrong value.
    """
    return from_dict(type(recipe), nested(fields), "arguments", recipe)


def flags_of_fields(fields: Mapping[str, Any]) -> set[str]:
    """The flags that set the same fields: --epochs, --optim.lr."""
    return {f"--{key.replace('_', '-')}" for key in dotted(nested(fields))}


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as nested tables of plain values, as TOML has them."""
    table: dict[str, Any] = {}
    for key, value in fields.items():
        *path, name = key.split(".")
        inner = functools.reduce(lambda at, part: at.setdefault(part, {}), path, table)
        plain = _plain(value, key, keep_none=True)
        inner[name] = {**inner.get(name, {}), **plain} if isinstance(plain, dict) else plain
    return table


def to_toml(config: Any) -> str:
    """The dataclass as TOML, with its schema (fields that are None are left out, since TOML has no null).

    Raises InputError, with the key, for a number that is not finite and for a text that TOML cannot hold: the name of a
    file that is not UTF-8.
    """
    return tomli_w.dumps({"schema": SCHEMA} | _plain(config))


# ---- to TOML


def differences(actual: Any, expected: Any) -> list[tuple[str, Any, Any]]:
    """The dotted keys at which two recipes differ, with both values; None where a recipe has none."""
    one, other = dotted(_plain(actual)), dotted(_plain(expected))
    keys = [*one, *(key for key in other if key not in one)]
    return [(key, one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)]


def dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Every value inside nested tables and lists of tables, by its dotted key."""
    return dict(_leaves(table))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{key}[{i}]")
    else:
        yield key, value


def _plain(value: Any, key: str = "", keep_none: bool = False) -> Any:
    """`value` as TOML has it; `key` is the dotted path so far. keep_none: whether fields that are None stay.

    Dataclasses are tables, tuples are lists, numbers of NumPy are numbers.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        items = {str(name): item for name, item in value.items() if keep_none or item is not None}
        return {name: _plain(item, f"{key}.{name}".lstrip("."), keep_none) for name, item in items.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{key}[{i}]", keep_none) for i, item in enumerate(value)]
    value = value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value
    value = str(value) if isinstance(value, Path) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key} = {value}; expected a finite number")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{key} = {shorten(value)}; expected a name in UTF-8, which TOML can hold; rename the file")
    return value
