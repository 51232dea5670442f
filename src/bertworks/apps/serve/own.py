"""Our own routes: health, and what the page's tabs need beside the routes of the dialects."""

from fastapi import Request, Response
from pydantic import Field

from .bodies import Body, Many
from .errors import shutting_down
from .limits import check_rows
from .routes import dialect, reply, service_of
from .service import Options

router = dialect("bertworks")


@router.get("/health")
@router.get("/ping", include_in_schema=False)
@router.get("/v2/health/ready", include_in_schema=False)
async def health(request: Request) -> Response:
    """200 while requests are answered, 503 while shutting down."""
    service = service_of(request)
    if service.draining or not service.queue.alive:
        raise shutting_down()
    return reply({"status": "ready"})


@router.get("/v2/health/live", include_in_schema=False)
async def live() -> Response:
    """200 while the process answers."""
    return reply({"status": "live"})


class ChooseRequest(Body):
    """A text, and what may follow it."""

    text: str
    choices: Many[str] = Field(min_length=1)
    model: str | None = None
    truncate: bool | None = None


@router.post("/choose")
async def choose(body: ChooseRequest, request: Request) -> Response:
    """The choice that fits the text, and the probabilities of all: {choice, text, score, scores, tokens, cut}."""
    check_rows(body.choices)
    options = Options(model=body.model, truncate=body.truncate)
    answers = await service_of(request).run(request, "choose", [(body.text, body.choices)], options)
    return reply(answers.results[0], answers)


class PairRequest(Body):
    """Two sentences."""

    a: str
    b: str
    model: str | None = None
    truncate: bool | None = None


@router.post("/next-sentence")
async def next_sentence(body: PairRequest, request: Request) -> Response:
    """Does B follow A? {follows, score, tokens, cut}; score: the probability of it, by the next-sentence head."""
    options = Options(body.model, body.truncate)
    answers = await service_of(request).run(request, "next_sentence", [(body.a, body.b)], options)
    return reply(answers.results[0], answers)


class ExplainRequest(Body):
    """A sentence, and maybe a second one."""

    a: str
    b: str | None = None
    model: str | None = None
    truncate: bool | None = None


@router.post("/explain")
async def explained(body: ExplainRequest, request: Request) -> Response:
    """Everything that the model computes on a sentence or two, as `bertworks probe explain` draws it."""
    options = Options(body.model, body.truncate)
    answers = await service_of(request).run(request, "explain", [(body.a, body.b)], options)
    return reply(answers.results[0] | {"model": answers.model.name}, answers)
