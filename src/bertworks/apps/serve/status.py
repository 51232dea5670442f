"""Routes about the server: health, metrics, and its models in the forms of several clients and of the page."""

from typing import Any

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse

from ..._version import __version__
from ...tokenizer import Tokenizer
from .errors import HTTPError, shutting_down
from .rerank import described
from .routes import api_router, reply, service_of

router = api_router("server")
LANGUAGES = {  # a sentence, and the most tokens for a character of it in a vocabulary of that language
    "en": ("The teacher opened the window and read the letter.", 0.4),
    "ko": ("선생님은 창문을 열고 편지를 읽었다.", 0.9),
}


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


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    service = service_of(request)
    service.metrics.queue_size.set(service.queue.size)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/info")
async def info(request: Request) -> dict[str, Any]:
    """The loaded models, and the limits of the server, in the form of text-embeddings-inference."""
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


@router.get("/v1/models")
async def openai_models(request: Request) -> Response:
    """The folders that are served, as OpenAI lists models."""
    service = service_of(request)
    return reply({"object": "list", "data": [_openai(name, service.started) for name in service.models]})


@router.get("/v1/models/{name:path}")
async def openai_model(name: str, request: Request) -> Response:
    """One folder that is served."""
    service = service_of(request)
    if name not in service.models:
        raise HTTPError(404, f"no model {name[:80]!r}; loaded: {', '.join(service.models)}", param="model")
    return reply(_openai(name, service.started))


def _openai(name: str, started: float) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": int(started), "owned_by": "bertworks"}


@router.get("/models")
async def page_models(request: Request) -> Response:
    """What is loaded: name, task, labels, sizes, languages of the vocabulary, examples, and what each model can answer.

    `key`: whether the request had one, so that commands for other clients need one too.
    """
    models = [
        described(model) | {"languages": languages_of(model.predictor.tokenizer), "examples": model.examples}
        for model in service_of(request).models.values()
    ]
    return reply({"models": models, "key": "authorization" in request.headers})


def languages_of(tokenizer: Tokenizer) -> list[str]:
    """Which of LANGUAGES a vocabulary was made for: no unknown tokens, and few for each character."""
    languages = []
    for language, (text, most) in LANGUAGES.items():
        ids = tokenizer.encode(text).ids[1:-1]
        if tokenizer.unk_id not in ids and len(ids) <= most * len(text):
            languages.append(language)
    return languages
