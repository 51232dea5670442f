"""Texts ranked by their relevance to a query: `/rerank`, `/v1/rerank` and `/v2/rerank` are one route.

A body with `texts` is of text-embeddings-inference, and gets a list of {index, score, text}. A body with `documents` is
of Cohere, Jina or vLLM, and gets {id, model, results, usage} with {index, relevance_score, document}.

A model of pairs reads the query and a text together (a cross-encoder). Its relevance score is a probability: the
sigmoid of its only output, or the probability of the label that means "relevant" (RELEVANT). Labels 0, 1, ... n with n
of 2 or more are grades: the score is their expectation, divided by n.

An embedder without a classifier reads the query and each text on its own. Its score is the cosine of their vectors.

Shapes: N texts, K labels.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from fastapi import Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel
from torch import Tensor

from ...inference.steps import EmbeddingRows, HeadSteps
from .errors import HTTPError
from .models import ServedModel
from .routes import Count, FailFastList, TruncationRequest, api_router, reply, service_of
from .service import Answers, Options, Service, check_rows
from .vectors import Embedding, cosines

router = api_router("rerank")

# names of the label that means "relevant", if a model has two labels or more; SECOND: if it has exactly two
RELEVANT = ("true", "yes", "relevant", "entailment", "equivalent", "duplicate")
SECOND = ("1", "label_1")


class Document(BaseModel):
    """A document of the request; its other fields are ignored."""

    text: str


class RerankRequest(TruncationRequest):
    """A query, and what to rank: `texts` or `documents`."""

    query: str
    texts: FailFastList[str] | None = None
    documents: FailFastList[str | Document] | None = None
    top_n: Count | None = None
    return_text: bool = False
    return_documents: bool = False
    raw_scores: bool = False


@router.post("/rerank")
@router.post("/v1/rerank")
@router.post("/v2/rerank")
async def rerank(body: RerankRequest, request: Request) -> Response:
    """The texts or documents by their relevance to the query, the most relevant first."""
    given = body.documents if body.texts is None else body.texts
    if given is None or (body.texts is not None and body.documents is not None):
        message = "expected either texts (as text-embeddings-inference) or documents (as Cohere, Jina and vLLM)"
        raise HTTPError(422, message, param="documents")
    check_rows([body.query])
    texts = [one if isinstance(one, str) else one.text for one in given]
    check_rows(texts)
    answers = await scored(request, body, texts)
    relevances: Sequence[Relevance] = answers.results
    # by log-odds, because scores near 1 are equal by rounding; equal ones stay in their order
    order = sorted(range(len(texts)), key=lambda i: -relevances[i].order)[: body.top_n]
    if body.texts is not None:
        shown = [{"text": text} if body.return_text else {} for text in texts]
        return reply([{"index": i, "score": relevances[i].score} | shown[i] for i in order], answers)
    documents = [{"document": {"text": text}} if body.return_documents else {} for text in texts]
    results = [{"index": i, "relevance_score": relevances[i].score} | documents[i] for i in order]
    usage = {"total_tokens": answers.tokens}
    return reply({"id": str(uuid.uuid4()), "model": answers.model.name, "results": results, "usage": usage}, answers)


# ---- by which model


def ranker_of(service: Service, name: str | None) -> ServedModel:
    """The model of this name; without one the first model of pairs that ranks, or else the first embedder.

    If there is neither, a classifier that may read single texts ranks. If none ranks, one of the models is returned,
    which `scored` rejects. Raises HTTPError (404) for an unknown name.
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


async def scored(request: Request, body: RerankRequest, texts: Sequence[str]) -> Answers:
    """The relevance of each text to the query.

    Raises HTTPError as `Service.run` does, and 424 if the model does not rank.
    """
    service = service_of(request)
    model = ranker_of(service, body.model)
    if not model.compares:
        decode, steps = relevance(model, body.raw_scores), cast(HeadSteps[Any], model.steps_of("classify"))
        options = Options(model.name, body.truncate, lambda rows: steps.prepare(rows, body.left), decode)
        return await service.run(request, "classify", [(body.query, text) for text in texts], options)

    def prepare(rows: Sequence[Any]) -> EmbeddingRows:  # the query and the first text are one row
        return Embedding(left=body.left).prepare(model, [body.query, *texts])

    def decode_cosines(rows: Any, scores: Tensor) -> list[Relevance]:
        return [Relevance(value, value) for value in cosines(scores)]

    rows = [(body.query, texts[0]), *texts[1:]]
    return await service.run(request, "embed", rows, Options(model.name, body.truncate, prepare, decode_cosines))


class Relevance(NamedTuple):
    """How relevant a text is to the query."""

    score: float
    order: float  # texts are ranked by it: it differs where scores are equal by rounding


def relevance(model: ServedModel, raw: bool = False) -> Callable[[Any, Tensor], list[Relevance]]:
    """Returns the relevance of each pair from prepared rows and their scores (`Options.decode`).

    raw: the score before sigmoid or softmax; grades have none. Raises HTTPError if the model ranks no pairs.
    """
    if "classify" not in model.steps:
        raise HTTPError(
            424,
            f"the model {model.name!r} cannot rank: it has no classifier, and it was not trained as an embedder; "
            "fine-tune it on pairs, or with --kind embedding, or serve a sentence-transformers folder; "
            f"it can: {', '.join(model.abilities)}",
        )
    labels, weights, single = model.predictor.loaded.labels, relevant_outputs(model), model.reads_single
    if single or weights is None:
        reason = "reads single texts" if single else f"has the labels {', '.join(labels)[:200]}"
        raise HTTPError(
            424,
            f"the model {model.name!r} {reason}; ranking needs a model of pairs with one output, with a label named "
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
