"""What the routes share: router, fields and faults of bodies, the service behind a request, the response.

A union notes an error for every kind of element, and a list is as long as the client likes: so the first wrong element
of a list ends its reading (`FailFastList`).
"""

import codecs
import difflib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, cast

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from .errors import TYPES
from .service import Answers, Service

T = TypeVar("T")
FailFastList = Annotated[list[T], Field(fail_fast=True)]
Count = Annotated[int, Field(strict=True, ge=1)]  # neither true nor "3"
Direction = Annotated[Literal["Left", "Right"], BeforeValidator(lambda v: v.title() if isinstance(v, str) else v)]

MISSPELT = 2  # letters by which a misspelt name differs from a known one, at most
FOREIGN = ("top_p",)  # fields of other APIs that are as near to one of ours, but not misspelt


class Body(BaseModel):
    """A body, or an object in it. Fields that it does not know are ignored, since clients of other APIs send many.

    But one that differs from an optional field in a letter or two is refused: another model would answer for `mdoel`.
    """

    @model_validator(mode="before")
    @classmethod
    def _no_misspelt_field(cls, value: Any) -> Any:
        fields = cls.model_fields
        names = [name for name in value if isinstance(name, str)] if isinstance(value, dict) else []
        absent = [name for name, field in fields.items() if name not in names and not field.is_required()]
        for name in names:
            near = [] if name in fields or name in FOREIGN else [one for one in absent if _is_misspelt(name, one)]
            if near:
                raise PydanticCustomError("misspelt", f"unknown field {name}; did you mean {near[0]}?")
        return value


class ModelRequest(Body):
    """A body that may name the model, and say that inputs which are too long are to be cut."""

    model: str | None = None  # for servers with several folders
    truncate: bool | None = None  # null: as the server was started (`--auto-truncate`)


class TruncationRequest(ModelRequest):
    """A body that may say from which end inputs are cut."""

    truncation_direction: Direction = "Right"

    @property
    def left(self) -> bool:
        """Whether inputs are cut at their beginning."""
        return self.truncation_direction == "Left"


def _is_misspelt(name: str, field: str) -> bool:
    """Whether `name` is `field` but for letters that are missing, too many or others."""
    if abs(len(name) - len(field)) > MISSPELT:
        return False
    changes = difflib.SequenceMatcher(None, name, field, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in changes if kind != "equal") <= MISSPELT


def fault_of(errors: Sequence[Mapping[str, Any]], body: Any) -> tuple[str, str]:
    """The field of a body that is at fault, and what is wrong with it; no text of the body is repeated.

    errors: pydantic's, several for a field that may be of several kinds. What got furthest into the body counts.
    """
    paths = [_path(error, body) for error in errors]
    path = max(paths, key=lambda path: (len(path), [one for one in path if isinstance(one, int)]))
    here = [error for error, other in zip(errors, paths, strict=True) if other == path]
    where = ".".join(map(str, path))[:200]
    if here[0]["type"] == "missing" and path:
        return where, f"{where} is missing"
    first, *others = dict.fromkeys(error["msg"] for error in here)
    message = " or ".join([first, *(other.removeprefix("Input should be ") for other in others)])
    return where, f"{where or 'the body'}: {message}"


def _path(error: Mapping[str, Any], body: Any) -> tuple[str | int, ...]:
    """The path of an error in a body, without the names of a union's branches."""
    path: list[str | int] = []
    value: Any = body
    parts = [part for part in error["loc"][1:] if isinstance(part, str | int)]
    for number, part in enumerate(parts):
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            path.append(part)
            value = cast(Any, value)[part]
        elif error["type"] == "missing" and number == len(parts) - 1:
            path.append(part)
    return tuple(path)


# ---- routers and responses


class JsonRequest(Request):
    """A request whose body is read by orjson: quicker, and neither deep nesting nor half a character gets through."""

    async def json(self) -> Any:
        return orjson.loads((await self.body()).removeprefix(codecs.BOM_UTF8))


class JsonRoute(APIRoute):
    """A route whose body is read by orjson."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


def api_router(*tags: str) -> APIRouter:
    """The router of an API; tags group its routes in /openapi.json."""
    names = {**dict.fromkeys((400, 413, 415, 422), "Validation"), **TYPES}
    content = {"application/json": {"schema": {"type": "object"}}}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"content": content, "description": names[status]} for status in sorted(names) if status != 500
    }
    return APIRouter(tags=list(tags), route_class=JsonRoute, responses=responses)


def service_of(request: Request) -> Service:
    """The service that answers this request."""
    service: Service = request.app.state.service
    return service


def reply(content: Any, answers: Answers | None = None) -> Response:
    """A JSON response; arrays of numpy are written as lists. answers: give the headers of what was computed."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type="application/json", headers=answers.headers if answers else None)
