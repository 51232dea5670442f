"""JSON Schemas of dataclasses and typed dictionaries, so that editors complete a recipe and programs check results.

The comments of the fields, which are the texts of `--help`, become descriptions.
"""

import ast
import dataclasses
import functools
import inspect
import textwrap
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean", Path: "string"}


def schema_of(cls: Any, start: Any = None) -> Schema:
    """The schema of a dataclass or a TypedDict. start: an instance, whose values are the defaults of its fields."""
    described = [_about(cls)] if _about(cls) else []
    kinds = {
        name: kind
        for name, kind in typing.get_type_hints(cls).items()
        if typing.get_origin(kind) is not typing.ClassVar
    }
    comments, found = field_comments(cls), {}
    for name, kind in kinds.items():
        value = default_of(cls, name, start)
        found[name] = schema_of_type(kind, value)
        if comments.get(name) and "description" not in found[name]:
            found[name]["description"] = comments[name]
    needed = (
        sorted(cls.__required_keys__)
        if hasattr(cls, "__required_keys__")
        else [n for n in kinds if default_of(cls, n) is dataclasses.MISSING]
    )
    schema: Schema = {"type": "object", **({"description": described[0]} if described else {}), "properties": found}
    return {**schema, **({"required": needed} if needed else {}), "additionalProperties": False}


def schema_of_type(kind: Any, value: Any = dataclasses.MISSING) -> Schema:
    """The schema of a field of this type. value: its default, if it has one."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        kinds = [one for one in arguments if one is not type(None)]
        inner = [schema_of_type(one, value if len(kinds) == 1 else dataclasses.MISSING) for one in kinds]
        return inner[0] if len(inner) == 1 else {"anyOf": inner}
    if origin is typing.NotRequired:
        return schema_of_type(arguments[0], value)
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return schema_of(kind, None if value is dataclasses.MISSING else value)
    if origin is typing.Literal:
        schema: Schema = {"enum": list(arguments)}
    elif origin in (tuple, list):
        schema = {"type": "array", "items": schema_of_type(arguments[0])}
    elif origin is dict or kind is dict:
        known = arguments and arguments[1] is not Any
        schema = {"type": "object", **({"additionalProperties": schema_of_type(arguments[1])} if known else {})}
    else:
        schema = {"type": _PLAIN[kind]} if kind in _PLAIN else {}
    plain = _plain(value)
    return schema if plain is None else {**schema, "default": plain}


def default_of(cls: Any, name: str, start: Any = None) -> Any:
    """The default of a field, or its value in `start`; MISSING without one."""
    if not dataclasses.is_dataclass(cls):
        return dataclasses.MISSING
    if start is not None:
        return getattr(start, name)
    field = {field.name: field for field in dataclasses.fields(cls)}[name]
    return field.default_factory() if callable(field.default_factory) else field.default


def _plain(value: Any) -> Any:
    """A default as JSON has it; None for one that is not shown."""
    if isinstance(value, tuple):
        plain = [_plain(one) for one in value]
        return None if None in plain else plain
    return value if isinstance(value, bool | int | float | str) else None


def _about(cls: Any) -> str:
    """The first sentence of a class's own docstring."""
    return (inspect.cleandoc(cls.__doc__ or "").splitlines() or [""])[0] if not typing.is_typeddict(cls) else ""


@functools.cache
def field_comments(cls: Any) -> Mapping[str, str]:
    """The comment of each field of a class and of those it is derived from: behind it, above it, or a text below it."""
    found: dict[str, str] = {}
    for one in reversed([cls, *getattr(cls, "__mro__", ())[1:]]):
        if one.__module__.startswith("bertworks"):
            found |= _own_comments(one)
    return found


def _own_comments(cls: Any) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(cls))
    lines, [body] = (
        source.splitlines(),
        [node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)],
    )
    found = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        end = node.end_lineno or node.lineno
        behind = lines[end - 1].encode()[node.end_col_offset :].decode().strip()
        above: list[str] = []
        for line in reversed(lines[: node.lineno - 1]):
            if not line.strip().startswith("#"):
                break
            above.insert(0, line.strip().lstrip("# "))
        comment = behind.removeprefix("#").strip() or " ".join(above)
        if not comment and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            comment = " ".join(str(following.value.value).split())
        found[node.target.id] = comment
    return found
