"""Our own routes: what the dialects do not have."""

from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field

from .bodies import Body, Many
from .limits import check_rows
from .routes import check_ready, dialect, reply, service_of
from .service import Options

router = dialect("bertworks")


class ChooseRequest(Body):
    """A text, and what may follow it."""

    text: str
    choices: Many[str] = Field(min_length=1)
    model: str | None = None
    truncate: bool | None = None


class Chosen(BaseModel):
    """The choice that fits best."""

    choice: int
    text: str
    score: float
    scores: list[float]
    tokens: int
    cut: int


@router.post("/choose", response_model=Chosen)
async def choose(body: ChooseRequest, request: Request) -> Response:
    """The choice that fits the text, and the probabilities of all."""
    check_rows(body.choices)
    options = Options(model=body.model, truncate=body.truncate)
    answers = await service_of(request).run(request, "choose", [(body.text, body.choices)], options)
    return reply(answers.results[0], answers)


@router.get("/health")
@router.get("/ping", include_in_schema=False)
@router.get("/v2/health/ready", include_in_schema=False)
async def health(request: Request) -> Response:
    """200 while requests are answered, 503 while shutting down."""
    check_ready(request)
    return reply({"status": "ready"})


@router.get("/v2/health/live", include_in_schema=False)
async def live() -> Response:
    """200 while the process answers."""
    return reply({"status": "live"})


@router.get("/load")
async def load(request: Request) -> dict[str, Any]:
    """What is going on: the queue, and the times of the last 1,000 requests."""
    return service_of(request).load
