"""What every dialect's file shares: its router, the service behind it, and the response."""

import codecs
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from ...encodings import likely_encoding
from .errors import TYPES, Refusal, shutting_down
from .service import Answers, Service


class JsonRequest(Request):
    """A request whose body is read by orjson: quicker, and neither deep nesting nor half a character gets through."""

    parsed: Any = None

    async def json(self) -> Any:
        if self.parsed is None:
            body = (await self.body()).removeprefix(codecs.BOM_UTF8)
            try:
                self.parsed = orjson.loads(body)
            except orjson.JSONDecodeError:
                _check_utf8(body)
                raise
        return self.parsed


def _check_utf8(body: bytes) -> None:
    """Raises Refusal (400) for bytes of another encoding: orjson says the place of a fault in JSON only."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        found = likely_encoding(body)
        looks = f"; it looks like {found[1]}" if found else ""
        message = f"byte {error.start} of the body (0x{body[error.start]:02X}) is not UTF-8{looks}; send JSON in UTF-8"
        raise Refusal(400, message) from None


class JsonRoute(APIRoute):
    """A route whose body is read by orjson."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            again = JsonRequest(request.scope, request.receive)
            if self.body_field is not None:
                with contextlib.suppress(orjson.JSONDecodeError):  # FastAPI refuses it, and would hide a Refusal
                    await again.json()
            return await handler(again)

        return handle


def dialect(*tags: str) -> APIRouter:
    """The router of a dialect; tags group its routes in /openapi.json."""
    names = {400: "Validation", 413: "Validation", 415: "Validation", **TYPES}
    content = {"application/json": {"schema": {"type": "object"}}}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"content": content, "description": names[status]} for status in sorted(names) if status != 500
    }
    return APIRouter(tags=list(tags), route_class=JsonRoute, responses=responses)


def service_of(request: Request) -> Service:
    """The service that answers this request."""
    service: Service = request.app.state.service
    return service


def check_ready(request: Request) -> None:
    """Raises Refusal (503) once requests are not answered any more."""
    service = service_of(request)
    if service.draining or not service.queue.alive:
        raise shutting_down()


def reply(content: Any, answers: Answers | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response; arrays of numpy are written as lists. answers: give the headers of what was computed."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    more = {**(answers.headers if answers else {}), **(headers or {})}
    return Response(body, media_type="application/json", headers=more)
