"""Values of TOML and JSON files as typed Python values: one converter for recipes, states, results and settings.

A type is one of:

    int, float, str, bool, Path, Any, None     a plain value; float accepts every finite number
    Literal["a", "b"], range(10)               one of these values; an integer in this range
    X | Y, (X, Y)                              a value of one of these types
    list[X], [X], tuple[X, ...]                a list or a tuple of any length
    [X, Y], tuple[X, Y]                        a list or a tuple of exactly these items
    dict[str, X], {str: X}                     a table with any keys
    {"a": X, "b?": Y}                          a table with these keys; b may be missing, other keys are ignored
    a dataclass                                a table of its fields, without other keys
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .files import InputError, shorten

_WORDS = {
    float: "a number", int: "an integer", str: "a text", bool: "true or false", Path: "a path", dict: "a table",
    list: "a list", None: "null", types.NoneType: "None",
}  # fmt: skip
_LARGE = 1_000  # bits of an integer that is no float


class _Mismatch(Exception):
    """A value has another type; the message names its key."""


def convert(kind: Any, value: Any, where: str, advice: str = "", start: Any = None) -> Any:
    """`value`, as TOML and JSON have it, as an instance of the type `kind`.

    start: an instance of the dataclass `kind`, from which missing keys are taken. Raises InputError, which begins with
    `where` and ends with `advice`, and names the key, the value and what was expected.
    """
    try:
        return _convert(kind, value, "", start)
    except _Mismatch as mismatch:
        raise InputError(f"{where}: {mismatch}{advice and f'; {advice}'}") from None


def check_fields(value: Any, kind: Any, where: str, advice: str = "restore the file") -> None:
    """Raise InputError like `convert` if a value has another type."""
    convert(kind, value, where, advice)


def inner_keys(name: str, kinds: Mapping[str, Any]) -> list[str]:
    """The dotted keys of nested dataclasses that have a field of this name: optim.lr for lr."""
    nested = ((key, kind) for key, kind in kinds.items() if dataclasses.is_dataclass(kind))
    return [f"{key}.{name}" for key, kind in nested if name in {field.name for field in dataclasses.fields(kind)}]


def _convert(kind: Any, value: Any, key: str, start: Any = None) -> Any:
    """The value as `kind`. key: its dotted path."""
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, key, start)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, tuple) or origin in (typing.Union, types.UnionType):
        return _one_of(arguments or kind, value, key)
    if origin is typing.Literal:
        if value not in arguments:
            raise _Mismatch(f"{_describe(value, key)}; expected one of {', '.join(map(repr, arguments))}")
        return value
    if isinstance(kind, dict) or origin in (dict, Mapping):
        return _table(kind if isinstance(kind, dict) else {str: arguments[1]}, value, key)
    if isinstance(kind, list):
        return _list(kind if len(kind) > 1 else kind * len(_plain(list, value, key)), value, key)
    if origin in (list, tuple):
        any_length = origin is list or arguments[-1] is Ellipsis
        return origin(_list(arguments[:1] * len(_plain(list, value, key)) if any_length else arguments, value, key))
    return _plain(kind, value, key)


def _one_of(kinds: Sequence[Any], value: Any, key: str) -> Any:
    problems = []
    for kind in kinds:
        try:
            return _convert(kind, value, key)
        except _Mismatch as mismatch:
            problems.append(str(mismatch))
    others = [problem.partition("; expected ")[2] for problem in problems[1:]]
    raise _Mismatch(" or ".join([problems[0], *(other for other in others if other not in ("", "null"))]))


def _plain(kind: Any, value: Any, key: str) -> Any:
    if kind in (Any, object):
        return value
    if kind in (None, types.NoneType):
        fits = value is None
    elif isinstance(value, bool):
        fits = kind is bool
    elif kind is float:
        fits = isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _LARGE)
    else:
        fits = isinstance(value, str if kind is Path else int if isinstance(kind, range) else kind)
    if not fits:
        words = _WORDS.get(int if isinstance(kind, range) else kind) or getattr(kind, "__name__", str(kind))
        raise _Mismatch(f"{_describe(value, key)}; expected {words}")
    if isinstance(kind, range) and value not in kind:
        raise _Mismatch(f"{_describe(value, key)}; expected {kind[0]:,} to {kind[-1]:,}")
    if kind is float and not math.isfinite(value):
        raise _Mismatch(f"{_describe(value, key)}; expected a finite number")
    return kind(value) if kind in (float, Path) else value


def _list(kinds: Sequence[Any], value: Any, key: str) -> list[Any]:
    if len(_plain(list, value, key)) != len(kinds):
        raise _Mismatch(f"{_describe(value, key)}; expected a list of {len(kinds)}")
    return [_convert(kind, item, f"{key}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True))]


def _table(kinds: Mapping[Any, Any], value: Any, key: str) -> dict[str, Any]:
    _plain(dict, value, key)
    if str in kinds:
        return {name: _convert(kinds[str], item, _inside(key, name)) for name, item in value.items()}
    optional = {name.removesuffix("?"): kind for name, kind in kinds.items()}
    for name in kinds:
        if name in optional and name not in value:
            raise _Mismatch(f"no field {_inside(key, name)}; expected {', '.join(optional)}")
    present = {name: kind for name, kind in optional.items() if name in value}
    return value | {name: _convert(kind, value[name], _inside(key, name)) for name, kind in present.items()}


def _dataclass(cls: Any, value: Any, key: str, start: Any) -> Any:
    if not isinstance(value, dict):
        raise _Mismatch(f"{_describe(value, key)}; expected a table of {cls.__name__} fields")
    hints, fields = typing.get_type_hints(cls), dataclasses.fields(cls)
    kinds = {field.name: hints[field.name] for field in fields}
    for name in value:
        if name not in kinds:
            near = inner_keys(name, kinds) or difflib.get_close_matches(name, kinds, 1)
            hint = f"did you mean {_inside(key, near[0])}?" if near else f"known keys: {', '.join(kinds)}"
            raise _Mismatch(f"unknown key {_inside(key, name)}; {hint}")
    defaults = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    starts = defaults if start is None else vars(start)
    items = {name: _convert(kinds[name], item, _inside(key, name), starts.get(name)) for name, item in value.items()}
    try:
        return cls(**items) if start is None else dataclasses.replace(start, **items)
    except (TypeError, ValueError) as error:  # a required field is missing, or __post_init__ refuses a value
        named = key and str(error).startswith(f"{key}.")
        raise _Mismatch(str(error) if named else f"{key or cls.__name__}: {error}") from None


def _describe(value: Any, key: str) -> str:
    return f"{key} = {shorten(value)}" if key else f"found {shorten(value)}"


def _inside(key: str, name: str) -> str:
    """The key of a field in a table: "metrics.f1"."""
    return f"{key}.{shorten(name)[1:-1]}".lstrip(".")
