"""What every dialect's file shares: its router, the service behind it, and the response."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from .errors import TYPES
from .service import Answers, Service


class JsonRequest(Request):
    """A request whose body is read by orjson: quicker, and neither deep nesting nor half a character gets through."""

    async def json(self) -> Any:
        return orjson.loads(await self.body())


class JsonRoute(APIRoute):
    """A route whose body is read by orjson."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


class Refused(BaseModel):
    """What is said instead of an answer."""

    error: str
    error_type: str


class RefusedKserve(BaseModel):
    """What is said instead of an answer."""

    error: str


class OpenaiError(BaseModel):
    """Why there is no answer."""

    message: str
    type: str
    param: str | None
    code: str


class RefusedOpenai(BaseModel):
    """What is said instead of an answer."""

    error: OpenaiError


def dialect(*tags: str, refused: type[BaseModel] = Refused) -> APIRouter:
    """The router of a dialect; tags group its routes in /openapi.json. refused: the form of its refusals."""
    names = {400: "Validation", 413: "Validation", 415: "Validation", **TYPES}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": refused, "description": names[status]} for status in sorted(names) if status != 500
    }
    return APIRouter(tags=list(tags), route_class=JsonRoute, responses=responses)


def service_of(request: Request) -> Service:
    """The service that answers this request."""
    service: Service = request.app.state.service
    return service


def reply(content: Any, answers: Answers | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response; arrays of numpy are written as lists. answers: give the headers of what was computed."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    more = {**(answers.headers if answers else {}), **(headers or {})}
    return Response(body, media_type="application/json", headers=more)
