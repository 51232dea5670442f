"""Documents ranked by their relevance to a query, in the form that Cohere's and Jina's clients know.

A model of pairs reads the query and a document together (a cross-encoder). Its relevance score is a probability: the
sigmoid of its only output, or the probability of the label that means "relevant" (RELEVANT). Labels 0, 1, ... n with n
of 2 or more are grades: the score is their expectation, divided by n.

An embedder without a classifier reads the query and each document on its own. Its score is the cosine of their vectors.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from fastapi import Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from ...inference.steps import EmbeddingRows, HeadSteps
from .bodies import Body, Count, Many
from .embedding import EmbeddingInput
from .errors import Refusal
from .limits import check_once, check_rows
from .models import ServedModel
from .routes import dialect, reply, service_of
from .service import Answers, Options, Service
from .vectors import cosines, embedder_of

router = dialect("Cohere and Jina")

FIELDS = 100  # names in rank_fields

# names of the label that means "relevant", if a model has two labels or more; SECOND: if it has exactly two
RELEVANT = ("true", "yes", "relevant", "entailment", "equivalent", "duplicate")
SECOND = ("1", "label_1")


class RerankRequest(Body):
    """A query, and the documents to rank."""

    query: str
    documents: Many[str | dict[str, Any]]
    model: str | None = None
    top_n: Count | None = None
    return_documents: bool = False
    rank_fields: Many[str] = Field(default_factory=lambda: ["text"], max_length=FIELDS)
    truncate: bool | None = None  # not of Cohere or Jina: cut what is too long


class Document(BaseModel):
    """A document of the request."""

    text: str


class Ranked(BaseModel):
    """A document's number in the request, and its relevance: from 0 to 1, of an embedder the cosine from -1 to 1."""

    index: int
    relevance_score: float
    document: Document | None = None


class RerankResponse(BaseModel):
    """The documents, the most relevant first."""

    id: str
    model: str
    results: list[Ranked]
    meta: dict[str, Any]
    usage: dict[str, int]


@router.post("/v1/rerank", response_model=RerankResponse)
@router.post("/v2/rerank", response_model=RerankResponse)
async def rerank(body: RerankRequest, request: Request) -> Response:
    """The documents by their relevance to the query, the most relevant first."""
    service = service_of(request)
    model = ranker_of(service, body.model)
    check_rows(body.documents)
    check_once(body.rank_fields, "rank_fields")  # so that the joined texts are no longer than the body
    texts = [text_of(document, body.rank_fields, i) for i, document in enumerate(body.documents)]
    answers = await scored(request, model, body.query, texts, How(body.truncate))
    results = ranked(answers.results, texts if body.return_documents else None)[: body.top_n]
    version = request.url.path.split("/")[1].removeprefix("v")
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}}
    content = {"id": str(uuid.uuid4()), "model": model.name, "results": results, "meta": meta}
    return reply(content | {"usage": {"total_tokens": answers.tokens}}, answers)


def text_of(document: str | dict[str, Any], fields: Sequence[str], number: int) -> str:
    """The text of a document. Raises Refusal (422) if it has none of the fields."""
    if isinstance(document, str):
        return document
    found = [document[name] for name in fields if isinstance(document.get(name), str)]
    if not found:
        expected = ", ".join(fields) or "text"
        raise Refusal(422, f"documents.{number} has no text in {expected[:200]}; expected a text, or an object with it")
    return "\n".join(found)


# ---- by which model


def ranker_of(service: Service, name: str | None) -> ServedModel:
    """The model of this name; without one the first model of pairs that ranks, or else the first embedder.

    If there is neither, a classifier that may read single texts ranks. If none ranks, one of the models is returned,
    and `scored` refuses it. Raises Refusal (404) for an unknown name.
    """
    model = service.find(name, "classify", lambda one: ranks(one) and not may_read_single(one))
    if ranks(model) and not may_read_single(model):
        return model
    embedder = service.find(name, "embed")
    return embedder if embedder.compares else service.find(name, "classify", ranks)


def relevant_outputs(model: ServedModel) -> NDArray[np.float64] | None:
    """(K,) how much each output says "relevant"; None if no label does."""
    return weights_of(model.predictor.loaded.labels, model.predictor.kind == "multilabel")


def may_read_single(model: ServedModel) -> bool:
    """Whether a model was fine-tuned on single texts, or is of other software and has several outputs."""
    loaded = model.predictor.loaded
    return model.reads_single or (loaded.kind == "single" and len(loaded.labels) > 1)


def ranks(model: ServedModel) -> bool:
    """Whether a model can rank pairs by its classifier."""
    return "classify" in model.steps and not model.reads_single and relevant_outputs(model) is not None


def described(model: ServedModel) -> dict[str, Any]:
    """What clients may know of a model, with `reranks`: whether it answers the routes that rank."""
    return model.info | {"reranks": ranks(model) or model.compares}


# ---- scores


@dataclass(frozen=True)
class How:
    """How a query and its texts are scored."""

    truncate: bool | None = None  # cut what is too long; none: as the server was started
    left: bool = False  # whether what is too long is cut at its beginning instead of its end
    raw: bool = False  # scores before sigmoid or softmax; grades and cosines have none


async def scored(request: Request, model: ServedModel, query: str, texts: Sequence[str], how: How) -> Answers:
    """The relevance of each text. Raises Refusal as `Service.run` does, and 424 if the model does not rank."""
    service = service_of(request)
    if model.compares:
        asked = EmbeddingInput(left=how.left)

        def prepare(rows: Any) -> EmbeddingRows:
            return asked.prepare(embedder_of(model), model.prompts, [*rows[0], *rows[1:]])

        # the query is no row of its own: as many texts are taken as of a model of pairs
        rows: list[Any] = [(query, text) if i == 0 else text for i, text in enumerate(texts)]
        return await service.run(request, "embed", rows, Options(model.name, how.truncate, prepare, compared))
    decode, steps = relevance(model, how.raw), cast(HeadSteps[Any], model.steps_of("classify"))
    options = Options(model.name, how.truncate, lambda rows: steps.prepare(rows, how.left), decode)
    return await service.run(request, "classify", [(query, text) for text in texts], options)


class Relevance(NamedTuple):
    """How relevant a text is to the query."""

    score: float
    order: float  # texts are ranked by it: it differs where scores are equal by rounding


def relevance(model: ServedModel, raw: bool = False) -> Callable[[Any, Tensor], list[Relevance]]:
    """Returns the relevance of each pair from prepared rows and their scores (`Options.decode`).

    raw: the score before sigmoid or softmax; grades have none. Raises Refusal if the model ranks no pairs.
    """
    if "classify" not in model.steps:
        raise Refusal(
            424,
            f"the model {model.name!r} cannot rank: it has no classifier, and it was not trained as an embedder; "
            "fine-tune it on pairs, or with --kind embedding, or serve a sentence-transformers folder; "
            f"it can: {', '.join(model.abilities)}",
        )
    labels, weights, single = model.predictor.loaded.labels, relevant_outputs(model), model.reads_single
    if single or weights is None:
        found = "reads single texts" if single else f"has the labels {', '.join(labels)[:200]}"
        raise Refusal(
            424,
            f"the model {model.name!r} {found}; ranking needs a model of pairs with one output, with a label named "
            f"{', '.join(RELEVANT)} (of two labels also {', '.join(SECOND)}), or with the grades 0, 1, ... n",
        )
    apart = len(labels) == 1 or model.predictor.kind == "multilabel"  # each output is a probability of its own
    graded = np.count_nonzero(weights) > 1

    def decode(rows: Any, scores: Tensor) -> list[Relevance]:  # a pair is one sequence
        odds = log_odds(scores.double(), torch.from_numpy(weights), apart)
        values = scores.double() @ torch.from_numpy(weights) if raw and not graded else odds.sigmoid()
        return [Relevance(*pair) for pair in zip(values.tolist(), odds.tolist(), strict=True)]

    return decode


def log_odds(scores: Tensor, weights: Tensor, apart: bool) -> Tensor:
    """(N,) log-odds of the relevance of each pair, by (N, K) scores: unlike relevances they are not rounded to 0 or 1.

    weights (K,): how relevant a pair of each label is, 0 to 1. apart: each output is a probability of its own.
    """
    if apart:
        return scores @ weights
    return (scores + weights.log()).logsumexp(-1) - (scores + (1 - weights).log()).logsumexp(-1)


def compared(rows: Any, scores: Tensor) -> list[Relevance]:
    """The cosine of each text's vector and the query's, which is the first (`Options.decode`)."""
    return [Relevance(one, one) for one in cosines(scores)]


def weights_of(labels: Sequence[str], multilabel: bool) -> NDArray[np.float64] | None:
    """(K,) how relevant a pair of each label is, 0 to 1; None if the labels do not say it."""
    names = [name.strip().lower() for name in labels]
    if len(names) == 1:
        return np.ones(1)
    if len(names) > 2 and not multilabel and sorted(names) == sorted(map(str, range(len(names)))):
        return np.array([int(name) for name in names]) / (len(names) - 1)
    meant = RELEVANT + (SECOND if len(names) == 2 else ())
    number = next((i for i, name in enumerate(names) if name in meant), None)
    return None if number is None else np.eye(len(names))[number]


def ranked(found: Sequence[Relevance], texts: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The documents by falling relevance; equal ones stay in their order."""
    order = sorted(range(len(found)), key=lambda i: -found[i].order)
    results: list[dict[str, Any]] = [{"index": i, "relevance_score": found[i].score} for i in order]
    return results if texts is None else [row | {"document": {"text": texts[row["index"]]}} for row in results]
