"""The routes `/classify` and `/score` of vLLM."""

import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel
from torch import Tensor

from ...tasks.calibration import probabilities
from ...tasks.classification import ClassRows
from .bodies import Body, Many
from .errors import Refusal
from .rerank import How, ranker_of, scored
from .routes import dialect, reply, service_of
from .service import Answers, Options

router = dialect("vLLM")


class ClassifyRequest(Body):
    """Texts to classify."""

    input: str | Many[str]
    model: str | None = None
    truncate: bool | None = None  # not of vLLM: cut what is too long


class ScoreRequest(Body):
    """Texts to compare: one with one, one with each of several, or as many pairs as there are."""

    text_1: str | Many[str]
    text_2: str | Many[str]
    model: str | None = None
    truncate: bool | None = None  # not of vLLM: cut what is too long


class Listed(BaseModel):
    """A result for each input, in their order.

    /classify: index, label, probs (of all labels, in the model's order), num_classes. /score: index, object, score.
    """

    id: str
    object: str
    created: int
    model: str
    data: list[dict[str, Any]]
    usage: dict[str, int]


@router.post("/classify", response_model=Listed)
async def classify(body: ClassifyRequest, request: Request) -> Response:
    """The label of each text as Predictor gives it (several labels by their thresholds), and all probabilities."""
    service = service_of(request)
    model = service.find(body.model, "classify")

    def decode(rows: ClassRows, scores: Tensor) -> Sequence[Any]:
        best = [one["label"] for one in rows.decode(scores, model.predictor.loaded.settings)]
        every = rows.windows.mean(probabilities(scores, rows.task.kind).numpy()).tolist()  # in the order of the labels
        return [{"label": label, "probs": row, "num_classes": len(row)} for label, row in zip(best, every, strict=True)]

    texts = [body.input] if isinstance(body.input, str) else body.input
    options = Options(model.name, body.truncate, decode=decode)
    answers = await service.run(request, "classify", [(text, None) for text in texts], options)
    data = [{"index": i} | one for i, one in enumerate(answers.results)]
    return reply(listed("classify", data, answers), answers)


@router.post("/score", response_model=Listed)
@router.post("/v1/score", response_model=Listed, include_in_schema=False)
async def score(body: ScoreRequest, request: Request) -> Response:
    """The relevance of each text to the other, by a model of pairs or an embedder, as `/rerank` gives it."""
    first, second = ([one] if isinstance(one, str) else one for one in (body.text_1, body.text_2))
    if len(first) not in (1, len(second)):
        message = (
            f"{len(first)} texts in text_1 and {len(second)} in text_2; expected one in text_1, or as many in both"
        )
        raise Refusal(422, message, param="text_1", error_type="Validation")
    answers = await scored(request, ranker_of(service_of(request), body.model), first, second, How(body.truncate))
    data = [{"index": i, "object": "score", "score": one.score} for i, one in enumerate(answers.results)]
    return reply(listed("score", data, answers), answers)


def listed(kind: str, data: Sequence[Any], answers: Answers) -> dict[str, Any]:
    """The results in vLLM's form."""
    head = {"id": f"{kind}-{uuid.uuid4().hex}", "object": "list", "created": int(time.time())}
    usage = {"prompt_tokens": answers.tokens, "total_tokens": answers.tokens}
    return head | {"model": answers.model.name, "data": data, "usage": usage}
