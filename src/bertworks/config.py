"""Recipes: a TOML file over typed, frozen dataclasses.

Each part of the project declares its dataclass beside the code that consumes it; this file only fills such a
dataclass from TOML, strictly: an unknown key or a value of the wrong type is an error that names the file, the key
and the nearest key that exists. The command line puts dotted overrides (`--optim.lr 1e-4`) on top of the result.
"""

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from .files import InputError, read_bytes, shorten

T = TypeVar("T")
RECIPE_BYTES = 1 << 20  # the largest recipe; ours have some thousand

RECIPES = Path(__file__).with_name("recipes")  # those that come with bertworks: KIND/NAME.toml


def recipe_names(kind: str = "") -> list[str]:
    """The names of the recipes that come with bertworks: of one kind (pretrain), or of all as KIND/NAME."""
    folder = RECIPES / kind
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))


def find_recipe(name: str, kind: str = "") -> Path:
    """The file of a recipe: `name` is a path, or the name of a recipe of this kind that comes with bertworks.

    A file of that name in the working directory comes first. Raises InputError with the nearest name.
    """
    if Path(name).is_file():
        return Path(name)
    names = recipe_names(kind)
    listed = name.removeprefix(f"{kind}/") if kind else name  # `bertworks recipes` prints KIND/NAME
    if listed in names:
        return RECIPES / kind / f"{listed}.toml"
    near = difflib.get_close_matches(
        name.removesuffix(".toml").removeprefix("recipes/").removeprefix(f"{kind}/"), names
    )
    hint = f"did you mean {near[0]}?" if near else f"known names: {', '.join(names)}"
    raise InputError(f"{name}: no such file, and no recipe of that name comes with bertworks; {hint}")


def load_recipe(path: Path | str, cls: type[T], start: T | None = None) -> T:
    """Read the TOML file `path` into the dataclass `cls`; what it does not name is taken from `start`, if given.

    Raises InputError with file and key on any mistake.
    """
    data = read_bytes(path, "a recipe", RECIPE_BYTES)
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of an integer of thousands of digits
        raise InputError(f"{path}: not valid TOML: {error}") from None
    return from_dict(cls, table, str(path), start)


def from_dict(cls: type[T], table: dict[str, Any], where: str = "recipe", start: T | None = None) -> T:
    """Fill dataclass `cls`, or a copy of `start`, from nested dictionaries; `where` opens every error message."""
    value: T = _convert(cls, table, where, "", start)
    return value


def to_toml(config: Any) -> str:
    """The dataclass as TOML (fields that are None are left out, since TOML has no null).

    Raises InputError, with the key, for a number that is not finite and for a text that TOML cannot hold: the name of a
    file that is not UTF-8.
    """
    return tomli_w.dumps(_plain(config))


def check_seed(*seeds: int) -> None:
    """Raises ValueError for a seed that not every generator takes (torch, NumPy, CUDA)."""
    for seed in seeds:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed = {seed}; expected a whole number from 0 to 2^63 - 1")


def check_least(config: Any, names: tuple[str, ...], least: int, meaning: str = "", of: str = "") -> None:
    """Raises ValueError for a field below `least` or not a number; `meaning` explains that value, `of` is the table."""
    for name in names:
        if not getattr(config, name) >= least:
            expected = f"{least} ({meaning}) or more" if meaning else f"{least} or more"
            raise ValueError(f"{f'{of}.' if of else ''}{name} = {getattr(config, name)}; expected {expected}")


def later(default: T) -> T:
    """The default of a field that the first recipes did not have: while it stands there, `identity` is silent of it."""
    value: T = dataclasses.field(default=default, metadata={"later": True})
    return value


def identity(config: Any) -> str:
    """`to_toml` for hashes: without `later` fields at their default, so that runs from before they were there go on."""
    return tomli_w.dumps(_plain(config, settled=True))


def _plain(value: Any, settled: bool = False, key: str = "") -> Any:
    """`value` as TOML has it; `key` is the dotted path so far."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f, getattr(value, f.name)) for f in dataclasses.fields(value))
        told = (pair for pair in fields if not (settled and "later" in pair[0].metadata and pair[1] == pair[0].default))
        prefix = f"{key}." if key else ""
        return {f.name: _plain(item, settled, prefix + f.name) for f, item in told if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item, settled, f"{key}[{i}]") for i, item in enumerate(value)]
    value = str(value) if isinstance(value, Path) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key} = {value}; expected a finite number")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{key} = {shorten(value)}; expected a name in UTF-8, which TOML can hold; rename the file")
    return value


def _convert(kind: Any, value: Any, where: str, key: str, start: Any = None) -> Any:
    """`value` as type `kind`; `key` is the dotted path so far, `start` what a table's missing keys are taken from."""
    if dataclasses.is_dataclass(kind):
        return _convert_table(kind, value, where, key, start)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert(next(a for a in arguments if a is not type(None)), value, where, key)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(arguments[0], item, where, f"{key}[{i}]") for i, item in enumerate(value))
    if origin is typing.Literal:
        if value not in arguments:
            raise InputError(f"{where}: {key} = {shorten(value)}; expected one of {', '.join(map(repr, arguments))}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 1000:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {key} = {value}; expected a finite number")
    if kind is Path and isinstance(value, str):
        return Path(value)
    if not isinstance(value, origin or kind) or (isinstance(value, bool) and kind is not bool):
        found = f"{where}: {key} = {shorten(value)} is of type {type(value).__name__}"
        raise InputError(f"{found}; expected {_name(kind)}")
    return value


def _convert_table(cls: Any, value: Any, where: str, key: str, start: Any) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} = {shorten(value)}; expected a table of {cls.__name__} fields")
    kinds = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]
    prefix = f"{key}." if key else ""
    for name in value:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known keys: {', '.join(names)}"
            raise InputError(f"{where}: unknown key {prefix}{name}; {hint}")
    makers = ((f.name, f.default_factory) for f in dataclasses.fields(cls))
    starts = (
        {name: make() for name, make in makers if make is not dataclasses.MISSING} if start is None else vars(start)
    )
    filled = {n: _convert(kinds[n], item, where, prefix + n, starts.get(n)) for n, item in value.items()}
    try:
        return cls(**filled) if start is None else dataclasses.replace(start, **filled)
    except (TypeError, ValueError) as error:  # a required field is missing, or __post_init__ refuses a value
        at = "" if key and str(error).startswith(f"{key}.") else f"{key or cls.__name__}: "
        raise InputError(f"{where}: {at}{error}") from None


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
