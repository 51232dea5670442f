"""Our own routes: health, and what the page's tabs need beside the routes of the dialects."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response
from pydantic import Field
from torch import Tensor

from ...inference.steps import TextRows
from ..probing.config import WordConfig
from ..probing.model import StateSteps
from ..probing.similarity import compare_word
from .bodies import Body, Many
from .errors import shutting_down
from .limits import check_rows
from .routes import dialect, reply, service_of
from .service import Options

router = dialect("bertworks")
SENTENCES = 32  # of a word: every two are compared, in every layer
SHOWN = ("word", "pieces", "layers", "similarity", "baseline", "baseline_pairs")


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


class WordRequest(Body):
    """A word, and sentences that have it."""

    word: str = Field(min_length=1, max_length=200)
    sentences: Many[str] = Field(min_length=2, max_length=SENTENCES)
    beginning: bool = False  # also find longer words that begin with it, as a Korean noun with its particle
    model: str | None = None


@router.post("/compare-word")
async def compare(body: WordRequest, request: Request) -> Response:
    """Cosines of a word's vectors in every two of S sentences, by layer: how far they move with the sentence.

    word, its subwords (`pieces`), `layers` (the static vector, the embeddings, every layer), `similarity` of each layer
    (S, S), and `baseline` of each layer: the mean of `baseline_pairs` random pairs of different words.
    """
    service = service_of(request)
    steps = service.find(body.model, "states").steps_of("states")
    assert isinstance(steps, StateSteps)

    def decode(rows: TextRows, scores: Tensor) -> Sequence[Any]:
        states = steps.states(rows.inputs, scores)
        return [compare_word(steps.model, body.word, body.sentences, WordConfig(beginning=body.beginning), (), states)]

    options = Options(body.model, truncate=False, decode=decode)  # the words of a cut sentence have no vectors
    answers = await service.run(request, "states", body.sentences, options)
    found = answers.results[0]
    return reply({name: found[name] for name in SHOWN} | {"tokens": answers.tokens}, answers)


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
