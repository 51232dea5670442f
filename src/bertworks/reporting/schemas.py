"""JSON Schemas of dataclasses and typed dictionaries, so that editors complete a recipe and programs check results.

The comments of the fields, which are the texts of `--help`, become descriptions.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean", Path: "string"}
_NONE = dataclasses.MISSING  # no default


def schema_of(cls: Any, start: Any = None) -> Schema:
    """The schema of a dataclass or a TypedDict. start: an instance, whose values are the defaults of its fields."""
    hints, defaults = typing.get_type_hints(cls), _defaults(cls, start)
    kinds = {name: kind for name, kind in hints.items() if typing.get_origin(kind) is not typing.ClassVar}
    described = typing.is_typeddict(cls) or not cls.__doc__
    schema: Schema = {"type": "object"} if described else {"type": "object", "description": _first_line(cls.__doc__)}
    schema["properties"] = {name: schema_of_type(kind, defaults.get(name, _NONE)) for name, kind in kinds.items()}
    for name, comment in field_comments(cls).items():
        if comment and name in kinds:
            schema["properties"][name].setdefault("description", comment)
    needed = [name for name in kinds if defaults.get(name, _NONE) is _NONE]
    if typing.is_typeddict(cls):
        needed = sorted(cls.__required_keys__)
    return {**schema, **({"required": needed} if needed else {}), "additionalProperties": False}


def schema_of_type(kind: Any, value: Any = _NONE) -> Schema:
    """The schema of a field of this type. value: its default, if it has one."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        kinds = [one for one in arguments if one is not types.NoneType]
        return schema_of_type(kinds[0], value) if len(kinds) == 1 else {"anyOf": [*map(schema_of_type, kinds)]}
    if origin is typing.NotRequired:
        return schema_of_type(arguments[0], value)
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return schema_of(kind, None if value is _NONE else value)
    schema: Schema = {"type": _PLAIN[kind]} if kind in _PLAIN else {}
    if origin is typing.Literal:
        schema = {"enum": [*arguments]}
    elif origin in (tuple, list):
        schema = {"type": "array", "items": schema_of_type(arguments[0])}
    elif dict in (origin, kind):
        known = arguments and arguments[1] is not Any
        schema = {"type": "object"} | ({"additionalProperties": schema_of_type(arguments[1])} if known else {})
    plain = _plain(value)
    return schema if plain is None else {**schema, "default": plain}


def _defaults(cls: Any, start: Any) -> dict[str, Any]:
    """The default of each field of a dataclass, or its value in `start`."""
    if start is not None:
        return vars(start)
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields}


def _plain(value: Any) -> Any:
    """A default as JSON has it; None for one that is not shown."""
    if isinstance(value, tuple):
        plain = [*map(_plain, value)]
        return None if None in plain else plain
    return value if isinstance(value, bool | int | float | str) else None


def _first_line(text: str) -> str:
    return inspect.cleandoc(text).splitlines()[0]


def field_comments(cls: Any) -> dict[str, str]:
    """The comment of each field of a class and of those it is derived from: behind it, or in the lines above it."""
    found: dict[str, str] = {}
    for one in reversed([cls, *getattr(cls, "__mro__", ())[1:]]):
        if one.__module__.startswith("bertworks"):
            found |= _own_comments(textwrap.dedent(inspect.getsource(one)))
    return found


def _own_comments(source: str) -> dict[str, str]:
    lines, found = source.splitlines(), {}
    [body] = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            behind = lines[(node.end_lineno or 1) - 1].encode()[node.end_col_offset :].decode()
            above = [*itertools.takewhile(lambda line: line.lstrip().startswith("#"), lines[: node.lineno - 1][::-1])]
            found[node.target.id] = " ".join(line.strip(" #") for line in ([behind] if behind else above[::-1]))
    return found
