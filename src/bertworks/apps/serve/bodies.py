"""Fields of bodies whose forms several dialects share, and what is said of a body of another form.

A union notes an error for every kind of element, and a list is as long as the client likes: so the first wrong element
of a list ends its reading (`Many`).
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

T = TypeVar("T")
Many = Annotated[list[T], Field(fail_fast=True)]
Count = Annotated[int, Field(strict=True, ge=1)]  # neither true nor "3"
Direction = Annotated[Literal["Left", "Right"], BeforeValidator(lambda v: v.title() if isinstance(v, str) else v)]

MISSPELT = 2  # letters by which a misspelt name differs from a known one, at most
FOREIGN = ("top_p",)  # fields of the dialects that are as near to one of ours, but not misspelt


class Body(BaseModel):
    """A body, or an object in it. Fields that it does not know are ignored, since clients of the dialects send many.

    But one that differs from an optional field in a letter or two is refused: another model would answer for `mdoel`.
    """

    @model_validator(mode="before")
    @classmethod
    def _no_misspelt_field(cls, value: Any) -> Any:
        known = cls.model_fields
        names = [name for name in value if isinstance(name, str)] if isinstance(value, dict) else []
        absent = [name for name, field in known.items() if name not in names and not field.is_required()]
        for name in names:
            near = [] if name in known or name in FOREIGN else [one for one in absent if _is_misspelt(name, one)]
            if near:
                raise PydanticCustomError("misspelt", f"unknown field {name}; did you mean {near[0]}?")
        return value


def _is_misspelt(name: str, known: str) -> bool:
    """Whether `name` is `known` but for letters that are missing, too many or others."""
    if abs(len(name) - len(known)) > MISSPELT:
        return False
    changes = difflib.SequenceMatcher(None, name, known, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in changes if kind != "equal") <= MISSPELT


def fault_of(errors: Sequence[Mapping[str, Any]], body: Any) -> tuple[str, str]:
    """The field of a body that is at fault, and what is wrong with it; no text of the body is repeated.

    errors: pydantic's, several for a field that may be of several kinds. What got furthest into the body counts.
    """
    places = [_place(error, body) for error in errors]
    path, value = max(places, key=lambda place: (len(place[0]), [one for one in place[0] if isinstance(one, int)]))
    here = [error for error, place in zip(errors, places, strict=True) if place[0] == path]
    where = ".".join(map(str, path))[:200]
    if here[0]["type"] == "missing" and path:
        keys = [key for key in value if isinstance(key, str)] if isinstance(value, dict) else []
        close = difflib.get_close_matches(path[-1], keys, n=1)
        return where, f"{where} is missing" + (f"; the body has {close[0]}: did you mean {path[-1]}?" if close else "")
    first, *others = dict.fromkeys(error["msg"] for error in here)
    message = " or ".join([first, *(other.removeprefix("Input should be ") for other in others)])
    return where, f"{where or 'the body'}: {message}"


def _place(error: Mapping[str, Any], body: Any) -> tuple[tuple[Any, ...], Any]:
    """The path of an error in a body without the names of a union's branches, and the value there."""
    path: list[Any] = []
    value: Any = body
    parts = [part for part in error["loc"][1:] if isinstance(part, str | int)]
    for number, part in enumerate(parts):
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            path.append(part)
            value = cast(Any, value)[part]
        elif error["type"] == "missing" and number == len(parts) - 1:
            path.append(part)
    return tuple(path), value
