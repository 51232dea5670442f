"""Routes of text-embeddings-inference, by its names and forms (its docs/openapi.json).

All take `model` beside TEI's own fields, for servers with several folders. `truncate`: null is what the server was
started with (`--auto-truncate`).
"""

from collections.abc import Sequence
from typing import Annotated, Any, cast

import numpy as np
from fastapi import Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field, StrictInt
from torch import Tensor

from ..._version import __version__
from ...inference.steps import HeadSteps
from ...tokenizer import Composed, Encoding, compose
from .bodies import Body, Direction, Many
from .embedding import EmbeddingInput, decoder, rows_of
from .errors import Refusal
from .limits import check_rows, check_size
from .rerank import described, may_read_single
from .routes import dialect, reply, service_of
from .service import Answers, Options

router = dialect("text-embeddings-inference")

TokenIds = Many[StrictInt]
Input = str | TokenIds | Many[str | TokenIds]


class Truncation(Body):
    """What happens to inputs that are too long."""

    truncate: bool | None = None
    truncation_direction: Direction = "Right"


class EmbedAllRequest(Truncation):
    """Texts, or the ids of their tokens."""

    inputs: Input = Field(examples=["What is deep learning?"])
    prompt_name: str | None = None
    model: str | None = None


class EmbedRequest(EmbedAllRequest):
    """Texts to embed."""

    normalize: bool = True
    dimensions: StrictInt | None = None


Single = Annotated[Many[str], Field(min_length=1, max_length=2)]  # a text or a pair, of a batch


class PredictRequest(Truncation):
    """A text, a pair, or a batch of lists of one or two texts."""

    inputs: str | Many[str] | Many[Single]
    raw_scores: bool = False
    model: str | None = None


class TokenizeRequest(Body):
    """Texts to tokenize."""

    inputs: str | Many[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


# ---- vectors


async def _embedded(request: Request, step: str, body: EmbedAllRequest, make: Any) -> Answers:
    """The answers of one of the steps that embed. make: gives the decoder of a model."""
    service = service_of(request)
    model = service.find(body.model, step)
    how = EmbeddingInput(body.prompt_name, body.truncation_direction == "Left")

    def prepare(rows: Any) -> Any:
        return how.prepare(model.embedder, model.prompts, rows)

    options = Options(model.name, body.truncate, prepare, make(model))
    return await service.run(request, step, rows_of(body.inputs), options)


@router.post("/embed")
async def embed(body: EmbedRequest, request: Request) -> Response:
    """A vector for each text, of length 1 unless `normalize` is false; `dimensions` keeps the first of its values."""
    answers = await _embedded(
        request, "embed", body, lambda model: decoder(model.embedder, body.normalize, body.dimensions)
    )
    return reply(answers.results, answers)


# ---- labels


@router.post("/predict")
async def predict(body: PredictRequest, request: Request) -> Response:
    """All labels with their scores, best first: a list for a text or a pair, lists for a batch.

    Single texts of any length are read in windows, whose probabilities are averaged.
    """
    flat = isinstance(body.inputs, str) or any(isinstance(one, str) for one in body.inputs)
    batch: Any = [[body.inputs] if isinstance(body.inputs, str) else body.inputs] if flat else body.inputs
    service = service_of(request)
    model = service.find(body.model, "classify")
    if flat:
        _check_flat(batch[0], may_read_single(model) or model.predictor.kind == "multilabel")
    rows = [(row[0], row[1] if len(row) == 2 else None) for row in batch]

    def decode(rows: Any, scores: Tensor) -> Any:
        return rows.best_first(scores, body.raw_scores)

    steps = cast(HeadSteps[Any], model.steps_of("classify"))
    options = Options(
        model.name, body.truncate, lambda rows: steps.prepare(rows, body.truncation_direction == "Left"), decode
    )
    answers = await service.run(request, "classify", rows, options)
    labels = [[{"label": label, "score": score} for label, score in row] for row in answers.results]
    return reply(labels[0] if flat else labels, answers)


def _check_flat(texts: Sequence[str], single: bool) -> None:
    """A flat list is one text or one pair. Raises Refusal (422) for more, and for a pair if it reads `single` texts."""
    most = 1 if single else 2
    if len(texts) > most:
        expected = "one text" if most == 1 else "a text or a pair"
        message = f'a flat list of {len(texts)} texts; this model reads {expected}; write a batch as [["a"],["b"]]'
        raise Refusal(422, message, param="inputs", error_type="Validation")


# ---- tokens


@router.post("/tokenize")
async def tokenize(body: TokenizeRequest, request: Request) -> Response:
    """The tokens of each text; `start` and `stop` count characters of the text with its prompt."""
    service = service_of(request)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    check_rows(texts)
    check_size(len(texts), service.config.max_tokens, "at least ")
    model = service.find(body.model, "embed")
    prompt = EmbeddingInput(body.prompt_name).prompt(model.embedder.pooling, model.prompts)
    tokenizer, most = model.predictor.tokenizer, service.config.max_tokens

    def work() -> list[list[dict[str, Any]]]:
        full = [prompt + text for text in texts]
        composed = [compose(text) for text in full]
        encoded = [tokenizer.encode(one.text) for one in composed]
        check_size(sum(len(one.ids) for one in encoded), most)
        return [_tokens(*each, body.add_special_tokens) for each in zip(full, composed, encoded, strict=True)]

    return reply(await service.in_pool(work))


def _tokens(text: str, composed: Composed, encoding: Encoding, specials: bool) -> list[dict[str, Any]]:
    """The tokens of a text as TEI writes them."""
    spans = composed.spans(np.array(encoding.offsets)).tolist()
    cells = list(zip(encoding.ids, encoding.tokens, spans, strict=True))
    around = [{"id": i, "text": token, "special": True, "start": None, "stop": None} for i, token, _ in cells]
    inner = [{"id": i, "text": text[a:b], "special": False, "start": a, "stop": b} for i, _, (a, b) in cells[1:-1]]
    return [around[0], *inner, around[-1]] if specials else inner


# ---- the server


@router.get("/info")
async def info(request: Request) -> dict[str, Any]:
    """The loaded models, and the limits of the server."""
    service = service_of(request)
    first, config = next(iter(service.models.values())), service.config
    labels = {str(i): label for i, label in enumerate(first.predictor.loaded.labels)}
    kinds: dict[str, Any] = {}
    if "embed" in first.steps:  # an exported classifier cannot
        kinds = {"embedding": {"pooling": first.embedder.pooling.mode}}
    if "classify" in first.steps:
        kind = {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
        kinds = {"reranker" if len(labels) == 1 else "classifier": kind}
    return {
        "model_id": first.name,
        "model_sha": None,
        "model_dtype": first.predictor.loaded.engine.precision,
        "model_type": kinds,
        "max_concurrent_requests": config.max_requests,
        "max_input_length": first.predictor.max_length,
        "max_batch_tokens": service.batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": max(1, config.max_tokens // first.predictor.max_length),  # of the longest inputs
        "auto_truncate": config.auto_truncate,
        "tokenization_workers": service.workers,
        "version": __version__,
        "models": [described(model) for model in service.models.values()],
    }


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    service = service_of(request)
    service.metrics.queue_size.set(service.queue.size)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
