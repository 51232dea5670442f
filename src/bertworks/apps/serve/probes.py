"""Our own routes that look inside an encoder: what the page's tabs draw."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field
from torch import Tensor

from ...inference.steps import TextRows
from ..probing.config import WordConfig
from ..probing.model import StateSteps
from ..probing.similarity import compare_word
from .bodies import Body, Many
from .routes import dialect, reply, service_of
from .service import Options

router = dialect("bertworks")
SENTENCES = 32  # of a word: every two are compared, in every layer
SHOWN = ("word", "pieces", "layers", "similarity", "baseline", "baseline_pairs")


class WordRequest(Body):
    """A word, and sentences that have it."""

    word: str = Field(min_length=1, max_length=200)
    sentences: Many[str] = Field(min_length=2, max_length=SENTENCES)
    beginning: bool = False  # also find longer words that begin with it, as a Korean noun with its particle
    model: str | None = None


class ComparedWord(BaseModel):
    """Cosines of a word's vectors in every two of S sentences."""

    word: str
    pieces: list[str]  # its subwords
    layers: list[str]  # the static vector, the embeddings, and every layer
    similarity: list[list[list[float]]]  # of each layer (S, S)
    baseline: list[float]  # of each layer: the mean over random pairs of different words
    baseline_pairs: int
    tokens: int


@router.post("/compare-word", response_model=ComparedWord)
async def compare(body: WordRequest, request: Request) -> Response:
    """How far the vector of a word moves with its sentence, layer by layer."""
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


class Followed(BaseModel):
    """Whether B follows A."""

    follows: bool
    score: float  # the probability that B follows A
    tokens: int
    cut: int


@router.post("/next-sentence", response_model=Followed)
async def next_sentence(body: PairRequest, request: Request) -> Response:
    """Does B follow A? The probability of it, by the next-sentence head."""
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
