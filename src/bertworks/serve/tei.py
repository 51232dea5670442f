"""Routes of text-embeddings-inference, by its names."""

from dataclasses import replace
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel

from .routes import dialect, reply, service_of
from .service import Options

router = dialect("text-embeddings-inference")


class EmbedRequest(BaseModel):
    """Texts to embed."""

    inputs: str | list[str]
    model: str | None = None
    normalize: bool = True
    truncate: bool | None = None


@router.post("/embed", response_model=list[list[float]])
async def embed(body: EmbedRequest, request: Request) -> Response:
    """A vector for each text, of length 1 unless `normalize` is false."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs

    def decode(rows: Any, scores: Any) -> Any:
        return replace(rows, normalize=body.normalize).decode(scores)

    options = Options(model=body.model, truncate=body.truncate, decode=decode)
    answers = await service_of(request).run(request, "embed", texts, options)
    return reply(answers.results, answers)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    service = service_of(request)
    service.metrics.queue_size.set(service.queue.size)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
