"""Recipes: a TOML file over typed, frozen dataclasses.

Each part of the project declares its dataclass beside the code that consumes it. This file fills such a dataclass from
TOML, strictly: an unknown key or a value of the wrong type is an error that names the file, the key and the nearest
known key. The command line puts dotted overrides (`--optim.lr 1e-4`) on top of the result.

Recipes grow. A field that is added to a recipe gets the next schema number and the value that older runs had:

    width: int = added(64, since=5, before=32)  # new runs have 64; a recipe.toml of schema 4 stands for 32

and SCHEMA becomes 5. `identities` then gives the same run the same name in all versions of bertworks.
"""

import dataclasses
import difflib
import functools
import inspect
import math
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import tomli_w

from .files import InputError, check_version, read_bytes, shorten

T = TypeVar("T")
SCHEMA = 6  # of recipes; schema 1 is that of recipe.toml files without a number
RECIPE_BYTES = 1 << 20  # the largest recipe; ours have some thousand

RECIPES = Path(__file__).with_name("recipes")  # those that come with bertworks: KIND/NAME.toml


OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "adam_epsilon": ("optim.eps",),
    "data_dir": ("data",),
    "dataset": ("data", "train"),
    "dev_file": ("dev",),
    "do_lower_case": ("lowercase",),
    "early_stopping_patience": ("patience",),
    "eval_dataset": ("dev",),
    "eval_steps": ("loop.eval_every",),
    "init_checkpoint": ("init", "model"),
    "input_file": ("corpus", "data"),
    "label_column": ("label",),
    "learning_rate": ("optim.lr",),
    "log_steps": ("loop.log_every",),
    "logging_steps": ("loop.log_every",),
    "max_len": ("max_seq_length", "length"),
    "max_length": ("max_seq_length", "length"),
    "max_steps": ("loop.steps",),
    "mlm_probability": ("masking.masked_lm_prob",),
    "model": ("init",),
    "model_name_or_path": ("init", "model"),
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "num_steps": ("loop.steps",),
    "num_train_steps": ("loop.steps",),
    "output": ("out",),
    "output_dir": ("out",),
    "output_file": ("out",),
    "per_device_train_batch_size": ("batch_size",),
    "random_seed": ("loop.seed",),
    "save_steps": ("loop.save_every",),
    "task_name": ("task",),
    "text_column": ("text",),
    "train_batch_size": ("batch_size",),
    "train_dataset": ("train",),
    "train_file": ("train",),
    "train_steps": ("loop.steps",),
    "validation_file": ("dev",),
    "vocab_file": ("tokenizer",),
    "warmup_proportion": ("optim.warmup",),
    "warmup_ratio": ("optim.warmup",),
    "warmup_steps": ("optim.warmup",),
}
"""Names of transformers and of the original code, and ours of the same meaning: a hint names the first that exists."""


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
    if Path(name).is_dir():
        raise InputError(f"{name}: a folder; expected a recipe, by its name (`bertworks recipes` lists them) or file; "
                         "a model has a flag of its own: --init to pre-train it further, else --model")  # fmt: skip
    near = difflib.get_close_matches(
        name.removesuffix(".toml").removeprefix("recipes/").removeprefix(f"{kind}/"), names
    )
    hint = f"did you mean {near[0]}?" if near else f"known names: {', '.join(names)}"
    raise InputError(f"{name}: no such file, and no recipe of that name comes with bertworks; {hint}")


def find_beside(name: str, recipe: Path, kind: str) -> Path:
    """The file of a recipe that another recipe names: a path from that file's folder.

    If there is no such file, the recipe that comes with bertworks: the same path from our folder of recipes, so that a
    printed study works anywhere, or a name as in `find_recipe`. Raises InputError if that is missing too.
    """
    if (found := recipe.parent / name).is_file():
        return found
    ours = Path(*(part for part in Path(name).parts if part != ".."))  # ../pretrain/study.toml, from study/
    if ours.with_suffix("").as_posix() in recipe_names() and ours.suffix == ".toml":
        return RECIPES / ours
    if name in recipe_names(kind):
        return RECIPES / kind / f"{name}.toml"
    raise InputError(
        f"{found}: no such file, and no recipe of that name comes with bertworks (in {recipe}: {kind} = {name!r}); "
        f"expected a path from that file's folder, or one of {', '.join(recipe_names(kind))}"
    )


def load_recipe(path: Path | str, cls: type[T], start: T | None = None) -> T:
    """Read the TOML file `path` into the dataclass `cls`; what it does not name is taken from `start`, if given.

    Raises InputError with file and key on any mistake.
    """
    return from_dict(cls, _read_table(path), str(path), start)


def load_resolved(path: Path | str, cls: type[T]) -> T:
    """Read the recipe.toml of a run, by whatever version; fields that came later have the value that runs had before.

    Raises InputError with file and key on any mistake.
    """
    return from_dict(cls, {"schema": 1} | _read_table(path), str(path))


def _read_table(path: Path | str) -> dict[str, Any]:
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
        check_version(schema, range(1, SCHEMA + 1), where, "correct the number", "recipe schema")
        table = _completed(cls, {key: value for key, value in table.items() if key != "schema"}, schema)
    value: T = _convert(cls, table, where, "", start)
    return value


def with_fields(recipe: T, fields: Mapping[str, Any], function: Callable[..., Any]) -> T:
    """The recipe with other values of some fields: `epochs=2`, `optim={"lr": 1e-4}`, or a dotted key, "optim.lr".

    function: whose further arguments the fields are. Raises InputError with the key for an unknown field, which may be
    an argument of the function misspelt, or a wrong value.
    """
    table, known = _as_table(fields), [field.name for field in dataclasses.fields(cast(Any, recipe))]
    for name in table:
        if name not in known:
            raise InputError(f"arguments: unknown argument {name}; {_hint(name, type(recipe), function)}")
    return from_dict(type(recipe), table, "arguments", recipe)


def _hint(name: str, recipe: type[Any], function: Callable[..., Any]) -> str:
    """What may be meant by an argument that neither the function nor the recipe has, as a call writes it."""
    kinds = typing.get_type_hints(recipe)
    arguments = [*(name for name in inspect.signature(function).parameters if name != "fields"), *kinds]
    near = _other_names(name, arguments, kinds) or difflib.get_close_matches(name, arguments, 1)
    if not near:
        return f"known arguments: {', '.join(arguments)}"
    section, _, key = near[0].rpartition(".")
    return f'did you mean {section}={{"{key}": ...}}?' if section else f"did you mean {key}?"


def flags_of_fields(fields: Mapping[str, Any]) -> set[str]:
    """The flags that set the same fields: --epochs, --optim.lr."""
    return {f"--{key.replace('_', '-')}" for key, _ in _leaves(_as_table(fields))}


def _as_table(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as nested tables of plain values, as TOML has them."""
    table: dict[str, Any] = {}
    for key, value in fields.items():
        *path, name = key.split(".")
        inner = functools.reduce(lambda at, part: at.setdefault(part, {}), path, table)
        plain = _plain_argument(value)
        inner[name] = {**inner.get(name, {}), **plain} if isinstance(plain, dict) else plain
    return table


def _plain_argument(value: Any) -> Any:
    """A value of Python as TOML has it: numbers of NumPy are numbers, dataclasses are tables, tuples are lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain_argument(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_argument(item) for item in value]
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


def to_toml(config: Any) -> str:
    """The dataclass as TOML, with its schema (fields that are None are left out, since TOML has no null).

    Raises InputError, with the key, for a number that is not finite and for a text that TOML cannot hold: the name of a
    file that is not UTF-8.
    """
    return tomli_w.dumps({"schema": SCHEMA} | _plain(config))


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


# ---- the identity of a recipe


def added(default: T, *, since: int, before: T) -> T:
    """The default of a field that recipes have since schema `since`; runs of older schemas had the value `before`."""
    value: T = dataclasses.field(default=default, metadata={"since": since, "before": before})
    return value


def identities(config: Any) -> dict[int, str]:
    """Texts that are equal for equal recipes, to be hashed: one for each schema that can express it, newest first.

    The text of the current schema has every field. An older one lacks the fields that came later; it is missing if one
    of them has another value than `before`, since no run of that schema can have been the same.
    """
    found = {}
    for schema in range(SCHEMA, 0, -1):
        try:
            table = _plain(config, schema=schema)
        except _NotYet:
            break
        found[schema] = tomli_w.dumps({"schema": schema} | table if schema > 1 else table)
    return found


def differences(found: Any, expected: Any) -> list[tuple[str, Any, Any]]:
    """The dotted keys at which two recipes differ, with both values; None where a recipe has none."""
    one, other = dict(_leaves(_plain(found))), dict(_leaves(_plain(expected)))
    keys = [*one, *(key for key in other if key not in one)]
    return [(key, one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)]


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside nested tables and lists, with its dotted key."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{key}[{i}]")
    else:
        yield key, value


class _NotYet(Exception):
    """An older schema cannot express the recipe."""


def _has_field(field: Any, value: Any, schema: int) -> bool:
    """Whether the recipe's text in this schema has the field. Raises _NotYet if the schema cannot express its value."""
    since, is_before = field.metadata.get("since", 0), value == field.metadata.get("before")
    if since > schema and not is_before:
        raise _NotYet
    # schema 1 got fields without a new number: its text lacked them where they had the old value
    return not (since > schema or (since == schema == 1 and is_before))


def _completed(cls: Any, table: dict[str, Any], schema: int) -> dict[str, Any]:
    """The table of a recipe of an older schema, with the fields that came later at the value that runs had before."""
    kinds, whole = typing.get_type_hints(cls), dict(table)
    for field in dataclasses.fields(cls):
        found, kind = table.get(field.name), kinds[field.name]
        # schema 1 got fields without a new number, so its files may lack those too
        later = "before" in field.metadata and (schema == 1 or field.metadata["since"] > schema)
        if field.name not in table and later:
            before = field.metadata["before"]
            whole |= {} if before is None else {field.name: _plain(before)}
        elif dataclasses.is_dataclass(kind) and isinstance(found, dict):
            whole[field.name] = _completed(kind, found, schema)
        elif typing.get_origin(kind) is tuple and isinstance(found, list):
            item = typing.get_args(kind)[0]
            if dataclasses.is_dataclass(item):
                whole[field.name] = [_completed(item, row, schema) if isinstance(row, dict) else row for row in found]
    return whole


def _plain(value: Any, key: str = "", schema: int | None = None) -> Any:
    """`value` as TOML has it; `key` is the dotted path so far, `schema` the one that must express it (none: any)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        kept = [(f.name, item) for f, item in pairs if schema is None or _has_field(f, item, schema)]
        prefix = f"{key}." if key else ""
        return {name: _plain(item, prefix + name, schema) for name, item in kept if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{key}[{i}]", schema) for i, item in enumerate(value)]
    value = str(value) if isinstance(value, Path) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key} = {value}; expected a finite number")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{key} = {shorten(value)}; expected a name in UTF-8, which TOML can hold; rename the file")
    return value


# ---- from TOML


def _convert(kind: Any, value: Any, where: str, key: str, start: Any = None) -> Any:
    """`value` as type `kind`; `key` is the dotted path so far, `start` what a table's missing keys are taken from."""
    if dataclasses.is_dataclass(kind):
        return _convert_table(kind, value, where, key, start)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:  # of an argument in Python; TOML has no null
            return None
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
            near = _other_names(name, names, kinds) or difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known keys: {', '.join(names)}"
            raise InputError(f"{where}: unknown key {prefix}{name}; {hint}")
    made = {f.name: f.default_factory for f in dataclasses.fields(cls) if f.default_factory is not dataclasses.MISSING}
    starts = {name: make() for name, make in made.items()} if start is None else vars(start)
    filled = {n: _convert(kinds[n], item, where, prefix + n, starts.get(n)) for n, item in value.items()}
    try:
        return cls(**filled) if start is None else dataclasses.replace(start, **filled)
    except (TypeError, ValueError) as error:  # a required field is missing, or __post_init__ refuses a value
        at = "" if key and str(error).startswith(f"{key}.") else f"{key or cls.__name__}: "
        raise InputError(f"{where}: {at}{error}") from None


def _other_names(name: str, known: Sequence[str], kinds: Mapping[str, Any]) -> list[str]:
    """The dotted keys that `name` may mean: as other programs call it (learning_rate), lr alone, or optim_lr."""
    meant = [key for key in OTHER_NAMES.get(name, ()) if key in known or key in _tables_with(key.split(".")[-1], kinds)]
    inner = [key.split(".")[-1] for key in OTHER_NAMES.get(name, ()) if key.split(".")[-1] in known]  # inside [optim]
    joined = [key for key in _tables_with(name.partition("_")[2], kinds) if key == name.replace("_", ".", 1)]
    return meant or inner or _tables_with(name, kinds) or joined


def _tables_with(name: str, kinds: Mapping[str, Any]) -> list[str]:
    """The dotted keys of tables inside that have a field of this name: optim.lr for lr."""
    tables = ((key, kind) for key, kind in kinds.items() if dataclasses.is_dataclass(kind))
    return [f"{key}.{name}" for key, kind in tables if name in {field.name for field in dataclasses.fields(kind)}]


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
