"""Routes that read one text or a pair: `/predict` of text-embeddings-inference, and our own.

`/choose`, `/next-sentence` and `/explain` are what the page's tabs need beside the routes that other clients have.
"""

from typing import Annotated, Any, cast

from fastapi import Request, Response
from pydantic import Field
from torch import Tensor

from ...inference.steps import HeadSteps
from .errors import HTTPError
from .rerank import may_read_single
from .routes import FailFastList, ModelRequest, TruncationRequest, api_router, reply, service_of
from .service import Answers, Options, check_rows

router = api_router("texts")

# ---- labels

Single = Annotated[FailFastList[str], Field(min_length=1, max_length=2)]  # a text or a pair, of a batch


class PredictRequest(TruncationRequest):
    """A text, a pair, or a batch of lists of one or two texts."""

    inputs: str | FailFastList[str] | FailFastList[Single]
    raw_scores: bool = False


@router.post("/predict")
async def predict(body: PredictRequest, request: Request) -> Response:
    """All labels with their scores, best first: a list for a text or a pair, lists for a batch.

    Single texts of any length are read in windows, whose probabilities are averaged.
    """
    flat = isinstance(body.inputs, str) or any(isinstance(one, str) for one in body.inputs)
    batch: Any = [[body.inputs] if isinstance(body.inputs, str) else body.inputs] if flat else body.inputs
    service = service_of(request)
    model = service.find(body.model, "classify")
    single = may_read_single(model) or model.predictor.kind == "multilabel"
    if flat and len(batch[0]) > (1 if single else 2):
        expected = "one text" if single else "a text or a pair"
        message = f'a flat list of {len(batch[0])} texts; this model reads {expected}; write a batch as [["a"],["b"]]'
        raise HTTPError(422, message, param="inputs")
    rows = [(row[0], row[1] if len(row) == 2 else None) for row in batch]
    steps = cast(HeadSteps[Any], model.steps_of("classify"))

    def decode(prepared: Any, scores: Tensor) -> Any:
        return prepared.best_first(scores, body.raw_scores)

    options = Options(model.name, body.truncate, lambda rows: steps.prepare(rows, body.left), decode)
    answers = await service.run(request, "classify", rows, options)
    labels = [[{"label": label, "score": score} for label, score in row] for row in answers.results]
    return reply(labels[0] if flat else labels, answers)


# ---- our own


async def _answered(request: Request, step: str, body: ModelRequest, row: Any) -> Answers:
    """The answer to one row."""
    return await service_of(request).run(request, step, [row], Options(body.model, body.truncate))


class ChooseRequest(ModelRequest):
    """A text, and what may follow it."""

    text: str
    choices: FailFastList[str] = Field(min_length=1)


@router.post("/choose")
async def choose(body: ChooseRequest, request: Request) -> Response:
    """The choice that fits the text, and the probabilities of all: {choice, text, score, scores, tokens, cut}."""
    check_rows(body.choices)
    answers = await _answered(request, "choose", body, (body.text, body.choices))
    return reply(answers.results[0], answers)


class PairRequest(ModelRequest):
    """Two sentences."""

    a: str
    b: str


@router.post("/next-sentence")
async def next_sentence(body: PairRequest, request: Request) -> Response:
    """Does B follow A? {follows, score, tokens, cut}; score: the probability of it, by the next-sentence head."""
    answers = await _answered(request, "next_sentence", body, (body.a, body.b))
    return reply(answers.results[0], answers)


class ExplainRequest(ModelRequest):
    """A sentence, and maybe a second one."""

    a: str
    b: str | None = None


@router.post("/explain")
async def explained(body: ExplainRequest, request: Request) -> Response:
    """Everything that the model computes on a sentence or two, as `bertworks probe explain` draws it."""
    answers = await _answered(request, "explain", body, (body.a, body.b))
    return reply(answers.results[0] | {"model": answers.model.name}, answers)
