"""`create_app`: all routes in one FastAPI application.

How a file of routes plugs in: it is a file of this package with

    router = api_router("name")                     # routes.py

    class Question(ModelRequest): ...               # pydantic: the fields of the body

    @router.post("/route")
    async def route(body: Question, request: Request) -> Response:
        service = service_of(request)
        answers = await service.run(request, "embed", body.texts, Options(model=body.model, truncate=body.truncate))
        return reply(answers.results, answers)      # JSON, and the headers of what was computed

and its router in ROUTERS below. Steps and their rows: models.py. `Options.decode` gets the prepared rows and their
scores where the default is not enough. Errors are raised as `HTTPError(status, message)`; errors.body_of gives them the
form of the path. Everything else (limits, key, body, truncation, metrics) is done before or inside `run`.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ..._version import __version__
from . import huggingface, page, rerank, status, texts, vectors
from .config import ServeConfig
from .errors import HTTPError
from .guard import Guard
from .models import ServedModel
from .routes import fault_of
from .service import ClientLeft, Service

ROUTERS: tuple[APIRouter, ...] = (
    vectors.router,
    texts.router,
    rerank.router,
    huggingface.router,
    status.router,
    page.router,
)


READABLE = ("retry-after", "x-compute-tokens", "x-truncated-tokens")  # headers, for pages elsewhere


def create_app(
    models: dict[str, ServedModel], config: ServeConfig | None = None, keys: Sequence[str] | None = None
) -> FastAPI:
    """The application of some loaded models, by name. keys: of which requests must have one; none: no key is needed.

    `app.state.service` is the service behind it.
    """
    config = config or ServeConfig()
    app = FastAPI(title="bertworks", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service = Service(models, config)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(Guard, config=config, service=service, keys=keys or ())
    if origins := config.allow_origin:
        cors: dict[str, Any] = {"allow_origins": origins, "allow_headers": ["*"], "expose_headers": READABLE}
        app.add_middleware(CORSMiddleware, allow_methods=["GET", "POST"], **cors)
    app.add_exception_handler(RequestValidationError, _wrong_form)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(ClientLeft, _left)
    return app


async def _wrong_form(request: Request, error: Any) -> Response:
    """A body that is no JSON, or whose fields have another form; the message repeats no text of the request."""
    errors = error.errors()
    if errors[0]["type"] == "json_invalid":
        raise HTTPError(400, f"the body is no JSON (character {errors[0]['loc'][-1]}); send a JSON object in UTF-8")
    where, message = fault_of(errors, error.body)
    raise HTTPError(422, f"{message}; GET /openapi.json describes the fields", param=where)


async def _no_route(request: Request, error: Any) -> Response:
    """An unknown path, or another method than the route's."""
    if error.status_code not in (404, 405):
        raise HTTPError(error.status_code, str(error.detail))
    shown = f"{request.method} {request.url.path[:80]}"
    allowed = (error.headers or {}).get("Allow")
    use = f"use {allowed}; " if allowed else ""
    raise HTTPError(error.status_code, f"no route {shown}; {use}GET /openapi.json lists them", error.headers)


async def _left(request: Request, error: Exception) -> Response:
    """Nobody reads this answer; 499 is what nginx logs for it."""
    return Response(status_code=499)
